"""Following a run to its end: what ends it, and what does not."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.services.embedded.display import Sample
from kafka2011.services.embedded.story import (
    SETTLE_S,
    GaveUp,
    Moment,
    ProgressWatch,
    follow,
    sample_from,
)

STALL_S = 120.0


def summary(produced: int, arrived: int, **verdicts: int) -> dict[str, Any]:
    return {
        "produced": produced,
        "tiers": {tier: {"count": arrived} for tier in ("live", "offline", "warehouse")},
        "verdicts": verdicts,
    }


class Run:
    """A run that is told beforehand: one (moment, summary) at each look, the last one for ever."""

    def __init__(self, *steps: tuple[Moment, dict[str, Any] | None]) -> None:
        self.steps = steps
        self.looks = 0
        self.now_s = 0.0
        self.shown: list[Sample] = []
        self.said: list[str] = []
        self.finals: list[bool] = []
        self.stops: Iterator[bool] = iter(())

    def show(self, sample: Sample) -> None:
        self.shown.append(sample)

    def say(self, line: str) -> None:
        self.said.append(line)

    def _step(self) -> tuple[Moment, dict[str, Any] | None]:
        return self.steps[min(self.looks, len(self.steps)) - 1]

    def look(self) -> Moment:
        self.looks += 1
        return self._step()[0]

    def ask(self, is_final: bool) -> dict[str, Any] | None:
        self.finals.append(is_final)
        return self._step()[1]

    def pause(self, _seconds: float) -> None:
        self.now_s += 10.0

    def follow(self) -> Sample:
        return follow(
            self,
            look=self.look,
            ask_audit=self.ask,
            stop_asked=lambda: next(self.stops, False),
            stall_timeout_s=STALL_S,
            clock=lambda: self.now_s,
            pause=self.pause,
        )


SENDING = Moment(False, ())
SENT = Moment(True, ())


def test_it_ends_when_all_is_sent_and_the_audit_balances() -> None:
    run = Run(
        (SENDING, summary(10, 10, complete=3)),
        (SENT, summary(20, 15, pending=1, missing=1)),
        (SENT, summary(20, 20, complete=4)),
    )
    assert run.follow().tiers["warehouse"] == 20
    assert run.finals == [False, True, True]


def test_a_process_that_is_down_is_waited_for() -> None:
    run = Run(
        (Moment(True, ("mirror-1",)), summary(5, 5, complete=1)),
        (SENT, summary(5, 5, complete=1)),
    )
    run.follow()
    assert run.looks == 2
    assert run.shown[0].down == ("mirror-1",)


def test_what_is_missing_for_good_ends_it_after_a_while() -> None:
    run = Run((SENT, summary(20, 19, missing=1)))
    assert run.follow().verdicts == {"missing": 1}
    assert run.now_s > SETTLE_S
    assert "no change for" in run.said[0]


def test_it_gives_up_when_nothing_moves_and_something_is_down() -> None:
    run = Run((Moment(True, ("broker-1",)), summary(20, 19, missing=1)))
    with pytest.raises(GaveUp, match="down: broker-1"):
        run.follow()
    assert run.now_s > STALL_S


def test_an_audit_that_does_not_answer_is_not_taken_for_the_end() -> None:
    with pytest.raises(GaveUp, match="no progress"):
        Run((SENT, None)).follow()


def test_it_stops_when_asked() -> None:
    run = Run((SENDING, summary(1, 0, pending=1)))
    run.stops = iter([False, True])
    with pytest.raises(GaveUp, match="signal"):
        run.follow()
    assert run.looks == 2


def test_nothing_produced_is_not_a_balance() -> None:
    with pytest.raises(GaveUp):
        Run((Moment(True, ("audit",)), summary(0, 0))).follow()


def test_any_change_counts_as_progress() -> None:
    watch = ProgressWatch()
    first = sample_from(summary(1, 0, pending=1), (), "a")
    assert watch.idle_s(first, 5.0) == 0.0
    assert watch.idle_s(sample_from(summary(1, 0, pending=1), (), "b"), 9.0) == 4.0
    assert watch.idle_s(sample_from(summary(1, 1, pending=1), (), "b"), 9.5) == 0.0
