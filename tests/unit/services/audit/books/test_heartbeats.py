"""What heartbeats say does not depend on the order in which their partitions are read."""

from itertools import permutations

import pytest

from kafka2011.services.audit.books.heartbeats import Beat, Heartbeats, Sender

SENDER = Sender("live", "frontend-1")
BEAT_MS = 1_000


def heard(beats: tuple[Beat, ...], then: Beat) -> list[int]:
    """When restarts were found: `beats` are read in this order, judged, and `then` comes."""
    heartbeats = Heartbeats()
    for beat in beats:
        heartbeats.add(SENDER, beat, 10_000)
    heartbeats.settle("live", 10_000)
    heartbeats.add(SENDER, then, then.time_ms)
    heartbeats.settle("live", then.time_ms)
    return [at_ms for _, at_ms in heartbeats.restarts]


@pytest.mark.parametrize("instance", ["run-1", "run-2"])
@pytest.mark.parametrize("says_goodbye", [True, False])
def test_one_that_said_goodbye_and_comes_back_is_no_restart(
    says_goodbye: bool, instance: str
) -> None:
    """The goodbye was read before a heartbeat in front of it, which lay in another partition: that
    one was then the last that was known, without a goodbye."""
    beats = [Beat(BEAT_MS * n, BEAT_MS, n == 3 and says_goodbye, "run-1") for n in range(4)]
    found = [heard(each, Beat(60_000, BEAT_MS, False, instance)) for each in permutations(beats)]
    assert found == [[] if says_goodbye else [60_000]] * 24
