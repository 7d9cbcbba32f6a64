"""Claims over all inputs: round trips, twins that agree, and nothing but the promised errors."""

import random
import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.protocol import _hot_pure, message_set, responses
from kafka2011.protocol.compression import Codec, DecompressionBudget, compress
from kafka2011.protocol.errors import (
    InvalidMessage,
    MessageLargerThanFetchSize,
    RemoteProtocolError,
)
from kafka2011.protocol.requests import (
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    Request,
    decode_request,
    encode_request,
)
from tests.vectors import names, vector

BIG = 10**6

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
natural = st.integers(0, 2**31 - 1)
topics = st.text(st.characters(codec="utf-8"), max_size=20)
payloads = st.lists(st.binary(max_size=60), max_size=12)


@st.composite
def message_sets(draw: st.DrawFn, depth: int = 2) -> tuple[bytes, list[bytes]]:
    """A set of plain entries of both magics and wrappers, with the payloads it holds."""
    data, expected = b"", []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["plain", "old", "gzip", "snappy"]))
        if depth and kind in ("gzip", "snappy"):
            content, inside = draw(message_sets(depth=depth - 1))
            codec = Codec.GZIP if kind == "gzip" else Codec.SNAPPY
            packed = compress(codec, content)
            head = struct.pack(">iBBI", len(packed) + 6, 1, codec, zlib.crc32(packed))
            data += head + packed
            expected += inside
        else:
            chunk = draw(payloads)
            data += _hot_pure.encode(chunk, 0 if kind == "old" else 1)
            expected += chunk
    return data, expected


produces = st.builds(ProduceRequest, topics, i32, st.binary(max_size=50))
fetches = st.builds(FetchRequest, topics, i32, i64, natural)
requests: st.SearchStrategy[Request] = st.one_of(
    produces,
    fetches,
    st.builds(OffsetsRequest, topics, i32, i64, natural),
    st.builds(MultiProduceRequest, st.lists(produces, max_size=5)),
    st.builds(MultiFetchRequest, st.lists(fetches, max_size=5)),
)


@given(requests, st.binary(max_size=10))
def test_requests_come_back_as_they_were(request: Request, behind: bytes) -> None:
    assert decode_request(encode_request(request)[4:] + behind) == request


@given(st.lists(st.tuples(st.integers(-32768, 32767), st.binary(max_size=40)), max_size=6))
def test_multi_fetch_responses_come_back_as_they_were(parts: list[tuple[int, bytes]]) -> None:
    body = responses.encode_multifetch_header(len(data) for _, data in parts)[4:]
    for code, data in parts:
        body += responses.encode_fetch_header(code, len(data)) + data
    assert responses.decode_multifetch_response(body, len(parts)) == parts


@given(st.lists(i64, max_size=20))
def test_offsets_responses_come_back_as_they_were(offsets: list[int]) -> None:
    made = responses.encode_offsets_response(offsets)
    assert responses.decode_offsets_response(made[4:]) == offsets


@given(message_sets(), i64.filter(lambda offset: 0 <= offset < 2**62))
def test_sets_come_back_as_they_were(
    twin: ModuleType, made: tuple[bytes, list[bytes]], offset: int
) -> None:
    data, expected = made
    assert twin.payloads(data) == expected
    pairs = twin.messages(data, offset)
    assert [payload for payload, _ in pairs] == expected
    offsets = [next_offset for _, next_offset in pairs]
    assert offsets == sorted(offsets)
    assert all(offset <= next_offset <= offset + len(data) for next_offset in offsets)
    entries = list(message_set.entries(data, offset))
    assert set(offsets) <= {offset, *(entry.next_offset for entry in entries)}
    assert twin.scan(data, BIG, DecompressionBudget()) == (len(data), len(expected))
    assert twin.check_entries(data) == (len(data), len(entries), "")
    consumed = twin.consumed(data, offset, "t", 0, 0)
    assert [(message.payload, message.next_offset) for message in consumed] == pairs


@given(message_sets(), st.data())
def test_a_cut_set_is_its_complete_entries(
    twin: ModuleType, made: tuple[bytes, list[bytes]], draw: st.DataObject
) -> None:
    data, _ = made
    cut = data[: draw.draw(st.integers(0, len(data)))]
    ends = [entry.next_offset for entry in message_set.entries(data)]
    complete = max((end for end in ends if end <= len(cut)), default=0)
    if cut and not complete:
        with pytest.raises(MessageLargerThanFetchSize):
            twin.split(cut)
        return
    assert twin.split(cut) == complete
    assert twin.messages(cut, 5) == twin.messages(cut[:complete], 5)
    assert twin.scan(cut, BIG, DecompressionBudget()).valid_bytes == complete


def outcome(action: Callable[[], object]) -> object:
    """What `action` returns, or the promised error that it raises; anything else escapes."""
    try:
        return action()
    except (RemoteProtocolError, MessageLargerThanFetchSize) as error:
        return type(error), str(error), getattr(error, "position", None)


def all_outcomes(twin: ModuleType, data: bytes) -> list[object]:
    budget = DecompressionBudget(100_000)
    received = bytearray(data)
    return [
        outcome(lambda: twin.scan(data, BIG, budget)),
        budget.bytes_left,
        outcome(lambda: twin.split(data)),
        outcome(lambda: twin.messages(data, 1000, 100_000)),
        outcome(lambda: twin.payloads(data, 100_000)),
        outcome(lambda: twin.check_entries(data)),
        outcome(lambda: len(twin.consumed(data, 0, "t", 1, 2, wrapper_bytes_max=100_000))),
        outcome(lambda: twin.take_messages(data, 1000, 100_000, 50)),
        outcome(lambda: twin.take_payloads(data, 100_000, 50)),
        outcome(lambda: twin.take_consumed(data, 0, "t", 1, 2, 100_000, 50)[1]),
        twin.produce_runs(received, 0, len(data), BIG, BIG),
        bytes(received),
    ]


@given(st.binary(max_size=100), st.integers(0, 4), st.integers(0, 5))
@settings(max_examples=400)
def test_any_body_parses_or_raises_what_is_promised(
    data: bytes, request_id: int, part_count: int
) -> None:
    outcome(lambda: decode_request(data))
    outcome(lambda: decode_request(struct.pack(">h", request_id) + data))
    outcome(lambda: responses.decode_fetch_response(data))
    outcome(lambda: responses.decode_multifetch_response(b"\0\0" + data, part_count))
    outcome(lambda: responses.decode_offsets_response(b"\0\0" + data))


@pytest.mark.parametrize(
    "name", [name for name in names("V", "S", "P", "F", "R") if len(vector(name)) < 250]
)
def test_every_one_byte_change_of_every_vector(compiled: ModuleType, name: str) -> None:
    data = vector(name)
    rng = random.Random(name)
    for at in range(len(data)):
        for value in (data[at] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            body = changed[4:]
            outcome(partial(decode_request, body))
            outcome(partial(responses.decode_multifetch_response, body, 2))
            outcome(partial(responses.decode_offsets_response, body))
            assert all_outcomes(compiled, changed) == all_outcomes(_hot_pure, changed)


def test_a_damaged_header_goes_unnoticed_only_where_nothing_protects_it(twin: ModuleType) -> None:
    # B17: the CRC covers the payload alone. This pins down exactly what that leaves open.
    good = twin.encode([b"hello"])
    unnoticed = set()
    for at in range(len(good)):
        for value in range(256):
            changed = good[:at] + bytes([value]) + good[at + 1 :]
            if changed == good:
                continue
            try:
                twin.scan(changed, BIG, DecompressionBudget())
            except InvalidMessage:
                continue
            unnoticed.add((at, value & 3) if at == 5 else (at, value))
    assert unnoticed == {(5, 0)}, "only the unused attribute bits"


@pytest.mark.slow
def test_a_hundred_thousand_tiny_entries_and_wrappers_take_linear_time(twin: ModuleType) -> None:
    def cpu_seconds(data: bytes) -> float:
        started = time.process_time()
        twin.scan(data, BIG, DecompressionBudget())
        twin.messages(data, 0)
        return time.process_time() - started

    empty = message_set.encode_compressed([b""], Codec.SNAPPY)
    for unit in (twin.encode([b""]), empty):
        small = max(min(cpu_seconds(unit * 10_000) for _ in range(3)), 0.02)
        large = min(cpu_seconds(unit * 100_000) for _ in range(2))
        assert large / small < 10 * 5
