"""How fast each process moves, how far behind it is, and what flows between them. Pure.

`FlowRows` keeps the counters of the last seconds and turns each sample into rows of processes and
of edges. A process that is down or stopped has no flow.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from kafka2011.coordination.paths import is_broker_id
from kafka2011.services.dashboard.config import LIVE, OFFLINE
from kafka2011.services.dashboard.process_states import (
    DOWN,
    FAILURES_DOWN,
    LAGGING,
    SILENT,
    SLOW,
    STARTING,
    STOPPED,
    UP,
)
from kafka2011.services.dashboard.rows.history import Arrivals, rounded
from kafka2011.services.dashboard.rows.replica_sets import members_of
from kafka2011.services.dashboard.rows.validated import group_verdicts
from kafka2011.services.dashboard.sampling.metrics_text import by_label, known_total, total
from kafka2011.services.dashboard.sampling.observations import Observations, ObservedProcess, Rows
from kafka2011.services.rates import Rates

BYTES_IN = "kafka2011_broker_bytes_in_total"


class Flow(NamedTuple):
    """Bytes a second in and out (None: unknown); what is not read yet, in bytes and ms (None:
    unknown, or it reads nothing)."""

    in_s: float | None
    out_s: float | None
    lag_bytes: int | None = None
    behind_ms: float | None = None


GONE = (DOWN, STOPPED, STARTING)
UNHEARD = (*GONE, SILENT)  # the last figures of such a process are not those of now


class FlowRows:
    """Rates by process; `broker_ids` maps a broker's process key to its id. Of a replica set, only
    the leader that clients see has one: what the others hold and receive are its copies."""

    def __init__(self, rates: Rates, lag_ms_max: int) -> None:
        self._rates = rates
        self._arrivals: dict[str, Arrivals] = {}  # by datacenter
        self._lag_ms_max = lag_ms_max
        self.broker_ids: dict[str, int] = {}
        # Keys of processes whose logs are not shown: a set's other members, and brokers whose id
        # another process has now.
        self.followers: set[str] = set()
        self._flow_of_kind: dict[str, Callable[[ObservedProcess, int], Flow]] = {
            "broker": self._broker_flow,
            "frontend": self._frontend_flow,
            "proxy": self._proxy_flow,
            "mirror": self._mirror_flow,
            "online-consumer": self._consumer_flow,
            "site": self._site_flow,
            "loader": self._loader_flow,
        }

    def name_brokers(self, seen: Observations) -> None:
        for process in seen.processes.values():
            if process.kind != "broker":
                continue
            cluster = seen.clusters.get(process.datacenter)
            for broker_id, address in (cluster.brokers if cluster else {}).items():
                if f"{address.host}:{address.port}" == process.address:
                    self.broker_ids[process.key] = broker_id
            suffix = process.name.rpartition("-")[2]
            if process.key not in self.broker_ids and is_broker_id(suffix):
                self.broker_ids[process.key] = int(suffix)
        self._keep_leaders(seen)
        self._keep_present(seen)

    def _keep_leaders(self, seen: Observations) -> None:
        """Take the ids from followers. While no leader is registered, the last one keeps its id."""
        members: dict[tuple[str, int], set[str]] = {}
        for datacenter, view, _, process in members_of(seen):
            if process is not None:
                members.setdefault((datacenter, view.broker_id), set()).add(process.key)
        followers: set[str] = set()
        for (datacenter, broker_id), keys in members.items():
            shown = seen.clusters[datacenter].brokers.get(broker_id)
            address = f"{shown.host}:{shown.port}" if shown else ""
            leaders = {key for key in keys if seen.processes[key].address == address}
            leaders = leaders or {key for key in keys if key in self.broker_ids}
            followers |= keys - leaders
        for key in followers & self.broker_ids.keys():
            del self.broker_ids[key]
        self.followers.clear()
        self.followers.update(followers)

    def _keep_present(self, seen: Observations) -> None:
        """Leave an id to one process. If several have it, as when a broker moved and has another
        name there, it goes to one that answers, if possible the registered one."""
        same: dict[tuple[str, int], list[ObservedProcess]] = {}
        for key, broker_id in self.broker_ids.items():
            if (process := seen.processes.get(key)) is not None:
                same.setdefault((process.datacenter, broker_id), []).append(process)
        for (datacenter, broker_id), processes in same.items():
            cluster = seen.clusters.get(datacenter)
            if len(processes) == 1 or (cluster is not None and broker_id in cluster.sets):
                continue
            shown = cluster.brokers.get(broker_id) if cluster else None
            address = f"{shown.host}:{shown.port}" if shown else ""
            is_down = {one.key: one.health.failures >= FAILURES_DOWN for one in processes}
            order = {one.key: (is_down[one.key], one.address != address) for one in processes}
            for process in sorted(processes, key=lambda one: order[one.key])[1:]:
                del self.broker_ids[process.key]
                self.followers.add(process.key)

    def process_rows(self, seen: Observations) -> Rows:
        rows: Rows = {}
        self._note_arrivals(seen)
        for key, process in sorted(seen.processes.items()):
            flow = self._flow_of(process, seen.now_ms)
            state = process.health.judge(seen.now_ms, flow.behind_ms, self._lag_ms_max)
            gone, is_unheard = state in GONE, state in UNHEARD
            moves = process.kind in self._flow_of_kind  # any bytes: a registry's have no rate
            rows[key] = {
                "name": process.name,
                "dc": process.datacenter,
                "kind": process.kind,
                "state": state,
                "since_ms": process.health.since_ms,
                "reason": process.health.reason if state not in (UP, SLOW, LAGGING) else "",
                "address": process.address,
                "metrics": process.metrics,
                "pid": process.pid,
                "in_s": 0.0 if gone and moves else None if is_unheard else rounded(flow.in_s),
                "out_s": 0.0 if gone and moves else None if is_unheard else rounded(flow.out_s),
                "lag_bytes": None if is_unheard else flow.lag_bytes,
                "behind_ms": None
                if is_unheard or flow.behind_ms is None
                else round(flow.behind_ms, -2),
                "facts": process.facts if not gone else {},
            }
            if process.kind == "broker":
                rows[key]["broker_id"] = self.broker_ids.get(key)
            if process.kind == "proxy":
                rows[key]["role"] = "link" if is_link(process) else "balancer"
                rows[key]["faults"] = [] if gone else process.faults
        return rows

    def _flow_of(self, process: ObservedProcess, now_ms: int) -> "Flow":
        """The process's flow now; sets its `facts`."""
        of_kind = self._flow_of_kind.get(process.kind)
        return of_kind(process, now_ms) if of_kind else Flow(None, None)

    def _rate(
        self, process: ObservedProcess, now_ms: int, name: str, **labels: str
    ) -> float | None:
        """Rate per second of a counter of the process; None while it is not known."""
        words = "".join(f"|{k}={v}" for k, v in labels.items())
        value = total(process.samples, name, **labels)
        return self._note(process, f"{name}{words}", value, now_ms)

    def _note(self, process: ObservedProcess, name: str, value: float, now_ms: int) -> float | None:
        """Record a counter as of when it was read; its rate, None before anything was."""
        if not process.samples:
            return None
        return self._rates.note(f"{process.key}|{name}", value, process.measured_ms(now_ms))

    def _broker_flow(self, process: ObservedProcess, now_ms: int) -> "Flow":
        samples = process.samples
        messages = total(samples, "kafka2011_broker_messages_in_total")
        process.facts = {
            "messages_s": rounded(self._note(process, "messages", messages, now_ms)),
            "connections": total(samples, "kafka2011_broker_connections"),
            "flush_ms": rounded(self._flush_ms(process, now_ms)),
            "flush_errors": total(samples, "kafka2011_broker_flush_errors_total"),
        }
        return Flow(
            self._rate(process, now_ms, BYTES_IN),
            self._rate(process, now_ms, "kafka2011_broker_bytes_out_total"),
        )

    def _frontend_flow(self, process: ObservedProcess, now_ms: int) -> "Flow":
        messages_s = self._rate(process, now_ms, "kafka2011_frontend_messages_total")
        process.facts = {"messages_s": rounded(messages_s)}
        bytes_s = self._bytes_of(messages_s)
        return Flow(bytes_s, bytes_s)

    def _proxy_flow(self, process: ObservedProcess, now_ms: int) -> "Flow":
        samples = process.samples
        process.facts = {
            "connections": total(samples, "kafka2011_proxy_connections_open"),
            "dropped_messages": total(samples, "kafka2011_proxy_dropped_messages_total"),
        }
        # Mirrors fetch over a link, so that its data goes to the client; frontends send through a
        # balancer.
        direction = "to_client" if is_link(process) else "to_server"
        bytes_s = self._rate(process, now_ms, "kafka2011_proxy_bytes_total", direction=direction)
        return Flow(bytes_s, bytes_s)

    def _mirror_flow(self, process: ObservedProcess, now_ms: int) -> "Flow":
        copied = self._rate(process, now_ms, "kafka2011_mirror_copied_bytes_total")
        lag = known_total(process.samples, "kafka2011_mirror_lag_bytes")
        return Flow(copied, copied, lag, self._age_ms(lag, source_of(process.datacenter), now_ms))

    def _consumer_flow(self, process: ObservedProcess, now_ms: int) -> "Flow":
        size = self._rate(process, now_ms, "kafka2011_online_bytes_total")
        messages_s = self._rate(process, now_ms, "kafka2011_online_messages_total")
        process.facts = {"messages_s": rounded(messages_s)}
        for verdict in group_verdicts([process]).values():
            process.facts["validated"] = verdict
        lag = known_total(process.samples, "kafka2011_online_lag_bytes")
        # Each of the group's two members has half of the partitions.
        return Flow(size, 0.0, lag, self._age_ms(lag and 2 * lag, process.datacenter, now_ms))

    def _site_flow(self, process: ObservedProcess, now_ms: int) -> "Flow":
        events_s = self._rate(process, now_ms, "kafka2011_site_events_total")
        process.facts = {"messages_s": rounded(events_s)}
        size = self._bytes_of(events_s)
        lag = known_total(process.samples, "kafka2011_site_lag_bytes")
        return Flow(size, 0.0, lag, self._age_ms(lag, process.datacenter, now_ms))

    def _loader_flow(self, process: ObservedProcess, now_ms: int) -> "Flow":
        rows_s = self._rate(process, now_ms, "kafka2011_warehouse_rows_total")
        process.facts = {
            "rows_s": rounded(rows_s),
            "problems": total(process.samples, "kafka2011_warehouse_problems"),
        }
        size = self._bytes_of(rows_s)
        lag = known_total(process.samples, "kafka2011_warehouse_lag_bytes")
        return Flow(size, size, lag, self._age_ms(lag, OFFLINE, now_ms))

    def _bytes_of(self, messages_s: float | None) -> float | None:
        """Bytes a second of `messages_s` messages of mean size."""
        return None if messages_s is None else messages_s * self._message_bytes

    def _flush_ms(self, process: ObservedProcess, now_ms: int) -> float | None:
        seconds, count = (
            self._rate(process, now_ms, f"kafka2011_broker_flush_seconds_{name}")
            for name in ("sum", "count")
        )
        if seconds is None or count is None:
            return None
        return seconds * 1000 / count if count else 0.0

    def _note_arrivals(self, seen: Observations) -> None:
        counters: dict[str, dict[str, float]] = {}
        for key in self.broker_ids:
            process = seen.processes.get(key)
            came = known_total(process.samples, BYTES_IN) if process else None
            if process is not None and came is not None:
                counters.setdefault(process.datacenter, {})[key] = came
        for datacenter, found in counters.items():
            self._arrivals.setdefault(datacenter, Arrivals()).note(found, seen.now_ms)

    def _age_ms(self, lag_bytes: int | None, datacenter: str, now_ms: int) -> float | None:
        """How long the oldest of a datacenter's unread bytes has been there."""
        return self._arrivals.get(datacenter, Arrivals()).age_ms(lag_bytes, now_ms)

    @property
    def _message_bytes(self) -> float:
        """Mean size of a live message at present; a guess of 200 until there are any."""
        messages = sum(self._rates.rate(f"{k}|messages") or 0.0 for k in self.broker_ids)
        size = sum(self._rates.rate(f"{k}|{BYTES_IN}") or 0.0 for k in self.broker_ids)
        return size / messages if messages else 200.0

    # --- edges -------------------------------------------------------------------------------

    def edge_rows(self, seen: Observations, rows: Rows) -> Rows:
        graph = Graph(seen, rows, self.broker_ids, self.followers)
        for dc in graph.datacenters:
            self._add_producing(graph, dc)
            for mirror in graph.of(dc, "mirror"):
                self._add_mirror(graph, mirror, source_of(dc))
            add_reading(graph, dc)
        return graph.edges

    def _add_producing(self, graph: "Graph", dc: str) -> None:
        """Add what frontends send: through proxies if there are any, and with a key directly."""
        rows, brokers = graph.rows, graph.of(dc, "broker")
        # Whether a stopped proxy was a link cannot be seen any more; nothing passes it.
        proxies = [
            key
            for key in graph.of(dc, "proxy")
            if rows[key]["role"] != "link" and rows[key]["state"] not in (STOPPED, STARTING)
        ]
        direct = dict.fromkeys(brokers, 0.0)
        for frontend in graph.of(dc, "frontend"):
            keyed = self._keyed_rates(graph, frontend)
            rest_s = max(0.0, (rows[frontend]["out_s"] or 0.0) - sum(keyed.values()))
            for target in proxies or brokers:
                graph.add(frontend, target, rest_s / len(proxies or brokers))
            for broker, bytes_s in keyed.items():
                graph.add(frontend, broker, bytes_s, adds=True)
                direct[broker] = direct.get(broker, 0.0) + bytes_s
        for proxy in proxies:
            for broker in brokers:
                rest_s = max(0.0, (rows[broker]["in_s"] or 0.0) - direct[broker])
                passed_s = 0.0 if graph.is_unheard(proxy) else rest_s / len(proxies)
                graph.add(proxy, broker, passed_s)

    def _keyed_rates(self, graph: "Graph", frontend: str) -> dict[str, float]:
        """Bytes a second of events with a key, which a frontend sends past the balancer, by the
        broker of that key."""
        process, name = graph.seen.processes[frontend], "kafka2011_frontend_keyed_bytes_total"
        found: dict[str, float] = {}
        for number in by_label(process.samples, name, "broker"):
            if (broker := graph.broker(process.datacenter, number)) is not None:
                rate = self._rate(process, graph.seen.now_ms, name, broker=number) or 0.0
                found[broker] = rate if graph.rows[frontend]["out_s"] else 0.0
        return found

    def _add_mirror(self, graph: "Graph", mirror: str, source: str) -> None:
        """Add the edges from live brokers, over the link if there is one, to the mirror and on."""
        links = [k for k in graph.of(source, "proxy") if graph.rows[k]["role"] == "link"][:1]
        link_bytes_s = 0.0
        for broker, rate in self._copied(graph, mirror, "source", source).items():
            for link in links:
                graph.add(broker, link, rate, adds=True)
            link_bytes_s += rate
            if not links:
                graph.add(broker, mirror, rate)
        for broker, rate in self._copied(graph, mirror, "target", OFFLINE).items():
            graph.add(mirror, broker, rate)
        for link in links:
            graph.add(link, mirror, link_bytes_s)

    def _copied(self, graph: "Graph", mirror: str, label: str, dc: str) -> dict[str, float]:
        """Bytes a second that a mirror copies, by the brokers at one of its ends (`label`)."""
        process = graph.seen.processes[mirror]
        at_ms = process.measured_ms(graph.seen.now_ms)
        sums = dict.fromkeys(graph.of(dc, "broker"), 0.0)
        copied = by_label(process.samples, "kafka2011_mirror_copied_bytes_total", label)
        for partition, size in copied.items():
            if (broker := graph.broker(dc, partition.partition("-")[0])) is not None:
                sums[broker] = sums.get(broker, 0.0) + size
        rates = {
            broker: self._rates.note(f"{mirror}|{label}|{broker}", size, at_ms) or 0.0
            for broker, size in sums.items()
        }
        return dict.fromkeys(rates, 0.0) if graph.is_unheard(mirror) else rates


class Graph:
    """The processes of one sample, and the edges found between them so far. Of a replica set it has
    the leader alone, as clients do."""

    def __init__(
        self,
        seen: Observations,
        rows: Rows,
        broker_ids: Mapping[str, int],
        followers: Container[str],
    ) -> None:
        self.seen = seen
        self.rows = rows
        self.edges: Rows = {}
        self._of: dict[tuple[str, str], list[str]] = {}
        for key, row in rows.items():
            if key not in followers:
                self._of.setdefault((row["dc"], row["kind"]), []).append(key)
        self._by_id = {
            (seen.processes[key].datacenter, number): key
            for key, number in broker_ids.items()
            if key in rows
        }

    @property
    def datacenters(self) -> list[str]:
        return sorted({dc for dc, _ in self._of})

    def of(self, dc: str, kind: str) -> list[str]:
        """The keys of a datacenter's processes of one kind."""
        return self._of.get((dc, kind), [])

    def is_unheard(self, key: str) -> bool:
        return self.rows[key]["state"] in UNHEARD

    def broker(self, dc: str, number: str) -> str | None:
        """The key of the broker with an id, in digits; None if there is none."""
        return self._by_id.get((dc, int(number))) if is_broker_id(number) else None

    def add(
        self, start: str, end: str, bytes_s: float, *, reads: bool = False, adds: bool = False
    ) -> None:
        """Add an edge; `adds`: to what passes it already."""
        key = f"{start}>{end}"
        before = self.edges[key]["bytes_s"] if adds and key in self.edges else 0.0
        self.edges[key] = {
            "from": start,
            "to": end,
            "bytes_s": rounded(before + bytes_s),
            "reads": reads,
        }


def add_reading(graph: Graph, dc: str) -> None:
    """Add what loaders, consumers, sites and audits of a datacenter read."""
    rows, offline_brokers = graph.rows, graph.of(OFFLINE, "broker")
    for loader in graph.of(dc, "loader"):
        for broker, bytes_s in shares_of(rows, loader, offline_brokers):
            graph.add(broker, loader, bytes_s)
        graph.add(loader, "warehouse", rows[loader]["out_s"] or 0.0)
    for consumer in (*graph.of(dc, "online-consumer"), *graph.of(dc, "site")):
        for broker, bytes_s in shares_of(rows, consumer, graph.of(dc, "broker")):
            graph.add(broker, consumer, bytes_s)
    for audit in graph.of(dc, "audit"):
        for broker in (*graph.of(source_of(dc), "broker"), *offline_brokers):
            graph.add(broker, audit, 0.0, reads=True)


def shares_of(rows: Rows, reader: str, brokers: Sequence[str]) -> list[tuple[str, float]]:
    """What a reader takes, bytes a second, by the broker that it comes from: in proportion to what
    each sends to all, since readers do not count by broker. None from one that is down."""
    sent = [rows[broker]["out_s"] or 0.0 for broker in brokers]
    each = (rows[reader]["in_s"] or 0.0) / sum(sent) if sum(sent) else 0.0
    return [(broker, each * bytes_s) for broker, bytes_s in zip(brokers, sent, strict=True)]


def source_of(datacenter: str) -> str:
    """The live datacenter that a mirror or an audit reads: its own, or the first if it is
    registered in the offline one."""
    return LIVE if datacenter == OFFLINE else datacenter


def is_link(process: ObservedProcess) -> bool:
    """Whether a proxy is a link between datacenters: it has a route for each broker behind it,
    where a balancer has one for all."""
    return len(by_label(process.samples, "kafka2011_proxy_connections_open", "route")) > 1


def faults_in_words(status: Mapping[str, Any]) -> list[str]:
    """The faults on a proxy's /faults page, in words; empty when there are none. Equal faults
    of several routes are listed once."""
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
