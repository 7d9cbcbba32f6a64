"""When bytes leave a slow link: one `Link` for each direction of a route, shared by connections.

Pure: the caller passes the time (seconds, monotonic) and does the waiting.
"""

import random

PIECE_S = 0.02  # a piece occupies the link this long: connections take turns at this grain
PIECE_BYTES_MIN = 64
WINDOW_S = 0.25  # how much of a narrow link's capacity may wait in memory, per connection
WINDOW_BYTES_MIN = 4096
WINDOW_BYTES_MAX = 8 * 2**20  # of a link without a rate: 100 ms of 80 MB/s


class Link:
    """Serialisation time and delay of one direction."""

    def __init__(self, rng: random.Random) -> None:
        self.rate_bytes_s = 0
        self.delay_s = 0.0
        self.jitter_s = 0.0
        self._rng = rng
        self._free_at_s = 0.0

    def configure(self, rate_bytes_s: int, delay_ms: int, jitter_ms: int) -> None:
        """Change the link at once; what was being sent counts as sent."""
        self.rate_bytes_s = rate_bytes_s
        self.delay_s = delay_ms / 1000
        self.jitter_s = jitter_ms / 1000
        self._free_at_s = 0.0

    @property
    def is_plain(self) -> bool:
        return not (self.rate_bytes_s or self.delay_s or self.jitter_s)

    @property
    def piece_bytes(self) -> int:
        """The most that is put on the link in one go (meaningless without a rate)."""
        return max(PIECE_BYTES_MIN, int(self.rate_bytes_s * PIECE_S))

    @property
    def window_bytes(self) -> int:
        """Above this much waiting or under way, a connection is not read any more."""
        if not self.rate_bytes_s:
            return WINDOW_BYTES_MAX
        seconds = WINDOW_S + 2 * self.delay_s
        return min(WINDOW_BYTES_MAX, max(WINDOW_BYTES_MIN, int(self.rate_bytes_s * seconds)))

    def reserve(self, now_s: float, size_bytes: int) -> float:
        """Put `size_bytes` on the link; returns the time at which the last byte is on it."""
        if not self.rate_bytes_s:
            return now_s
        self._free_at_s = max(now_s, self._free_at_s) + size_bytes / self.rate_bytes_s
        return self._free_at_s

    def arrival(self, now_s: float) -> float:
        """When what leaves now arrives; the caller keeps the order of its own pieces."""
        jitter_s = self._rng.uniform(-self.jitter_s, self.jitter_s) if self.jitter_s else 0.0
        return now_s + max(0.0, self.delay_s + jitter_s)
