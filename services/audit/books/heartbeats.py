"""The last heartbeat of every server, and which servers are silent. Pure.

A server without messages to send still sends heartbeats, so silence means that it is dead, cut off
or stuck. After a goodbye heartbeat it is not silent. Time is the moment up to which the topic
`audit` has been read, not the clock: heartbeats that are not read yet are not missing.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafka2011.events.monitoring import BEATS_MISSED

SERVERS_MAX = 10_000
RESTARTS_MAX = 1_000
# Of one sender, while a long history is read partition by partition; the oldest are dropped without
# a word.
SPANS_MAX = 10_000


class Sender(NamedTuple):
    """A server that sends heartbeats. `tier`: the cluster that it writes to."""

    tier: str
    server: str


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat of a sender: its header.time and the interval to the next one, ms."""

    time_ms: int
    interval_ms: int
    is_last: bool
    instance: str = ""

    @property
    def due_ms(self) -> int:
        """From when on the sender is silent unless another heartbeat was read, ms."""
        return self.time_ms + BEATS_MISSED * self.interval_ms

    def clamped(self, now_ms: int) -> "Beat":
        """The heartbeat; as of `now_ms` if a clock ahead dated it later."""
        return self if self.time_ms <= now_ms else replace(self, time_ms=now_ms)


class Span(NamedTuple):
    """Heartbeats of one instance without a silence between them, from `first_ms` to `last_ms`.

    `is_last`: the last one is a goodbye. `seen_ms`: when the first one of them was read; 0: what
    was before it has been judged.
    """

    first_ms: int
    last_ms: int
    interval_ms: int
    is_last: bool
    instance: str
    seen_ms: int

    @property
    def due_ms(self) -> int:
        return self.last_ms + BEATS_MISSED * self.interval_ms

    def meets(self, other: "Span") -> bool:
        """Whether both, this one the earlier, are one span. Behind a goodbye another one begins; a
        heartbeat in front of it may be read later, of another partition."""
        is_same = self.instance in (other.instance, "")
        return is_same and other.first_ms <= (self.last_ms if self.is_last else self.due_ms)

    def joined(self, other: "Span") -> "Span":
        """Both spans as one; this one began earlier."""
        last = max(self, other, key=lambda each: (each.last_ms, each.is_last))
        return last._replace(first_ms=self.first_ms, seen_ms=min(self.seen_ms, other.seen_ms))


def _alone(beat: Beat, seen_ms: int) -> Span:
    time_ms = beat.time_ms
    return Span(time_ms, time_ms, beat.interval_ms, beat.is_last, beat.instance, seen_ms)


class Heartbeats:
    """The newest heartbeat of each sender, and the restarts that heartbeats show.

    The heartbeats of a sender lie in several partitions, which are read in any order. They are kept
    as spans until all that was visible with a span's first heartbeat is read: only then can it be
    said what was before it. Not thread-safe; `state.AuditState` owns one and locks.
    """

    def __init__(self) -> None:
        self.beats: dict[Sender, Beat] = {}
        self.spans: dict[Sender, list[Span]] = {}  # in the order of time; nearly always one
        self._unjudged: set[Sender] = set()
        self.dirty: set[Sender] = set()
        # Senders that came back after a death or a pause, and when (ms), the newest last.
        self.restarts: deque[tuple[Sender, int]] = deque(maxlen=RESTARTS_MAX)
        self.new_restarts: list[tuple[Sender, int]] = []  # since they were last stored

    def add(self, sender: Sender, beat: Beat, now_ms: int) -> None:
        """Note one heartbeat, read at `now_ms`; one that a clock ahead dated later is of now."""
        beat = beat.clamped(now_ms)
        known = self.beats.get(sender)
        if known is None or known.time_ms <= beat.time_ms:
            self.beats[sender] = beat
        self._enter(sender, _alone(beat, now_ms))
        self.dirty.add(sender)
        if len(self.beats) > SERVERS_MAX:
            self._forget(min(self.beats, key=lambda each: self.beats[each].time_ms))

    def _enter(self, sender: Sender, span: Span) -> None:
        spans = self.spans.setdefault(sender, [])
        at = bisect_right(spans, span.first_ms, key=lambda each: each.first_ms)
        if at > 0 and spans[at - 1].meets(span):
            at -= 1
            span = spans.pop(at).joined(span)
        while at < len(spans) and span.meets(spans[at]):
            span = span.joined(spans.pop(at))
        if not at and spans and not spans[0].seen_ms:
            return  # it is late
        spans.insert(at, span)
        if len(spans) > SPANS_MAX:
            del spans[0]
        if len(spans) > 1 or span.seen_ms:
            self._unjudged.add(sender)

    def settle(self, tier: str, read_to_ms: int) -> None:
        """Judge the spans of which all is read that was visible at `read_to_ms` in the tier's topic
        `audit`: one that follows another without a goodbye is a restart."""
        for sender in [each for each in self._unjudged if each.tier == tier]:
            spans = self.spans[sender]
            before: Span | None = None
            while spans and spans[0].seen_ms <= read_to_ms:
                if before is not None and not before.is_last:
                    self.restarts.append((sender, spans[0].first_ms))
                    self.new_restarts.append((sender, spans[0].first_ms))
                before = spans.pop(0)._replace(seen_ms=0)
            if before is not None:
                spans.insert(0, before)
                self.dirty.add(sender)
            if len(spans) == 1 and not spans[0].seen_ms:
                self._unjudged.discard(sender)

    def restore(self, sender: Sender, beat: Beat, spans: Iterable[Span]) -> None:
        """Take over what an earlier run of the service stored of a sender."""
        self.beats[sender] = beat
        self.spans[sender] = [*spans] or [_alone(beat, 0)]
        self._unjudged.add(sender)

    def clamp(self, now_ms: int) -> None:
        """Take moments on record later than `now_ms` for that moment."""
        for sender, spans in self.spans.items():
            self.beats[sender] = self.beats[sender].clamped(now_ms)
            self.spans[sender] = [
                each._replace(
                    first_ms=min(each.first_ms, now_ms),
                    last_ms=min(each.last_ms, now_ms),
                    seen_ms=min(each.seen_ms, now_ms),
                )
                for each in spans
            ]
        self.restarts = deque(
            ((sender, min(at_ms, now_ms)) for sender, at_ms in self.restarts), maxlen=RESTARTS_MAX
        )

    def forget(self, before_ms: int) -> None:
        """Drop senders whose last heartbeat is older than `before_ms`."""
        for sender in [each for each, beat in self.beats.items() if beat.time_ms < before_ms]:
            self._forget(sender)

    def _forget(self, sender: Sender) -> None:
        del self.beats[sender]
        self.spans.pop(sender, None)
        self._unjudged.discard(sender)
        self.dirty.add(sender)

    def heard_ms(self) -> dict[str, int]:
        """Up to when the senders that are to send more were heard, ms: by server, into the tier
        where that is longest ago."""
        found: dict[str, int] = {}
        for sender, beat in self.beats.items():
            if not beat.is_last:
                found[sender.server] = min(beat.time_ms, found.get(sender.server, beat.time_ms))
        return found

    def silent(self, tier: str, read_to_ms: int) -> Iterator[tuple[Sender, int]]:
        """Silent senders of a tier whose topic `audit` is read up to `read_to_ms`, with the time of
        the last heartbeat, ms."""
        for sender, beat in self.beats.items():
            if sender.tier == tier and not beat.is_last and beat.due_ms < read_to_ms:
                yield sender, beat.time_ms
