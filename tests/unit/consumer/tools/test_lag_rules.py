"""Burrow's rules, one claim each."""

from dataclasses import replace

import pytest

from kafka2011.consumer.tools.lag_rules import (
    ENDS_KEPT,
    Commit,
    Judged,
    PartitionHistory,
    judge,
    worst,
)

STAYS = [(100, 10 + number) for number in range(10)]
NEVER_FALLS = [(100 + number, 10 + number) for number in range(10)]
FALLS_ONCE = [(100 + number, 30 if number != 5 else 3) for number in range(10)]
# Burrow's known hole: a lag of zero at the last commit hid a dead consumer.
CAUGHT_UP = [(100, 0), (200, 0)]


def commits(pairs: list[tuple[int, int]]) -> list[Commit]:
    """Commits of (offset, lag), ten seconds apart."""
    return [Commit(number * 10_000, offset, lag) for number, (offset, lag) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "lag", "now_s", "is_owned", "verdict"),
    [
        pytest.param([(100, 50)], 0, 100, True, ("OK", ""), id="nothing is left to read"),
        pytest.param([(100, 0)], 10, 0, False, ("STOP", "no owner"), id="to read, and no owner"),
        pytest.param([(200, 9), (100, 109)], 109, 20, True, ("REWIND", "200"), id="it goes back"),
        pytest.param(CAUGHT_UP, 500, 10 + 29, True, ("OK", ""), id="no commit for a short time"),
        pytest.param(CAUGHT_UP, 500, 10 + 31, True, ("STOP", "31 s"), id="no commit any more"),
        pytest.param(STAYS, 30, 100, True, ("STALL", ""), id="ten commits of one offset"),
        pytest.param(STAYS[:9], 30, 100, True, ("OK", ""), id="nine commits of one offset"),
        pytest.param(NEVER_FALLS, 30, 100, True, ("WARN", ""), id="the lag never falls"),
        pytest.param(FALLS_ONCE, 30, 100, True, ("OK", ""), id="the lag falls once"),
        pytest.param([], 5, 100, True, ("UNKNOWN", ""), id="no offset"),
        pytest.param([(1, 1)], None, 100, True, ("UNKNOWN", ""), id="no end of the log"),
    ],
)
def test_each_rule(
    pairs: list[tuple[int, int]],
    lag: int | None,
    now_s: int,
    is_owned: bool,
    verdict: tuple[str, str],
) -> None:
    state, reason = verdict
    found = judge(commits(pairs), lag, now_s * 1000, is_owned=is_owned)
    assert found.state == state
    assert reason in found.reason


def test_a_quiet_topic_is_no_stop_before_its_owner_had_time_to_read() -> None:
    """Nothing came for minutes, so nothing was committed; then a message comes, or a new owner."""
    history = PartitionHistory()

    def state(now_s: int, end: int, owner: str = "a") -> str:
        now_ms = now_s * 1000
        history.note(now_ms, 100, 1, end, owner=owner)
        since_ms = history.reading_since_ms(now_ms, 100)
        return judge(
            history.commits, end - 100, now_ms, is_owned=True, reading_since_ms=since_ms
        ).state

    seen = [(0, 100), (300, 150), (329, 150), (331, 150)]
    assert [state(*each) for each in seen] == ["OK", "OK", "OK", "STOP"]
    assert [state(now_s, 150, "b") for now_s in (340, 369, 371)] == ["OK", "OK", "STOP"]


def test_group_is_as_its_worst_partition() -> None:
    good = judge(commits([(1, 0)]), 0, 100_000, is_owned=True)
    bad = judge(commits([(1, 9)]), 9, 100_000, is_owned=False)
    large = Judged("t 0-2", 90, bad)
    found = worst([Judged("t 0-0", 0, good), Judged("t 0-1", 9, bad), large])
    assert found == replace(bad, reason=f"t 0-2: {bad.reason}")
    assert worst([Judged("t 0-0", 0, good)]) == good
    assert worst([]).state == "UNKNOWN"


def test_a_new_version_is_a_commit_and_the_same_is_none() -> None:
    history = PartitionHistory()
    history.note(0, 100, 1, 150)
    history.note(1000, 100, 1, 180)
    history.note(2000, 100, 2, 200)
    assert [commit.lag_bytes for commit in history.commits] == [50, 100]


def test_lag_in_time_is_the_age_of_the_first_unread_byte() -> None:
    history = PartitionHistory()
    for at, end in ((0, 100), (1000, 200), (2000, 300)):
        history.note(at, 100, 1, end)
    ages = {100: 4000, 250: 3000, 300: 0, None: None}
    assert {offset: history.lag_ms(5000, offset) for offset in ages} == ages


def test_a_group_that_commits_rarely_and_then_hangs_is_stop_and_its_age_grows() -> None:
    """Sampled every 4 s: as many ends as are kept come within eight minutes."""
    history = PartitionHistory()
    hangs_s, ends_s = 1_000, 8_000

    def offset(at_s: int) -> int:
        return 10 * (min(at_s, hangs_s) // 60 * 60)

    for at_s in range(0, ends_s, 4):
        history.note(at_s * 1000, offset(at_s), offset(at_s), 10 * at_s, owner="a")
        assert len(history.ends) <= ENDS_KEPT
    unread_s = hangs_s // 60 * 60  # the first byte that is not read came just behind it
    age_ms = history.lag_ms(ends_s * 1000, offset(ends_s))
    assert age_ms == (ends_s - unread_s - 4) * 1000
    since_ms = history.reading_since_ms(ends_s * 1000, offset(ends_s))
    lag = 10 * ends_s - offset(ends_s)
    found = judge(history.commits, lag, ends_s * 1000, is_owned=True, reading_since_ms=since_ms)
    assert found.state == "STOP"
    ages = [history.lag_ms(ends_s * 1000, 10 * at_s) for at_s in range(unread_s, ends_s, 4)]
    assert all(
        age is not None and age <= (ends_s - at_s) * 1000
        for age, at_s in zip(ages, range(unread_s, ends_s, 4), strict=True)
    ), "lower bounds"


def test_what_came_between_distant_samples_is_not_called_new() -> None:
    """It came just now, or just after the first."""
    history = PartitionHistory()
    # At 24 s the broker was away.
    for at_s, end in ((0, 100), (4, 100), (24, None), (28, 300)):
        history.note(at_s * 1000, 100, 1, end)
    ages = [history.lag_ms(at_s * 1000, 100) for at_s in (28, 37, 38, 60)]
    assert ages == [None, None, 10_000, 32_000]


def test_what_is_in_a_new_log_is_not_as_old_as_the_bytes_of_the_one_before() -> None:
    history = PartitionHistory()
    history.note(0, 1000, 1, 1000)
    for at_ms in (5_000, 90_000, 95_000):
        history.note(at_ms, 1000, 1, 2000)
    assert history.lag_ms(95_000, 1000) == 90_000
    history.note(100_000, 0, 2, 50)  # the broker's disk was lost
    assert history.lag_ms(103_000, 0) is None, "or the log was cut, and the rest is old"
    history.note(112_000, 0, 2, 90)
    assert history.lag_ms(112_000, 0) == 12_000
