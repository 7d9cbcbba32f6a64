"""Every recorded message set: read whole, grown byte by byte, and with other bytes behind it."""

import hashlib
from types import ModuleType

import pytest

from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec, DecompressionBudget, decompress
from kafka2011.protocol.errors import InvalidMessage, MessageLargerThanFetchSize
from tests.vectors import names, vector, wrapped, wrapper

TEN = [b"message number %d of the capture" % number for number in range(10)]
ZEROS = bytes(200)

# name -> (payload, next offset when the set starts at offset 0)
SETS: dict[str, list[tuple[bytes, int]]] = {
    "V1": [(b"hello", 14)],
    "V2": [(b"hello", 15)],
    "V3": [(b"hello", 15), (b"world", 30)],
    "V4": [(b"hello", 0), (b"world", 57)],
    "V5": [(b"hello", 0), (b"world", 62)],
    "V6": [(b"hello", 0), (b"world", 42)],
    "V15": [(b"a", 11), (b"hello", 11), (b"world", 68), (b"b", 79)],
    "V16.1": [(b"", 10)],
    "V16.2": [(b"", 9)],
    "V17.1": [(b"testing", 17)],
    "V17.2": [(b"one", 13)],
    "V17.3": [(b"42", 12)],
    "S1": [(b"hello", 15)],
    "S2": [(b"hello", 15), (b"world", 30), (b"", 40)],
    "S3": [("café 日本".encode(), 22)],
    "S4": [(b"hello", 0), (b"world", 57)],
    "S5": [(b"hello", 0), (b"world", 62)],
    "S6": [(payload, 160 if payload == TEN[-1] else 0) for payload in TEN],
    "S7": [(payload, 205 if payload == TEN[-1] else 0) for payload in TEN],
    "S8": [(ZEROS, 0)] * 49 + [(ZEROS, 110)],
    "S9": [(ZEROS, 0)] * 49 + [(ZEROS, 538)],
    "S10": [(ZEROS, 0)] * 299 + [(ZEROS, 3020)],
    "S11": [(b"out1", 0), (b"in1", 0), (b"in2", 94)],
    "S11-content": [(b"out1", 14), (b"in1", 14), (b"in2", 67)],
}
ENTRY_COUNTS = {"V3": 2, "V15": 3, "S2": 3, "S11-content": 2}


def test_every_recorded_set_is_expected_here() -> None:
    others = ("V7", "V8", "V9", "V10", "V11", "V12", "V13", "V14")  # requests and responses
    assert {name for name in names("V", "S") if not name.startswith(others)} == set(SETS)


@pytest.mark.parametrize("name", SETS)
def test_set_reads_as_the_original_reads_it(twin: ModuleType, name: str) -> None:
    data = vector(name)
    assert twin.messages(data, 0) == SETS[name]
    assert twin.payloads(data) == [payload for payload, _ in SETS[name]]
    moved = [(payload, next_offset + 7_000_000_000) for payload, next_offset in SETS[name]]
    for buffer in (memoryview(data), bytearray(data)):
        assert twin.messages(buffer, 7_000_000_000) == moved
    assert twin.consumed(data, 0, "test", 7, 3) == [
        twin.ConsumedMessage(payload, "test", 7, 3, next_offset)
        for payload, next_offset in SETS[name]
    ]


@pytest.mark.parametrize("name", SETS)
def test_set_passes_the_brokers_checks(twin: ModuleType, name: str) -> None:
    data, count = vector(name), ENTRY_COUNTS.get(name, 1)
    entries = list(message_set.entries(data))
    assert all(entry.is_valid for entry in entries)
    assert twin.scan(data, 1_000_000, DecompressionBudget()) == (len(data), len(SETS[name]))
    assert twin.check_entries(data) == (len(data), count, "")
    assert twin.split(data) == len(data)


@pytest.mark.parametrize("name", SETS)
def test_set_grown_byte_by_byte_yields_its_complete_entries(twin: ModuleType, name: str) -> None:
    data = vector(name)
    ends = [entry.next_offset for entry in message_set.entries(data)]
    for size in range(1, len(data)) if len(data) < 600 else range(1, len(data), 37):
        cut = data[:size]
        complete = max((end for end in ends if end <= size), default=0)
        if not complete:
            for read in (twin.split, twin.payloads, lambda part: twin.messages(part, 0)):
                with pytest.raises(MessageLargerThanFetchSize) as caught:
                    read(cut)
                assert caught.value.size_needed == (ends[0] if size >= 4 else 0)
            assert twin.check_entries(cut) == (0, 0, "cut")
            continue
        assert twin.split(cut) == complete
        assert twin.messages(cut, 0) == twin.messages(data[:complete], 0)
        assert twin.scan(cut, 10**6, DecompressionBudget()).valid_bytes == complete
        assert twin.check_entries(cut).valid_bytes == complete


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("behind", [b"\0\0\0", vector("V2")[:9], b"\x7f\xff\xff\xff"])
def test_a_cut_entry_behind_a_set_is_left_alone(twin: ModuleType, name: str, behind: bytes) -> None:
    data = vector(name) + behind
    assert twin.split(data) == len(data) - len(behind)
    assert twin.messages(data, 0) == SETS[name]
    assert twin.scan(data, 10**6, DecompressionBudget()).valid_bytes == len(data) - len(behind)
    assert twin.check_entries(data).fault == "cut"


@pytest.mark.parametrize("name", ["V1", "V2", "V3", "V16.1", "V16.2", "V17.1", "V17.2", "V17.3"])
def test_plain_sets_are_encoded_to_the_same_bytes(twin: ModuleType, name: str) -> None:
    payloads = [payload for payload, _ in SETS[name]]
    magic = next(message_set.entries(vector(name))).magic
    assert twin.encode(payloads, magic) == vector(name)


def test_gzip_wrapper_of_v3_is_v4_to_the_byte() -> None:
    # Classic deflate at its default level is what the JVM's own zlib produces.
    assert message_set.encode_compressed([b"hello", b"world"], Codec.GZIP) == vector("V4")


def test_an_empty_list_makes_an_empty_set_with_every_codec(twin: ModuleType) -> None:
    assert twin.encode([]) == b""
    for codec in Codec:
        assert message_set.encode_compressed([], codec) == b""


@pytest.mark.parametrize("name", wrapped())
def test_wrappers_unpack_to_what_the_original_packed(name: str) -> None:
    about = wrapper(name)
    (entry,) = message_set.entries(vector(name))
    unpacked = decompress(entry.codec, entry.payload, about["unpacked_bytes"])
    assert message_set.codec_of(entry) == entry.codec
    found = {
        "length": len(vector(name)) - 4,
        "codec": entry.codec,
        "payload_bytes": len(entry.payload),
        "crc": f"{entry.crc:08x}",
        "unpacked_bytes": len(unpacked),
        "entry_count": len(list(message_set.entries(unpacked))),
        "unpacked_sha256": hashlib.sha256(unpacked).hexdigest(),
    }
    assert found == about


def test_an_unaligned_fetch_shows_as_a_wild_length(twin: ModuleType) -> None:
    # As the vector R6 shows: offset 3 is served as is; the client takes 0b010036 as a length.
    data = bytes.fromhex("0b01003610a68668656c6c6f")
    with pytest.raises(MessageLargerThanFetchSize) as caught:
        twin.messages(data, 3)
    assert caught.value.size_needed == 0x0B010036 + 4


def test_reading_nothing_is_the_normal_end(twin: ModuleType) -> None:
    assert twin.messages(b"", 5) == []
    assert twin.payloads(b"") == []
    assert twin.consumed(b"", 5, "test", 0, 0) == []
    assert twin.split(b"") == 0
    assert twin.check_entries(b"") == (0, 0, "")
    assert twin.scan(b"", 10, DecompressionBudget()) == (0, 0)


def test_entries_shows_damage_and_stops_before_a_cut_entry() -> None:
    good = vector("V2")
    damaged = bytearray(good)
    damaged[-1] ^= 1
    unknown = bytearray(good)
    unknown[4] = 9
    shown = list(message_set.entries(good + damaged + unknown + good[:9], 1000))
    assert [(entry.offset, entry.next_offset, entry.magic, entry.is_valid) for entry in shown] == [
        (1000, 1015, 1, True),
        (1015, 1030, 1, False),
        (1030, 1045, 9, False),
    ]
    for bad in (b"\0\0\0\4\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5\1\0\0\0\0"):
        with pytest.raises(InvalidMessage) as caught:
            list(message_set.entries(good + bad))
        assert caught.value.position == 15
