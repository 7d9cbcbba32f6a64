"""The compiled twin's own CRC-32 against zlib's: every length, many alignments, both ways."""

import random
import zlib
from types import ModuleType

from kafka2011.protocol import checksum

BYTES = random.Random(2011).randbytes(2100)


def test_every_length_up_to_2000_and_short_ones_at_all_alignments(compiled: ModuleType) -> None:
    cases = [(size, size % 16 if size % 3 else (size * 7) % 64) for size in range(2001)]
    cases += [(size, start) for size in range(130) for start in range(64)]
    for size, start in cases:
        data = BYTES[: start + size]
        expected = zlib.crc32(data[start:])
        assert compiled.crc32(data, start) == expected, (start, size)
        assert compiled.crc32_by_tables(data, start) == expected, (start, size)


def test_large_and_regular_data(compiled: ModuleType) -> None:
    for data in (bytes(1_000_003), b"\xff" * 1_000_003, BYTES * 500):
        assert compiled.crc32(data) == zlib.crc32(data) == compiled.crc32_by_tables(data)


def test_every_single_bit_of_200_bytes_counts(compiled: ModuleType) -> None:
    for bit in range(1600):
        changed = bytearray(BYTES[:200])
        changed[bit // 8] ^= 1 << bit % 8
        assert compiled.crc32(changed) == zlib.crc32(changed) != zlib.crc32(BYTES[:200])


def test_the_python_sides_crc_is_zlibs() -> None:
    for size in (0, 1, 15, 16, 200, 2000):
        assert checksum.crc32(BYTES[:size]) == zlib.crc32(BYTES[:size])
        assert checksum.crc32(memoryview(BYTES)[:size]) == zlib.crc32(BYTES[:size])
