"""Percentiles of the delay from producer to tier: since the books were created, and recent ones.

HdrHistogram: a percentile is exact to a part in a thousand, and a day of traffic takes as much
memory as a second. Times are passed in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

DELAY_MS_MAX = 7 * 24 * 3_600_000
PENDING_MAX = 5_000  # different delays that are counted and not entered yet
SIGNIFICANT_DIGITS = 3
RECENT_MS = 60_000


@dataclass(frozen=True, slots=True)
class DelaySummary:
    """Delays in ms of `count` measured messages; None where there are none."""

    count: int
    p50_ms: int | None
    p99_ms: int | None
    p999_ms: int | None
    max_ms: int | None


def _histogram() -> HdrHistogram:
    return HdrHistogram(1, DELAY_MS_MAX, SIGNIFICANT_DIGITS)


def _summary(histogram: HdrHistogram) -> DelaySummary:
    count = int(histogram.total_count)
    if not count:
        return DelaySummary(0, None, None, None, None)
    p50, p99, p999 = (int(histogram.get_value_at_percentile(p)) for p in (50, 99, 99.9))
    return DelaySummary(count, p50, p99, p999, int(histogram.get_max_value()))


class DelayMeter:
    """Delays at one tier. Not thread-safe; `state.AuditState` locks.

    Delays are entered when a percentile is asked for, or there are PENDING_MAX different ones:
    most recur, and an entry takes far longer than a count.
    """

    def __init__(self, stored: bytes | None = None) -> None:
        self._total = _histogram()
        if stored:
            self._total.decode_and_add(stored)
        self._recent = [_histogram(), _histogram()]  # this period and the one before
        self._period = 0
        self._pending: dict[int, int] = {}  # messages of this period by delay in ms
        self.is_dirty = False

    def add(self, delays: Mapping[int, int], now_ms: int) -> None:
        """Add messages by delay in ms."""
        if not delays:
            return
        self._advance_period(now_ms)
        pending = self._pending
        for delay_ms, count in delays.items():
            pending[delay_ms] = pending.get(delay_ms, 0) + count
        if len(pending) >= PENDING_MAX:
            self._enter_pending()
        self.is_dirty = True

    def _enter_pending(self) -> None:
        for delay_ms, count in self._pending.items():
            bounded_ms = min(max(delay_ms, 1), DELAY_MS_MAX)
            self._total.record_value(bounded_ms, count)
            self._recent[0].record_value(bounded_ms, count)
        self._pending.clear()

    def _advance_period(self, now_ms: int) -> None:
        period = now_ms // RECENT_MS
        if period == self._period:
            return
        self._enter_pending()
        follows = period == self._period + 1
        self._recent = [_histogram(), self._recent[0] if follows else _histogram()]
        self._period = period

    def summary(self) -> DelaySummary:
        """The delays since the books were created, across all restarts."""
        self._enter_pending()
        return _summary(self._total)

    def recent(self, now_ms: int) -> DelaySummary:
        """The delays of the last one to two minutes."""
        self._advance_period(now_ms)
        self._enter_pending()
        both = _histogram()
        for histogram in self._recent:
            both.add(histogram)
        return _summary(both)

    def encoded(self) -> bytes:
        """The histogram for the store; `DelayMeter(encoded)` continues from it."""
        self._enter_pending()
        encoded = self._total.encode()
        return encoded if isinstance(encoded, bytes) else encoded.encode()
