FIXED: int
LONG: int
INT: int
STRING: int
BYTES: int
BOOLEAN: int
FLOAT: int
DOUBLE: int

Buffers = tuple[bytes | None, int, bytes | None, bytes]

def decode_columns(
    payloads: list[bytes], prefix: bytes, program: list[tuple[int, int, int, int, int, int]]
) -> tuple[int, list[Buffers], list[int]]: ...
