"""A lease runs from the sending of what was answered, and belongs to one session."""

import pytest

from kafka2011.coordination import lease
from kafka2011.coordination.lease import Lease


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(lease, "now_s", lambda: time[0])
    return time


def test_it_counts_from_the_sending(clock: list[float]) -> None:
    made = Lease(6.0)
    assert made.remaining_ms() == 0
    made.renew(7, sent_s=999.0)
    assert made.remaining_ms() == 5000
    clock[0] += 4.5
    assert made.remaining_ms() == 500
    clock[0] += 10
    assert made.remaining_ms() == 0


def test_a_late_answer_does_not_shorten_it(clock: list[float]) -> None:
    made = Lease(6.0)
    made.renew(7, sent_s=1000.0)
    made.renew(7, sent_s=997.0)
    assert made.remaining_ms() == 6000


def test_a_new_session_begins_anew_and_the_old_one_has_nothing(clock: list[float]) -> None:
    made = Lease(6.0)
    made.renew(7, sent_s=1000.0)
    made.renew(8, sent_s=995.0)
    assert made.remaining_ms() == made.remaining_ms(8) == 1000
    assert made.remaining_ms(7) == 0
