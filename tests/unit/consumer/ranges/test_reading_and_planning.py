"""Ranges: planned per partition, read exactly, cut only at entry boundaries."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.ranges.planning import OffsetRange, plan_ranges, split_at
from kafka2011.consumer.ranges.reading import RangeUnreadable, read_range
from kafka2011.protocol.errors import MessageLargerThanFetchSize, OffsetOutOfRange
from tests.support.scripted_server import ScriptedBroker


def test_plan_has_one_range_per_partition_largest_first() -> None:
    a, b, c = (TopicPartition("t", broker, 0) for broker in (1, 2, 3))
    assert plan_ranges({a: (0, 10), b: (5, 100), c: (7, 7)}) == [
        OffsetRange("t", 2, 0, 5, 100),
        OffsetRange("t", 1, 0, 0, 10),
    ]
    assert plan_ranges({b: (5, 100)}, size_max=20) == [OffsetRange("t", 2, 0, 5, 25)]
    with pytest.raises(ValueError, match="backwards"):
        plan_ranges({a: (10, 9)})
    with pytest.raises(ValueError):
        plan_ranges({}, size_max=0)


@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
    st.integers(1, 1000),
)
def test_pieces_cover_the_range_and_break_only_at_boundaries(
    start: int, sizes: list[int], size_max: int
) -> None:
    boundaries = list(accumulate(sizes, initial=start))
    whole = OffsetRange("t", 0, 0, start, boundaries[-1])
    pieces = split_at(whole, [*boundaries, 0, 10**9], size_max)
    assert (pieces[0].start, pieces[-1].end) == (start, whole.end)
    assert all(piece.end == following.start for piece, following in pairwise(pieces))
    for piece in pieces:
        assert piece.end in boundaries
        inner = [place for place in boundaries if piece.start < place < piece.end]
        assert piece.size_bytes <= size_max or not inner


def read(
    broker: ScriptedBroker, start: int, end: int, fetch_size: int = 1000, **more: int
) -> list[tuple[bytes, int]]:
    """Payloads with their next offsets, from chunks that follow each other without a gap."""
    found = []
    expected = start
    for chunk in read_range(broker.address, "t", 7, 0, start, end, fetch_size, **more):
        assert chunk[:4] == ("t", 7, 0, expected)
        assert chunk.next_offset == chunk.offset + len(chunk.data)
        expected = chunk.next_offset
        found += [(message.payload, message.next_offset) for message in chunk.messages()]
    return found


@pytest.mark.parametrize("fetch_size", [1, 3, 11, 12, 50, 10_000])
def test_a_range_is_read_exactly(broker: ScriptedBroker, fetch_size: int) -> None:
    payloads = [b"%d" % number * (number % 7) for number in range(100)]
    ends = [broker.append("t", 0, [payload]) for payload in payloads]
    everything = list(zip(payloads, ends, strict=True))
    assert read(broker, 0, ends[-1], fetch_size) == everything
    assert read(broker, ends[9], ends[49], fetch_size) == everything[10:50]
    assert read(broker, ends[5], ends[5], fetch_size) == []


@pytest.mark.parametrize(
    ("start", "end", "entries"),
    [(0, 61, [30, 60]), (0, 59, [30]), (0, 1, [30]), (30, 33, [60])],
)
def test_an_end_inside_an_entry_stops_before_it_but_reads_at_least_one(
    broker: ScriptedBroker, start: int, end: int, entries: list[int]
) -> None:
    for letter in (b"a", b"b", b"c"):
        broker.append("t", 0, [letter * 20])
    assert [next_offset for _, next_offset in read(broker, start, end)] == entries


def test_the_fetch_size_grows_for_one_entry(broker: ScriptedBroker) -> None:
    end = broker.append("t", 0, [b"small", b"L" * 5000, b"small"])
    assert [len(payload) for payload, _ in read(broker, 0, end, 64)] == [5, 5000, 5]
    with pytest.raises(MessageLargerThanFetchSize):
        read(broker, 0, end, 64, fetch_size_max=4096)


def test_a_wrapper_moves_on_with_its_last_message(broker: ScriptedBroker) -> None:
    middle = broker.append("t", 0, [b"one"])
    end = broker.append("t", 0, [b"two", b"three"], codec=1)
    assert read(broker, 0, end) == [(b"one", middle), (b"two", middle), (b"three", end)]


def test_a_range_that_is_not_there(broker: ScriptedBroker) -> None:
    end = broker.append("t", 0, [b"x" * 50] * 4)
    with pytest.raises(RangeUnreadable):
        read(broker, 0, end + 60)
    broker.retire("t", 0, 60)
    with pytest.raises(OffsetOutOfRange):
        read(broker, 0, end)
    assert len(read(broker, 60, end)) == 3


def test_a_broken_connection_is_survived(broker: ScriptedBroker) -> None:
    end = broker.append("t", 0, [b"x" * 50] * 40)
    broker.hang_ups = 3
    assert len(read(broker, 0, end, 200)) == 40


def test_a_range_is_tried_as_often_as_its_reader_says(broker: ScriptedBroker) -> None:
    end = broker.append("t", 0, [b"x" * 50])
    broker.hang_ups = 100
    place = (broker.host, broker.port), "t", 1, 0, 0, end
    for attempts, requests in ((1, 2), (3, 6)):  # each of them is repeated once
        broker.frames.clear()
        with pytest.raises(BrokerUnavailable):
            list(read_range(*place, attempts=attempts))
        assert len(broker.frames) == requests
