"""Sets that unpack to a thousand times their size, and the memory that it takes to read them."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from kafka2011.protocol import message_set
from kafka2011.protocol.message_set import Codec

BOMB_BYTES = 6_000_000  # of the one payload in each wrapper
BOMBS_COUNT = 16
# One piece, and what unpacking one more wrapper takes: far below the 96 MB of all.
PEAK_BYTES_MAX = 50_000_000


def bombs() -> bytes:
    """A set of 16 wrappers of 6 KB with a payload of 6 MB each."""
    return message_set.encode_compressed([b"x" * BOMB_BYTES], Codec.GZIP) * BOMBS_COUNT


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Fails where Python objects take more than PEAK_BYTES_MAX at a time."""
    tracemalloc.start()
    try:
        yield
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes <= PEAK_BYTES_MAX
