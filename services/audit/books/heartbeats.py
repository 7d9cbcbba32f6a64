"""The last heartbeat of every server, and which servers are silent. Pure.

A server without messages to send still sends heartbeats, so silence means that it is dead, cut off
or stuck. After a goodbye heartbeat it is not silent. Time is the moment up to which the topic
`audit` has been read, not the clock: heartbeats that are not read yet are not missing.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

BEATS_MISSED = 3  # intervals without a heartbeat after which a server is silent
SERVERS_MAX = 10_000
RESTARTS_MAX = 1_000


class Sender(NamedTuple):
    """A server that sends heartbeats. `tier`: the cluster that it writes to."""

    tier: str
    server: str


@dataclass(frozen=True, slots=True)
class Beat:
    """The newest heartbeat of a sender: its header.time and the interval to the next one, ms."""

    time_ms: int
    interval_ms: int
    is_last: bool
    instance: str = ""

    def is_followed_by_a_restart(self, later: "Beat") -> bool:
        """Whether the sender died, stalled or repeated messages between this heartbeat and `later`:
        it came back as another instance without a goodbye, or after a silence."""
        if self.is_last or later.time_ms <= self.time_ms:
            return False
        is_other = bool(self.instance) and self.instance != later.instance
        return is_other or later.time_ms - self.time_ms > BEATS_MISSED * self.interval_ms


class Heartbeats:
    """The newest heartbeat of each sender, and the restarts that heartbeats show.

    Not thread-safe; `state.AuditState` owns one and locks.
    """

    def __init__(self) -> None:
        self.beats: dict[Sender, Beat] = {}
        self.dirty: set[Sender] = set()
        # Senders that came back after a death or a pause, and when (ms), the newest last.
        self.restarts: deque[tuple[Sender, int]] = deque(maxlen=RESTARTS_MAX)
        self.new_restarts: list[tuple[Sender, int]] = []  # since they were last stored

    def add(self, sender: Sender, beat: Beat) -> None:
        """Note one heartbeat; one that is older than the newest changes nothing."""
        known = self.beats.get(sender)
        if known is not None and known.time_ms > beat.time_ms:
            return
        if known is not None and known.is_followed_by_a_restart(beat):
            self.restarts.append((sender, beat.time_ms))
            self.new_restarts.append((sender, beat.time_ms))
        self.beats[sender] = beat
        self.dirty.add(sender)
        if len(self.beats) > SERVERS_MAX:
            self._forget(min(self.beats, key=lambda each: self.beats[each].time_ms))

    def forget(self, before_ms: int) -> None:
        """Drop senders whose last heartbeat is older than `before_ms`."""
        for sender in [each for each, beat in self.beats.items() if beat.time_ms < before_ms]:
            self._forget(sender)

    def _forget(self, sender: Sender) -> None:
        del self.beats[sender]
        self.dirty.add(sender)

    def silent(self, tier: str, read_to_ms: int) -> Iterator[tuple[Sender, int]]:
        """Silent senders of a tier whose topic `audit` is read up to `read_to_ms`, with the time of
        the last heartbeat, ms."""
        for sender, beat in self.beats.items():
            due_ms = beat.time_ms + BEATS_MISSED * beat.interval_ms
            if sender.tier == tier and not beat.is_last and due_ms < read_to_ms:
                yield sender, beat.time_ms
