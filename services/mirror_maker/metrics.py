"""The mirror's numbers for Prometheus, read from its status at each scrape."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LABELS = ("cluster", "topic", "source", "target")

# Of the status of a partition, with what each is.
COUNTERS = {
    "copied_bytes": "durable at the target",
    "copied_messages": "durable at the target; a compressed set counts as one",
    "copied_sets": "message sets sent to the target",
    "repeated_bytes": "sent again after a failure",
    "skipped_bytes": "retired at the source before they were copied",
    "cut_bytes": "copied, and lost at the source by an unclean election",
    "source_restarts": "logs that the source lost; the new one is copied from its start",
    "refused_entries": "entries that the target refused",
    "left_out_entries": "refused entries that were skipped (mirror.refused.entry=skip)",
    "rewinds": "failures after which a copy began again from what is durable",
}
GAUGES = {  # without a sample while not known
    "in_flight_bytes": "sent and not yet durable",
    "latency_ms": "age of a sampled event when its copy was durable",
    "copied_offset": "source offset up to which everything is durable",
}


class MirrorCollector(Collector):
    """The metrics, one sample per owned partition. Counters start at 0 with each ownership."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        counters = {
            field: CounterMetricFamily(f"kafka2011_mirror_{field}", text, labels=LABELS)
            for field, text in COUNTERS.items()
        }
        gauges = {
            field: GaugeMetricFamily(f"kafka2011_mirror_{field}", text, labels=LABELS)
            for field, text in GAUGES.items()
        }
        lag = GaugeMetricFamily(
            "kafka2011_mirror_lag_bytes",
            "source's end minus what is durable at the target; NaN while the end is not known",
            labels=LABELS,
        )
        age = GaugeMetricFamily(
            "kafka2011_mirror_source_end_age_seconds",
            "time since the source's end was last known",
            labels=LABELS,
        )
        refused = GaugeMetricFamily(
            "kafka2011_mirror_refused_offset",
            "source offset of the last entry that the target refuses",
            labels=LABELS,
        )
        states = GaugeMetricFamily(
            "kafka2011_mirror_state", "1 for the present state", labels=(*LABELS, "state")
        )
        for partition in status["partitions"]:
            place = (partition["topic"], partition["source"], partition["target"] or "")
            labels = (partition["cluster"], *place)
            for field, counter in counters.items():
                counter.add_metric(labels, partition[field])
            for field, gauge in gauges.items():
                if partition[field] is not None:
                    gauge.add_metric(labels, partition[field])
            lag_bytes = partition["lag_bytes"]
            lag.add_metric(labels, math.nan if lag_bytes is None else lag_bytes)
            age.add_metric(labels, partition["source_end_age_ms"] / 1000)
            if partition["refused_entry"]:
                refused.add_metric(labels, partition["refused_entry"]["offset"])
            states.add_metric((*labels, partition["state"]), 1)
        drained = GaugeMetricFamily("kafka2011_mirror_drained", "1 when nothing is left to copy")
        # The metric has no `as_of_ms`, so it is 0 while the sources' present ends are not known.
        drained.add_metric((), float(status["drained"] and status["lag_bytes"] is not None))
        return iter((*counters.values(), *gauges.values(), lag, age, refused, states, drained))
