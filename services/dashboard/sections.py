"""The page's tables as plain rows, from what the samplers collected. Pure: no IO, time passed in.

`Deployment` keeps what needs memory (rates, health, lag history, events) and turns one round of
collected facts into sections: name -> key -> row. Everything that a row says is JSON.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.dashboard.burrow import ERRORS, PartitionHistory, judge, worst
from services.dashboard.clusters import ClusterLook, GroupLook
from services.dashboard.core import (
    DOWN,
    STARTING,
    STOPPED,
    Health,
    History,
    Rates,
    behind_ms,
    rounded,
)
from services.dashboard.exposition import Samples, by_label, total

Row = dict[str, Any]
Rows = dict[str, Row]

EVENTS_KEPT = 200
GROUP_STEP_MS = 2_000
SERIES_STEP_MS = 2_000

# Every metric that the page reads; a test finds each of them in the processes' code.
METRICS = (
    "kafka2011_broker_messages_in_total",
    "kafka2011_broker_bytes_in_total",
    "kafka2011_broker_bytes_out_total",
    "kafka2011_broker_log_start",
    "kafka2011_broker_log_end",
    "kafka2011_broker_high_watermark",
    "kafka2011_broker_segments",
    "kafka2011_broker_partition_online",
    "kafka2011_broker_connections",
    "kafka2011_broker_retired_bytes_total",
    "kafka2011_broker_flush_errors_total",
    "kafka2011_broker_flush_seconds_sum",
    "kafka2011_broker_flush_seconds_count",
    "kafka2011_frontend_messages_total",
    "kafka2011_frontend_unconfirmed_messages",
    "kafka2011_mirror_copied_bytes_total",
    "kafka2011_mirror_lag_bytes",
    "kafka2011_online_messages_total",
    "kafka2011_online_bytes_total",
    "kafka2011_online_lag_bytes",
    "kafka2011_proxy_bytes_total",
    "kafka2011_proxy_connections_open",
    "kafka2011_proxy_dropped_messages_total",
    "kafka2011_warehouse_rows_total",
    "kafka2011_warehouse_lag_bytes",
    "kafka2011_warehouse_problems",
)
WANTED = frozenset(METRICS)


@dataclass
class ProcessLook:
    """One process: who it is, and what its last scrapes said. Written by the sampler."""

    key: str  # <datacenter>/<name>
    datacenter: str
    name: str
    kind: str
    address: str = ""
    metrics: str = ""
    pid: int = 0
    health: Health = field(default_factory=Health)
    samples: Samples = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Collected:
    """What one round of looking found."""

    now_ms: int
    processes: Mapping[str, ProcessLook]
    clusters: Mapping[str, ClusterLook]
    audit: Mapping[str, Any] | None
    cells: Rows  # as `cell_rows` makes them
    loader: Mapping[str, Any] | None
    commits: Rows
    reports: Rows


class Deployment:
    """The memory behind the sections."""

    def __init__(self, history_ms: int, lag_ms_max: int) -> None:
        self._lag_ms_max = lag_ms_max
        self._rates = Rates()
        self._events: deque[tuple[str, Row]] = deque(maxlen=EVENTS_KEPT)
        self._event_count = 0
        self._states: dict[str, str] = {}
        self._partitions: dict[tuple[str, str, str, str], PartitionHistory] = {}
        self._owners: dict[str, dict[tuple[str, str], str]] = {}
        self._group_states: dict[str, str] = {}
        self._group_history: dict[str, History] = {}
        self._group_looks: dict[str, tuple[int, Rows, Row]] = {}
        self._history_ms = history_ms
        self.latency = History(history_ms, SERIES_STEP_MS)
        self.flow = History(history_ms, SERIES_STEP_MS)
        self._broker_ids: dict[str, int] = {}
        self._missing: dict[str, int] = {}
        self._had_processes = False

    def sections(self, seen: Collected) -> dict[str, Rows]:
        now = seen.now_ms
        self._name_brokers(seen)
        partitions = self._partition_rows(seen)
        processes = self._process_rows(seen)
        groups, group_partitions, lag_series = self._group_rows(seen, partitions)
        audit = self._audit_rows(seen)
        sections = {
            "processes": processes,
            "edges": self._edge_rows(seen, processes),
            "partitions": partitions,
            "topics": self._topic_rows(seen, partitions, group_partitions),
            "groups": groups,
            "group_partitions": group_partitions,
            "lag_series": lag_series,
            "audit": audit,
            "cells": seen.cells,
            "latency": self.latency.rows(),
            "flow": self.flow.rows(),
            "loader": {"status": dict(seen.loader)} if seen.loader else {},
            "commits": seen.commits,
            "reports": seen.reports,
            "meta": {"deployment": self._meta(seen, processes)},
        }
        sections["events"] = dict(self._events)
        self._rates.forget(now)
        return sections

    # --- events ------------------------------------------------------------------------------

    def tell(self, now_ms: int, kind: str, subject: str, text: str) -> None:
        """`kind`: bad, warn, good or info."""
        self._event_count += 1
        row = {"at_ms": now_ms, "kind": kind, "subject": subject, "text": text}
        self._events.append((f"{self._event_count:09d}", row))

    # --- processes ---------------------------------------------------------------------------

    def _name_brokers(self, seen: Collected) -> None:
        for process in seen.processes.values():
            if process.kind != "broker":
                continue
            look = seen.clusters.get(process.datacenter)
            for broker_id, address in (look.brokers if look else {}).items():
                if f"{address.host}:{address.port}" == process.address:
                    self._broker_ids[process.key] = broker_id
            suffix = process.name.rpartition("-")[2]
            if process.key not in self._broker_ids and suffix.isdecimal():
                self._broker_ids[process.key] = int(suffix)

    def _process_rows(self, seen: Collected) -> Rows:
        rows: Rows = {}
        for key, process in sorted(seen.processes.items()):
            rate_in, rate_out, lag_bytes, behind = self._flow_of(process, seen.now_ms)
            state = process.health.judge(seen.now_ms, behind, self._lag_ms_max)
            self._tell_state(process, state, seen.now_ms)
            gone = state in (DOWN, STOPPED, STARTING)
            rows[key] = {
                "name": process.name,
                "dc": process.datacenter,
                "kind": process.kind,
                "state": state,
                "since_ms": process.health.since_ms,
                "reason": process.health.reason if state != "up" else "",
                "address": process.address,
                "metrics": process.metrics,
                "pid": process.pid,
                "in_s": 0.0 if gone else rounded(rate_in),
                "out_s": 0.0 if gone else rounded(rate_out),
                "lag_bytes": lag_bytes,
                "behind_ms": None if behind is None else round(behind, -2),
                "facts": process.facts if not gone else {},
            }
            if process.kind == "broker":
                rows[key]["broker_id"] = self._broker_ids.get(key)
        return rows

    def _tell_state(self, process: ProcessLook, state: str, now_ms: int) -> None:
        before = self._states.get(process.key)
        self._states[process.key] = state
        if state == "slow":
            self._states[process.key] = before or state
            return
        if before is None or before == state:
            return
        kind = {"down": "bad", "lagging": "warn", "up": "good"}.get(state, "info")
        reason = f": {process.health.reason}" if state == DOWN and process.health.reason else ""
        self.tell(now_ms, kind, process.key, f"{process.name} is {state}{reason}")

    def _flow_of(
        self, process: ProcessLook, now_ms: int
    ) -> tuple[float, float, int | None, float | None]:
        """Rates in and out in bytes a second, what is not read, and how far behind that is, ms."""
        samples, key = process.samples, process.key

        def rate(name: str, **labels: str) -> float:
            words = "".join(f"|{k}={v}" for k, v in labels.items())
            return self._rates.note(f"{key}|{name}{words}", total(samples, name, **labels), now_ms)

        match process.kind:
            case "broker":
                self._rates.note(
                    f"{key}|messages", total(samples, "kafka2011_broker_messages_in_total"), now_ms
                )
                process.facts = {
                    "messages_s": rounded(self._rates.rate(f"{key}|messages")),
                    "connections": total(samples, "kafka2011_broker_connections"),
                    "flush_ms": rounded(self._flush_ms(process, now_ms)),
                    "flush_errors": total(samples, "kafka2011_broker_flush_errors_total"),
                }
                return (
                    rate("kafka2011_broker_bytes_in_total"),
                    rate("kafka2011_broker_bytes_out_total"),
                    None,
                    None,
                )
            case "frontend":
                sent = rate("kafka2011_frontend_messages_total")
                process.facts = {"messages_s": rounded(sent)}
                return sent * self._message_bytes, sent * self._message_bytes, None, None
            case "proxy":
                process.facts = {
                    "connections": total(samples, "kafka2011_proxy_connections_open"),
                    "dropped_messages": total(samples, "kafka2011_proxy_dropped_messages_total"),
                }
                to_server = rate("kafka2011_proxy_bytes_total", direction="to_server")
                return to_server, to_server, None, None
            case "mirror":
                copied = rate("kafka2011_mirror_copied_bytes_total")
                lag = int(total(samples, "kafka2011_mirror_lag_bytes"))
                return copied, copied, lag, behind_ms(lag, self._in_rate("live"))
            case "online-consumer":
                size = rate("kafka2011_online_bytes_total")
                process.facts = {
                    "messages_s": rounded(rate("kafka2011_online_messages_total")),
                }
                lag = int(total(samples, "kafka2011_online_lag_bytes"))
                return size, 0.0, lag, behind_ms(lag, max(size, self._in_rate("live") / 2))
            case "loader":
                rows = rate("kafka2011_warehouse_rows_total")
                process.facts = {
                    "rows_s": rounded(rows),
                    "problems": total(samples, "kafka2011_warehouse_problems"),
                }
                lag = int(total(samples, "kafka2011_warehouse_lag_bytes"))
                size = rows * self._message_bytes
                return size, size, lag, behind_ms(lag, self._in_rate("offline"))
        return 0.0, 0.0, None, None

    def _flush_ms(self, process: ProcessLook, now_ms: int) -> float:
        seconds = self._rates.note(
            f"{process.key}|flush_s", total(process.samples, "kafka2011_broker_flush_seconds_sum"),
            now_ms,
        )  # fmt: skip
        count = self._rates.note(
            f"{process.key}|flushes",
            total(process.samples, "kafka2011_broker_flush_seconds_count"),
            now_ms,
        )
        return seconds * 1000 / count if count else 0.0

    def _in_rate(self, datacenter: str) -> float:
        return sum(
            self._rates.rate(f"{key}|kafka2011_broker_bytes_in_total")
            for key in self._broker_ids
            if key.startswith(f"{datacenter}/")
        )

    @property
    def _message_bytes(self) -> float:
        """Mean size of a live message at present; a guess of 200 until there are any."""
        messages = sum(self._rates.rate(f"{k}|messages") for k in self._broker_ids)
        size = sum(
            self._rates.rate(f"{k}|kafka2011_broker_bytes_in_total") for k in self._broker_ids
        )
        return size / messages if messages else 200.0

    # --- edges -------------------------------------------------------------------------------

    def _edge_rows(self, seen: Collected, rows: Rows) -> Rows:
        of: dict[tuple[str, str], list[str]] = {}
        for key, row in rows.items():
            of.setdefault((row["dc"], row["kind"]), []).append(key)
        by_id = {
            (seen.processes[key].datacenter, number): key
            for key, number in self._broker_ids.items()
            if key in rows
        }
        edges: Rows = {}

        def edge(start: str, end: str, bytes_s: float, *, reads: bool = False) -> None:
            edges[f"{start}>{end}"] = {
                "from": start,
                "to": end,
                "bytes_s": rounded(bytes_s),
                "reads": reads,
            }

        live_brokers = of.get(("live", "broker"), [])
        offline_brokers = of.get(("offline", "broker"), [])
        proxies = of.get(("live", "proxy"), [])
        for frontend in of.get(("live", "frontend"), []):
            for target in proxies or live_brokers:
                edge(frontend, target, rows[frontend]["out_s"] / len(proxies or live_brokers))
        for proxy in proxies:
            for broker in live_brokers:
                edge(proxy, broker, rows[broker]["in_s"] / len(proxies))
        for dc in ("live", "offline"):
            for mirror in of.get((dc, "mirror"), []):
                self._mirror_edges(seen, mirror, by_id, live_brokers, offline_brokers, edge)
            loaders = of.get((dc, "loader"), [])
            for loader in loaders:
                for broker in offline_brokers:
                    edge(broker, loader, rows[loader]["in_s"] / max(1, len(offline_brokers)))
                edge(loader, "warehouse", rows[loader]["out_s"])
            for consumer in of.get((dc, "online-consumer"), []):
                sources = of.get((dc, "broker"), [])
                for broker in sources:
                    edge(broker, consumer, rows[consumer]["in_s"] / len(sources))
        for audit in [*of.get(("live", "audit"), []), *of.get(("offline", "audit"), [])]:
            for broker in (*live_brokers, *offline_brokers):
                edge(broker, audit, 0.0, reads=True)
        return edges

    def _mirror_edges(  # noqa: PLR0917 (what one edge needs)
        self,
        seen: Collected,
        mirror: str,
        by_id: Mapping[tuple[str, int], str],
        live_brokers: list[str],
        offline_brokers: list[str],
        edge: Any,
    ) -> None:
        samples = seen.processes[mirror].samples
        name = "kafka2011_mirror_copied_bytes_total"
        for label, dc, brokers in (
            ("source", "live", live_brokers),
            ("target", "offline", offline_brokers),
        ):
            sums = dict.fromkeys(brokers, 0.0)
            for place, size in by_label(samples, name, label).items():
                number = place.partition("-")[0]
                broker = by_id.get((dc, int(number))) if number.isdecimal() else None
                if broker is not None:
                    sums[broker] = sums.get(broker, 0.0) + size
            for broker, size in sums.items():
                rate = self._rates.note(f"{mirror}|{label}|{broker}", size, seen.now_ms)
                if label == "source":
                    edge(broker, mirror, rate)
                else:
                    edge(mirror, broker, rate)

    # --- topics and partitions ----------------------------------------------------------------

    def _partition_rows(self, seen: Collected) -> Rows:
        rows: Rows = {}
        for process in seen.processes.values():
            if process.kind != "broker" or not process.samples:
                continue
            number = self._broker_ids.get(process.key, -1)
            away = process.health.state in (DOWN, STOPPED)
            values: dict[tuple[str, str], dict[str, float]] = {}
            for field_name, metric in (
                ("start", "kafka2011_broker_log_start"),
                ("end", "kafka2011_broker_log_end"),
                ("watermark", "kafka2011_broker_high_watermark"),
                ("segments", "kafka2011_broker_segments"),
                ("online", "kafka2011_broker_partition_online"),
            ):
                for labels, value in process.samples.get(metric, ()):
                    place = (labels.get("topic", ""), labels.get("partition", ""))
                    values.setdefault(place, {})[field_name] = value
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
                    "bytes_s": rounded(self._rates.note(key, end, seen.now_ms)),
                    "state": "away" if away else "online" if found.get("online", 1) else "failed",
                }
        return rows

    def _topic_rows(self, seen: Collected, partitions: Rows, group_partitions: Rows) -> Rows:
        rows: Rows = {}
        for datacenter, look in seen.clusters.items():
            for topic in look.topics:
                rows[f"{datacenter}/{topic}"] = _empty_topic(datacenter, topic)
        for partition in partitions.values():
            key = f"{partition['dc']}/{partition['topic']}"
            row = rows.setdefault(key, _empty_topic(partition["dc"], partition["topic"]))
            row["partitions"] += 1
            row["size"] += partition["end"] - partition["start"]
            row["segments"] += partition["segments"]
            row["away"] += partition["state"] != "online"
        for process in seen.processes.values():
            if process.kind != "broker":
                continue
            for metric, name in (
                ("kafka2011_broker_messages_in_total", "messages_s"),
                ("kafka2011_broker_bytes_in_total", "bytes_s"),
                ("kafka2011_broker_bytes_out_total", "out_s"),
            ):
                for topic, value in by_label(process.samples, metric, "topic").items():
                    rate = self._rates.note(f"{process.key}|{metric}|{topic}", value, seen.now_ms)
                    found = rows.get(f"{process.datacenter}/{topic}")
                    if found is not None and process.health.state not in (DOWN, STOPPED):
                        found[name] = rounded(found[name] + rate)
        for read in group_partitions.values():
            found = rows.get(f"{read['dc']}/{read['topic']}")
            if found is not None:
                lag = found["groups"].get(read["group"], 0)
                found["groups"][read["group"]] = lag + (read["lag_bytes"] or 0)
        return rows

    # --- groups -------------------------------------------------------------------------------

    def _group_rows(self, seen: Collected, partitions: Rows) -> tuple[Rows, Rows, Rows]:
        groups: Rows = {}
        parts: Rows = {}
        series: Rows = {}
        for datacenter, look in seen.clusters.items():
            for group in look.groups.values():
                key = f"{datacenter}/{group.name}"
                # Offsets and ends must be of one moment: an old offset beside a new end is no lag.
                looked = self._group_looks.get(key)
                if looked is not None and looked[0] == look.groups_at_ms:
                    rows, groups[key] = looked[1], looked[2]
                    parts.update(rows)
                    history = self._group_history[key]
                    series.update({f"{key}|{at}": row for at, row in history.rows().items()})
                    continue
                self._tell_rebalance(key, group, look.groups_at_ms or seen.now_ms)
                rows = self._group_partitions(datacenter, group, partitions, seen.now_ms)
                parts.update(rows)
                groups[key] = self._group_row(datacenter, group, rows, seen.now_ms)
                self._group_looks[key] = (look.groups_at_ms, rows, groups[key])
                history = self._group_history.setdefault(
                    key, History(self._history_ms, GROUP_STEP_MS)
                )
                history.note(
                    seen.now_ms,
                    {"bytes": groups[key]["lag_bytes"], "ms": groups[key]["lag_ms"]},
                )
                series.update({f"{key}|{at}": row for at, row in history.rows().items()})
        return groups, parts, series

    def _group_partitions(
        self, datacenter: str, group: GroupLook, partitions: Rows, now_ms: int
    ) -> Rows:
        rows: Rows = {}
        for topic, name in sorted(set(group.owners) | set(group.offsets)):
            found = partitions.get(f"{datacenter}/{topic}/{name}")
            end = found["watermark"] if found else None
            offset, version = group.offsets.get((topic, name), (None, None))
            owner = group.owners.get((topic, name), "")
            place = (datacenter, group.name, topic, name)
            history = self._partitions.setdefault(place, PartitionHistory())
            history.note(now_ms, offset, version, end)
            lag = None if offset is None or end is None else max(0, end - offset)
            verdict = judge(history.commits, lag, now_ms, is_owned=bool(owner))
            rows[f"{datacenter}/{group.name}/{topic}/{name}"] = {
                "dc": datacenter,
                "group": group.name,
                "topic": topic,
                "partition": name,
                "owner": owner,
                "offset": offset,
                "end": end,
                "lag_bytes": lag,
                "lag_ms": history.lag_ms(now_ms, offset),
                "state": verdict.state,
                "reason": verdict.reason,
                "complete": verdict.complete,
            }
        return rows

    def _group_row(self, datacenter: str, group: GroupLook, rows: Rows, now_ms: int) -> Row:
        key = f"{datacenter}/{group.name}"
        worst_row = max(
            rows.values(),
            key=lambda row: (_severity(row["state"]), row["lag_bytes"] or 0),
            default=None,
        )
        state = worst_row["state"] if worst_row else worst(()).state
        before = self._group_states.get(key)
        if before is not None and before != state and {before, state} & (ERRORS | {"WARN"}):
            kind = "bad" if state in ERRORS else "warn" if state == "WARN" else "good"
            self.tell(now_ms, kind, key, f"group {group.name} is {state}")
        self._group_states[key] = state
        lags = [row["lag_bytes"] for row in rows.values() if row["lag_bytes"] is not None]
        times = [row["lag_ms"] for row in rows.values() if row["lag_ms"] is not None]
        return {
            "dc": datacenter,
            "group": group.name,
            "members": group.members,
            "partitions": len(rows),
            "unowned": sum(1 for row in rows.values() if not row["owner"]),
            "topics": sorted({row["topic"] for row in rows.values()}),
            "lag_bytes": sum(lags),
            "lag_ms": max(times, default=None),
            "state": state,
            "reason": ""
            if worst_row is None
            else f"{worst_row['topic']} {worst_row['partition']}: {worst_row['reason']}",
        }

    def _tell_rebalance(self, key: str, group: GroupLook, at_ms: int) -> None:
        before = self._owners.get(key)
        self._owners[key] = dict(group.owners)
        if before is None:
            return
        moved = {p for p in set(before) | set(group.owners) if before.get(p) != group.owners.get(p)}
        if moved:
            self.tell(
                at_ms,
                "info",
                key,
                f"group {group.name} rebalanced: {len(moved)} partitions changed hands, "
                f"{len(group.members)} members",
            )

    # --- the audit ----------------------------------------------------------------------------

    def _audit_rows(self, seen: Collected) -> Rows:
        audit = seen.audit
        if audit is None:
            return {}
        tiers: dict[str, Any] = audit.get("tiers", {})
        self.latency.note(
            seen.now_ms,
            {
                f"{tier}_{name}": found.get("recent", {}).get(f"{name}_ms")
                for tier, found in tiers.items()
                for name in ("p50", "p99", "p999")
            },
        )
        rates: dict[str, float | None] = {
            tier: rounded(self._rates.note(f"audit|{tier}", found.get("count", 0), seen.now_ms))
            for tier, found in tiers.items()
        }
        rates["produced"] = rounded(
            self._rates.note("audit|produced", audit.get("produced", 0), seen.now_ms)
        )
        self.flow.note(seen.now_ms, rates)
        for tier, found in tiers.items():
            missing = int(found.get("missing", 0))
            before = self._missing.get(tier, 0)
            if missing > before:
                self.tell(seen.now_ms, "bad", "audit", f"{missing:,} messages missing in {tier}")
            elif missing < before:
                self.tell(
                    seen.now_ms, "good", "audit", f"{missing:,} messages missing in {tier}, fewer"
                )
            self._missing[tier] = missing
        kept = (
            "produced", "produced_bytes", "cells", "tiers", "verdicts", "balanced", "window_ms",
            "notes", "restarts", "unread_ranges", "topics",
        )  # fmt: skip
        return {"summary": {name: audit.get(name) for name in kept} | {"rates": rates}}

    def _meta(self, seen: Collected, processes: Rows) -> Row:
        states = [row["state"] for row in processes.values()]
        answering = any(look.is_answering for look in seen.clusters.values())
        working = [
            row for row in processes.values() if row["kind"] not in ("zookeeper", "dashboard")
        ]
        running = [row for row in working if row["state"] not in (DOWN, STOPPED, STARTING)]
        self._had_processes = self._had_processes or bool(running)
        state = "running"
        if not answering and not running:
            state = "stopped" if self._had_processes else "not found"
        elif working and not running and self._had_processes:
            state = "stopped"
        elif not working:
            state = "starting"
        return {
            "state": state,
            "counts": {name: states.count(name) for name in sorted(set(states))},
            "clusters": {
                name: {"answering": look.is_answering, "reason": look.reason}
                for name, look in seen.clusters.items()
            },
        }


def _severity(state: str) -> int:
    return ("OK", "UNKNOWN", "WARN", "STALL", "STOP", "REWIND").index(state)


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
        "groups": {},
    }


WORSE = ("complete", "redelivered", "pending", "extra", "missing")
WINDOWS_SHOWN = 60


def cell_rows(cells: list[dict[str, Any]]) -> Rows:
    """The audit's cells (topic, window, server) as one row per topic and window.

    Each tier gets the worst verdict of its servers and the sum of the differences. The newest
    windows, and of the older ones those that are not complete.
    """
    newest = set(sorted({cell["window_start_ms"] for cell in cells})[-WINDOWS_SHOWN:])
    rows: Rows = {}
    for cell in cells:
        if cell["window_start_ms"] not in newest and cell.get("complete"):
            continue
        row = rows.setdefault(
            f"{cell['topic']}|{cell['window_start_ms']}",
            {
                "topic": cell["topic"],
                "window": cell["window_start_ms"],
                "produced": 0,
                "servers": 0,
                "tiers": {},
            },
        )
        row["produced"] += cell.get("produced", 0)
        row["servers"] += 1
        for tier, found in cell.get("tiers", {}).items():
            state = found.get("state", "pending")
            merged = row["tiers"].setdefault(
                tier,
                {"state": state, "counted": 0, "expected": 0, "missing": 0, "extra": 0, "again": 0},
            )
            for name, source in (
                ("counted", "counted"),
                ("expected", "expected"),
                ("missing", "missing"),
                ("extra", "extra"),
                ("again", "redelivered"),
            ):
                merged[name] += found.get(source) or 0
            if _badness(state) > _badness(merged["state"]):
                merged["state"] = state
    return rows


def _badness(state: str) -> int:
    return WORSE.index(state) if state in WORSE else WORSE.index("pending")
