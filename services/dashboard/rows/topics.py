"""Partitions and topics as rows: offsets, sizes, segments, retention, rates, readers. Pure."""

from collections.abc import Set

from kafka2011.services.dashboard.process_states import DOWN, SILENT, STOPPED
from kafka2011.services.dashboard.rows.history import rounded
from kafka2011.services.dashboard.sampling.metrics_text import by_label
from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedCluster,
    ObservedProcess,
    Row,
    Rows,
)
from kafka2011.services.rates import Rates

# Partitions without a log, of all topics together: their number is read from ZooKeeper, where any
# client can write.
PARTITIONS_MAX = 20_000
# States of a partition, beside online and failed: of a broker that does not answer; of one that is
# registered with an address alone (no process.name, or no metrics port).
AWAY = "away"
NOT_MEASURED = "not measured"
RATES, SIZES = ("messages_s", "bytes_s", "out_s"), ("size", "segments")  # of a topic's row


class TopicRows:
    """Rows of the brokers' logs; `broker_ids` maps a broker's process key to its id, and
    `followers` are keys of brokers whose logs are copies of another's: they are counted once."""

    def __init__(
        self, rates: Rates, broker_ids: dict[str, int], followers: Set[str] = frozenset()
    ) -> None:
        self._rates = rates
        self._broker_ids = broker_ids
        self._followers = followers
        # By datacenter and topic: the partitions of each broker id. ZooKeeper has those of live
        # brokers; the partitions of one that is away are where they were.
        self._counts: dict[tuple[str, str], dict[int, int]] = {}

    def partition_rows(self, seen: Observations) -> Rows:
        rows: Rows = {}
        for process in seen.processes.values():
            if not self._is_counted(process) or not process.samples:
                continue
            number = self._broker_ids.get(process.key, -1)
            away, at_ms = _is_away(process), process.measured_ms(seen.now_ms)
            values: dict[tuple[str, str], dict[str, float]] = {}
            for field_name, metric in (
                ("start", "kafka2011_broker_log_start"),
                ("end", "kafka2011_broker_log_end"),
                ("watermark", "kafka2011_broker_high_watermark"),
                ("segments", "kafka2011_broker_segments"),
                ("online", "kafka2011_broker_partition_online"),
            ):
                for labels, value in process.samples.get(metric, ()):
                    name = (labels.get("topic", ""), labels.get("partition", ""))
                    values.setdefault(name, {})[field_name] = value
            for (topic, partition), found in values.items():
                key = f"{process.datacenter}/{topic}/{number}-{partition}"
                end = int(found.get("end", 0))
                rows[key] = {
                    "dc": process.datacenter,
                    "topic": topic,
                    "partition": f"{number}-{partition}",
                    "broker": process.name,
                    "start": int(found.get("start", 0)),
                    "end": end,
                    "watermark": int(found.get("watermark", 0)),
                    "segments": int(found.get("segments", 0)),
                    "bytes_s": None if away else rounded(self._rates.note(key, end, at_ms)),
                    "state": AWAY if away else "online" if found.get("online", 1) else "failed",
                    # Only where it is not that of the sample, which would change every row.
                    "as_of_ms": process.samples_ms if process.is_large else None,
                }
        self._add_empty(seen, rows)
        there = {(dc, topic) for dc, of in seen.clusters.items() for topic in of.partitions}
        self._counts = {at: found for at, found in self._counts.items() if at in there}
        return rows

    def _is_counted(self, process: ObservedProcess) -> bool:
        return process.kind == "broker" and process.key not in self._followers

    def _add_empty(self, seen: Observations, rows: Rows) -> None:
        """Add registered partitions that have no log yet, since no message was sent to them; the
        tools show them as 0."""
        brokers = {
            (seen.processes[key].datacenter, number): seen.processes[key]
            for key, number in self._broker_ids.items()
            if key in seen.processes
        }
        registered: list[tuple[int, str, str, int]] = []
        for datacenter, cluster in seen.clusters.items():
            for topic, counts in cluster.partitions.items():
                known = self._counts.setdefault((datacenter, topic), {})
                known.update(counts)
                for number in known.keys() - counts.keys():
                    gone = brokers.get((datacenter, number))
                    if gone is None or not gone.health.failures:
                        del known[number]
                registered += [(known[number], datacenter, topic, number) for number in known]
        left = PARTITIONS_MAX
        for count, datacenter, topic, number in sorted(registered):  # forged counts are large
            process = brokers.get((datacenter, number))
            state = _state_of(seen.clusters[datacenter], number, process)
            is_read = process is not None and bool(process.samples)
            value = 0 if is_read else None  # a log that has no message, or one of which none knows
            for partition in range(count):
                name = f"{number}-{partition}"
                key = f"{datacenter}/{topic}/{name}"
                if key in rows:
                    continue
                if not left:
                    return
                left -= 1
                rows[key] = {
                    "dc": datacenter,
                    "topic": topic,
                    "partition": name,
                    "broker": process.name if process else f"broker {number}",
                    **dict.fromkeys(("start", "end", "watermark", "segments", "bytes_s"), value),
                    "state": state,
                    "as_of_ms": None,
                }

    def topic_rows(self, seen: Observations, partitions: Rows, group_partitions: Rows) -> Rows:
        rows: Rows = {}
        for datacenter, cluster in seen.clusters.items():
            for topic in cluster.topics:
                rows[f"{datacenter}/{topic}"] = _empty_topic(datacenter, topic)
        for partition in partitions.values():
            key = f"{partition['dc']}/{partition['topic']}"
            row = rows.setdefault(key, _empty_topic(partition["dc"], partition["topic"]))
            row["partitions"] += 1
            if partition["state"] == NOT_MEASURED:  # one that is away has no rates
                row["unknown"].update(RATES)
            if partition["end"] is None:
                row["unknown"].update(SIZES)
            else:
                row["size"] += partition["end"] - partition["start"]
                row["segments"] += partition["segments"]
            row["away"] += partition["state"] not in ("online", NOT_MEASURED)
        for process in seen.processes.values():
            if not self._is_counted(process):
                continue
            at_ms = process.measured_ms(seen.now_ms)
            for metric, name in (
                ("kafka2011_broker_retention_seconds", "retention_s"),
                ("kafka2011_broker_retention_bytes", "retention_bytes"),
            ):
                for topic, value in by_label(process.samples, metric, "topic").items():
                    found = rows.get(f"{process.datacenter}/{topic}")
                    if found is not None:
                        found[name].add(value)
            for metric, name in (
                ("kafka2011_broker_messages_in_total", "messages_s"),
                ("kafka2011_broker_bytes_in_total", "bytes_s"),
                ("kafka2011_broker_bytes_out_total", "out_s"),
            ):
                for topic, value in by_label(process.samples, metric, "topic").items():
                    rate = self._rates.note(f"{process.key}|{metric}|{topic}", value, at_ms)
                    found = rows.get(f"{process.datacenter}/{topic}")
                    if found is not None and not _is_away(process):
                        is_known = None not in (found[name], rate)
                        found[name] = rounded(found[name] + rate) if is_known else None
        for row in rows.values():
            # Each broker has its own settings: they may differ.
            row["retention_s"] = sorted(row["retention_s"])
            row["retention_bytes"] = sorted(row["retention_bytes"])
            row.update(dict.fromkeys(row.pop("unknown")))  # a sum without a part would be wrong
        for read in group_partitions.values():
            found = rows.get(f"{read['dc']}/{read['topic']}")
            if found is not None and (read["owner"] or read["offset"] is not None):
                sum_before = found["groups"].get(read["group"], 0)
                is_known = None not in (sum_before, read["lag_bytes"])
                found["groups"][read["group"]] = (
                    sum_before + read["lag_bytes"] if is_known else None
                )
        return rows


def _is_away(process: ObservedProcess) -> bool:
    return process.health.state in (DOWN, SILENT, STOPPED)


def _state_of(cluster: ObservedCluster, number: int, process: ObservedProcess | None) -> str:
    """The state of a registered partition of that broker of which there are no figures."""
    if process is None:
        is_registered = cluster.is_answering and number in cluster.brokers
        return NOT_MEASURED if is_registered else AWAY
    if _is_away(process):
        return AWAY
    return "online" if process.samples else NOT_MEASURED


def _empty_topic(datacenter: str, topic: str) -> Row:
    return {
        "dc": datacenter,
        "topic": topic,
        "partitions": 0,
        "messages_s": 0.0,
        "bytes_s": 0.0,
        "out_s": 0.0,
        "size": 0,
        "segments": 0,
        "away": 0,
        "unknown": set(),
        "retention_s": set(),
        "retention_bytes": set(),
        "groups": {},
    }
