"""The verdicts on one cell at every tier, from its numbers and from how far the tiers have come.

Pure; no clock, no sockets, no files. A cell is one (topic, window, server). A tier is a place that
every message of a cell must reach: `live`, then `offline`, then `warehouse`. `expected` of a tier
is what producers reported on the tier's own cluster or on one before it, `counted` what was read
at the tier. Missing is said only of what cannot come any more (docs/audit.md names one exception);
what may still come is behind, and where the audit cannot know, it says unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from kafka2011.consumer.counting.verdicts import NOT_REPORTED, REPORTS_BEHIND
from kafka2011.events.sequences import GAP_WAIT_MS
from kafka2011.services.audit.books.heartbeats import Beat
from kafka2011.services.audit.books.passage import Passage
from kafka2011.services.audit.books.progress import Doubt, TierProgress

# The window of messages whose header cannot be read (`events.peek.count_by_window`). No producer
# reports them, so they are judged without waiting for a report.
UNREADABLE_WINDOW = -1

State = Literal[
    "pending",
    "complete",
    "behind",
    "missing",
    "unknown",
    "extra",
    "redelivered",
    "not audited",
]
STATES: tuple[State, ...] = get_args(State)
# Why a cell is pending in normal operation; any other reason is a fault that delays it.
WINDOW_OPEN = "window open"
READER_BEHIND = "reader behind"
USUAL_WAITS = frozenset({WINDOW_OPEN, READER_BEHIND, REPORTS_BEHIND, NOT_REPORTED})
NOT_HEARD = "their producer has not been heard again"
NUMBERS = ("missing", "unknown", "behind", "extra", "redelivered")  # of a Verdict, worst first


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one cell at one tier, in messages.

    `missing` will not come any more, `behind` may still come, of `unknown` neither is known. A
    recount compares guids and can find lost messages and copies in one cell. The running service
    has only the difference, so that one of `extra` and `redelivered` excludes the others.
    """

    state: State
    missing: int = 0
    unknown: int = 0
    behind: int = 0
    extra: int = 0
    redelivered: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        """`complete`, `missing 2`, `missing 1, redelivered 3`."""
        parts = [f"{name} {getattr(self, name)}" for name in NUMBERS if getattr(self, name)]
        return ", ".join(parts) or self.state


def settles_at_ms(window_start_ms: int, window_ms: int, lateness_ms: int) -> int:
    """When a cell may be judged: its window is over and the allowed lateness has passed."""
    if window_start_ms <= UNREADABLE_WINDOW:
        return 0
    return window_start_ms + window_ms + lateness_ms


@dataclass(frozen=True, slots=True)
class TierView:
    """What is known of one tier about one cell.

    `settles_ms` as of `settles_at_ms`, 0 to judge at once (the producers have stopped). `progress`
    is that of the tier's reader. `passage` says how far the tier has taken the cell's window from
    the tier before; PASSED at the first tier. `absent`: why the tier may have messages of the topic
    that its reader does not know of; `unfollowed`: why it is not known how far it has come. What
    the tier has too much is explained, if anything explains it, by a report or heartbeat that was
    written by `due_ms`; `beat`: the last heartbeat of the cell's server into the tier's cluster, if
    it is to send more.
    """

    expected: int
    counted: int
    settles_ms: int
    progress: TierProgress
    passage: Passage = Passage.PASSED
    absent: str = ""
    unfollowed: str = ""
    due_ms: int = 0
    beat: Beat | None = None


class Unreported(NamedTuple):
    """Messages above what was reported, of a producer of which nothing was read since, and why a
    report of them may still come."""

    messages: int = 0
    reason: str = ""


def judge(
    tiers: Sequence[TierView],
    *,
    now_ms: int,
    reports: TierProgress,
    reported_ms: int = 0,
    has_gap: bool = False,
    awaited: str = "",
    is_excused: bool = False,
) -> list[Verdict]:
    """The verdicts of the running service on one cell, by tier.

    `reports` is the progress of the readers of monitoring events, `reported_ms` when the last one
    of the cell was read: a tier that is read up to then has shown all that was reported.
    `has_gap`: a monitoring event that may have counted messages of the cell was not read, so that
    `expected` may be too small; `awaited`: why such an event may still be read.
    """
    verdicts = []
    before = _NOTHING_BEFORE
    for tier in tiers:
        before = _through(tier, before, now_ms, reports, reported_ms)
        verdicts.append(
            _pending(tier, now_ms, reports)
            or _settled(
                tier, before, reports, has_gap=has_gap, awaited=awaited, is_excused=is_excused
            )
        )
    return verdicts


class _Flow(NamedTuple):
    """What of a cell has come up to a tier, this one included, and what not. Of what may still come
    to it (`behind`), `unsure` may as well be lost, for the reason `doubt`; `reason` is that of the
    rest. `loss`: an unclean election there or before."""

    expected: int
    counted: int
    behind: int
    reason: str
    unsure: int
    doubt: str
    unreported: Unreported
    loss: str


_NOTHING_BEFORE = _Flow(0, 0, 0, "", 0, "", Unreported(), "")


def _through(
    tier: TierView, before: _Flow, now_ms: int, reports: TierProgress, reported_ms: int
) -> _Flow:
    """What of a cell has come up to a tier; `before`: up to the one before it."""
    progress = tier.progress
    is_read = progress.read_to_ms >= reported_ms and not progress.unreachable
    if before is _NOTHING_BEFORE and 0 < reported_ms <= progress.answered_to_ms:
        is_read = True  # it was there when it was reported: a broker that goes away hides none
    absent = tier.absent if tier.passage is Passage.PASSED else ""
    behind = _behind(tier, before, is_all_there=is_read and not absent)
    doubt = _doubt(tier, absent if now_ms - reported_ms >= GAP_WAIT_MS else "")
    # What may as well be lost at the tier before comes no further, either.
    unsure = behind if doubt else min(behind, before.unsure)
    return _Flow(
        tier.expected,
        tier.counted,
        behind,
        (progress.unreachable or absent) if behind else "",
        unsure,
        doubt or (before.doubt if unsure else ""),
        _unreported(tier, before.unreported, now_ms, reports),
        progress.loss or before.loss,
    )


def _behind(tier: TierView, before: _Flow, *, is_all_there: bool) -> int:
    """How much of what a tier lacks may still come. `is_all_there`: all that it has was read."""
    shortage = max(0, tier.expected - tier.counted)
    if not is_all_there:
        return shortage
    if tier.passage is Passage.PASSED:
        return min(shortage, before.behind)
    # All that is at the tier before, except what has certainly come from there.
    entered_here = tier.expected - before.expected
    came = max(0, tier.counted - entered_here)
    return min(shortage, max(0, before.counted + before.behind - came))


def _doubt(tier: TierView, absent: str) -> str:
    """Why what may still come to a tier may as well be lost; `absent`: for how long already its
    reader does not know of the topic."""
    if tier.passage is Passage.GONE:
        return "partly deleted or lost in the tier before, before this tier took it"
    return tier.unfollowed if tier.passage is Passage.BEHIND else absent


def _unreported(
    tier: TierView, before: Unreported, now_ms: int, reports: TierProgress
) -> Unreported:
    """What of a tier's surplus its producer may still report."""
    surplus = max(0, tier.counted - tier.expected)
    if surplus and tier.beat is not None and tier.beat.time_ms < tier.due_ms:
        return Unreported(surplus, _not_heard(tier.beat, now_ms, reports))
    return before._replace(messages=min(surplus, before.messages))


def _pending(tier: TierView, now_ms: int, reports: TierProgress) -> Verdict | None:
    if now_ms < tier.settles_ms:
        return Verdict("pending", reason=WINDOW_OPEN)
    if tier.progress.read_to_ms < tier.settles_ms:
        return Verdict("pending", reason=tier.progress.unreachable or READER_BEHIND)
    if reports.read_to_ms < tier.settles_ms:
        return Verdict("pending", reason=REPORTS_BEHIND)
    return None


def _settled(
    tier: TierView,
    flow: _Flow,
    reports: TierProgress,
    *,
    has_gap: bool,
    awaited: str,
    is_excused: bool,
) -> Verdict:
    """The verdict on a cell that is not pending."""
    missing, unknown = max(0, tier.expected - tier.counted) - flow.behind, flow.unsure
    behind, reason = flow.behind - flow.unsure, flow.doubt if flow.unsure else flow.reason
    surplus = max(0, tier.counted - tier.expected)
    if missing:
        return Verdict("missing", missing, unknown, behind, reason=flow.loss or reason)
    if unknown:
        return Verdict("unknown", unknown=unknown, behind=behind, reason=reason)
    if has_gap:
        reason = "a monitoring event was not read"
        return Verdict("unknown", behind=behind, unknown=surplus, reason=reason)
    if behind:
        return Verdict("behind", behind=behind, reason=reason)
    if awaited:
        return Verdict("pending", reason=awaited)
    if not surplus:
        return Verdict("complete")
    # Messages are read before the report that counts them, copies before a restart's heartbeat.
    if reports.read_to_ms < tier.due_ms:
        return Verdict("pending", reason=NOT_REPORTED)
    surplus -= flow.unreported.messages
    if not surplus:
        return Verdict("pending", reason=flow.unreported.reason)
    # A broker that no longer answers can have more reports only if it was not read up to then.
    are_read = not reports.unreachable or 0 < tier.settles_ms <= reports.whole_to_ms
    if is_excused and are_read:
        return Verdict("redelivered", redelivered=surplus)
    if are_read and (not reports.unreachable or tier.due_ms <= reports.whole_to_ms):
        return Verdict("extra", extra=surplus)
    return Verdict("pending", reason=reports.unreachable)


def _not_heard(beat: Beat, now_ms: int, reports: TierProgress) -> str:
    """Why nothing was read of a producer since `beat`: it is silent only where what it may have
    sent in the last intervals is read, too."""
    if reports.unreachable:
        return reports.unreachable
    if now_ms < beat.due_ms:
        return NOT_REPORTED
    silence_ms = beat.due_ms - beat.time_ms
    is_read = reports.read_to_ms >= max(beat.due_ms, now_ms - silence_ms)
    return NOT_HEARD if is_read else REPORTS_BEHIND


def doubted(verdict: Verdict, window_start_ms: int, doubts: Sequence[Doubt]) -> Verdict:
    """The verdict on a cell of that window where what was counted may not be what is there, or what
    was reported not all that producers did."""
    for doubt in doubts:
        if verdict.state == "pending" or window_start_ms > doubt.until_ms:
            continue
        if doubt.of_reports and window_start_ms <= UNREADABLE_WINDOW:
            continue
        unknown = verdict.unknown + verdict.missing
        if doubt.of_reports:
            surplus = verdict.extra + verdict.redelivered
            if surplus:
                verdict = Verdict("unknown", unknown=surplus, reason=doubt.reason)
            continue
        if doubt.is_any:
            return Verdict("unknown", unknown=unknown + verdict.behind, reason=doubt.reason)
        if verdict.missing:
            verdict = replace(
                verdict, state="unknown", missing=0, unknown=unknown, reason=doubt.reason
            )
    return verdict


HOW_FAR_UNKNOWN = "how far this tier had come is not known: behind or missing"
SENT_AGAIN = "as many copies are there: sent and reported again, or in place of lost ones"
LOST_AHEAD = "only in a log of a tier before that is lost: this tier may have read it before that"


@dataclass(frozen=True, slots=True)
class GuidCounts:
    """What a recount found about one cell at one tier by comparing every guid.

    `counted` messages with `distinct` guids; `seen_before`: distinct guids at earlier tiers;
    `behind`: those of them that are not here and may still come; `lost`: those that are not here
    and will not; `unsure`: those of which this is not known; `seen`: distinct guids here or
    earlier. `equal`: of messages without guids, those equal to another of the cell here, byte for
    byte: copies or not.
    """

    counted: int = 0
    distinct: int = 0
    lost: int = 0
    behind: int = 0
    seen: int = 0
    seen_before: int = 0
    unsure: int = 0
    equal: int = 0


def judge_guids(
    expected: int,
    found: GuidCounts,
    *,
    is_excused: bool = False,
    has_gap: bool = False,
    unread: str = "",
    may_come: bool = False,
    loss: str = "",
    entered_copies: int = 0,
    seen_later: int = 0,
) -> Verdict:
    """The verdict of a recount on one cell at one tier.

    Missing are the guids that are at an earlier tier and not here, and those that were reported
    and are nowhere. Copies and unreported messages are extra, or redelivered where excused, and
    never make up for a guid that another tier has. Of what was reported and is nowhere as much is
    unknown as there are `entered_copies`, those at the tiers up to here where producers enter: who
    sends a message again may report it again. `seen_later`: guids that were reported here or before
    and that only tiers behind this one have.

    `has_gap` as for `judge`; `unread`: why messages may be at the tier that were not read, so that
    what is not found is unknown; `may_come`: what is found nowhere may still come, of a log that is
    lost. `loss`: the unclean election by which messages may be missing.
    """
    nowhere = max(0, expected - found.seen)
    again = min(max(0, nowhere - seen_later), entered_copies)
    missing = found.lost + (0 if may_come else nowhere - again)
    # Unreported messages that entered here are here. From unreported ones of earlier tiers, lost
    # messages are deducted first: a message that may be lost is never called extra.
    earlier = max(0, found.seen_before - expected)
    new = max(0, found.seen - expected) - earlier
    copies = max(0, found.counted - found.distinct - again)
    surplus = copies + new + max(0, earlier - found.lost - found.behind - found.unsure)
    unknown = found.unsure + (nowhere if may_come else again)
    reason = HOW_FAR_UNKNOWN if found.unsure else LOST_AHEAD if may_come and nowhere else ""
    reason = reason or (SENT_AGAIN if again else "")
    reason = loss if missing and loss else reason
    if unread:
        missing, unknown, reason = 0, unknown + missing, unread
    if has_gap:  # unreported messages may be those that the unread event counted
        unknown, surplus, reason = (
            unknown + surplus - copies,
            copies,
            "a monitoring event was not read",
        )
    extra, redelivered = (0, surplus) if is_excused else (surplus, 0)
    state: State = "complete"
    for name, is_so in (
        ("missing", missing),
        ("unknown", unknown or has_gap),
        ("extra", extra),
        ("behind", found.behind),
        ("redelivered", redelivered),
    ):
        if is_so:
            state = name  # type: ignore[assignment]
            break
    return Verdict(state, missing, unknown, found.behind, extra, redelivered, reason)


def expected_of(produced: Sequence[int]) -> list[int]:
    """Reported numbers by the tier where the producer entered -> expected number at each tier.

    A message that enters at `offline` must reach offline and warehouse, never live.
    """
    expected = []
    running = 0
    for number in produced:
        running += number
        expected.append(running)
    return expected
