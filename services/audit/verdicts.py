"""Decides what the audit says: a cell's verdict, which extras are excused, the exit status.

Pure; no clock, no sockets, no files. A cell is one (topic, window, server). A tier is a place that
every message of a cell must reach: `live`, then `offline`, then `warehouse`. `expected` of a tier
is what producers reported on the tier's own cluster or on one before it, `counted` what was read
at the tier.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

# What `count_by_window` files messages under whose header cannot be read. No producer's number can
# ever stand against them, so they never have to wait for one.
UNREADABLE_WINDOW = -1

# A redelivery shows up in windows that began before the restart, or while the restarted process
# and its peers were still sorting out who reads what; after that an extra has no excuse any more.
REDELIVERY_GRACE_MS = 600_000

State = Literal["pending", "complete", "missing", "extra", "redelivered"]
STATES: tuple[State, ...] = ("pending", "complete", "missing", "extra", "redelivered")


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that was started again during the run. `time_ms`: when it was started again."""

    name: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reader of one tier has come.

    `read_to_ms`: everything that was visible at this time (ms since the epoch) on the brokers
    that answer has been counted. `away`: who does not answer, in words; empty when all do.
    """

    read_to_ms: int
    away: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One tier's verdict on one cell, in messages.

    A recount, which knows guids, can find lost messages and copies in one cell; the running
    service knows the difference only, so that at most one of the three numbers is not 0.
    """

    state: State
    missing: int = 0
    extra: int = 0
    redelivered: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        """`complete`, `missing 2`, `missing 1, redelivered 3`."""
        parts = [
            f"{name} {number}"
            for name, number in (
                ("missing", self.missing),
                ("extra", self.extra),
                ("redelivered", self.redelivered),
            )
            if number
        ]
        return ", ".join(parts) or self.state

    @property
    def balances(self) -> bool:
        """True unless this verdict alone makes the exit status 1."""
        return not self.missing and not self.extra


def settles_at_ms(window_start_ms: int, window_ms: int, lateness_ms: int) -> int:
    """When a cell may be judged: its window is over and the allowed lateness has passed."""
    if window_start_ms <= UNREADABLE_WINDOW:
        return 0
    return window_start_ms + window_ms + lateness_ms


def judge(
    expected: int,
    counted: int,
    *,
    settles_ms: int,
    now_ms: int,
    tier: Progress,
    reports: Progress,
    is_excused: bool = False,
) -> Verdict:
    """The verdict of the running service on one cell at one tier.

    `settles_ms` as of `settles_at_ms`, 0 to judge at once (the producers have stopped).
    `tier` is the progress of the tier's reader, `reports` that of the readers of monitoring
    events. A reader that is behind makes the cell pending, since reading on may change it; a
    broker that does not answer does not, since nobody knows when it will: then the verdict is
    given on what is there, with the reason.
    """
    if now_ms < settles_ms:
        return Verdict("pending", reason="window open")
    if tier.read_to_ms < settles_ms:
        return Verdict("pending", reason="reader behind")
    if reports.read_to_ms < settles_ms:
        return Verdict("pending", reason="producers' reports not read yet")
    if counted < expected:
        return Verdict("missing", missing=expected - counted, reason=tier.away)
    if counted > expected:
        return surplus_verdict(counted - expected, is_excused, reports.away)
    return Verdict("complete")


def surplus_verdict(surplus: int, is_excused: bool, reason: str = "") -> Verdict:
    """Messages beyond the producers' number: redelivered where a restart explains them."""
    if is_excused:
        return Verdict("redelivered", redelivered=surplus, reason=reason)
    return Verdict("extra", extra=surplus, reason=reason)


@dataclass(frozen=True, slots=True)
class GuidCounts:
    """What a recount found out about one cell at one tier by looking at every guid.

    `counted` messages with `distinct` guids; `seen_before`: distinct guids at earlier tiers;
    `lost`: those of them that are not here; `seen`: distinct guids here or earlier.
    """

    counted: int = 0
    distinct: int = 0
    lost: int = 0
    seen: int = 0
    seen_before: int = 0


def judge_guids(expected: int, found: GuidCounts, *, is_excused: bool = False) -> Verdict:
    """The verdict of a recount on one cell at one tier.

    Missing are the guids that stood earlier and do not stand here, and those that were reported
    and stand nowhere. Copies and unreported messages are extra, or redelivered where excused, and
    never make up for a missing one.
    """
    missing = found.lost + max(0, expected - found.seen)
    # Unreported messages that are new here stand here. Of those that stood earlier, the lost ones
    # are taken to be the first, so that nothing is called extra that may not be here at all.
    earlier = max(0, found.seen_before - expected)
    new = max(0, found.seen - expected) - earlier
    surplus = found.counted - found.distinct + new + max(0, earlier - found.lost)
    if not missing and not surplus:
        return Verdict("complete")
    extra, redelivered = (0, surplus) if is_excused else (surplus, 0)
    state: State = "missing" if missing else "extra" if extra else "redelivered"
    return Verdict(state, missing=missing, extra=extra, redelivered=redelivered)


def is_excused(
    window_start_ms: int, restarts: Iterable[Restart], grace_ms: int = REDELIVERY_GRACE_MS
) -> bool:
    """True when a restart explains extras in the window: it began before the restart was over."""
    return UNREADABLE_WINDOW < window_start_ms <= excused_up_to_ms(restarts, grace_ms)


def excused_up_to_ms(restarts: Iterable[Restart], grace_ms: int = REDELIVERY_GRACE_MS) -> int:
    """`is_excused` for windows that began then or before, UNREADABLE_WINDOW for none."""
    return max((restart.time_ms + grace_ms for restart in restarts), default=UNREADABLE_WINDOW)


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """0 when nothing is missing and nothing is extra; pending and redelivered do not count."""
    return 0 if all(verdict.balances for verdict in verdicts) else 1


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
