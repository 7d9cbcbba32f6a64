"""A frontend's progress: /metrics for scrapers, `progress.json` for scripts.

progress.json in `data.dir`, replaced whole about twice a second and at the end:

    {"server", "run", "finished": bool, "position", "sent": {topic: messages of this run},
     "unconfirmed", "resent_sets", "refused_too_large", "monitoring_events", "time_ms"}
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.events.topics import UNREADABLE_SUFFIX
from kafka2011.producer.counting.journal import Journal
from kafka2011.runtime.clock import Clock
from kafka2011.services.frontend.delivery import Delivery

WRITE_INTERVAL_S = 0.5


class Progress:
    """The writer of progress.json, from journal and delivery; for the thread that owns these."""

    def __init__(
        self,
        directory: Path,
        journal: Journal,
        delivery: Delivery,
        clock: Clock,
        monotonic: Callable[[], float],
    ) -> None:
        self._path = directory / "progress.json"
        self._journal = journal
        self._delivery = delivery
        self._clock = clock
        self._monotonic = monotonic
        self._next_write = monotonic()

    def values(self) -> dict[str, Any]:
        state, stats = self._journal.state, self._delivery.stats
        return {
            "server": state.server,
            "run": state.run,
            "finished": state.is_finished,
            "position": state.position,
            "sent": dict(sorted(state.totals.items())),
            "unconfirmed": self._delivery.unconfirmed_messages,
            "resent_sets": stats.resent_sets,
            "refused_too_large": stats.refused_too_large,
            "monitoring_events": stats.monitoring_events,
            "time_ms": self._clock(),
        }

    def write(self, *, is_forced: bool = False) -> None:
        """Replace the file when due. Write errors are ignored, since the file is optional."""
        now = self._monotonic()
        if now < self._next_write and not is_forced:
            return
        self._next_write = now + WRITE_INTERVAL_S
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(self.values()) + "\n", encoding="utf-8")
            os.replace(new, self._path)
        except OSError:
            new.unlink(missing_ok=True)


class DeliveryCollector(Collector):
    """The delivery's counters, read at each scrape."""

    def __init__(self, delivery: Callable[[], Delivery]) -> None:
        self._delivery = delivery

    def collect(self) -> Iterator[Metric]:
        delivery = self._delivery()
        stats = delivery.stats
        by_topic = dict(stats.messages)  # a copy in one step: the owner goes on counting
        messages = CounterMetricFamily(
            "kafka2011_frontend_messages",
            "messages confirmed durable by the brokers",
            labels=("topic",),
        )
        for topic, count in by_topic.items():
            messages.add_metric((topic,), count)
        yield messages
        keyed = CounterMetricFamily(
            "kafka2011_frontend_keyed_bytes",
            "bytes of events with a key, confirmed durable by the broker of that key",
            labels=("broker",),
        )
        for broker_id, size in dict(stats.keyed_bytes).items():
            keyed.add_metric((str(broker_id),), size)
        yield keyed
        unreadable = sum(n for topic, n in by_topic.items() if topic.endswith(UNREADABLE_SUFFIX))
        for name, text, value in (
            ("unreadable", "lines that could not be read, sent to the side topic", unreadable),
            ("resent_sets", "message sets sent again after a failed barrier", stats.resent_sets),
            ("refused", "events above max.message.size, not sent", stats.refused_too_large),
            ("monitoring_events", "monitoring events published", stats.monitoring_events),
            ("barriers", "barriers requested", stats.barriers),
            ("failed_barriers", "barriers that failed", stats.failed_barriers),
        ):
            yield CounterMetricFamily(f"kafka2011_frontend_{name}", text, value=value)
        yield GaugeMetricFamily(
            "kafka2011_frontend_unconfirmed_messages",
            "messages sent since the last barrier",
            value=delivery.unconfirmed_messages,
        )
