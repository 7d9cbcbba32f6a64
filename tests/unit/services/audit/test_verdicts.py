"""The tables of verdicts, written out."""

from dataclasses import replace
from typing import Any

import pytest

from kafka2011.cli.audit_table import STYLES
from kafka2011.services.audit import verdicts
from kafka2011.services.audit.books.passage import Passage
from kafka2011.services.audit.books.progress import TierProgress
from kafka2011.services.audit.verdicts import STATES, GuidCounts, TierView, Verdict, judge

SETTLES = 1000
READ, BEHIND = TierProgress(SETTLES), TierProgress(SETTLES - 1)


def verdict(
    expected: int,
    counted: int,
    *,
    tier: TierProgress = READ,
    settles_ms: int = SETTLES,
    **less: Any,
) -> Verdict:
    """On a cell where its producers write, settled and read up to now unless `less` says so."""
    most = {"now_ms": SETTLES, "reports": READ, "reported_ms": SETTLES}
    (found,) = judge([TierView(expected, counted, settles_ms, tier)], **(most | less))
    return found


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
    assert verdict(expected, counted, is_excused=excused).text == text


def test_what_an_unclean_election_lost_is_missing_with_the_reason_there_and_behind_it() -> None:
    lost = replace(READ, loss="unclean election")
    assert verdict(5, 3, tier=lost) == Verdict("missing", 2, reason="unclean election")
    assert verdict(5, 5, tier=lost) == Verdict("complete")
    views = [TierView(5, 3, SETTLES, lost), TierView(5, 3, SETTLES, READ)]
    found = judge(views, now_ms=SETTLES, reports=READ)
    assert [(one.missing, one.reason) for one in found] == [(2, "unclean election")] * 2
    # A set without leader may have them all.
    away = replace(READ, unreachable="live broker 1 has no leader")
    assert verdict(5, 3, tier=away).text == "behind 2"


@pytest.mark.parametrize(
    ("less", "reason"),
    [
        ({"now_ms": SETTLES - 1}, "window open"),
        ({"tier": BEHIND}, "reader behind"),
        ({"reports": BEHIND}, "producers' reports not read yet"),
    ],
)
@pytest.mark.parametrize("expected", [0, 5])
@pytest.mark.parametrize("counted", [0, 4, 5, 6])
@pytest.mark.parametrize("excused", [True, False])
def test_a_cell_is_pending_whatever_the_numbers_until_its_time_is_over_and_all_is_read(
    less: dict[str, Any], reason: str, expected: int, counted: int, excused: bool
) -> None:
    found = verdict(expected, counted, is_excused=excused, **less)
    assert found == Verdict("pending", reason=reason)


@pytest.mark.parametrize(
    ("expected", "counted", "text"),
    [(5, 5, "complete"), (5, 3, "behind 2"), (5, 6, "extra 1")],
)
def test_a_broker_that_does_not_answer_may_have_what_is_not_there(
    expected: int, counted: int, text: str
) -> None:
    away = TierProgress(SETTLES, "broker 11 does not answer")
    found = verdict(expected, counted, tier=away)
    assert found.text == text
    assert found.reason == (away.unreachable if found.behind else "")


def test_messages_whose_report_may_stand_on_an_unreachable_broker_are_not_extra() -> None:
    away = TierProgress(SETTLES, "broker 11 does not answer")
    found = verdict(3, 5, reports=away)
    assert (found.text, found.reason) == ("pending", away.unreachable)


@pytest.mark.parametrize(
    ("whole_to_ms", "text"), [(SETTLES - 1, "pending"), (SETTLES, "redelivered 2")]
)
def test_what_was_redelivered_stays_so_when_a_broker_goes_away_whose_reports_were_read(
    whole_to_ms: int, text: str
) -> None:
    away = TierProgress(SETTLES, "broker 11 does not answer", whole_to_ms=whole_to_ms)
    assert verdict(3, 5, reports=away, is_excused=True).text == text
    # Judged at once: it is not known up to when reports could have come.
    assert verdict(3, 5, reports=away, is_excused=True, settles_ms=0).text == "pending"


def test_a_tier_not_read_up_to_the_report_is_behind() -> None:
    view = TierView(5, 3, SETTLES, READ)
    (found,) = judge([view], now_ms=SETTLES, reports=READ, reported_ms=SETTLES + 1)
    assert found.text == "behind 2"


@pytest.mark.parametrize(
    ("expected", "counted", "found"),
    [
        (5, 5, Verdict("unknown")),
        (5, 7, Verdict("unknown", unknown=2)),  # perhaps those of the lost report
        (5, 3, Verdict("missing", missing=2)),  # so many at least
    ],
)
def test_a_lost_report_leaves_unknown_what_it_may_have_counted(
    expected: int, counted: int, found: Verdict
) -> None:
    judged = verdict(expected, counted, has_gap=True, is_excused=True)
    assert judged == replace(found, reason=judged.reason)


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        (5, Verdict("pending", reason="broker 2 is away")),
        (7, Verdict("pending", reason="broker 2 is away")),
        (3, Verdict("missing", missing=2)),  # so many at least
    ],
)
def test_a_report_that_may_still_be_read_leaves_pending_what_it_may_have_counted(
    counted: int, found: Verdict
) -> None:
    assert verdict(5, counted, awaited="broker 2 is away", is_excused=True) == found


PASSED, BEHIND_SOURCE, GONE = Passage.PASSED, Passage.BEHIND, Passage.GONE


@pytest.mark.parametrize(
    ("counted", "passages", "texts"),
    [
        # live, offline, warehouse; nine were reported in live
        ((9, 9, 9), (PASSED, PASSED), ["complete", "complete", "complete"]),
        ((9, 9, 5), (PASSED, BEHIND_SOURCE), ["complete", "complete", "behind 4"]),
        ((9, 9, 5), (PASSED, PASSED), ["complete", "complete", "missing 4"]),
        ((9, 9, 5), (PASSED, GONE), ["complete", "complete", "unknown 4"]),
        # The mirror is late, so that the loads have nothing to take yet, however far they are.
        ((9, 4, 4), (BEHIND_SOURCE, PASSED), ["complete", "behind 5", "behind 5"]),
        ((9, 4, 3), (BEHIND_SOURCE, PASSED), ["complete", "behind 5", "missing 1, behind 5"]),
        ((9, 4, 3), (BEHIND_SOURCE, BEHIND_SOURCE), ["complete", "behind 5", "behind 6"]),
        ((9, 4, 4), (PASSED, PASSED), ["complete", "missing 5", "missing 5"]),
        ((9, 4, 2), (PASSED, BEHIND_SOURCE), ["complete", "missing 5", "missing 5, behind 2"]),
        ((7, 7, 7), (BEHIND_SOURCE, PASSED), ["missing 2", "missing 2", "missing 2"]),
        # What may be lost ahead of a tier may never come to those behind it.
        ((9, 4, 4), (GONE, PASSED), ["complete", "unknown 5", "unknown 5"]),
        ((9, 4, 3), (GONE, PASSED), ["complete", "unknown 5", "missing 1, unknown 5"]),
        ((9, 4, 3), (GONE, BEHIND_SOURCE), ["complete", "unknown 5", "unknown 5, behind 1"]),
    ],
)
def test_what_may_still_come_is_behind_and_what_cannot_is_missing(
    counted: tuple[int, int, int], passages: tuple[Passage, Passage], texts: list[str]
) -> None:
    views = [
        TierView(9, count, SETTLES, READ, passage)
        for count, passage in zip(counted, (PASSED, *passages), strict=True)
    ]
    assert [each.text for each in judge(views, now_ms=SETTLES, reports=READ)] == texts


def test_messages_that_enter_behind_a_late_tier_do_not_wait_for_it() -> None:
    """Four enter at live and are late, three at offline, where one of them is lost."""
    views = [
        TierView(4, 4, SETTLES, READ),
        TierView(7, 2, SETTLES, READ, BEHIND_SOURCE),
    ]
    live, offline = judge(views, now_ms=SETTLES, reports=READ)
    assert (live.text, offline.text) == ("complete", "missing 1, behind 4")


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_its_colour(state: str) -> None:
    assert STYLES[state.split(" ", maxsplit=1)[0]]


def test_a_cell_settles_after_its_window_and_the_lateness_and_without_a_header_at_once() -> None:
    assert verdicts.settles_at_ms(10_000, 5_000, 700) == 15_700
    assert verdicts.settles_at_ms(-1, 5_000, 700) == 0


# --- recount: by guid ---------------------------------------------------------------------------


def counts(
    counted: int, distinct: int, *, before: int, lost: int = 0, behind: int = 0
) -> GuidCounts:
    seen = lost + behind + distinct
    return GuidCounts(counted, distinct, lost, behind, seen=seen, seen_before=before)


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
        # The next tier has not come to two of them.
        (5, counts(3, 3, behind=2, before=5), "behind 2"),
        (5, counts(2, 2, behind=2, lost=1, before=5), "missing 1, behind 2"),
        (5, counts(4, 4, behind=2, before=6), "behind 2"),
        # Of two of them it is not known whether the next tier has passed them.
        (5, GuidCounts(3, 3, seen=5, seen_before=5, unsure=2), "unknown 2"),
        (5, GuidCounts(2, 2, lost=1, seen=5, seen_before=5, unsure=2), "missing 1, unknown 2"),
        (5, GuidCounts(4, 4, seen=6, seen_before=6, unsure=2), "unknown 2"),
    ],
)
def test_a_recount_distinguishes_lost_from_copied(
    expected: int, found: GuidCounts, text: str
) -> None:
    assert verdicts.judge_guids(expected, found).text == text


def test_a_recount_lists_copies_as_redelivered_after_a_restart_but_never_a_loss() -> None:
    found = verdicts.judge_guids(5, counts(6, 4, lost=1, before=5), is_excused=True)
    assert found == Verdict("missing", missing=1, redelivered=2)
    assert found.text == "missing 1, redelivered 2"


@pytest.mark.parametrize(
    ("expected", "found", "seen_later", "text"),
    [
        # Sent twice and reported twice.
        (8, counts(8, 4, before=0), 0, "unknown 4"),
        # Of five that were sent again, one had not been reported.
        (8, counts(9, 4, before=0), 0, "unknown 4, extra 1"),
        # More is lost than copies can be in place of.
        (9, counts(7, 4, before=0), 0, "missing 2, unknown 3"),
        # Copies of which none was reported.
        (4, counts(7, 4, before=0), 0, "extra 3"),
        # A tier behind this one has two of those that are not here.
        (8, counts(8, 4, before=0), 2, "missing 2, unknown 2, extra 2"),
        (8, counts(8, 4, before=0), 5, "missing 4, extra 4"),
    ],
)
def test_what_was_sent_again_may_have_been_reported_again(
    expected: int, found: GuidCounts, seen_later: int, text: str
) -> None:
    judged = verdicts.judge_guids(
        expected, found, entered_copies=found.counted - found.distinct, seen_later=seen_later
    )
    assert judged.text == text
    assert judged.reason == ("as many copies" in judged.reason) * verdicts.SENT_AGAIN
    assert bool(judged.reason) == bool(judged.unknown)


def test_copies_that_were_made_on_the_way_are_not_reported_again() -> None:
    """The mirror made three of these; two had entered."""
    found = GuidCounts(9, 4, seen=4, seen_before=4)
    assert verdicts.judge_guids(6, found, entered_copies=2).text == "unknown 2, extra 3"


def test_a_message_is_expected_where_it_enters_and_behind() -> None:
    assert verdicts.expected_of([5, 2, 0]) == [5, 7, 7]
    assert verdicts.expected_of([0, 2, 0]) == [0, 2, 2]
