"""The audit against real brokers, two ZooKeepers' worth of registries and real Delta tables.

The frontend and the mirror are stood in for by plain producers, so that each test knows every
message by number; the loader is the real one, without Spark.
"""

import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.producer import Producer
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load.job import Loader
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import RunningProcess, run, start_command
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import T0, WINDOW_MS, entries_of, event, report

pytestmark = pytest.mark.integration

WINDOWS = 3
SERVERS = ("frontend-1", "frontend-2")


class Deployment:
    """One live and one offline broker, a warehouse, and an audit service to start and kill."""

    def __init__(self, root: Path, zk_connect: str) -> None:
        self.root = root
        self.zk = {tier: f"{zk_connect}-{tier}" for tier in ("live", "offline")}
        self.brokers: dict[str, RunningBroker] = {}
        self.warehouse = root / "warehouse"
        self.sequences: Counter[str] = Counter()
        self.produced: Counter[tuple[int, str]] = Counter()
        self.start_broker("live")
        self.start_broker("offline")

    def start_broker(self, tier: str) -> None:
        number = {"live": 1, "offline": 11}[tier]
        port = self.brokers[tier].port if tier in self.brokers else 0
        self.brokers[tier] = start_broker(
            self.root / tier, number, self.zk[tier], port=port, num_partitions=2
        )

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()

    # --- messages ----------------------------------------------------------------------------

    def send(self, tier: str, topic: str, payloads: Sequence[bytes]) -> None:
        with Producer(zk_connect=self.zk[tier]) as producer:
            for start in range(0, len(payloads), 50):
                producer.send(topic, list(payloads[start : start + 50]))
            producer.flush()

    def produce(self, numbers: range, *, mirror: bool = True) -> None:
        """Page views into the live broker, and copies into the offline one; reported."""
        views = []
        counts: Counter[tuple[int, str]] = Counter()
        for number in numbers:
            window = T0 + (number % WINDOWS) * WINDOW_MS
            server = SERVERS[number % 2]
            views.append(event(number, window + number % 1000, server))
            counts[window, server] += 1
        self.send("live", PAGE_VIEW, views)
        if mirror:
            self.send("offline", PAGE_VIEW, views)
        self.produced.update(counts)
        for server in SERVERS:
            cells = [(PAGE_VIEW, window, n) for (window, s), n in counts.items() if s == server]
            payload = report(self.sequences[server], cells, server=server)
            self.sequences[server] += 1
            self.send("live", AUDIT, [payload, payload])  # a producer may repeat itself

    def load(self) -> None:
        registry = ZooKeeperRegistry(self.zk["offline"])
        registry.start()
        config = WarehouseConfig(
            zk_connect=self.zk["offline"],
            warehouse_dir=self.warehouse,
            window_ms=WINDOW_MS,
            event_forms=FORMS_2011,
        )
        loader = Loader(config, registry, lambda work, tasks: [work(t) for t in tasks], 1)
        try:
            outcome = loader.load()
        finally:
            loader.close()
            registry.close()
        assert not outcome.failures, outcome.failures

    # --- the audit ---------------------------------------------------------------------------

    def audit(self, name: str = "audit", **settings: object) -> RunningProcess:
        return start_command(
            "audit serve",
            {
                "live.zk.connect": self.zk["live"],
                "offline.zk.connect": self.zk["offline"],
                "warehouse.dir": self.warehouse,
                "data.dir": self.root / name,
                "audit.window.ms": WINDOW_MS,
                "audit.commit.ms": 50,
                "audit.refresh.ms": 100,
                "audit.warehouse.poll.ms": 100,
                "metrics.port": 0,
                "process.name": name,
                **settings,
            },
            self.root / f"{name}.log",
        )

    def balanced(self, service: RunningProcess) -> dict[str, Any]:
        """The summary once every message that was produced has arrived everywhere."""
        wanted = sum(self.produced.values())

        def look() -> dict[str, Any] | None:
            summary = ask(service, "/audit/summary")
            is_there = summary["produced"] == wanted and summary["balanced"]
            return summary if is_there else None

        return wait_until(  # type: ignore[return-value]
            look, lambda: f"balanced: {ask(service, '/audit')}\n{service.log()}", 30
        )

    def segment(self, tier: str) -> Path:
        """The first segment with page views."""
        found = sorted(self.brokers[tier].log_dir.glob(f"{PAGE_VIEW}-*/*.kafka"))
        return next(path for path in found if path.stat().st_size)


def ask(service: RunningProcess, page: str) -> dict[str, Any]:
    address = service.wait_for_event("serving")["metrics"]
    with urllib.request.urlopen(f"http://{address}{page}", timeout=10) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def command(*words: object) -> tuple[int, dict[str, Any]]:
    """`kafka2011 audit --json ...`: status and report."""
    done = run("audit", "--json", "--forms", "*:2011", *words, status=None)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def incomplete(told: dict[str, Any]) -> dict[tuple[int, str, str], str]:
    """(window, server, tier) -> verdict of the cells that are not complete."""
    return {
        ((cell["window_start_ms"] - T0) // WINDOW_MS, cell["server"], tier): found["verdict"]
        for cell in told["cells"]
        for tier, found in cell["tiers"].items()
        if found["verdict"] != "complete"
    }


@pytest.fixture
def deployment(tmp_path: Path, zk_connect: str) -> Iterator[Deployment]:
    found = Deployment(tmp_path, zk_connect)
    yield found
    found.close()


def metrics_of(service: RunningProcess) -> str:
    address = service.wait_for_event("serving")["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_everything_balances_and_survives_sigkill_of_the_audit(deployment: Deployment) -> None:
    deployment.produce(range(300))
    with deployment.audit() as service:
        wait_until(
            lambda: ask(service, "/audit/summary")["tiers"]["offline"]["count"] == 300,
            "300 counted in offline",
        )
        # The warehouse has nothing yet; until its tables were looked at, that is pending.
        wait_until(
            lambda: ask(service, "/audit/summary")["exit_status"] == 1,
            lambda: f"missing in the warehouse: {ask(service, '/audit')}",
        )
        deployment.load()
        summary = deployment.balanced(service)
        assert summary["exit_status"] == 0
        service.kill()
    # While it is away, more comes; nothing is counted twice or missed.
    deployment.produce(range(300, 700))
    deployment.load()
    with deployment.audit() as service:
        deployment.balanced(service)
        for round_number in range(3):
            deployment.produce(range(1000 * (round_number + 1), 1000 * (round_number + 1) + 200))
            deployment.load()
            service.kill()
            service = deployment.audit()
            with service:
                summary = deployment.balanced(service)
        assert summary["produced"] == 1300
        assert {t: told["count"] for t, told in summary["tiers"].items()} == {
            "live": 1300,
            "offline": 1300,
            "warehouse": 1300,
        }


def test_the_command_asks_the_service_and_recounts_through_the_brokers(
    deployment: Deployment,
) -> None:
    deployment.produce(range(120))
    deployment.load()
    with deployment.audit() as service:
        deployment.balanced(service)
        url = service.wait_for_event("serving")["metrics"]
        for words in (("--url", url), ("--url", url, "--all"), ("--url", url, "--recount")):
            status, told = command(*words)
            assert status == 0, told
            assert told["totals"]["produced"] == 120
            assert all(t["counted"] == 120 for t in told["totals"]["tiers"].values())
        assert told["source"] == "brokers"
        assert len(told["cells"]) == WINDOWS * len(SERVERS)
        page = metrics_of(service)
        assert 'kafka2011_audit_counted_messages_total{tier="warehouse"} 120.0' in page
        assert service.stop() == 0


def test_one_entry_removed_by_hand_changes_exactly_one_cell(deployment: Deployment) -> None:
    deployment.produce(range(240))
    deployment.load()
    assert deployment.brokers["offline"].stop() == 0
    path = deployment.segment("offline")
    entries = entries_of(path.read_bytes())
    number = len(entries) // 2
    expected = _cell_of(entries[number])
    path.write_bytes(b"".join(entries[:number] + entries[number + 1 :]))
    wanted = {(*expected, "offline"): "missing 1"}

    # From the files, without anything running but the live broker.
    dirs = (
        *("--live-dir", deployment.brokers["live"].log_dir),
        *("--offline-dir", deployment.brokers["offline"].log_dir),
        *("--warehouse-dir", deployment.warehouse),
    )
    status, told = command(*dirs)
    assert (status, incomplete(told)) == (1, wanted)

    # By a service that starts from nothing, and by a recount through the brokers.
    deployment.start_broker("offline")
    with deployment.audit("fresh") as service:
        url = service.wait_for_event("serving")["metrics"]

        def is_told() -> bool:
            status, told = command("--url", url)
            return status == 1 and incomplete(told) == wanted

        wait_until(is_told, lambda: f"exactly {wanted}: {command('--url', url)}")
        status, told = command("--url", url, "--recount")
        assert (status, incomplete(told)) == (1, wanted)


def _cell_of(entry: bytes) -> tuple[int, str]:
    from kafka2011.events.peek import peek
    from kafka2011.protocol import message_set

    header = peek(message_set.payloads(entry)[0])
    return (header.time_ms - T0) // WINDOW_MS, header.server


def test_k_messages_deleted_from_the_segments_are_named_exactly(deployment: Deployment) -> None:
    deployment.produce(range(400))
    deployment.load()
    for broker in deployment.brokers.values():
        assert broker.stop() == 0
    lost: Counter[tuple[int, str, str]] = Counter()

    def thin_out(tier: str, keep: Callable[[int], bool]) -> None:
        path = deployment.segment(tier)
        entries = entries_of(path.read_bytes())
        for number, entry in enumerate(entries):
            if not keep(number):
                lost[(*_cell_of(entry), tier)] += 1
        path.write_bytes(b"".join(e for n, e in enumerate(entries) if keep(n)))

    thin_out("live", lambda number: number % 17)
    thin_out("offline", lambda number: number % 7)
    status, told = command(
        *("--live-dir", deployment.brokers["live"].log_dir),
        *("--offline-dir", deployment.brokers["offline"].log_dir),
        *("--warehouse-dir", deployment.warehouse),
    )
    assert sum(lost.values()) > 20
    assert status == 1
    assert incomplete(told) == {cell: f"missing {count}" for cell, count in lost.items()}
    totals = told["totals"]["tiers"]
    assert totals["warehouse"]["missing"] == 0
    assert totals["live"]["missing"] + totals["offline"]["missing"] == sum(lost.values())


def test_messages_that_the_mirror_lost_are_missing_from_there_on(deployment: Deployment) -> None:
    deployment.produce(range(90))
    deployment.produce(range(1000, 1003), mirror=False)
    deployment.load()
    with deployment.audit() as service:
        wait_until(
            lambda: ask(service, "/audit/summary")["tiers"]["warehouse"]["count"] == 90, "90 loaded"
        )
        wait_until(
            lambda: ask(service, "/audit/summary")["verdicts"]["pending"] == 0, "nothing pending"
        )
        summary = ask(service, "/audit/summary")
        assert summary["tiers"]["live"]["verdict"] == "complete"
        assert summary["tiers"]["offline"]["verdict"] == "missing 3"
        assert summary["tiers"]["warehouse"]["verdict"] == "missing 3"


def test_a_broker_that_is_away_is_named_and_read_on_when_it_is_back(
    deployment: Deployment,
) -> None:
    deployment.produce(range(60))
    deployment.load()
    with deployment.audit() as service:
        deployment.balanced(service)
        deployment.brokers["offline"].kill()
        wait_until(
            lambda: (
                "offline broker 11" in ask(service, "/audit/summary")["tiers"]["offline"]["away"]
            ),
            "told as away",
        )
        # What is counted stays counted.
        assert ask(service, "/audit/summary")["exit_status"] == 0
        deployment.produce(range(60, 80), mirror=False)

        def missing() -> list[dict[str, Any]]:
            found = ask(service, "/audit?verdict=missing")["cell_list"]
            return [c["tiers"]["offline"] for c in found if c["tiers"]["offline"]["missing"]]

        cells = wait_until(missing, "missing in offline")
        assert all("offline broker 11 does not answer" in cell["reason"] for cell in cells)
        deployment.start_broker("offline")
        views = [
            event(n, T0 + (n % WINDOWS) * WINDOW_MS + n % 1000, SERVERS[n % 2])
            for n in range(60, 80)
        ]
        deployment.send("offline", PAGE_VIEW, views)
        deployment.load()
        summary = deployment.balanced(service)
        assert summary["tiers"]["offline"]["away"] == ""


def test_redelivered_messages_balance_when_a_process_was_restarted(deployment: Deployment) -> None:
    deployment.produce(range(60))
    again = [event(n, T0 + (n % WINDOWS) * WINDOW_MS + n % 1000, SERVERS[n % 2]) for n in range(6)]
    deployment.send("offline", PAGE_VIEW, again)
    deployment.load()
    restarts = deployment.root / "restarts.json"
    with deployment.audit(**{"audit.restarts.file": restarts}) as service:
        url = service.wait_for_event("serving")["metrics"]
        wait_until(
            lambda: ask(service, "/audit/summary")["tiers"]["warehouse"]["count"] == 66, "loaded"
        )
        wait_until(lambda: command("--url", url)[0] == 1, "extras are extra")
        restarts.write_text(json.dumps([{"name": "mirror-1", "time_ms": T0}]))
        wait_until(lambda: command("--url", url)[0] == 0, "extras are redelivered")
        _, told = command("--url", url)
        assert told["totals"]["tiers"]["offline"]["redelivered"] == 6
        assert told["totals"]["tiers"]["warehouse"]["redelivered"] == 6
