"""The audit against real brokers, two ZooKeepers' worth of registries and real Delta tables.

Plain producers take the place of the frontend and the mirror, so that each test has every
message by number; the loader is the real one, without Spark.
"""

import json
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
from tests.support.audits import report as audit_report
from tests.support.audits import start_audit, summary
from tests.support.brokers import RunningBroker
from tests.support.clusters import Cluster, datacenters
from tests.support.commands import RunningProcess
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import T0, WINDOW_MS, entries_of, event, report

pytestmark = pytest.mark.integration

WINDOWS = 3
SERVERS = ("frontend-1", "frontend-2")


class Deployment:
    """One live and one offline broker, a warehouse, and an audit service to start and kill."""

    def __init__(self, root: Path, live: Cluster, offline: Cluster) -> None:
        self.root = root
        self.live = live
        self.offline = offline
        self.zk = {"live": live.zk_connect, "offline": offline.zk_connect}
        self.warehouse = root / "warehouse"
        self.sequences: Counter[str] = Counter()
        self.produced: Counter[tuple[int, str]] = Counter()

    @property
    def brokers(self) -> dict[str, RunningBroker]:
        return {"live": self.live.brokers[1], "offline": self.offline.brokers[11]}

    @property
    def files(self) -> tuple[object, ...]:
        """Options of a recount from the files."""
        return (
            *("--live-dir", self.brokers["live"].log_dir),
            *("--offline-dir", self.brokers["offline"].log_dir),
            *("--warehouse-dir", self.warehouse),
        )

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
        more = {
            "warehouse.dir": self.warehouse,
            "audit.commit.ms": 50,
            "audit.warehouse.poll.ms": 100,
        }
        return start_audit(self.root, self.zk, name, **more, **settings)

    def balanced(self, service: RunningProcess) -> dict[str, Any]:
        """The summary once every message that was produced has arrived everywhere."""
        wanted = sum(self.produced.values())

        def balanced() -> dict[str, Any]:
            found = summary(service)
            return found if found["produced"] == wanted and found["balanced"] else {}

        return wait_until(
            balanced, lambda: f"balanced: {service.get('/audit')}\n{service.log()}", 30
        )

    def segment(self, tier: str) -> Path:
        """The first segment with page views."""
        found = sorted(self.brokers[tier].log_dir.glob(f"{PAGE_VIEW}-*/*.kafka"))
        return next(path for path in found if path.stat().st_size)


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
    with datacenters(zk_connect, tmp_path, [1], [11]) as clusters:
        yield Deployment(tmp_path, *clusters)


def test_everything_balances_and_survives_sigkill_of_the_audit(deployment: Deployment) -> None:
    deployment.produce(range(300))
    with deployment.audit() as service:
        wait_until(
            lambda: summary(service)["tiers"]["offline"]["count"] == 300,
            "300 counted in offline",
        )
        # The warehouse has nothing yet; until its tables were looked at, that is pending.
        wait_until(
            lambda: summary(service)["exit_status"] == 1,
            lambda: f"missing in the warehouse: {service.get('/audit')}",
        )
        deployment.load()
        assert deployment.balanced(service)["exit_status"] == 0
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
                settled = deployment.balanced(service)
        assert settled["produced"] == 1300
        assert {t: told["count"] for t, told in settled["tiers"].items()} == {
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
        url = service.metrics_address
        for words in (("--url", url), ("--url", url, "--all"), ("--url", url, "--recount")):
            status, told = audit_report(*words)
            assert status == 0, told
            assert told["totals"]["produced"] == 120
            assert all(t["counted"] == 120 for t in told["totals"]["tiers"].values())
        assert told["source"] == "brokers"
        assert len(told["cells"]) == WINDOWS * len(SERVERS)
        page = service.get("/metrics")
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
    dirs = deployment.files
    status, told = audit_report(*dirs)
    assert (status, incomplete(told)) == (1, wanted)

    # By a service that starts from nothing, and by a recount through the brokers.
    deployment.offline.start(11)
    with deployment.audit("fresh") as service:
        url = service.metrics_address

        def is_told() -> bool:
            status, told = audit_report("--url", url)
            return status == 1 and incomplete(told) == wanted

        wait_until(is_told, lambda: f"exactly {wanted}: {audit_report('--url', url)}")
        status, told = audit_report("--url", url, "--recount")
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
    status, told = audit_report(*deployment.files)
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
        wait_until(lambda: summary(service)["tiers"]["warehouse"]["count"] == 90, "90 loaded")
        wait_until(lambda: summary(service)["verdicts"]["pending"] == 0, "nothing pending")
        verdicts = {tier: told["verdict"] for tier, told in summary(service)["tiers"].items()}
        assert verdicts == {
            "live": "complete",
            "offline": "missing 3",
            "warehouse": "missing 3",
        }


def test_a_broker_that_is_away_is_named_and_read_on_when_it_is_back(
    deployment: Deployment,
) -> None:
    deployment.produce(range(60))
    deployment.load()
    with deployment.audit() as service:
        deployment.balanced(service)
        deployment.brokers["offline"].kill()
        wait_until(
            lambda: "offline broker 11" in summary(service)["tiers"]["offline"]["away"],
            "named as away",
        )
        # What is counted stays counted.
        assert summary(service)["exit_status"] == 0
        deployment.produce(range(60, 80), mirror=False)

        def missing() -> list[dict[str, Any]]:
            found = service.get_json("/audit?verdict=missing")["cell_list"]
            return [c["tiers"]["offline"] for c in found if c["tiers"]["offline"]["missing"]]

        cells = wait_until(missing, "missing in offline")
        assert all("offline broker 11 does not answer" in cell["reason"] for cell in cells)
        deployment.offline.start(11)
        views = [
            event(n, T0 + (n % WINDOWS) * WINDOW_MS + n % 1000, SERVERS[n % 2])
            for n in range(60, 80)
        ]
        deployment.send("offline", PAGE_VIEW, views)
        deployment.load()
        assert deployment.balanced(service)["tiers"]["offline"]["away"] == ""


def test_redelivered_messages_balance_when_a_process_was_restarted(deployment: Deployment) -> None:
    deployment.produce(range(60))
    again = [event(n, T0 + (n % WINDOWS) * WINDOW_MS + n % 1000, SERVERS[n % 2]) for n in range(6)]
    deployment.send("offline", PAGE_VIEW, again)
    deployment.load()
    restarts = deployment.root / "restarts.json"
    with deployment.audit(**{"audit.restarts.file": restarts}) as service:
        url = service.metrics_address
        wait_until(lambda: summary(service)["tiers"]["warehouse"]["count"] == 66, "loaded")
        wait_until(lambda: audit_report("--url", url)[0] == 1, "extras are extra")
        restarts.write_text(json.dumps([{"name": "mirror-1", "time_ms": T0}]))
        wait_until(lambda: audit_report("--url", url)[0] == 0, "extras are redelivered")
        _, told = audit_report("--url", url)
        assert told["totals"]["tiers"]["offline"]["redelivered"] == 6
        assert told["totals"]["tiers"]["warehouse"]["redelivered"] == 6
