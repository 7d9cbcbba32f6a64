"""Finding where to begin, in bytes and by time."""

import time

import pytest

from kafka2011.consumer.ranges.boundaries import NEAR_BYTES, Boundaries, NoBoundary, first_entry
from kafka2011.consumer.simple import SimpleConsumer
from tests.support.scripted_server import ScriptedBroker

# Each of its positions but the last is followed by what looks like the header of an entry of 64 KB.
HEADERS = bytes.fromhex("000100") * 200_000


def test_a_search_among_what_looks_like_headers_is_given_up_in_time() -> None:
    asked: list[int] = []

    def is_late() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(NoBoundary, match="begin at an offset"):
        first_entry(HEADERS, is_late)
    assert len(asked) == 4


def test_a_time_is_found_shortly_before_its_first_message() -> None:
    size = 200
    with ScriptedBroker() as broker:
        latest = broker.append("t", 0, [b"%0*d" % (size, number) for number in range(20_000)])
        with SimpleConsumer(*broker.address) as client:
            boundaries = Boundaries(
                client, "t", 0, earliest=0, latest=latest, deadline=time.monotonic() + 600
            )
            entry = size + 10
            for number in (0, 1, 12_345, 19_999, 99_999):
                start = boundaries.before(number, int)
                assert start % entry == 0
                assert start <= number * entry
                assert min(latest, number * entry) - start <= NEAR_BYTES + entry
