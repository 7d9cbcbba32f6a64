"""The tables of verdicts, written out."""

import itertools

import pytest

from kafka2011.services.audit.books.progress import TierProgress
from kafka2011.services.audit.verdicts import (
    GuidCounts,
    Verdict,
    expected_of,
    judge,
    judge_guids,
    settles_at_ms,
)

SETTLES = 1000
READ = TierProgress(SETTLES)
BEHIND = TierProgress(SETTLES - 1)


def verdict(
    expected: int,
    counted: int,
    *,
    now: int = SETTLES,
    tier: TierProgress = READ,
    reports: TierProgress = READ,
    excused: bool = False,
) -> Verdict:
    return judge(
        expected,
        counted,
        settles_ms=SETTLES,
        now_ms=now,
        tier=tier,
        reports=reports,
        is_excused=excused,
    )


@pytest.mark.parametrize(
    ("expected", "counted", "excused", "text"),
    [
        (0, 0, False, "complete"),
        (5, 5, False, "complete"),
        (5, 5, True, "complete"),
        (5, 4, False, "missing 1"),
        (5, 0, False, "missing 5"),
        (5, 4, True, "missing 1"),
        (5, 6, False, "extra 1"),
        (0, 3, False, "extra 3"),
        (5, 6, True, "redelivered 1"),
        (0, 3, True, "redelivered 3"),
    ],
)
def test_a_settled_cell_whose_readers_are_up_to_date(
    expected: int, counted: int, excused: bool, text: str
) -> None:
    assert verdict(expected, counted, excused=excused).text == text


@pytest.mark.parametrize(
    ("expected", "counted", "excused"), list(itertools.product([0, 5], [0, 4, 5, 6], [True, False]))
)
def test_an_open_window_is_pending_whatever_the_numbers(
    expected: int, counted: int, excused: bool
) -> None:
    found = verdict(expected, counted, now=SETTLES - 1, excused=excused)
    assert (found.text, found.reason) == ("pending", "window open")


@pytest.mark.parametrize(("expected", "counted"), list(itertools.product([0, 5], [0, 4, 5, 6])))
def test_a_reader_that_is_behind_makes_a_settled_cell_pending(expected: int, counted: int) -> None:
    assert verdict(expected, counted, tier=BEHIND).reason == "reader behind"
    found = verdict(expected, counted, reports=BEHIND)
    assert (found.text, found.reason) == ("pending", "producers' reports not read yet")


def test_a_broker_that_does_not_answer_is_the_reason_of_missing_and_extra_cells() -> None:
    away = TierProgress(SETTLES, "broker 11 does not answer")
    assert verdict(5, 3, tier=away) == Verdict("missing", missing=2, reason=away.unreachable)
    assert verdict(3, 5, reports=away) == Verdict("extra", extra=2, reason=away.unreachable)
    assert verdict(5, 5, tier=away).text == "complete"


def test_a_cell_settles_when_its_window_and_the_lateness_are_over_and_without_header_at_once() -> (
    None
):
    assert settles_at_ms(10_000, 5_000, 700) == 15_700
    assert settles_at_ms(-1, 5_000, 700) == 0


def counts(counted: int, distinct: int, *, before: int, lost: int = 0) -> GuidCounts:
    return GuidCounts(counted, distinct, lost, seen=lost + distinct, seen_before=before)


# --- recount: by guid ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found", "text"),
    [
        (5, counts(5, 5, before=5), "complete"),
        (5, counts(5, 5, before=0), "complete"),
        (0, GuidCounts(), "complete"),
        # Gone on the way: an earlier tier has two that are not here.
        (5, counts(3, 3, lost=2, before=5), "missing 2"),
        # Gone before the first tier: reported and nowhere.
        (5, counts(3, 3, before=0), "missing 2"),
        (5, counts(3, 3, before=3), "missing 2"),
        # One of each.
        (5, counts(3, 3, lost=1, before=4), "missing 2"),
        # A copy does not make up for a lost message, though the sums agree.
        (5, counts(5, 4, lost=1, before=5), "missing 1, extra 1"),
        (5, counts(8, 5, before=5), "extra 3"),
        # An unreported message that entered here does not make up for a lost one either.
        (5, counts(5, 5, lost=1, before=5), "missing 1, extra 1"),
        # An unreported message came along from the earlier tier ...
        (5, counts(6, 6, before=6), "extra 1"),
        # ... or did not: which of the six was lost cannot be seen.
        (5, counts(5, 5, lost=1, before=6), "missing 1"),
        (5, counts(4, 4, lost=2, before=6), "missing 2"),
        # Not reported at all.
        (0, counts(3, 2, before=0), "extra 3"),
        (0, counts(0, 0, lost=2, before=2), "missing 2"),
    ],
)
def test_a_recount_distinguishes_lost_from_copied(
    expected: int, found: GuidCounts, text: str
) -> None:
    assert judge_guids(expected, found).text == text


def test_a_recount_lists_copies_as_redelivered_after_a_restart_but_never_a_loss() -> None:
    found = counts(6, 4, lost=1, before=5)
    verdict = judge_guids(5, found, is_excused=True)
    assert verdict.text == "missing 1, redelivered 2"
    assert verdict.state == "missing"


def test_a_message_is_expected_where_it_enters_and_behind() -> None:
    assert expected_of([5, 2, 0]) == [5, 7, 7]
    assert expected_of([0, 2, 0]) == [0, 2, 2]
