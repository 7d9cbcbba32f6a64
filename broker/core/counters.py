"""What the broker counts: plain numbers that the hot path adds to; `broker.metrics` publishes them.

All counters start at 0 with the process. Times are seconds, sizes bytes.
"""

from bisect import bisect_left

REQUEST_BOUNDS_S = (
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
FLUSH_BOUNDS_S = (
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip


class Histogram:
    """Counts by upper bound; `observe` is two additions and a bisection."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts in Prometheus' form."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


class BrokerMetrics:
    """One broker's counters, written by the loop's thread alone, read by any."""

    def __init__(self) -> None:
        self.request_s = {
            kind: Histogram(REQUEST_BOUNDS_S) for kind in ("produce", "fetch", "offsets")
        }
        self.flush_s = Histogram(FLUSH_BOUNDS_S)
        self.bytes_read = 0
        self.bytes_sent = 0
        self.connections_accepted = 0
        self.connections_refused: dict[str, int] = {}
        self.connections_closed: dict[str, int] = {}
        self.refused_sets: dict[tuple[str, str], int] = {}
        self.failed_fetches: dict[tuple[str, str], int] = {}
        self.flush_errors = 0
        self.retired_segments = 0
        self.retired_bytes = 0
        self.retention_errors = 0
        self.fetch_without_sendfile = 0
        self.cold_reads = 0
        self.checks_beside_loop = 0
        self.accept_pauses = 0
        self.buffer_waits = 0

    def count_refused_sets(self, topic: str, reason: str, count: int = 1) -> None:
        """Count sets that were not appended. `topic` is empty where no partition was found: a name
        that any client can choose must not become a label."""
        key = (topic, reason)
        self.refused_sets[key] = self.refused_sets.get(key, 0) + count

    def count_failed_fetch(self, topic: str, reason: str) -> None:
        # The topic of a failed fetch may be anything at all: only the reason becomes a label.
        key = ("", reason) if reason != "offset-out-of-range" else (topic, reason)
        self.failed_fetches[key] = self.failed_fetches.get(key, 0) + 1

    def count_closed(self, reason: str) -> None:
        self.connections_closed[reason] = self.connections_closed.get(reason, 0) + 1

    def count_refused_connection(self, reason: str) -> None:
        self.connections_refused[reason] = self.connections_refused.get(reason, 0) + 1
