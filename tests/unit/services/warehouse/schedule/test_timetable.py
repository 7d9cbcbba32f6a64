import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.services.warehouse.schedule.timetable import Job, ScheduleError, parse_schedule

HOUR_MS = 3_600_000


def test_lines_become_jobs() -> None:
    text = """
    # nightly
    every 10m  reports            # with a comment
    hourly :05 load --set a=b
    daily 02:30 sql "select 1"
    daily 00:00 sql "select '\u2028\x0b'"
    """
    assert parse_schedule(text, ("reports", "load", "sql")) == [
        Job(3, 600_000, 0, ("reports",)),
        Job(4, HOUR_MS, 300_000, ("load", "--set", "a=b")),
        Job(5, 24 * HOUR_MS, 2 * HOUR_MS + 30 * 60_000, ("sql", "select 1")),
        Job(6, 24 * HOUR_MS, 0, ("sql", "select '\u2028\x0b'")),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no job"),
        ("every 10m", "must be: every"),
        ("weekly 1 load", "line 1: 'weekly'"),
        ("\nevery 0m load", "line 2: '0m'"),
        ("every 10 load", "duration"),
        ("hourly :60 load", ":MM"),
        ("daily 24:00 load", "HH:MM"),
        ("daily 2:30 load", "HH:MM"),
        ("every 1h broker", "'broker' cannot be scheduled"),
        ("every 1h load 'x", "line 1"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        parse_schedule(text, ("load",))


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**13))
def test_the_next_time_is_later_and_none_lies_between(period: int, phase: int, at: int) -> None:
    job = Job(1, period, phase % period, ("load",))
    found = job.next_after(at)
    assert at < found <= at + period
    assert found % period == phase % period
