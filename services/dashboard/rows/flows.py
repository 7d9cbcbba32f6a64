"""How fast each process moves, how far behind it is, and what flows between them. Pure.

`Flows` keeps the counters of the last seconds; a round of looking becomes rows of processes and of
edges. A process that is gone flows nothing.
"""

from collections.abc import Mapping
from typing import Any

from kafka2011.services.dashboard.config import LIVE, OFFLINE
from kafka2011.services.dashboard.process_states import (
    DOWN,
    STARTING,
    STOPPED,
    Rates,
    behind_ms,
    rounded,
)
from kafka2011.services.dashboard.sampling.metrics_text import by_label, total
from kafka2011.services.dashboard.sampling.observations import Collected, ProcessLook, Rows


class Flows:
    """Rates by process; `broker_ids` maps a broker's process key to its id."""

    def __init__(self, rates: Rates, lag_ms_max: int) -> None:
        self._rates = rates
        self._lag_ms_max = lag_ms_max
        self.broker_ids: dict[str, int] = {}

    def name_brokers(self, seen: Collected) -> None:
        for process in seen.processes.values():
            if process.kind != "broker":
                continue
            look = seen.clusters.get(process.datacenter)
            for broker_id, address in (look.brokers if look else {}).items():
                if f"{address.host}:{address.port}" == process.address:
                    self.broker_ids[process.key] = broker_id
            suffix = process.name.rpartition("-")[2]
            if process.key not in self.broker_ids and suffix.isdecimal():
                self.broker_ids[process.key] = int(suffix)

    def process_rows(self, seen: Collected) -> Rows:
        rows: Rows = {}
        for key, process in sorted(seen.processes.items()):
            rate_in, rate_out, lag_bytes, behind = self._flow_of(process, seen.now_ms)
            state = process.health.judge(seen.now_ms, behind, self._lag_ms_max)
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
                rows[key]["broker_id"] = self.broker_ids.get(key)
            if process.kind == "proxy":
                rows[key]["role"] = "link" if is_link(process) else "balancer"
                rows[key]["faults"] = [] if gone else process.faults
        return rows

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
                if is_link(process):
                    # Mirrors fetch over it: what matters comes back.
                    to_client = rate("kafka2011_proxy_bytes_total", direction="to_client")
                    return to_client, to_client, None, None
                return to_server, to_server, None, None
            case "mirror":
                copied = rate("kafka2011_mirror_copied_bytes_total")
                lag = int(total(samples, "kafka2011_mirror_lag_bytes"))
                return (
                    copied,
                    copied,
                    lag,
                    behind_ms(lag, self._in_rate(source_of(process.datacenter))),
                )
            case "online-consumer":
                size = rate("kafka2011_online_bytes_total")
                process.facts = {
                    "messages_s": rounded(rate("kafka2011_online_messages_total")),
                }
                lag = int(total(samples, "kafka2011_online_lag_bytes"))
                return (
                    size,
                    0.0,
                    lag,
                    behind_ms(lag, max(size, self._in_rate(process.datacenter) / 2)),
                )
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
            for key in self.broker_ids
            if key.startswith(f"{datacenter}/")
        )

    @property
    def _message_bytes(self) -> float:
        """Mean size of a live message at present; a guess of 200 until there are any."""
        messages = sum(self._rates.rate(f"{k}|messages") for k in self.broker_ids)
        size = sum(
            self._rates.rate(f"{k}|kafka2011_broker_bytes_in_total") for k in self.broker_ids
        )
        return size / messages if messages else 200.0

    # --- edges -------------------------------------------------------------------------------

    def edge_rows(self, seen: Collected, rows: Rows) -> Rows:
        of: dict[tuple[str, str], list[str]] = {}
        for key, row in rows.items():
            of.setdefault((row["dc"], row["kind"]), []).append(key)
        by_id = {
            (seen.processes[key].datacenter, number): key
            for key, number in self.broker_ids.items()
            if key in rows
        }
        edges: Rows = {}

        def edge(
            start: str, end: str, bytes_s: float, *, reads: bool = False, adds: bool = False
        ) -> None:
            key = f"{start}>{end}"
            before = edges[key]["bytes_s"] if adds and key in edges else 0.0
            edges[key] = {
                "from": start,
                "to": end,
                "bytes_s": rounded(before + bytes_s),
                "reads": reads,
            }

        offline_brokers = of.get((OFFLINE, "broker"), [])
        for dc in sorted({dc for dc, _ in of}):
            brokers = of.get((dc, "broker"), [])
            # What a stopped one was cannot be seen any more, and nothing goes through it.
            proxies = [
                key
                for key in of.get((dc, "proxy"), [])
                if rows[key]["role"] != "link" and rows[key]["state"] != STOPPED
            ]
            for frontend in of.get((dc, "frontend"), []):
                for target in proxies or brokers:
                    edge(frontend, target, rows[frontend]["out_s"] / len(proxies or brokers))
            for proxy in proxies:
                for broker in brokers:
                    edge(proxy, broker, rows[broker]["in_s"] / len(proxies))
            for mirror in of.get((dc, "mirror"), []):
                source = source_of(dc)
                links = [k for k in of.get((source, "proxy"), []) if rows[k]["role"] == "link"]
                self._mirror_edges(
                    seen, mirror, by_id, of.get((source, "broker"), []), offline_brokers, edge,
                    links[:1], source=source,
                )  # fmt: skip
            for loader in of.get((dc, "loader"), []):
                for broker in offline_brokers:
                    edge(broker, loader, rows[loader]["in_s"] / max(1, len(offline_brokers)))
                edge(loader, "warehouse", rows[loader]["out_s"])
            for consumer in of.get((dc, "online-consumer"), []):
                for broker in brokers:
                    edge(broker, consumer, rows[consumer]["in_s"] / len(brokers))
            for audit in of.get((dc, "audit"), []):
                for broker in (*of.get((source_of(dc), "broker"), []), *offline_brokers):
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
        links: list[str],
        *,
        source: str,
    ) -> None:
        """From the live brokers to the mirror, over the link where there is one, and on."""
        samples = seen.processes[mirror].samples
        name = "kafka2011_mirror_copied_bytes_total"
        through = 0.0
        for label, dc, brokers in (
            ("source", source, live_brokers),
            ("target", OFFLINE, offline_brokers),
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
                    for link in links:
                        edge(broker, link, rate, adds=True)
                    through += rate
                    if not links:
                        edge(broker, mirror, rate)
                else:
                    edge(mirror, broker, rate)
        for link in links:
            edge(link, mirror, through)


def source_of(datacenter: str) -> str:
    """The live datacenter that a mirror or an audit reads: its own, or the first where it is
    registered in the offline one."""
    return LIVE if datacenter == OFFLINE else datacenter


def is_link(process: ProcessLook) -> bool:
    """Whether a proxy is a link between datacenters: it has a route for each broker behind it,
    where a balancer has one for all."""
    return len(by_label(process.samples, "kafka2011_proxy_connections_open", "route")) > 1


def faults_in_words(status: Mapping[str, Any]) -> list[str]:
    """What a proxy's /faults page says that it does to its routes; empty when nothing. Routes that
    do the same are named once."""
    words: dict[str, None] = {}
    for route in status.get("routes", {}).values():
        faults = route.get("faults", {})
        if faults.get("cut"):
            words["cut"] = None
        if faults.get("delay_ms"):
            words[f"{faults['delay_ms']} ms late"] = None
        if faults.get("rate_bytes_s"):
            words[f"{faults['rate_bytes_s'] / 1000:g} KB/s at most"] = None
        for name in ("hold", "blackhole"):
            if faults.get(name):
                words[f"{name} {' and '.join(faults[name])}"] = None
        if route.get("drop_remaining"):
            words[f"drops {route['drop_remaining']} messages"] = None
    return list(words)
