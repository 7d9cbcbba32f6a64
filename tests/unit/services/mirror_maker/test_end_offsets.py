"""The source's ends, asked for beside the fetches, over a clock that is set back."""

import threading

import pytest

from kafka2011.services.mirror_maker import end_offsets
from kafka2011.services.mirror_maker.config import MirrorConfig
from tests.support.clock import ManualClock
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import SETTINGS
from tests.unit.services.mirror_maker.test_copy_progress import NAME, copy_of

HOUR_MS = 3_600_000


def test_an_end_of_the_future_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the clock was there again, the end of before counted as that of now."""
    clock = ManualClock(10 * HOUR_MS)
    monkeypatch.setattr(end_offsets, "now_ms", clock)
    copy = copy_of()
    config = MirrorConfig(**{**SETTINGS, "status_interval_ms": 1})
    with ScriptedBroker() as broker:
        end = broker.append(NAME.topic, 0, [b"first"])
        ends = end_offsets.SourceEndOffsets(
            config, lambda _: broker.address, lambda: [copy], threading.Condition()
        )
        try:
            wait_until(lambda: copy.source_end == end, "the end is known")
            clock.advance(-HOUR_MS)
            more = broker.append(NAME.topic, 0, [b"second"])
            wait_until(lambda: copy.source_end == more, "the end is asked for again")
            broker.is_silent = True
            clock.advance(-HOUR_MS)
            wait_until(lambda: copy.lag_bytes_since(clock()) is None, "the lag is unknown")
        finally:
            ends.stop()
    clock.advance(HOUR_MS)
    copy.owned_ms = clock() + HOUR_MS
    copy.forget_the_future(clock())
    assert copy.source_end_age_ms(clock() + 5) == 5
