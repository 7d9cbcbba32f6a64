"""Until when a ZooKeeper session is sure to live: the arithmetic of `lease_remaining_ms`.

ZooKeeper drops a session when it has heard nothing from it for the session timeout. What we send
it hears later than we sent it, so from the sending of any answered request the session lives for at
least the timeout.
"""

import threading
import time


def now_s() -> float:
    """Seconds that also pass while the process or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """`seconds` is the session timeout that the server granted. Safe from any thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._until_s = 0.0
        self._session: int | None = None

    def renew(self, session: int, sent_s: float) -> None:
        """An answer came, in `session`, to what was sent at `sent_s`."""
        with self._lock:
            until_s = sent_s + self.seconds
            if session != self._session or until_s > self._until_s:
                self._session = session
                self._until_s = until_s

    def remaining_ms(self, session: int | None = None) -> int:
        """How long from now; 0 when it may be over, or is another session's than `session`."""
        with self._lock:
            if session not in (None, self._session):
                return 0
            return max(0, int((self._until_s - now_s()) * 1000))
