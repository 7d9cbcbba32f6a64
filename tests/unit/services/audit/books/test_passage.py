from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.services.audit.books.passage import (
    Backlog,
    DeletedRange,
    Passage,
    Passages,
    TopicWindow,
    deleted_notes,
)
from kafka2011.services.audit.books.progress import PartitionKey, ReadPosition

ONE = PartitionKey("live", "t", 1, 0)
TWO = PartitionKey("live", "t", 2, 0)
WINDOW = TopicWindow("t", 0)
ENDS = {ONE: 300, TWO: 0}


def passages() -> Passages:
    """Offsets 0 to 300 of one partition: window 0 up to 100, 10 up to 200, 20 up to 300."""
    found = Passages(("live", "offline", "warehouse"))
    for number in range(3):
        start = 100 * number
        found.counted(ONE, {10 * number}, start, start + 100, now_ms=5_000 * number)
    return found


def confirmed(offset: int, found: Passages | None = None) -> Passages:
    """`passages` after the mirror has confirmed everything below `offset`."""
    found = found or passages()
    found.confirm(ONE, offset, asked_ms=1, seen_ms=1)
    found.settle("live", 1, {ONE: ReadPosition(offset)})
    return found


def deleted(found: Passages, earliest: int) -> None:
    """The source deletes up to there, and the tier behind has nothing to say."""
    found.set_earliest(ONE, earliest, seen_ms=1)
    found.asked([ONE], 1)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, [Passage.BEHIND, Passage.BEHIND, Passage.BEHIND]),
        (99, [Passage.BEHIND, Passage.BEHIND, Passage.BEHIND]),
        (100, [Passage.PASSED, Passage.BEHIND, Passage.BEHIND]),
        (250, [Passage.PASSED, Passage.PASSED, Passage.BEHIND]),
        (300, [Passage.PASSED, Passage.PASSED, Passage.PASSED]),
    ],
)
def test_a_window_is_passed_when_all_its_offsets_are_confirmed(
    offset: int, expected: list[Passage]
) -> None:
    found = confirmed(offset)
    assert [found.of("live", TopicWindow("t", start)) for start in (0, 10, 20)] == expected


def test_a_window_is_as_far_as_its_last_partition() -> None:
    found = confirmed(300)
    found.counted(TWO, {0}, 0, 50, now_ms=0)
    assert found.of("live", WINDOW) is Passage.BEHIND
    found.confirm(TWO, 50, asked_ms=2, seen_ms=2)
    found.settle("live", 2, {TWO: ReadPosition(50)})
    assert found.of("live", WINDOW) is Passage.PASSED


def test_what_is_confirmed_counts_when_the_tier_behind_is_read_up_to_then() -> None:
    found = passages()
    for asked_ms, offset in ((10, 100), (20, 200), (30, 300)):
        found.confirm(ONE, offset, asked_ms, asked_ms)
    ends = []
    for read_to_ms in (9, 10, 29, 30):
        found.settle("live", read_to_ms, {ONE: ReadPosition(300)})
        ends.append(300 - found.backlog("live", ENDS).bytes)
    assert ends == [0, 100, 100, 300], "of several that wait only the first and the newest are kept"


@pytest.mark.parametrize(
    ("earliest", "offset", "expected"),
    [
        (100, 0, [Passage.PASSED, Passage.BEHIND]),  # window 0 is deleted whole: nothing will come
        (50, 0, [Passage.GONE, Passage.BEHIND]),  # in part: how much of it will come is not known
        (50, 60, [Passage.BEHIND, Passage.BEHIND]),  # deleted behind what was confirmed
        (150, 120, [Passage.PASSED, Passage.GONE]),
    ],
)
def test_what_the_source_deletes_first_will_not_come(
    earliest: int, offset: int, expected: list[Passage]
) -> None:
    found = confirmed(offset)
    both = [TopicWindow("t", start) for start in (0, 10)]
    before = [found.of("live", window) for window in both]
    found.set_earliest(ONE, earliest, seen_ms=10)
    found.asked([ONE], 9)  # it may have confirmed them since, and before they were deleted
    found.asked([TWO], 10)
    assert ([found.of("live", window) for window in both], found.deleted()) == (before, [])
    found.asked([ONE], 10)
    assert [found.of("live", window) for window in both] == expected
    ranges = [DeletedRange("offline", ONE, offset, earliest)] if earliest > offset else []
    assert found.deleted() == ranges
    found.confirm(ONE, 200, 20, 20)
    found.asked([ONE], 20)
    assert [found.of("live", window) for window in both] == expected, "not counted yet"
    assert found.settle("live", 20, {ONE: ReadPosition(300)}) == ranges, "passed from now on"
    assert found.deleted() == []


def test_many_deleted_partitions_of_a_topic_are_one_line() -> None:
    ranges = [DeletedRange("offline", ONE._replace(partition=n), 5, 9) for n in range(3)]
    ranges.append(DeletedRange("offline", ONE._replace(topic="u"), 0, 7))
    said = "from offset 5 to 9 was deleted before offline had confirmed it"
    assert deleted_notes(ranges) == {
        ("offline", "t"): f"live t 1-0: {said} (and the like of 2 more partitions)",
        ("offline", "u"): f"live u 1-0: {said.replace('5 to 9', '0 to 7')}",
    }


def test_what_is_confirmed_and_not_counted_yet_is_not_deleted_untaken() -> None:
    """The audit reads the tier late, or was away for longer than the source keeps its messages: it
    called them missing, and noted the range for good."""
    found = confirmed(0)
    found.set_earliest(ONE, 150, seen_ms=10)
    found.confirm(ONE, 200, asked_ms=10, seen_ms=11)
    found.asked([ONE], 10)
    assert found.of("live", WINDOW) is Passage.BEHIND
    assert (found.deleted(), found.settle("live", 10, {ONE: ReadPosition(300)})) == ([], [])
    assert found.of("live", WINDOW) is Passage.PASSED


def test_what_was_deleted_and_still_in_hand_is_taken_back() -> None:
    found = confirmed(0)
    for asked_ms, offset, expected in ((10, 0, Passage.PASSED), (20, 50, Passage.GONE)):
        found.set_earliest(ONE, 200, seen_ms=10)
        found.confirm(ONE, offset, asked_ms, asked_ms)
        found.asked([ONE], asked_ms)
        assert [(each.first, each.last) for each in found.deleted()] == [(offset, 200)]
        assert found.of("live", WINDOW) is expected, "a part of it is on its way"
    assert found.went_back, "a window that was passed is not"
    found.settle("live", 20, {ONE: ReadPosition(300)})
    assert found.of("live", WINDOW) is Passage.PASSED


def test_a_second_deleted_range_waits_until_the_first_is_counted() -> None:
    found = confirmed(0)
    for asked_ms, offset, earliest in ((10, 0, 50), (20, 100, 150)):
        found.set_earliest(ONE, earliest, seen_ms=asked_ms)
        found.confirm(ONE, offset, asked_ms, asked_ms)
        found.asked([ONE], asked_ms)
    first, second = DeletedRange("offline", ONE, 0, 50), DeletedRange("offline", ONE, 100, 150)
    assert found.deleted() == [first]
    assert found.settle("live", 20, {ONE: ReadPosition(300)}) == [first]
    found.asked([ONE], 30)
    assert found.deleted() == [second]


def test_a_first_confirmation_says_nothing_of_what_was_deleted_before() -> None:
    found = Passages(("live", "offline"))
    found.counted(ONE, {0}, 500, 600, now_ms=0)
    found.set_earliest(ONE, 550, seen_ms=20)
    found.confirm(ONE, 600, 20, 20)
    found.asked([ONE], 20)
    assert found.settle("live", 20, {ONE: ReadPosition(600)}) == [], "it may have been there long"


def test_deletions_of_before_the_audit_are_not_held_against_a_mirror_that_never_copied() -> None:
    found = Passages(("live", "offline"))
    deleted(found, 500)
    assert found.deleted() == []
    found.counted(ONE, {0}, 500, 600, now_ms=0)
    assert found.deleted() == []
    deleted(found, 600)
    assert found.deleted() == [DeletedRange("offline", ONE, 500, 600)]
    found.confirm(ONE, 600, 20, 20)
    passed = found.settle("live", 20, {ONE: ReadPosition(600)})
    assert passed == [DeletedRange("offline", ONE, 500, 600)]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, Backlog(300, since_ms=0)),
        (150, Backlog(150, since_ms=5_000)),
        (200, Backlog(100, since_ms=10_000)),
        (300, Backlog()),
    ],
)
def test_the_backlog_is_as_old_as_the_first_read_behind_what_is_confirmed(
    offset: int, expected: Backlog
) -> None:
    assert confirmed(offset).backlog("live", ENDS) == expected


def test_a_log_that_began_anew_holds_nothing_back() -> None:
    found = confirmed(100)
    found.replace(ONE, 300)
    asked(found, 0)
    assert found.of("live", TopicWindow("t", 20)) is Passage.PASSED
    found.counted(ONE, {20}, 0, 40, now_ms=0)
    assert found.of("live", TopicWindow("t", 20)) is Passage.BEHIND


def stopped_mirror(offset: int | None, end: int = 200) -> Passages:
    """The mirror had confirmed `offset` when the log, read up to 300, was lost. Of the new log
    window 20 is read, up to `end`."""
    found = passages() if offset is None else confirmed(offset)
    found.replace(ONE, 300)
    found.counted(ONE, {20}, 0, end, now_ms=20_000)
    return found


def asked(found: Passages, offset: int, end: int = 200, read_to_ms: int = 3) -> Passage:
    """How far window 20 is once the mirror said `offset`. The log is read up to `end`."""
    found.confirm(ONE, offset, asked_ms=2, seen_ms=2)
    found.settle("live", 2, {ONE: ReadPosition(end, read_to_ms)})
    return found.of("live", TopicWindow("t", 20))


@pytest.mark.parametrize("offset", [100, 250, 300])
def test_what_the_mirror_had_confirmed_of_a_lost_log_confirms_nothing_of_the_new(
    offset: int,
) -> None:
    """It says the same for as long as it has taken nothing of the new one."""
    found = stopped_mirror(offset)
    assert asked(found, offset) is not Passage.PASSED
    found.counted(ONE, {20}, 200, 400, now_ms=30_000)
    assert asked(found, offset, 400) is not Passage.PASSED, "the new log has that offset now"
    assert found.unconfirmed("live", {ONE: 400}) == [ONE], "it is asked again"
    assert asked(found, 400, 400) is Passage.PASSED


def test_what_a_mirror_still_had_of_a_lost_log_is_not_taken_for_the_new_one() -> None:
    found = stopped_mirror(100)
    assert asked(found, 180) is not Passage.PASSED, "of either log"
    assert asked(found, 170) is not Passage.PASSED, "it went back: of the new one"
    assert asked(found, 200) is Passage.PASSED


def test_what_was_not_confirmed_of_a_lost_log_is_open_until_the_mirror_is_in_the_new() -> None:
    """It may have read more than it had confirmed; then it has what it had."""
    found = stopped_mirror(150)
    windows = [TopicWindow("t", start) for start in (0, 10, 20)]
    assert [found.of("live", each) for each in windows] == [
        Passage.PASSED,
        Passage.GONE,
        Passage.GONE,
    ]
    asked(found, 100)
    assert [found.of("live", each) for each in windows] == [
        Passage.PASSED,
        Passage.PASSED,
        Passage.BEHIND,
    ]


@pytest.mark.parametrize(
    ("read_to_ms", "expected"), [(1, Passage.BEHIND), (2, Passage.BEHIND), (3, Passage.BEHIND)]
)
def test_an_offset_beyond_the_end_of_the_log_confirms_nothing(
    read_to_ms: int, expected: Passage
) -> None:
    """It is of an older log; before the log is read up to then that is not known."""
    found = Passages(("live", "offline"))
    found.counted(ONE, {20}, 0, 200, now_ms=0)
    assert asked(found, 1000, read_to_ms=read_to_ms) is expected
    assert asked(found, 200) is Passage.PASSED


def test_an_offset_that_the_audit_has_not_read_to_counts_once_it_has() -> None:
    found = Passages(("live", "offline"))
    found.counted(ONE, {20}, 0, 200, now_ms=0)
    assert asked(found, 300, read_to_ms=1) is Passage.BEHIND
    found.counted(ONE, {20}, 200, 300, now_ms=0)
    found.settle("live", 2, {ONE: ReadPosition(300, 1)})
    assert found.of("live", TopicWindow("t", 20)) is Passage.PASSED


def test_what_the_mirror_had_confirmed_beyond_an_election_confirms_nothing_after_it() -> None:
    found = confirmed(300)
    found.cut(ONE, 150, 300)
    found.counted(ONE, {20}, 150, 400, now_ms=20_000)
    assert asked(found, 300, 400) is Passage.BEHIND
    assert found.of("live", WINDOW) is Passage.PASSED, "that was before the election"
    assert asked(found, 200, 400) is Passage.BEHIND
    assert asked(found, 400, 400) is Passage.PASSED


def test_what_the_mirror_had_passed_before_an_election_stays_passed_and_no_more() -> None:
    found = passages()
    found.confirm(ONE, 300, asked_ms=1, seen_ms=1)  # not settled yet
    found.cut(ONE, 150, 300)
    found.counted(ONE, {20}, 150, 400, now_ms=20_000)
    found.settle("live", 2, {ONE: ReadPosition(400)})
    assert found.of("live", TopicWindow("t", 10)) is Passage.PASSED
    assert asked(found, 300, 400) is Passage.BEHIND
    assert asked(found, 400, 400) is Passage.PASSED


def test_windows_of_an_earlier_run_lie_anywhere_below_where_it_had_read() -> None:
    found = Passages(("live", "offline", "warehouse"))
    found.restore({WINDOW}, {ONE: 300})
    assert found.of("live", TopicWindow("t", 10)) is Passage.PASSED, "counted by neither run"
    assert found.of("live", WINDOW) is Passage.BEHIND
    assert confirmed(299, found).of("live", WINDOW) is Passage.BEHIND
    assert confirmed(300, found).of("live", WINDOW) is Passage.PASSED


@pytest.mark.parametrize("forget", [lambda _: None, lambda p: p.keep_windows({WINDOW})])
def test_windows_without_an_open_cell_are_forgotten(forget: Callable[[Passages], None]) -> None:
    found = passages()
    forget(found)
    assert found.of("live", WINDOW) is Passage.BEHIND
    found.keep_windows(set())
    assert found.of("live", WINDOW) is Passage.PASSED


def test_the_reads_on_record_are_bounded() -> None:
    found = Passages(("live", "offline"))
    for second in range(10_000):
        found.counted(ONE, {0}, second, second + 1, now_ms=1000 * second)
    since_ms = confirmed(5_000, found).backlog("live", {ONE: 10_000}).since_ms
    assert since_ms <= 5_000_000, "never younger than it is"
    assert since_ms >= 4_900_000


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["take", "delete"]), st.integers(0, 20)),
    st.tuples(st.sampled_from(["see", "ask", "count"]), st.just(0)),
)


@given(st.lists(STEPS, max_size=60))
def test_what_is_said_of_a_window_holds_in_whatever_order_all_is_seen(
    steps: list[tuple[str, int]],
) -> None:
    """A source that deletes, a tier that takes, and an audit that sees each of the two, and counts,
    at moments of its own."""
    found = Passages(("live", "offline"))
    log: list[int] = []  # the window of the message at each offset
    taken = earliest = counted = 0
    lost: set[int] = set()  # offsets that were deleted before they were taken
    asked: list[tuple[int, int]] = []  # when, and up to where the tier had taken
    for now_ms, (step, number) in enumerate(steps):
        passed = []
        if step == "write":
            found.counted(ONE, {number}, len(log), len(log) + 1, now_ms)
            log.append(number)
        elif step == "take":
            taken = max(taken, min(number, len(log)))
        elif step == "delete" and earliest < number <= len(log):
            lost |= set(range(max(taken, earliest), number))
            earliest = number
            taken = max(taken, earliest) if now_ms % 2 else taken  # it may jump at once, or later
        elif step == "see":
            found.set_earliest(ONE, earliest, now_ms)
        elif step == "ask":
            asked.append((now_ms, taken))
            found.confirm(ONE, taken, now_ms, now_ms)
            found.asked([ONE], now_ms)
        elif step == "count":
            passed = found.settle("live", now_ms, {ONE: ReadPosition(len(log), now_ms)})
            counted = max([counted, *(offset for _, offset in asked)])
        for each in (*passed, *found.deleted()):
            assert set(range(each.first, each.last)) <= lost
        for window in set(log):
            offsets = {at for at, of in enumerate(log) if of == window}
            passage = found.of("live", TopicWindow("t", window))
            if passage is Passage.PASSED:
                assert all(at < counted or at in lost for at in offsets)
            elif passage is Passage.GONE:
                assert offsets & lost
            else:
                assert max(offsets) >= counted


def test_a_note_on_lost_logs_is_of_one_topic() -> None:
    """`audit --topic` leaves out notes of others: one must not stand for a log of the topic."""
    found = confirmed(200)
    keys = [TWO, PartitionKey("live", "t", 3, 0), PartitionKey("live", "u", 1, 0)]
    for key in keys:
        found.confirm(key, 50, asked_ms=1, seen_ms=1)
        found.settle("live", 1, {key: ReadPosition(50)})
    for key in (ONE, *keys):
        found.replace(key, 60)
    first, second = found.outlived()
    assert first.startswith("live t 1-0: ")
    assert first.endswith(" (and the like of 2 more partitions)")
    assert second.startswith("live u 1-0: ")
    assert "like of" not in second
