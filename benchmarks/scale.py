"""Where do discovery and audit of 2011 end? The real code against simulated registries and counts.

    python -m benchmarks.scale [--figures DIRECTORY] [--most 100] [--json]

A deployment of the size of LinkedIn's in 2011 (SIZE is an assumption: the paper says how much was
sent, about a billion messages a day, and not how many brokers, topics or producers there were), and
up to a hundred times as many of all three:

- producers: what a start, and the death of one broker, costs ZooKeeper. Some real producers are
  asked, all others do the same.
- audit: what a look at the cluster costs that reads everything, as in 2011, and one by watches.
- cells: memory of the audit's books, and processor time of a verdict on all of them.

Seconds at ZooKeeper assume a server that carries out 20,000 requests a second.
"""

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.group_scale import SERVICE_S
from benchmarks.growth.figures import law_through
from benchmarks.peers.figures import save
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.cluster_view import ClusterView
from kafka2011.producer.discovery import ZooKeeperBrokers
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.config import TIERS, AuditConfig
from kafka2011.services.audit.summary import AuditSummary
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper

FACTORS = (1, 2, 5, 10, 20, 50, 100)
NODES_MAX = 500_000  # of a simulated registry: above, the law alone is drawn
ASKED = 3  # producers that are really there
FIRST_MS = 1_300_000_000_000


@dataclass(frozen=True)
class Size:
    """A deployment. Each producer writes `topics_each` of the topics, every broker has all."""

    brokers: int
    topics: int
    producers: int
    topics_each: int = 12
    window_ms: int = 600_000
    windows_open: int = 6  # an hour, after which balanced cells are folded

    def times(self, factor: int) -> "Size":
        return Size(self.brokers * factor, self.topics * factor, self.producers * factor)

    @property
    def cells(self) -> int:
        return self.producers * self.topics_each * self.windows_open


# Assumed, see above.
SIZE = Size(brokers=8, topics=367, producers=500)

Point = dict[str, float]


def registry_of(brokers: int, topics: int) -> tuple[InMemoryZooKeeper, list[InMemoryRegistry]]:
    """A registry with that many brokers, each with every topic, and the brokers' sessions."""
    zookeeper = InMemoryZooKeeper()
    sessions = []
    for broker_id in range(brokers):
        session = zookeeper.client("by hand")
        session.start()
        sessions.append(session)
        address = paths.encode_broker("h", 9092 + broker_id, 1)
        session.create(paths.broker_id_path(broker_id), address, ephemeral=True)
        for number in range(topics):
            path = paths.topic_broker_path(f"t{number}", broker_id)
            session.create(path, paths.encode_number(1), ephemeral=True)
    return zookeeper, sessions


def requests_of(zookeeper: InMemoryZooKeeper, work: Callable[[], object]) -> int:
    before = zookeeper.operation_count
    work()
    return zookeeper.operation_count - before


def producers(size: Size) -> Point:
    """The requests of all producers, and the seconds in which a server carries these out."""
    zookeeper, sessions = registry_of(size.brokers, size.topics_each)
    found: list[ZooKeeperBrokers] = []
    registries = [zookeeper.client("by hand") for _ in range(ASKED)]

    def deliver() -> None:
        for registry in registries:
            while registry.deliver_next():
                pass

    def choose() -> None:
        for one in found:
            for number in range(size.topics_each):
                one.choose(f"t{number}", None)

    def start() -> None:
        for registry in registries:
            registry.start()
            found.append(ZooKeeperBrokers(registry))
        deliver()
        choose()

    started = requests_of(zookeeper, start)
    deliver()
    choose()
    sessions[0].close()

    def go_on() -> None:
        deliver()
        choose()

    died = requests_of(zookeeper, go_on)
    share = size.producers / ASKED
    return {
        "start_requests": started * share,
        "death_requests": died * share,
        "death_s": died * share * SERVICE_S,
    }


def audit_looks(size: Size) -> Point:
    """Requests of one look at a quiet cluster, which the audit takes every second."""
    zookeeper, _ = registry_of(size.brokers, size.topics)
    registry = zookeeper.client("by hand")
    registry.start()

    def read_everything() -> None:
        cluster.live_brokers(registry)
        for topic in cluster.topics(registry):
            cluster.partitions_of(registry, topic)

    everything = requests_of(zookeeper, read_everything)
    view = ClusterView(registry)
    view.look()
    view.look()
    return {"everything": everything, "by_watches": requests_of(zookeeper, view.look)}


def audit_cells(size: Size) -> Point:
    """The books of `windows_open` windows in which every producer wrote its topics."""
    now_ms = FIRST_MS + (size.windows_open + 1) * size.window_ms
    config = AuditConfig(
        live_zk_connect="live:2181",
        offline_zk_connect="offline:2181",
        warehouse_dir=Path("/nowhere"),
        window_ms=size.window_ms,
        metrics_port=-1,
    )
    tracemalloc.start()
    state = AuditState(TIERS, size.window_ms, lambda: now_ms, cells_max=10**9)
    for window in range(size.windows_open):
        start_ms = FIRST_MS - FIRST_MS % size.window_ms + window * size.window_ms
        for producer in range(size.producers):
            server = f"frontend-{producer}"
            for number in range(size.topics_each):
                topic = f"t{(producer + number) % size.topics}"
                cell = state.ledger._cell(CellKey(topic, start_ms, server))
                cell.produced[0] = 1000
                for tier in range(len(TIERS)):
                    cell.counted[tier] = 1000
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    summary = AuditSummary(state, config, lambda: now_ms)
    began_s = time.process_time()
    summary.summary()
    return {
        "cells": len(state.ledger.cells),
        "memory_mib": held / 2**20,
        "verdict_s": time.process_time() - began_s,
    }


@dataclass(frozen=True)
class Part:
    """`nodes` of a size bound what is simulated. `lines`: figure -> label and expected power."""

    name: str
    y: str
    title: str
    nodes: Callable[[Size], int]
    measure: Callable[[Size], Point]
    lines: dict[str, tuple[str, float]]


PARTS = (
    Part(
        "producers",
        "requests of all producers",
        "herd: producers, brokers and topics a hundred times as many",
        lambda size: size.brokers * size.topics_each * 4,
        producers,
        {
            "start_requests": ("all producers start", 2.0),
            "death_requests": ("one broker dies", 2.0),
        },
    ),
    Part(
        "audit-looks",
        "requests of one look",
        "discovery of the audit, once a second",
        lambda size: size.brokers * size.topics,
        audit_looks,
        {
            "everything": ("reading everything", 2.0),
            "by_watches": ("by watches, nothing changed", 0.0),
        },
    ),
    Part(
        "audit-cells",
        "MiB, and seconds of a processor",
        "the audit's books of an hour",
        lambda size: size.cells,
        audit_cells,
        {
            "memory_mib": ("memory of the cells, MiB", 1.0),
            "verdict_s": ("a verdict on all of them, s", 1.0),
        },
    ),
)


def measured(part: Part, factors: list[int]) -> Iterator[tuple[int, Point]]:
    for factor in factors:
        size = SIZE.times(factor)
        if part.nodes(size) > NODES_MAX:
            return
        yield factor, part.measure(size)


def table(part: Part, points: dict[int, Point]) -> Table:
    shown = Table(title=f"{part.name}: {part.title}", title_justify="left", box=None)
    columns = list(next(iter(points.values())))
    for heading in ("times", "brokers", "topics", "producers", *columns):
        shown.add_column(heading, justify="right")
    for factor, point in points.items():
        size = SIZE.times(factor)
        figures = (f"{value:,.0f}" if value >= 100 else f"{value:,.3g}" for value in point.values())
        counts = (factor, size.brokers, size.topics, size.producers)
        shown.add_row(*(f"{count:,}" for count in counts), *figures)
    return shown


def draw(part: Part, points: dict[int, Point], factors: list[int], directory: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    _, axes = plt.subplots(figsize=(8, 4.5))
    axes.set(xlabel="times the assumed size of 2011", ylabel=part.y, title=part.title)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(factors, map(str, factors), minor=False)
    axes.minorticks_off()
    palette: Any = plt.get_cmap("tab10")
    for number, (figure, (label, power)) in enumerate(part.lines.items()):
        found = [point[figure] for point in points.values()]
        axes.plot(list(points), found, "o-", label=label, color=palette(number), linewidth=1.5)
        law = law_through(tuple(factors), found[0], power)
        axes.plot(factors, law, ":", color=palette(number), linewidth=1.0)
    for path in save(plt, axes, directory, f"scale-{part.name}"):
        print(path)


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--figures", type=Path, help="draw into this directory")
    words.add_argument("--most", type=int, default=FACTORS[-1], help="no factor above this one")
    words.add_argument("--json", action="store_true", help="the results as JSON, no tables")
    given = words.parse_args()
    factors = [factor for factor in FACTORS if factor <= given.most]
    console = Console(stderr=given.json, width=None if sys.stdout.isatty() else 160)
    found: dict[str, dict[int, Point]] = {}
    for part in PARTS:
        points = found[part.name] = dict(measured(part, factors))
        console.print(table(part, points))
        if given.figures is not None:
            draw(part, points, factors, given.figures)
    if given.json:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
