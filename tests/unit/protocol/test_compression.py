"""The JVM's packed forms, and ceilings that hold before memory is spent."""

import gzip
import io
import random
import time
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.protocol.compression import (
    Codec,
    DecompressionBudget,
    announced_bytes,
    compress,
    decompress,
)
from kafka2011.protocol.errors import DecompressedSizeTooLarge, InvalidMessage, LocalProtocolError

BOTH = [Codec.GZIP, Codec.SNAPPY]
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", BOTH)
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 100_000])
def test_what_is_packed_unpacks(codec: Codec, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert decompress(codec, compress(codec, data), size) == data
    assert decompress(codec, memoryview(compress(codec, data)), size) == data
    zeros = bytes(size)
    assert decompress(codec, compress(codec, zeros), size) == zeros


@pytest.mark.parametrize("size", [0, 1, 32768, 32769, 100_000])
def test_a_packed_payload_announces_what_it_unpacks_to(size: int) -> None:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    for codec in BOTH:
        assert announced_bytes(codec, memoryview(compress(codec, data))) == size
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert announced_bytes(Codec.SNAPPY, memoryview(raw)) == size


@given(st.sampled_from([0, 1, 2, 3]), st.binary(max_size=60), st.booleans())
def test_garbage_announces_some_number(codec: int, garbage: bytes, is_framed: bool) -> None:
    data = compress(Codec.SNAPPY, b"x")[:16] + garbage if is_framed else garbage
    assert announced_bytes(codec, memoryview(data)) >= 0


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
    stream, sizes = io.BytesIO(packed[16:]), []
    while length := int.from_bytes(stream.read(4), "big"):
        sizes.append(cramjam.snappy.decompress_raw_len(stream.read(length)))
    assert sizes == [32768, 32768, 4464]


def test_any_legal_gzip_header_is_read() -> None:
    named = bytes.fromhex("1f8b081c0000000002ff") + b"\x03\x00abc" + b"name\0" + b"comment\0"
    body = zlib.compress(b"hello", wbits=-15)
    trailer = zlib.crc32(b"hello").to_bytes(4, "little") + (5).to_bytes(4, "little")
    assert decompress(Codec.GZIP, named + body + trailer, 5) == b"hello"


LARGE = random.Random(1).randbytes(300_000)
ONE, TWO = compress(Codec.GZIP, b"one"), gzip.compress(b"two")


MEMBERS = {
    "two members": (ONE + TWO, b"onetwo"),
    "four": (ONE + TWO * 3, b"onetwotwotwo"),
    "zeros behind": (ONE + b"\0" * 100, b"one"),
    "less than a member behind": (ONE + TWO[:12], b"one"),
    "a large one": (ONE + gzip.compress(LARGE) + TWO, b"one" + LARGE + b"two"),
}


@pytest.mark.parametrize(("packed", "unpacked"), MEMBERS.values(), ids=MEMBERS)
def test_gzip_members_are_joined_and_what_follows_them_is_ignored(
    packed: bytes, unpacked: bytes
) -> None:
    assert decompress(Codec.GZIP, packed, len(unpacked)) == unpacked


def test_a_gzip_member_too_many_or_cut_is_refused() -> None:
    with pytest.raises(DecompressedSizeTooLarge):
        decompress(Codec.GZIP, ONE + TWO, 5)
    with pytest.raises(InvalidMessage, match="truncated"):
        decompress(Codec.GZIP, ONE + TWO[:-1], 100)


def test_endless_gzip_members_are_refused_in_linear_time() -> None:
    member = compress(Codec.GZIP, b"")
    started = time.process_time()
    with pytest.raises(InvalidMessage, match="members"):
        decompress(Codec.GZIP, member * (10 * MIB // len(member)), 16 * MIB)
    assert time.process_time() - started < 2
    assert decompress(Codec.GZIP, member * 1024, 16 * MIB) == b""


HELLO = b"hello" * 10_000
FRAMED = compress(Codec.SNAPPY, HELLO)
HEADER = FRAMED[:16]


SNAPPY = {
    "raw": (bytes(cramjam.snappy.compress_raw(HELLO)), HELLO),
    "framed": (FRAMED, HELLO),
    "1 byte of a block's length": (FRAMED + bytes(1), HELLO),
    "2 bytes of a block's length": (FRAMED + bytes(2), HELLO),
    "3 bytes of a block's length": (FRAMED + bytes(3), HELLO),
    "a header and no block": (HEADER, b""),
}
NO_SNAPPY = {
    "fewer than 16 bytes: no raw block": FRAMED[:15],
    "another magic: no raw block": FRAMED[:7] + b"\1" + FRAMED[8:],
    "version 0": HEADER[:11] + b"\0" + FRAMED[12:],
    "a block of 0 bytes": HEADER + b"\0\0\0\0",
    "a negative length": HEADER + b"\xff\xff\xff\xff",
    "a cut block": HEADER + b"\0\0\0\5\0",
    "a huge length": HEADER + b"\x7f\xff\xff\xff\0",
    "a block that is no snappy": HEADER + b"\0\0\0\1\5",
}


@pytest.mark.parametrize(("packed", "unpacked"), SNAPPY.values(), ids=SNAPPY)
def test_snappy_is_read_framed_and_raw(packed: bytes, unpacked: bytes) -> None:
    assert decompress(Codec.SNAPPY, packed, len(unpacked)) == unpacked


@pytest.mark.parametrize("packed", NO_SNAPPY.values(), ids=NO_SNAPPY)
def test_impossible_snappy_is_refused(packed: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decompress(Codec.SNAPPY, packed, MIB)


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
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedSizeTooLarge):
            decompress(codec, bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


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
