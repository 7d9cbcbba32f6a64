"""The state of a process from scrapes and its znode: up, slow, lagging, down, stopped, starting.

Down is two failed scrapes in a row, one sample apart. A process whose `alive` node disappeared no
later than `CLEAN_STOP_MS` after its first failed scrape stopped cleanly. Pure: time is passed in.
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
# A killed process's node lives until its session expires (6 s unless set); one that is gone this
# soon after the first failure was deleted by the process itself.
CLEAN_STOP_MS = 2_500


@dataclass
class ProcessHealth:
    """What scrapes and the registry have shown of one process so far."""

    failures: int = 0
    first_failure_ms: int = 0
    reason: str = ""
    was_seen: bool = False
    is_alive_node: bool = False
    node_gone_ms: int = 0
    state: str = STARTING
    since_ms: int = 0

    def note_scrape(self, is_ok: bool, now_ms: int, reason: str = "") -> None:
        if is_ok:
            self.failures, self.reason, self.was_seen = 0, "", True
            return
        if not self.failures:
            self.first_failure_ms = now_ms
        self.failures += 1
        self.reason = reason

    def note_node(self, is_there: bool, now_ms: int) -> None:
        """Whether the `alive` node is there."""
        if self.is_alive_node and not is_there:
            self.node_gone_ms = now_ms
        self.is_alive_node = is_there

    def judge(self, now_ms: int, behind_ms: float | None, lag_ms_max: int) -> str:
        """The state now; `since_ms` is when it began."""
        new = self._state(behind_ms, lag_ms_max)
        if new != self.state or not self.since_ms:
            self.state, self.since_ms = new, now_ms
        return new

    def _state(self, behind_ms: float | None, lag_ms_max: int) -> str:
        if self.failures >= FAILURES_DOWN:
            return STOPPED if self._stopped_cleanly() else DOWN
        if self.failures:
            # One failure may be a delay: the state before it stays.
            return self.state if self.state in (DOWN, STOPPED, STARTING) else SLOW
        if not self.was_seen:
            return STARTING if self.is_alive_node or not self.since_ms else STOPPED
        if behind_ms is not None and behind_ms > lag_ms_max:
            return LAGGING
        return UP

    def _stopped_cleanly(self) -> bool:
        if self.is_alive_node:
            return False
        if not self.was_seen:
            return True
        return bool(self.node_gone_ms) and self.node_gone_ms < self.first_failure_ms + CLEAN_STOP_MS
