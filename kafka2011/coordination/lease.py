"""How long a ZooKeeper session is certain to live: the arithmetic of `lease_remaining_ms`.

ZooKeeper ends a session after receiving nothing from it for the session timeout. It receives a
request later than it was sent, so the session lives for at least the timeout from the sending of
any answered request.
"""

import threading
import time


def now_s() -> float:
    """Seconds that also pass while the process or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """How long a session is sure to live; `seconds`: the granted timeout. Safe from any thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._until_s = 0.0
        self._session: int | None = None

    def renew(self, session: int, sent_s: float) -> None:
        """Record the answer, in `session`, to a request that was sent at `sent_s`."""
        with self._lock:
            until_s = sent_s + self.seconds
            if session != self._session or until_s > self._until_s:
                self._session = session
                self._until_s = until_s

    def remaining_ms(self, session: int | None = None) -> int:
        """Time left, ms; 0 when the session may have ended, or is not `session`."""
        with self._lock:
            if session not in (None, self._session):
                return 0
            return max(0, int((self._until_s - now_s()) * 1000))
