from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka2011.events import _peek_pure
from kafka2011.events import peek as chosen
from kafka2011.events.codec import decode
from kafka2011.events.errors import HeaderUnreadable
from kafka2011.events.header import UNREADABLE, Header
from tests.unit.events.samples import GUIDS, NAMES, TIMES, page_view

TWINS: list[ModuleType] = [_peek_pure]
try:
    from kafka2011.events import _peek_compiled

    TWINS.append(_peek_compiled)
except ImportError:  # a build without a C compiler
    pass

twins = pytest.mark.parametrize("twin", TWINS, ids=lambda m: m.__name__.rpartition("_")[2])
Counts = dict[tuple[int, str], int]

BASE = 1_700_000_000_000
BASE_EVENT = page_view(BASE)
HEADER_END = 33 + 6 + 11 + 5
MUTATED = st.builds(
    lambda position, value: BASE_EVENT[:position] + bytes([value]) + BASE_EVENT[position + 1 :],
    st.integers(0, HEADER_END),
    st.integers(0, 255),
)
BEHIND_A_GUID = st.binary(max_size=60).map(lambda tail: b"\0" + bytes(32) + tail)
HOSTILE = st.binary(max_size=80) | BEHIND_A_GUID | MUTATED
SERVERS = st.sampled_from(["frontend-1", "frontend-2", "fé", "s" * 70, ""])
EVENTS = st.builds(page_view, st.integers(BASE, BASE + 3000), SERVERS)


def outcome(twin: ModuleType, payload: bytes, prefix_bytes: int = 17) -> Header | None:
    """The header, or None when it is unreadable."""
    try:
        found = twin.peek(payload, prefix_bytes)
    except HeaderUnreadable:
        return None
    assert isinstance(found, Header)
    return found


def test_the_chosen_twin_is_the_best_that_was_built() -> None:
    assert chosen.peek is (TWINS[-1] if chosen.COMPILED else _peek_pure).peek


@twins
@given(time_ms=TIMES, server=NAMES, service=NAMES, guid=GUIDS)
@example(time_ms=0, server="", service="", guid=bytes(16))
@example(time_ms=2**63 - 1, server="é" * 127, service="x" * 255, guid=b"\xff" * 16)
def test_peek_equals_the_full_decode(twin, time_ms, server, service, guid) -> None:
    payload = page_view(time_ms, server, service, guid)
    header = decode(payload)[1]["header"]
    expected = Header(header["guid"], header["time"], header["server"], header["service"])
    assert twin.peek(payload) == twin.peek(memoryview(payload)) == expected


@twins
@given(payload=HOSTILE)
@example(payload=b"\0" + bytes(32) + b"\xff" * 9 + b"\x02" + bytes(9))  # 65 bits
@example(payload=b"\0" + bytes(32) + b"\x80" * 11 + bytes(9))
@example(payload=b"\0" + bytes(32) + b"\xfe" + b"\xff" * 8 + b"\x01" + bytes(9))  # the largest time
@example(payload=b"\0" + bytes(32) + b"\x01" + bytes(9))  # time -1
@example(payload=b"\0" + bytes(33) + b"\x01" + bytes(9))  # length -1
@example(payload=b"\0" + bytes(33) + b"\x80\x04" + bytes(300))  # length 256
@example(payload=b"\0" + bytes(33) + b"\x02\xff\x00")  # not UTF-8
@example(payload=b"\0" + bytes(33) + b"\x00\x02\xff")
def test_hostile_bytes_are_unreadable_or_a_header_and_both_twins_agree(twin, payload) -> None:
    expected = outcome(_peek_pure, payload)
    assert outcome(twin, payload) == expected
    counts: Counts = {}
    assert twin.count_by_window([payload], 1000, counts) == 1
    if expected is None:
        assert counts == {UNREADABLE: 1}
    else:
        assert counts == {(expected.time_ms // 1000 * 1000, expected.server): 1}


@twins
def test_every_cut_of_a_header_is_unreadable_and_the_whole_needs_no_body(twin) -> None:
    for cut in range(HEADER_END):
        assert outcome(twin, BASE_EVENT[:cut]) is None
    assert twin.peek(BASE_EVENT[:HEADER_END]).server == "frontend-1"


@twins
@given(payloads=st.lists(EVENTS | HOSTILE, max_size=60), now=st.integers(0, 2**62))
@example(payloads=[BASE_EVENT, BASE_EVENT[: HEADER_END - 1]], now=0)  # known, then with a cut name
def test_counting_equals_one_peek_a_message(twin, payloads, now) -> None:
    expected: Counts = {(0, "already there"): 5}
    expected_delays: dict[int, int] = {}
    for payload in payloads:
        header = outcome(_peek_pure, payload)
        key = UNREADABLE if header is None else (header.time_ms // 700 * 700, header.server)
        expected[key] = expected.get(key, 0) + 1
        if header is not None:
            delay = max(0, now - header.time_ms)
            expected_delays[delay] = expected_delays.get(delay, 0) + 1
    counts: Counts = {(0, "already there"): 5}
    delays: dict[int, int] = {}
    assert twin.count_by_window(iter(payloads), 700, counts, delays, now) == len(payloads)
    assert (counts, delays) == (expected, expected_delays)
    without_delays: Counts = {(0, "already there"): 5}
    twin.count_by_window(payloads, 700, without_delays)
    assert without_delays == expected


@twins
@given(
    payloads=st.lists(EVENTS | HOSTILE, max_size=20), schema_id=st.binary(min_size=4, max_size=4)
)
def test_behind_a_registry_id_stands_the_same_header(twin, payloads, schema_id) -> None:
    in_id_form = [payload[:1] + schema_id + payload[17:] for payload in payloads]
    for payload, other in zip(payloads, in_id_form, strict=True):
        if len(payload) > 17:  # a shorter one has no whole prefix
            assert outcome(twin, other, 5) == outcome(twin, payload)
    wanted: Counts = {}
    counts: Counts = {}
    _peek_pure.count_by_window(in_id_form, 700, wanted, None, 0, prefix_bytes=5)
    assert twin.count_by_window(in_id_form, 700, counts, None, 0, prefix_bytes=5) == len(payloads)
    assert counts == wanted


@twins
@pytest.mark.parametrize("prefix_bytes", [0, -1, -40, 10**6])
def test_no_prefix_reads_outside_the_payload(twin, prefix_bytes) -> None:
    assert outcome(twin, BASE_EVENT, prefix_bytes) is None
    counts: Counts = {}
    twin.count_by_window([BASE_EVENT], 700, counts, None, 0, prefix_bytes=prefix_bytes)
    assert counts == {UNREADABLE: 1}


@twins
def test_what_was_counted_before_the_source_failed_is_kept(twin) -> None:
    def failing() -> Iterator[bytes]:
        yield from [BASE_EVENT, BASE_EVENT]
        raise ConnectionError

    counts: Counts = {}
    with pytest.raises(ConnectionError):
        twin.count_by_window(failing(), 1000, counts)
    assert counts == {(BASE, "frontend-1"): 2}


@twins
def test_a_window_of_no_length_is_refused(twin) -> None:
    with pytest.raises(ValueError):
        twin.count_by_window([], 0, {})
