"""The JVM's packed forms, and ceilings that hold before memory is spent."""

import gzip
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest

from kafka2011.protocol.compression import Codec, DecompressionBudget, compress, decompress
from kafka2011.protocol.errors import DecompressedSizeTooLarge, InvalidMessage, LocalProtocolError

BOTH = [Codec.GZIP, Codec.SNAPPY]
MIB = 1024 * 1024


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", BOTH)
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 100_000])
def test_what_is_packed_unpacks(codec: Codec, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert decompress(codec, compress(codec, data), size) == data
    assert decompress(codec, memoryview(compress(codec, data)), size) == data
    zeros = bytes(size)
    assert decompress(codec, compress(codec, zeros), size) == zeros


def test_no_codec_keeps_the_bytes_and_unknown_ones_are_refused() -> None:
    assert compress(Codec.NONE, b"x") == b"x"
    with pytest.raises(LocalProtocolError):
        compress(3, b"x")
    for codec in (0, 3):
        with pytest.raises(InvalidMessage):
            decompress(codec, b"x", 10)


def test_gzip_has_the_header_of_the_jvm() -> None:
    packed = compress(Codec.GZIP, b"hello")
    assert packed[:10] == bytes.fromhex("1f8b0800000000000000")
    assert gzip.decompress(packed) == b"hello"


def test_snappy_is_framed_in_blocks_of_32768() -> None:
    packed = compress(Codec.SNAPPY, bytes(70_000))
    assert packed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    sizes, position = [], 16
    while position < len(packed):
        length = int.from_bytes(packed[position : position + 4], "big")
        block = packed[position + 4 : position + 4 + length]
        sizes.append(cramjam.snappy.decompress_raw_len(block))
        position += 4 + length
    assert sizes == [32768, 32768, 4464]


def test_any_legal_gzip_header_is_read() -> None:
    named = bytes.fromhex("1f8b081c0000000002ff") + b"\x03\x00abc" + b"name\0" + b"comment\0"
    body = zlib.compress(b"hello", wbits=-15)
    trailer = zlib.crc32(b"hello").to_bytes(4, "little") + (5).to_bytes(4, "little")
    assert decompress(Codec.GZIP, named + body + trailer, 5) == b"hello"


def test_gzip_members_are_joined_and_what_follows_them_is_ignored() -> None:
    one, two = compress(Codec.GZIP, b"one"), gzip.compress(b"two")
    assert decompress(Codec.GZIP, one + two, 6) == b"onetwo"
    assert decompress(Codec.GZIP, one + two * 3, 12) == b"onetwotwotwo"
    assert decompress(Codec.GZIP, one + b"\0" * 100, 3) == b"one"
    assert decompress(Codec.GZIP, one + two[:12], 3) == b"one", "too short for a member"
    with pytest.raises(DecompressedSizeTooLarge):
        decompress(Codec.GZIP, one + two, 5)
    with pytest.raises(InvalidMessage, match="cut"):
        decompress(Codec.GZIP, one + two[:-1], 100)
    large = random.Random(1).randbytes(300_000)
    assert (
        decompress(Codec.GZIP, one + gzip.compress(large) + two, 10**6) == b"one" + large + b"two"
    )


def test_endless_gzip_members_are_refused_in_linear_time() -> None:
    member = compress(Codec.GZIP, b"")
    started = time.process_time()
    with pytest.raises(InvalidMessage, match="members"):
        decompress(Codec.GZIP, member * (10 * MIB // len(member)), 16 * MIB)
    assert time.process_time() - started < 2
    assert decompress(Codec.GZIP, member * 1024, 16 * MIB) == b""


def test_snappy_is_read_framed_and_raw() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"hello" * 100))
    assert decompress(Codec.SNAPPY, raw, 500) == b"hello" * 100
    framed = compress(Codec.SNAPPY, b"hello" * 100)
    assert decompress(Codec.SNAPPY, framed, 500) == b"hello" * 100
    # Fewer than 16 bytes, or another magic: one raw block, which these are not.
    for other in (framed[:15], framed[:7] + b"\1" + framed[8:]):
        with pytest.raises(InvalidMessage):
            decompress(Codec.SNAPPY, other, 500)
    assert decompress(Codec.SNAPPY, framed[:16], 0) == b"", "a header and no block"


@pytest.mark.parametrize(
    "blocks",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\5\0",
        b"\x7f\xff\xff\xff\0",
        b"\0\0\0\1\5",
    ],
)
def test_impossible_snappy_blocks_are_refused(blocks: bytes) -> None:
    header = compress(Codec.SNAPPY, b"")
    with pytest.raises(InvalidMessage):
        decompress(Codec.SNAPPY, header + blocks, MIB)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_snappy_stream_may_end_in_less_than_a_block_s_length(count: int) -> None:
    framed = compress(Codec.SNAPPY, b"hello" * 10_000)
    assert decompress(Codec.SNAPPY, framed + bytes(count), MIB) == b"hello" * 10_000


def test_a_snappy_stream_of_no_version_is_refused() -> None:
    framed = bytearray(compress(Codec.SNAPPY, b"x"))
    framed[11] = 0
    with pytest.raises(InvalidMessage, match="version"):
        decompress(Codec.SNAPPY, bytes(framed), 10)


@pytest.mark.parametrize("codec", BOTH)
def test_the_ceiling_is_exact(codec: Codec) -> None:
    packed = compress(codec, bytes(40_000))
    assert len(decompress(codec, packed, 40_000)) == 40_000
    for ceiling in (39_999, 1, 0):
        with pytest.raises(DecompressedSizeTooLarge):
            decompress(codec, packed, ceiling)
    assert decompress(codec, compress(codec, b""), 0) == b""


@pytest.mark.parametrize("codec", BOTH)
def test_a_bomb_is_stopped_with_flat_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(50 * MIB))

    def explode() -> None:
        with pytest.raises(DecompressedSizeTooLarge):
            decompress(codec, bomb, MIB)

    assert peak_bytes(explode) < 8 * MIB


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing() -> None:
    block = b"\xff\xff\xff\x7f" + b"\0" * 20  # declares 256 MiB
    for data in (block, compress(Codec.SNAPPY, b"") + len(block).to_bytes(4, "big") + block):
        with pytest.raises(InvalidMessage, match="declares"):
            decompress(Codec.SNAPPY, data, 2**31)


@pytest.mark.parametrize("codec", BOTH)
def test_damage_is_noticed(codec: Codec) -> None:
    packed = compress(codec, random.Random(2).randbytes(5000))
    for size in range(0, len(packed) - 1, 97):
        if codec is Codec.SNAPPY and size == 16:
            continue  # a header and no block is an empty stream
        with pytest.raises(InvalidMessage):
            decompress(codec, packed[:size], 10**6)


def test_budget_falls_by_what_was_unpacked_and_refuses_depth() -> None:
    budget = DecompressionBudget(10, depth_max=2)
    packed = compress(Codec.GZIP, b"12345")
    assert budget.decompress(Codec.GZIP, packed, 2) == b"12345"
    assert budget.bytes_left == 5
    with pytest.raises(InvalidMessage, match="nested"):
        budget.decompress(Codec.GZIP, packed, 3)
    assert budget.bytes_left == 5
    budget.decompress(Codec.GZIP, packed, 1)
    with pytest.raises(DecompressedSizeTooLarge):
        budget.decompress(Codec.GZIP, packed, 1)
