"""The verdict on a consumer group from its recent commits, by Burrow's rules, with a reason.

Burrow (LinkedIn) judges a partition by its last committed offsets and never by a threshold. Unlike
Burrow, lag is taken from the current end of the log, not the end at the last commit, so a stopped
consumer cannot show an old lag of zero. The first rule that holds:

  0  the offset is past the end of the log, or the
     partition has unread messages and no owner           STOP    (not in Burrow)
  1  the current lag is 0                                 OK      (only while it has an owner)
  2  a committed offset is lower than the one before      REWIND
  3  no commit for longer than the commits span, while
     there was something to read and an owner to read it  STOP    (UNKNOWN if there may have been)
  4  the lag was 0 at a sampled commit                    OK
  5  the committed offset never changed                   STALL
  6  the lag never fell between two commits               WARN
  7  otherwise                                            OK
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

COMMITS_KEPT = 10
ENDS_KEPT = 120
# A byte written between two samples further apart may be much older than the second of them.
SAMPLES_MS_MAX = 10_000
# Rule 3 compares with the span of the commits; below this span a short pause would be STOP.
SPAN_MS_MIN = 30_000

OK, WARN, STALL, STOP, REWIND, UNKNOWN = "OK", "WARN", "STALL", "STOP", "REWIND", "UNKNOWN"
WATCH = "watch it for longer"
TOO_FEW = f"too few commits to judge: {WATCH}"
NO_END = "no end of the log is known: the broker is away, or has this partition no more"
SEVERITY = (OK, UNKNOWN, WARN, STALL, STOP, REWIND)
ERRORS = frozenset({STALL, STOP, REWIND})


class Commit(NamedTuple):
    """A sampled commit: its time, offset, and the lag at that time."""

    at_ms: int
    offset: int
    lag_bytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict. `complete`: share of COMMITS_KEPT that has been sampled, 0 to 1."""

    state: str
    reason: str
    complete: float = 1.0


def judge(
    commits: Sequence[Commit],
    lag_bytes: int | None,
    now_ms: int,
    *,
    is_owned: bool,
    reading_since_ms: int = 0,
    maybe_since_ms: int | None = None,
    commits_min: int = 1,
    past_end_bytes: int = 0,
    is_another_log: bool = False,
) -> Verdict:
    """The verdict on one partition; `lag_bytes` is the current lag, None when unknown.

    `reading_since_ms`: since then the owner has had something to read; before, maybe not, or it was
    not the owner: a topic may be quiet for longer than any span. `maybe_since_ms`: since when it
    can have had something at the earliest (default: the same).
    `commits_min`: with fewer commits, rule 7 is UNKNOWN, since too little was sampled.
    `past_end_bytes`: how far the stored offset is past the end of the log. `is_another_log`: what
    stands before the offset is not what the group has read.
    """
    complete = min(1.0, len(commits) / COMMITS_KEPT)
    if not commits:
        return Verdict(UNKNOWN, "no offset was committed", complete)
    if past_end_bytes:
        reason = (
            f"the offset is {past_end_bytes:,} bytes past the end of the log: that was lost, cut "
            "or replaced"
        )
        return Verdict(STOP, reason, complete)
    if is_another_log:
        reason = "other bytes stand before the offset than were read: the log was lost or replaced"
        return Verdict(STOP, reason, complete)
    if lag_bytes is None:
        return Verdict(UNKNOWN, NO_END, complete)
    if not is_owned and lag_bytes > 0:
        return Verdict(STOP, "the partition has unread messages and no owner", complete)
    if lag_bytes == 0:
        return Verdict(OK, "nothing is left to read", complete)
    pairs = list(pairwise(commits))
    for before, after in pairs:
        if after.offset < before.offset:
            return Verdict(
                REWIND, f"the offset went back from {before.offset:,} to {after.offset:,}", complete
            )
    span_ms = max(commits[-1].at_ms - commits[0].at_ms, SPAN_MS_MIN)
    quiet_ms = now_ms - max(commits[-1].at_ms, reading_since_ms)
    if quiet_ms > span_ms:
        return Verdict(STOP, f"nothing was committed for {quiet_ms / 1000:.0f} s", complete)
    earliest_ms = reading_since_ms if maybe_since_ms is None else maybe_since_ms
    maybe_ms = now_ms - max(commits[-1].at_ms, earliest_ms)
    if maybe_ms > span_ms:
        reason = (
            f"nothing was committed for {maybe_ms / 1000:.0f} s, and maybe nothing was left to "
            f"read: {WATCH}"
        )
        return Verdict(UNKNOWN, reason, complete)
    caught_up = [commit.at_ms for commit in commits if commit.lag_bytes == 0]
    if caught_up:
        ago_s = max(0, now_ms - caught_up[-1]) / 1000
        return Verdict(OK, f"it had caught up {ago_s:.0f} s ago", complete)
    if len(commits) == COMMITS_KEPT and commits[0].offset == commits[-1].offset:
        return Verdict(STALL, f"the offset stays at {commits[-1].offset:,}", complete)
    if len(commits) == COMMITS_KEPT and all(a.lag_bytes >= b.lag_bytes for b, a in pairs):
        return Verdict(WARN, "the lag never fell between two commits: it reads too slowly")
    if len(commits) < commits_min:
        return Verdict(UNKNOWN, TOO_FEW, complete)
    return Verdict(OK, "it reads and the lag falls from time to time", complete)


class Judged(NamedTuple):
    """A partition of a group, as it is named to people, with its lag and verdict."""

    name: str
    lag_bytes: int | None
    verdict: Verdict


def worst(partitions: Iterable[Judged]) -> Verdict:
    """The group's verdict: its worst partition's, of equal ones that of the largest lag. The reason
    names the partition unless it is OK: what is wrong with one is not so of the others."""
    one = max(
        partitions,
        key=lambda found: (SEVERITY.index(found.verdict.state), found.lag_bytes or 0),
        default=None,
    )
    if one is None:
        return Verdict(UNKNOWN, "no partition has an owner or an offset", 0.0)
    if one.verdict.state == OK:
        return one.verdict
    return replace(one.verdict, reason=f"{one.name}: {one.verdict.reason}")


class PartitionHistory:
    """The last commits of one partition of a group, and the ends of its log with their times."""

    __slots__ = ("_owned_ms", "_owner", "_sampled_ms", "_version", "commits", "ends")

    def __init__(self) -> None:
        self.commits: deque[Commit] = deque(maxlen=COMMITS_KEPT)
        # (Time, end, time of the sample before): the last end that was read, and those behind it.
        self.ends: list[tuple[int, int, int]] = []
        self._sampled_ms: int | None = None
        self._version: int | None = None
        self._owner: str | None = None
        self._owned_ms = 0

    def note(
        self,
        now_ms: int,
        offset: int | None,
        version: int | None,
        end: int | None,
        committed_ms: int | None = None,
        *,
        owner: str = "",
    ) -> None:
        """Add a sample of the stored offset, its node's version, the log's end, and the owner.

        A new version is a commit, even with the same offset. `committed_ms`: the time of the write,
        when known; else the commit counts as made now.
        """
        if owner != self._owner:
            if self._owner is not None:  # else it may have owned it before the first sample
                self._owned_ms = now_ms
            self._owner = owner
        before_ms = now_ms if self._sampled_ms is None else self._sampled_ms
        if end is not None and self.ends and end < self.ends[-1][1]:
            # Another log, or a cut one: nothing is known of when its bytes came.
            self.ends.clear()
            before_ms = 0
        if end is not None and (not self.ends or self.ends[-1][1] != end):
            self._forget_ends(offset)
            self.ends.append((now_ms, end, before_ms))
        if end is not None:
            self._sampled_ms = now_ms
        if offset is None or end is None or version == self._version:
            return
        self._version = version
        at_ms = now_ms if committed_ms is None else min(now_ms, committed_ms)
        self.commits.append(Commit(at_ms, offset, max(0, end - offset)))

    def _forget_ends(self, offset: int | None) -> None:
        """Keep fewer than ENDS_KEPT ends. The first that is not read is always kept. Instead of any
        other that is dropped a later one is used, so ages stay lower bounds.
        """
        while offset is not None and len(self.ends) > 1 and self.ends[1][1] <= offset:
            del self.ends[0]
        if len(self.ends) >= ENDS_KEPT:
            del self.ends[2 : ENDS_KEPT // 2 : 2]

    def lag_ms(self, now_ms: int, offset: int | None) -> int | None:
        """The age of the first unread byte, by the sampled ends; a lower bound when it is older
        than the first sample, or came between distant samples. None when nothing is known, or when
        that bound is useless."""
        if offset is None or not self.ends:
            return None
        for at_ms, end, before_ms in self.ends:
            if end > offset:
                age_ms = max(0, now_ms - at_ms)
                is_vague = age_ms < SAMPLES_MS_MAX < at_ms - before_ms
                return None if is_vague else age_ms
        return 0

    def reading_since_ms(self, now_ms: int, offset: int | None) -> int:
        """The time since which the owner has had something to read, as sampled; for `judge`."""
        return max(self._owned_ms, now_ms - (self.lag_ms(now_ms, offset) or 0))


def total_lag(lags: Iterable[int | None]) -> int | None:
    """The sum, in bytes; None if one of them is not known."""
    found = list(lags)
    known = [lag for lag in found if lag is not None]
    return sum(known) if len(known) == len(found) else None
