"""Burrow's rules, one claim each."""

from kafka2011.consumer.tools.lag_rules import Commit, PartitionHistory, judge, worst


def commits(*pairs: tuple[int, int], every_ms: int = 10_000) -> list[Commit]:
    return [Commit(number * every_ms, offset, lag) for number, (offset, lag) in enumerate(pairs)]


NOW = 100_000


def test_nothing_left_to_read_is_ok() -> None:
    assert judge(commits((100, 50)), 0, NOW, is_owned=True).state == "OK"


def test_unowned_partition_with_something_to_read_is_stopped_whatever_was_committed() -> None:
    assert judge(commits((100, 0)), 10, 1, is_owned=False).state == "STOP"


def test_offset_that_goes_back_is_a_rewind() -> None:
    found = judge(commits((200, 9), (100, 109)), 109, 20_000, is_owned=True)
    assert found.state == "REWIND"
    assert "200" in found.reason


def test_consumer_that_commits_no_more_is_stopped_even_when_it_had_caught_up() -> None:
    # Burrow's known hole: a lag of zero at the last commit hid a dead consumer.
    seen = commits((100, 0), (200, 0))
    assert judge(seen, 500, 10_000 + 29_000, is_owned=True).state == "OK"
    assert judge(seen, 500, 10_000 + 31_000, is_owned=True).state == "STOP"


def test_ten_commits_of_one_offset_are_a_stall() -> None:
    seen = commits(*[(100, 10 + number) for number in range(10)])
    assert judge(seen, 30, NOW, is_owned=True).state == "STALL"
    assert judge(seen[:9], 30, NOW, is_owned=True).state == "OK"


def test_lag_that_never_falls_is_a_warning() -> None:
    seen = commits(*[(100 + number, 10 + number) for number in range(10)])
    assert judge(seen, 30, NOW, is_owned=True).state == "WARN"


def test_lag_that_falls_once_is_ok() -> None:
    seen = commits(*[(100 + number, 30 if number != 5 else 3) for number in range(10)])
    assert judge(seen, 30, NOW, is_owned=True).state == "OK"


def test_unknown_without_offset_or_end() -> None:
    assert judge([], 5, NOW, is_owned=True).state == "UNKNOWN"
    assert judge(commits((1, 1)), None, NOW, is_owned=True).state == "UNKNOWN"


def test_group_is_as_its_worst_partition() -> None:
    good = judge(commits((1, 0)), 0, NOW, is_owned=True)
    bad = judge(commits((1, 9)), 9, NOW, is_owned=False)
    assert worst([good, bad]).state == "STOP"
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
    assert history.lag_ms(5000, 100) == 4000
    assert history.lag_ms(5000, 250) == 3000
    assert history.lag_ms(5000, 300) == 0
    assert history.lag_ms(5000, None) is None
