"""The responses of the original broker, made and read."""

import pytest

from kafka2011.protocol import message_set, responses
from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError
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
PART_COUNTS = {name: len(parts) for name, parts in (MULTI_FETCH | MULTI_FETCH_UNPACKED).items()}
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


def body(name: str) -> bytes:
    """A recorded response behind its size."""
    return vector(name)[4:]


def test_every_recorded_response_is_expected_here() -> None:
    assert set(names("R")) <= FETCH.keys() | PART_COUNTS.keys() | OFFSETS.keys()


@pytest.mark.parametrize("name", FETCH)
def test_fetch_response(name: str) -> None:
    code, data = FETCH[name]
    assert responses.decode_fetch_response(body(name)) == (code, data)
    assert responses.encode_fetch_header(code, len(data)) + data == vector(name)


@pytest.mark.parametrize("name", MULTI_FETCH)
def test_multi_fetch_response(name: str) -> None:
    parts = MULTI_FETCH[name]
    assert responses.decode_multifetch_response(body(name), len(parts)) == parts
    made = responses.encode_multifetch_header(len(data) for _, data in parts)
    for code, data in parts:
        made += responses.encode_fetch_header(code, len(data)) + data
    assert made == vector(name)


@pytest.mark.parametrize("name", MULTI_FETCH_UNPACKED)
def test_multi_fetch_response_with_compressed_sets(name: str) -> None:
    parts = responses.decode_multifetch_response(body(name), PART_COUNTS[name])
    unpacked = [(code, message_set.payloads(data)) for code, data in parts]
    assert unpacked == MULTI_FETCH_UNPACKED[name]


@pytest.mark.parametrize("name", PART_COUNTS)
def test_multi_fetch_response_with_another_number_of_parts_or_cut_is_refused(name: str) -> None:
    data, count = body(name), PART_COUNTS[name]
    cases = [(data, wrong) for wrong in (count - 1, count + 1, 0)]
    cases += [(data[:size], count) for size in range(len(data))]
    for case in cases:
        with pytest.raises(RemoteProtocolError):
            responses.decode_multifetch_response(*case)


def test_no_parts_asked_for_no_parts_answered() -> None:
    assert responses.encode_multifetch_header([]) == bytes.fromhex("000000020000")
    assert responses.decode_multifetch_response(b"\0\0", 0) == []


@pytest.mark.parametrize("size", [1, 0, -1, 2**31 - 1])
def test_a_part_smaller_than_its_error_code_or_larger_than_the_rest_is_refused(size: int) -> None:
    part = size.to_bytes(4, "big", signed=True) + b"\0\0"
    with pytest.raises(RemoteProtocolError):
        responses.decode_multifetch_response(b"\0\0" + part, 1)


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_response(name: str) -> None:
    assert responses.decode_offsets_response(body(name)) == OFFSETS[name]
    assert responses.encode_offsets_response(OFFSETS[name]) == vector(name)


def test_offsets_response_that_does_not_fit_is_refused() -> None:
    data = body("R12")
    wrong = [data[:size] for size in range(len(data))]
    wrong += [data + b"\0", b"\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff"]
    for case in wrong:
        with pytest.raises(RemoteProtocolError):
            responses.decode_offsets_response(case)


def test_an_error_for_the_whole_response_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="error -1"):
        responses.decode_multifetch_response(b"\xff\xff", 0)
    with pytest.raises(RemoteProtocolError, match="error -1"):
        responses.decode_offsets_response(b"\xff\xff" + bytes(4))


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_short_fetch_responses_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        responses.decode_fetch_response(data)


@pytest.mark.parametrize(
    ("sizes", "header"),
    [
        ([-(2**31), -(2**31), 0], "00000014 0000"),
        ([-(2**31)], "80000008 0000"),
        ([-(2**31)] * 3, "80000014 0000"),
    ],
)
def test_negative_sizes_of_parts_add_up_as_32_bit_numbers(sizes: list[int], header: str) -> None:
    """As the original was seen to answer."""
    assert responses.encode_multifetch_header(sizes) == bytes.fromhex(header)


def test_a_response_that_fits_no_frame_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        responses.encode_multifetch_header([2**31])


@pytest.mark.parametrize("lineage", [(), ((1, 0),), ((1, 0), (4, 0), (9, 2**40))])
def test_a_lineage_goes_round_and_every_cut_one_is_refused(
    lineage: tuple[tuple[int, int], ...],
) -> None:
    body = responses.encode_lineage_response(lineage)[4:]
    assert responses.decode_lineage_response(body) == lineage
    for size in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            responses.decode_lineage_response(body[:size])


@pytest.mark.parametrize("lineage", [((2, 0), (2, 5)), ((1, 5), (2, 4)), ((1, -1),)])
def test_a_lineage_that_does_not_ascend_is_refused(lineage: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(RemoteProtocolError):
        responses.decode_lineage_response(responses.encode_lineage_response(lineage)[4:])
