"""Types of the compiled half of `consumer.spark.rows`."""

Headers = tuple[bytes, bytes, int, bytes, list[bytes | None]]

def rows_of(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    prefix_bytes: int,
    with_headers: bool,
    with_payloads: bool,
) -> tuple[int, bytes, bytes, Headers | None, tuple[bytes, bytes] | None] | None: ...
