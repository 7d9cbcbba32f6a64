"""Counts events by topic, with histograms of their age when read.

Headers only; bodies are not decoded. No sockets; time comes in with each chunk.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hdrh.histogram import HdrHistogram

from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.events.header import UNREADABLE
from kafka2011.events.origin import origin_of

QUANTILES = (0.5, 0.9, 0.99, 0.999)
LATENCY_MAX_MS = 7 * 86_400_000  # older events count as this old
WINDOW_MS = 10_000  # "recent" is the last whole window and the current one
COUNT_WINDOW_MS = 2**40  # one window for all times: counts by server only


def _histogram() -> Any:
    return HdrHistogram(1, LATENCY_MAX_MS, 2)


@dataclass
class TopicCounts:
    """One topic's numbers since the start."""

    messages: int = 0
    bytes: int = 0
    unreadable: int = 0  # no event header; latency unknown
    all_latencies: Any = field(default_factory=_histogram)
    recent: Any = field(default_factory=_histogram)
    previous: Any = field(default_factory=_histogram)
    window: int = 0

    def quantiles_ms(self) -> dict[float, int]:
        """Quantiles of the recent latencies; empty when there are none."""
        both = _histogram()
        both.add(self.previous)
        both.add(self.recent)
        return _quantiles(both)

    def overall_ms(self) -> dict[float, int]:
        """Quantiles of all latencies since the start."""
        return _quantiles(self.all_latencies)


def _quantiles(histogram: Any) -> dict[float, int]:
    if not histogram.total_count:
        return {}
    return {q: int(histogram.get_value_at_percentile(100 * q)) for q in QUANTILES}


class EventCounter:
    """All topics' numbers. Counted by one thread, read by others."""

    def __init__(self, forms: Forms = FORMS_2011) -> None:
        self._forms = forms
        self._lock = threading.Lock()
        self._topics: dict[str, TopicCounts] = {}
        self.damaged_chunks = 0

    def count(self, topic: str, payloads: Sequence[bytes], now_ms: int) -> None:
        """Add messages that were read at `now_ms` (ms since the epoch)."""
        counts: dict[tuple[int, str], int] = {}
        delays: dict[int, int] = {}
        origin = origin_of(self._forms, topic)
        origin.count(payloads, COUNT_WINDOW_MS, counts, delays, now_ms)
        size = sum(map(len, payloads))
        with self._lock:
            found = self._topics.setdefault(topic, TopicCounts())
            found.messages += len(payloads)
            found.bytes += size
            found.unreadable += counts.get(UNREADABLE, 0)
            self._roll(found, now_ms)
            for delay_ms, number in delays.items():
                value = min(max(delay_ms, 1), LATENCY_MAX_MS)
                found.recent.record_value(value, number)
                found.all_latencies.record_value(value, number)

    @staticmethod
    def _roll(found: TopicCounts, now_ms: int) -> None:
        window = now_ms // WINDOW_MS
        if window == found.window:
            return
        found.previous = found.recent if window == found.window + 1 else _histogram()
        found.recent = _histogram()
        found.window = window

    def snapshot(self, now_ms: int) -> Mapping[str, dict[str, Any]]:
        """Per topic: messages, bytes, unreadable, latency quantiles recent and overall (ms)."""
        with self._lock:
            for found in self._topics.values():
                self._roll(found, now_ms)
            return {
                topic: {
                    "messages": found.messages,
                    "bytes": found.bytes,
                    "unreadable": found.unreadable,
                    "latency_ms": found.quantiles_ms(),
                    "latency_overall_ms": found.overall_ms(),
                }
                for topic, found in sorted(self._topics.items())
            }
