"""Events through both datacenters while everything is killed at random; then the audit is checked.

The audit's numbers, cell by cell, must be those of a count that shares no code with it: the segment
files are walked here byte by byte. Nothing may be missing, and every event must be there.

AUDIT_EVENTS (default 20,000; `make test-audit` sends a million) and AUDIT_SEED (0: any), which is
printed.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.coordination import paths
from kafka2011.events.monitoring import MonitoringEvent, decode_report
from kafka2011.events.topics import ACTIVITY_TOPICS, AUDIT
from tests.support.brokers import RunningBroker
from tests.support.clusters import Cluster, datacenters
from tests.support.commands import RunningProcess, held_port, start_command
from tests.support.stored import stored_entries
from tests.support.waiting import wait_until
from tests.support.zookeeper import end_session

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

EVENTS = int(os.environ.get("AUDIT_EVENTS", "20000"))
SEED = int(os.environ.get("AUDIT_SEED", "2011")) or random.SystemRandom().randrange(1, 2**31)
RATE = max(1_000, EVENTS // 60)
WINDOW_MS = 2_000
PREFIX_BYTES = 5  # byte 0 and the schema's id
TIERS = {"live": 1, "offline": 11}

Cell = tuple[str, int, str]  # topic, window, server


class Deployment:
    """Registry, one broker a datacenter, mirror, audit and one frontend, each to kill."""

    def __init__(self, root: Path, clusters: dict[str, Cluster]) -> None:
        self.root = root
        self.clusters = clusters
        registry_port, audit_port = held_port(), held_port()
        live, offline = (clusters[tier].zk_connect for tier in TIERS)
        self.running: dict[str, RunningProcess] = {}
        self.commands: dict[str, tuple[str, dict[str, object]]] = {
            "registry": ("registry", {"registry.port": registry_port}),
            "mirror": (
                "mirror",
                {
                    "source.zk.connect": live,
                    "target.zk.connect": offline,
                    "groupid": "mirror",
                    "consumerid": "mirror",
                },
            ),
            "audit": (
                "audit serve",
                {
                    "live.zk.connect": live,
                    "offline.zk.connect": offline,
                    "audit.redelivery.expected": "true",
                    "metrics.port": audit_port,
                },
            ),
            "frontend": (
                "frontend",
                {
                    "zk.connect": live,
                    "schema.registry.url": f"http://127.0.0.1:{registry_port}",
                    "rate": RATE,
                    "message.count": EVENTS,
                },
            ),
        }
        self.names = [*TIERS, *self.commands]

    def start(self, name: str) -> None:
        if name in TIERS:
            self.clusters[name].start(TIERS[name])
            return
        words, settings = self.commands[name]
        shared = {
            "metrics.port": 0,
            "event.forms": "*:id",
            "process.name": name,
            "data.dir": self.root / name,
            "audit.window.ms": WINDOW_MS,
        }
        log = self.root / f"{name}.log"
        self.running[name] = start_command(words, {**shared, **settings}, log)

    def kill(self, name: str) -> None:
        (self.brokers.get(name) or self.running[name]).kill()
        if name == "mirror":
            member = paths.consumer_id_path("mirror", "mirror_mirror")
            end_session(self.clusters["live"].registry, member)

    @property
    def brokers(self) -> dict[str, RunningBroker]:
        return {tier: cluster.brokers[TIERS[tier]] for tier, cluster in self.clusters.items()}

    def close(self) -> None:
        for each in [*self.running.values(), *self.brokers.values()]:
            with each:
                pass


@pytest.fixture
def deployment(tmp_path: Path, zk_connect: str) -> Iterator[Deployment]:
    with datacenters(zk_connect, tmp_path, [], []) as (live, offline):
        found = Deployment(tmp_path, {"live": live, "offline": offline})
        yield found
        found.close()


# --- a count that shares no code with the audit -------------------------------------------------


def varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


class Count:
    """What one datacenter's files hold."""

    def __init__(self, log_dir: Path) -> None:
        self.cells: Counter[Cell] = Counter()
        self.guids: set[bytes] = set()
        self.reports: dict[tuple[str, str, int], MonitoringEvent] = {}
        for entry in stored_entries(log_dir):
            assert entry.attributes == 0, "what is stored here is never compressed"
            topic, payload = entry.topic, entry.payload
            if topic == AUDIT:
                report = decode_report(payload)
                if isinstance(report, MonitoringEvent):
                    self.reports[report.identity] = report
                continue
            time_ms, at = varint(payload, PREFIX_BYTES + 16)
            length, at = varint(payload, at)
            server = payload[at : at + length].decode()
            self.cells[topic, time_ms // WINDOW_MS * WINDOW_MS, server] += 1
            self.guids.add(payload[PREFIX_BYTES : PREFIX_BYTES + 16])

    def produced(self) -> Counter[Cell]:
        found: Counter[Cell] = Counter()
        for report in self.reports.values():
            for part in report.counts:
                found[part.topic, part.window_start, report.header.server] += part.count
        return found


def verdict(expected: int, counted: int) -> str:
    if counted == expected:
        return "complete"
    if counted < expected:
        return f"missing {expected - counted}"
    return f"redelivered {counted - expected}"


def test_the_audit_says_what_the_files_say_whatever_was_killed(deployment: Deployment) -> None:
    print(f"AUDIT_SEED={SEED} AUDIT_EVENTS={EVENTS}")
    rng = random.Random(SEED)
    for name in deployment.names:
        deployment.start(name)
    for name in ("mirror", "audit", "frontend"):
        deployment.running[name].wait_for_event("serving")
    killed: Counter[str] = Counter()
    names = [name for name in deployment.names for _ in range(1 + EVENTS // 300_000)]
    rng.shuffle(names)
    for name in names:
        if not deployment.running["frontend"].is_running:
            break
        until = time.monotonic() + rng.uniform(0.3, 1.5)
        wait_until(lambda until=until: time.monotonic() > until, "the next kill")
        deployment.kill(name)
        deployment.start(name)
        killed[name] += 1
    print("killed", dict(killed))
    frontend = deployment.running["frontend"]
    assert frontend.wait(600) == 0, frontend.log()
    assert killed, "everything was over before the first kill"

    def last_summary() -> dict[str, Any]:
        try:
            found: dict[str, Any] = deployment.running["audit"].get_json("/audit/summary?final=1")
        except OSError:
            return {}
        return found

    def is_settled() -> bool:
        told = last_summary()
        verdicts = told.get("verdicts", {"pending": True})
        return not (verdicts["pending"] or verdicts["missing"]) and told["produced"] == EVENTS

    wait_until(is_settled, lambda: f"settled: {last_summary()}", 240)
    # A repeat can stand for what is still under way, until that has arrived and is counted.
    wait_until(lambda: not disagreements(deployment), lambda: disagreements(deployment), 240)


def disagreements(deployment: Deployment) -> str:
    """What the audit says otherwise than the files; "" when these have every event."""
    told = deployment.running["audit"].get_json("/audit?final=1&limit=10000")
    assert told["cells_left_out"] == 0
    counts = {tier: Count(broker.log_dir) for tier, broker in deployment.brokers.items()}
    produced = counts["live"].produced()
    assert sum(produced.values()) == EVENTS
    wanted = {
        cell: {
            "produced": produced[cell],
            **{
                tier: (count.cells[cell], verdict(produced[cell], count.cells[cell]))
                for tier, count in counts.items()
            },
        }
        for cell in {*produced, *counts["live"].cells, *counts["offline"].cells}
    }
    found = {
        (cell["topic"], cell["window_start_ms"], cell["server"]): {
            "produced": cell["produced"],
            **{t: (cell["tiers"][t]["counted"], cell["tiers"][t]["verdict"]) for t in TIERS},
        }
        for cell in told["cell_list"]
    }
    assert {topic for topic, _, _ in wanted} == set(ACTIVITY_TOPICS)
    stored = {tier: len(count.guids) for tier, count in counts.items()}
    if found == wanted and set(stored.values()) == {EVENTS}:
        return ""
    differing = [(cell, found.get(cell), wanted.get(cell)) for cell in found.keys() | wanted.keys()]
    differing = [each for each in differing if each[1] != each[2]][:10]
    return f"{stored} stored of {EVENTS}; cell, audit, files: {differing}"
