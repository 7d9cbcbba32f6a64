"""The verdict on one cell at one tier, from its numbers and from how far the tier has been read.

Pure; no clock, no sockets, no files. A cell is one (topic, window, server). A tier is a place that
every message of a cell must reach: `live`, then `offline`, then `warehouse`. `expected` of a tier
is what producers reported on the tier's own cluster or on one before it, `counted` what was read
at the tier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kafka2011.services.audit.books.progress import TierProgress

# The window of messages whose header cannot be read (`events.peek.count_by_window`). No producer
# reports them, so they are judged without waiting for a report.
UNREADABLE_WINDOW = -1

State = Literal["pending", "complete", "missing", "extra", "redelivered"]
STATES: tuple[State, ...] = ("pending", "complete", "missing", "extra", "redelivered")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one cell at one tier, in messages.

    A recount compares guids and can find lost messages and copies in one cell. The running service
    has only the difference, so that at most one of the three numbers is not 0.
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
    tier: TierProgress,
    reports: TierProgress,
    is_excused: bool = False,
) -> Verdict:
    """The verdict of the running service on one cell at one tier.

    `settles_ms` as of `settles_at_ms`, 0 to judge at once (the producers have stopped).
    `tier` is the progress of the tier's reader, `reports` that of the readers of monitoring
    events. A reader that is behind makes the cell pending, since reading on may change it. A broker
    that does not answer does not, since it may never answer: then the verdict is given on what was
    read, with the reason.
    """
    if now_ms < settles_ms:
        return Verdict("pending", reason="window open")
    if tier.read_to_ms < settles_ms:
        return Verdict("pending", reason="reader behind")
    if reports.read_to_ms < settles_ms:
        return Verdict("pending", reason="producers' reports not read yet")
    if counted < expected:
        return Verdict("missing", missing=expected - counted, reason=tier.unreachable)
    if counted > expected:
        surplus = counted - expected
        if is_excused:
            return Verdict("redelivered", redelivered=surplus, reason=reports.unreachable)
        return Verdict("extra", extra=surplus, reason=reports.unreachable)
    return Verdict("complete")


@dataclass(frozen=True, slots=True)
class GuidCounts:
    """What a recount found about one cell at one tier by comparing every guid.

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
    # Unreported messages that entered here are here. Of unreported ones from earlier tiers, lost
    # messages are counted against them first: a message that may be lost is never called extra.
    earlier = max(0, found.seen_before - expected)
    new = max(0, found.seen - expected) - earlier
    surplus = found.counted - found.distinct + new + max(0, earlier - found.lost)
    if not missing and not surplus:
        return Verdict("complete")
    extra, redelivered = (0, surplus) if is_excused else (surplus, 0)
    state: State = "missing" if missing else "extra" if extra else "redelivered"
    return Verdict(state, missing=missing, extra=extra, redelivered=redelivered)


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
