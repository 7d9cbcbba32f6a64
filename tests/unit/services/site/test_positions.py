"""Each event is in the state once, whatever is delivered again."""

import json
import random

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.services.site.positions import BatchPosition, Positions, ReadTimes

NAME = TopicPartition("x", 1, 0)


@pytest.mark.parametrize(
    ("batch", "place"),
    [
        ((100, 150), BatchPosition.NEXT),
        ((0, 100), BatchPosition.KNOWN),
        ((50, 80), BatchPosition.KNOWN),
        ((50, 150), BatchPosition.OVERLAPS),
        ((120, 150), BatchPosition.GAP),
    ],
)
def test_places(batch, place) -> None:
    positions = Positions()
    positions.advance(NAME, 0, 100)
    assert positions.place(NAME, *batch) is place
    assert positions.place(TopicPartition("x", 2, 0), *batch) is BatchPosition.NEXT


def test_a_gap_is_taken_after_the_log_was_asked_and_is_counted() -> None:
    positions = Positions()
    positions.advance(NAME, 0, 100)
    positions.sought(NAME)
    assert positions.place(NAME, 120, 150) is BatchPosition.NEXT
    positions.advance(NAME, 120, 150)
    assert positions.missed_bytes == 20
    assert positions.place(NAME, 200, 250) is BatchPosition.GAP, "each gap is asked about"


def test_deliveries_from_any_earlier_offset_add_up_to_the_log() -> None:
    rng = random.Random(3)
    ends = sorted(rng.sample(range(1, 10_000), 200))
    taken: list[int] = []
    positions = Positions()
    at = 0
    while at < len(ends):
        first = rng.randrange(max(0, at - 20), at + 1)
        for number in range(first, min(first + rng.randrange(1, 30), len(ends))):
            start = ends[number - 1] if number else 0
            if positions.place(NAME, start, ends[number]) is BatchPosition.NEXT:
                taken.append(number)
                positions.advance(NAME, start, ends[number])
                at = number + 1
        again = Positions()
        again.restore(json.loads(json.dumps(positions.state())))
        positions = again
    assert taken == list(range(len(ends)))
    assert positions.of(NAME) == ends[-1]


def test_a_use_is_as_far_behind_as_the_partition_that_is_furthest() -> None:
    other, times = TopicPartition("y", 1, 0), ReadTimes()
    assert times.behind_ms is None, "nothing is known yet"
    times.read(NAME, 40_000)
    times.sampled({NAME: 700, other: 9}, 100_000)
    assert times.behind_ms is None, "of the other nothing was read"
    times.sampled({NAME: 700, other: 0}, 100_000)
    assert times.behind_ms == 60_000
    times.read(NAME, 95_000)
    times.read(NAME, 94_000)
    times.sampled({NAME: 9, other: 9}, 105_000)
    assert times.behind_ms == 10_000, "the other had nothing to be read five seconds ago"
    times.sampled({NAME: None, other: 0}, 110_000)
    assert times.behind_ms == 10_000, "a broker that does not answer says nothing new"
    times.sampled({other: 0}, 115_000)
    assert times.behind_ms == 0, "that partition is another process's now"
