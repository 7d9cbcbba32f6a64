"""The responses of the original broker, made and read."""

import pytest

from kafka2011.protocol import message_set
from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError
from kafka2011.protocol.responses import (
    decode_fetch_response,
    decode_multifetch_response,
    decode_offsets_response,
    encode_fetch_header,
    encode_multifetch_header,
    encode_offsets_response,
)
from tests.support.frames import NEED_DATA, FrameReader
from tests.vectors import names, vector

V2, V3, S4, S11 = (vector(name) for name in ("V2", "V3", "S4", "S11"))
M1 = message_set.encode([b"m1"])
M2 = message_set.encode([b"m2"])
MIXED = S4 + M1 + M2 + M1 * 3

FETCH = {
    "V10.1": (0, V3),
    "V10.2": (0, V3[:20]),
    "V10.3": (0, b""),
    "V10.4": (1, b""),
    "V10.5": (-1, b""),
    "R1": (0, V2 * 2),
    "R2": (0, V3[:15] + bytes.fromhex("0000000b01")),
    "R3": (0, V2[:5]),
    "R4": (0, MIXED),
    "R5.1": (1, b""),
    "R5.2": (1, b""),
    "R5.3": (3, b""),
    "R5.4": (3, b""),
    "R5.5": (0, b""),
    "R5.6": (0, b""),
    "R5.7": (-1, b""),
}
MULTI_FETCH = {
    "V12": [(0, V2), (0, b""), (3, b"")],
    "R7": [(0, V2), (0, MIXED), (3, b""), (0, b""), (1, b"")],
    "R8": [(0, S11)],
    "R10": [(0, b""), (0, b"")],
}
# Parts with compressed sets: error code and the messages inside.
MULTI_FETCH_UNPACKED = {
    "R9": [(0, [b"one"]), (0, [b"one", b"two", b"three", b"two"])],
    "R11": [
        (0, [b"l1", b"l2"]),
        (0, [b"x", b"y", b"l1", b"l2", b"l1", b"l2", b"m3"]),
        (0, [b"one"]),
        (0, [b"one", b"two", b"three", b"two"]),
    ],
}
OFFSETS = {
    "V14.1": [240, 216, 108, 0],
    "V14.2": [0],
    "V14.3": [],
    "R12": [4525, 0],
    "R13": [0],
    "R14": [],
    "R15.1": [0],
    "R15.2": [0],
    "R15.3": [],
    "R15.4": [],
    "R15.5": [],
}
ALL = [*FETCH, *MULTI_FETCH, *MULTI_FETCH_UNPACKED, *OFFSETS]


def test_every_recorded_response_is_expected_here() -> None:
    assert set(names("R")) <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_response_survives_whole_byte_by_byte_and_with_trailing_bytes(name: str) -> None:
    frame = vector(name)
    for size in (1, 7, len(frame)):
        reader = FrameReader(10**6)
        bodies = []
        stream = frame + frame + frame[:3]
        for start in range(0, len(stream), size):
            reader.receive_data(stream[start : start + size])
            while (found := reader.next_frame()) is not NEED_DATA:
                bodies.append(bytes(found))
        assert bodies == [frame[4:]] * 2
        assert reader.pending_bytes == 3


@pytest.mark.parametrize("name", FETCH)
def test_fetch_response(name: str) -> None:
    code, data = FETCH[name]
    assert decode_fetch_response(vector(name)[4:]) == (code, data)
    assert encode_fetch_header(code, len(data)) + data == vector(name)


@pytest.mark.parametrize("name", MULTI_FETCH)
def test_multi_fetch_response(name: str) -> None:
    parts = MULTI_FETCH[name]
    assert decode_multifetch_response(vector(name)[4:], len(parts)) == parts
    made = encode_multifetch_header(len(data) for _, data in parts)
    for code, data in parts:
        made += encode_fetch_header(code, len(data)) + data
    assert made == vector(name)


@pytest.mark.parametrize("name", MULTI_FETCH_UNPACKED)
def test_multi_fetch_response_with_compressed_sets(name: str) -> None:
    expected = MULTI_FETCH_UNPACKED[name]
    parts = decode_multifetch_response(vector(name)[4:], len(expected))
    assert [(code, message_set.payloads(data)) for code, data in parts] == expected


@pytest.mark.parametrize("name", [*MULTI_FETCH, *MULTI_FETCH_UNPACKED])
def test_multi_fetch_response_with_another_number_of_parts_is_refused(name: str) -> None:
    count = len(MULTI_FETCH.get(name, MULTI_FETCH_UNPACKED.get(name, [])))
    for wrong in (count - 1, count + 1, 0):
        with pytest.raises(RemoteProtocolError):
            decode_multifetch_response(vector(name)[4:], wrong)
    for size in range(len(vector(name)) - 4):
        with pytest.raises(RemoteProtocolError):
            decode_multifetch_response(vector(name)[4 : 4 + size], count)


def test_no_parts_asked_for_no_parts_answered() -> None:
    assert encode_multifetch_header([]) == bytes.fromhex("000000020000")
    assert decode_multifetch_response(b"\0\0", 0) == []


def test_a_part_smaller_than_its_error_code_is_refused() -> None:
    for size in (b"\0\0\0\1", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        with pytest.raises(RemoteProtocolError):
            decode_multifetch_response(b"\0\0" + size + b"\0\0", 1)


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_response(name: str) -> None:
    assert decode_offsets_response(vector(name)[4:]) == OFFSETS[name]
    assert encode_offsets_response(OFFSETS[name]) == vector(name)


def test_offsets_response_that_does_not_fit_is_refused() -> None:
    body = vector("R12")[4:]
    for size in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            decode_offsets_response(body[:size])
    for data in (body + b"\0", b"\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff"):
        with pytest.raises(RemoteProtocolError):
            decode_offsets_response(data)


def test_an_error_for_the_whole_response_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="error -1"):
        decode_multifetch_response(b"\xff\xff", 0)
    with pytest.raises(RemoteProtocolError, match="error -1"):
        decode_offsets_response(b"\xff\xff" + bytes(4))


def test_short_fetch_responses_are_refused() -> None:
    for data in (b"", b"\0"):
        with pytest.raises(RemoteProtocolError):
            decode_fetch_response(data)


def test_negative_sizes_of_parts_add_up_as_32_bit_numbers() -> None:
    # Recorded of the original: two parts of -2^31 bytes and one of none.
    assert encode_multifetch_header([-(2**31), -(2**31), 0]) == bytes.fromhex("00000014 0000")
    assert encode_multifetch_header([-(2**31)]) == bytes.fromhex("80000008 0000")
    assert encode_multifetch_header([-(2**31), -(2**31), -(2**31)])[:4].hex() == "80000014"


def test_a_response_that_fits_no_frame_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_multifetch_header([2**31])
