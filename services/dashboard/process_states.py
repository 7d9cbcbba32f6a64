"""The state of a process from scrapes and its znode: up, slow, silent, lagging, down, stopped,
starting.

Down is two failed scrapes in a row, one sample apart; after one a process that was up is slow, and
one that lags lags. A process that merely does not answer in time
while its znode is there is silent: it may hang, or the machine is busy; it is down when its session
has ended, or after SILENT_MS_MAX. Stopped is a process that said goodbye in the registry: a missing
node alone may mean a killed or hanging process whose session has expired. A goodbye that was there
before the dashboard may be of an earlier run: the process counts as starting for a while. So does
one without a record (a ZooKeeper) that has not answered yet. Pure: time is passed in.
"""

from dataclasses import dataclass

UP, SLOW, SILENT, LAGGING, DOWN, STOPPED, STARTING = (
    "up",
    "slow",
    "silent",
    "lagging",
    "down",
    "stopped",
    "starting",
)
FAILURES_DOWN = 2
STARTING_MS = 60_000
SILENT_MS_MAX = 30_000  # ZooKeeper may be away, too, and then no session ends


@dataclass
class ProcessHealth:
    """What scrapes and the registry have shown of one process so far."""

    failures: int = 0
    reason: str = ""
    is_late: bool = False  # the last failure: there was no answer in time
    was_seen: bool = False
    is_alive_node: bool = False
    said_goodbye: bool = False
    is_on_record: bool = True
    state: str = STARTING
    since_ms: int = 0
    _first_ms: int = -1
    _answered_ms: int = -1  # when the last answer was judged
    _unheard_ms: int = -1  # since when there was no answer to a scrape

    def note_scrape(self, is_ok: bool, reason: str = "", *, is_late: bool = False) -> None:
        self.is_late = is_late
        if is_ok:
            self.failures, self.reason, self.was_seen = 0, "", True
            self._unheard_ms = -1
            return
        self.failures += 1
        self.reason = reason

    def note_node(
        self, is_there: bool, said_goodbye: bool = False, *, is_on_record: bool = True
    ) -> None:
        """Note whether the `alive` node is there, whether a clean stop deleted it, and whether the
        process is one that has nodes at all."""
        self.is_alive_node = is_there
        self.is_on_record = is_on_record
        self.said_goodbye = said_goodbye and not is_there

    def forget_times(self) -> None:
        """Count times from the next judgement on: the clock went back."""
        self.since_ms, self._first_ms, self._answered_ms, self._unheard_ms = 0, -1, -1, -1

    def judge(self, now_ms: int, behind_ms: float | None, lag_ms_max: int) -> str:
        """The state now; `since_ms` is when it began. One late answer, which makes a process slow,
        is no other state: the page calls it up."""
        if self._first_ms < 0:
            self._first_ms = now_ms
        if not self.failures:
            self._answered_ms = now_ms
        elif self._unheard_ms < 0:
            self._unheard_ms = now_ms
            # A process that never answered was asked a second ago.
            self._answered_ms = self._answered_ms if self._answered_ms >= 0 else now_ms - 1000
        new = self._state(
            behind_ms,
            lag_ms_max,
            known_ms=now_ms - self._first_ms,
            unheard_ms=now_ms - self._unheard_ms,
        )
        if self.is_late and new in (SILENT, DOWN):
            self.reason = f"no answer for {(now_ms - self._answered_ms) // 1000} s"
        if not self.since_ms or (new != self.state and not {new, self.state} <= {UP, SLOW}):
            self.since_ms = now_ms
        self.state = new
        return new

    def _state(
        self, behind_ms: float | None, lag_ms_max: int, *, known_ms: int, unheard_ms: int
    ) -> str:
        if not self.was_seen and (
            (self.said_goodbye and known_ms < STARTING_MS)
            or (not self.is_on_record and known_ms < SILENT_MS_MAX)
        ):
            return STARTING
        if self.failures >= FAILURES_DOWN:
            if self.is_late and self.is_alive_node and unheard_ms < SILENT_MS_MAX:
                return SILENT
            return STOPPED if self.said_goodbye else DOWN
        # One failure may be a delay: the state before it stays.
        if self.failures and self.state in (SILENT, DOWN, STOPPED, STARTING):
            return self.state
        if not self.was_seen:
            return STOPPED if self.said_goodbye else STARTING
        if behind_ms is not None and behind_ms > lag_ms_max:
            return LAGGING
        return SLOW if self.failures else UP
