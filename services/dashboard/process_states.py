"""The state of a process from scrapes and its znode: up, slow, lagging, down, stopped, starting.

Down is two failed scrapes in a row, one sample apart. Stopped is a process that said goodbye in the
registry: a node that is only gone may be a killed or hanging process whose session has expired. A
goodbye that was there before the dashboard may be of the run before: for a while it is starting.
Pure: time is passed in.
"""

from dataclasses import dataclass

UP, SLOW, LAGGING, DOWN, STOPPED, STARTING = (
    "up",
    "slow",
    "lagging",
    "down",
    "stopped",
    "starting",
)
FAILURES_DOWN = 2
STARTING_MS = 60_000


@dataclass
class ProcessHealth:
    """What scrapes and the registry have shown of one process so far."""

    failures: int = 0
    reason: str = ""
    was_seen: bool = False
    is_alive_node: bool = False
    said_goodbye: bool = False
    state: str = STARTING
    since_ms: int = 0
    _first_ms: int = -1

    def note_scrape(self, is_ok: bool, reason: str = "") -> None:
        if is_ok:
            self.failures, self.reason, self.was_seen = 0, "", True
            return
        self.failures += 1
        self.reason = reason

    def note_node(self, is_there: bool, said_goodbye: bool = False) -> None:
        """Whether the `alive` node is there, and whether a clean stop deleted it."""
        self.is_alive_node = is_there
        self.said_goodbye = said_goodbye and not is_there

    def judge(self, now_ms: int, behind_ms: float | None, lag_ms_max: int) -> str:
        """The state now; `since_ms` is when it began."""
        if self._first_ms < 0:
            self._first_ms = now_ms
        new = self._state(behind_ms, lag_ms_max, is_new=now_ms - self._first_ms < STARTING_MS)
        if new != self.state or not self.since_ms:
            self.state, self.since_ms = new, now_ms
        return new

    def _state(self, behind_ms: float | None, lag_ms_max: int, *, is_new: bool) -> str:
        if is_new and not self.was_seen and self.said_goodbye:
            return STARTING
        if self.failures >= FAILURES_DOWN:
            return STOPPED if self.said_goodbye else DOWN
        if self.failures:
            # One failure may be a delay: the state before it stays.
            return self.state if self.state in (DOWN, STOPPED, STARTING) else SLOW
        if not self.was_seen:
            return STOPPED if self.said_goodbye else STARTING
        if behind_ms is not None and behind_ms > lag_ms_max:
            return LAGGING
        return UP
