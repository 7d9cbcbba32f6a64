"""Has a turn of the loop pause before it reads, in a stream of tiny requests. Pure.

A turn costs about the same for one request and for a hundred. Where tiny requests follow one
another closely, a pause makes one turn of many, and so one append, one write and one flush. A
request that stands alone never waits, nor do large ones or many at once, which fill a turn by
themselves.
"""

WINDOW_S = 0.001
# About as long as a turn with its flush takes; the kernel adds some 50 us.
PAUSE_S = 0.000_1
REQUESTS_PER_S_MIN = 50_000
REQUEST_BYTES_MAX = 2048
TURN_BYTES_MAX = 64 * 1024  # a turn that reads more is full enough: a pause would only cost


class Gathering:
    """Judges the last window of at least `WINDOW_S`."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._began_s = 0.0
        self._requests = self._bytes_read = self._turns = 0

    def pause_s(self, now_s: float, requests: int, bytes_read: int) -> float:
        """Seconds that the next turn should pause, by the totals at the end of this one."""
        self._turns += 1
        elapsed_s = now_s - self._began_s
        if elapsed_s >= WINDOW_S:
            count = requests - self._requests
            size = bytes_read - self._bytes_read
            is_stream = (
                count >= elapsed_s * REQUESTS_PER_S_MIN
                and size <= count * REQUEST_BYTES_MAX
                and size <= self._turns * TURN_BYTES_MAX
            )
            self._pause_s = PAUSE_S if is_stream else 0.0
            self._began_s, self._requests, self._bytes_read = now_s, requests, bytes_read
            self._turns = 0
        return self._pause_s
