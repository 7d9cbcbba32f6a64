"""The audit against real brokers, two ZooKeepers' worth of registries and real Delta tables.

Plain producers take the place of the frontend and the mirror, so that each test has every
message by number; the loader is the real one, without Spark.
"""

import asyncio
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka2011.broker.log import flushed_mark
from kafka2011.coordination import paths
from kafka2011.events.forms import FORMS_2011, forms_of, parse_forms
from kafka2011.events.peek import peek
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.producer import AioProducer, Producer, ShippingHandler
from kafka2011.protocol import message_set
from kafka2011.services.warehouse.config import WarehouseConfig
from tests.support.audits import report as audit_report
from tests.support.audits import start_audit, summary
from tests.support.brokers import RunningBroker
from tests.support.clusters import Cluster, datacenters
from tests.support.commands import RunningProcess
from tests.support.loader_process import load_here
from tests.support.stored import entries
from tests.support.waiting import wait_until
from tests.support.zookeeper import registry_at, start_zookeeper
from tests.unit.services.audit.samples import T0, WINDOW_MS, event, report, write_log

pytestmark = pytest.mark.integration

WINDOWS = 3
SERVERS = ("frontend-1", "frontend-2")
FORMS = forms_of(
    {
        "event.forms": "*:2011,sales:json",
        "event.time.field": "sales:at",
        "event.server.field": "sales:host",
    }
)
FORM_SETTINGS: Any = {
    "event_forms": parse_forms(str(FORMS)),
    "event_time_field": FORMS.times,
    "event_server_field": FORMS.servers,
}
Lost = Counter[tuple[int, str, str]]  # (window, server, tier)


def view(number: int) -> tuple[int, str, bytes]:
    """Window, server and payload of page view `number`."""
    window = T0 + (number % WINDOWS) * WINDOW_MS
    server = SERVERS[number % 2]
    return window, server, event(number, window + number % 1000, server)


class Deployment:
    """One live and one offline broker, a warehouse, and an audit service to start and kill."""

    def __init__(self, root: Path, live: Cluster, offline: Cluster) -> None:
        self.root = root
        self.live = live
        self.offline = offline
        self.zk = {"live": live.zk_connect, "offline": offline.zk_connect}
        self.warehouse = root / "warehouse"
        self.sequences: Counter[str] = Counter()
        self.produced = 0

    def sell(self, count: int) -> None:
        """JSON by a producer of a user's own, which counts it; many of them are equal."""
        texts = [
            {"at": T0 + number % WINDOWS * WINDOW_MS, "host": "shop", "price": number % 2}
            for number in range(count)
        ]
        payloads = [json.dumps(text).encode() for text in texts]
        with Producer(
            zk_connect=self.zk["live"],
            audit_enable=True,
            audit_dir=self.root / "sales-audit",
            audit_server="shop",
            window_ms=WINDOW_MS,
            **FORM_SETTINGS,
        ) as producer:
            producer.send("sales", payloads)
        self.send("offline", "sales", payloads)
        self.confirm("sales")
        self.produced += count

    @property
    def brokers(self) -> dict[str, RunningBroker]:
        return {"live": self.live.brokers[1], "offline": self.offline.brokers[11]}

    # --- messages ----------------------------------------------------------------------------

    def send(self, tier: str, topic: str, payloads: Sequence[bytes]) -> None:
        with Producer(zk_connect=self.zk[tier]) as producer:
            for start in range(0, len(payloads), 50):
                producer.send(topic, list(payloads[start : start + 50]))
            producer.flush()

    def copy(self, numbers: range) -> None:
        """Page views into the offline broker, as the mirror would, which confirms all of live."""
        self.send("offline", PAGE_VIEW, [view(number)[2] for number in numbers])
        self.confirm()

    def confirm(self, topic: str = PAGE_VIEW) -> None:
        """The mirror's group has passed everything in the live tier."""
        for partition, end in self.live.ends(topic).items():
            path = paths.offset_path("mirror", topic, partition)
            self.live.registry.put(path, paths.encode_number(end))

    def produce(self, numbers: range, *, mirror: bool = True) -> None:
        """Page views into the live broker, and copies into the offline one; reported."""
        views = [view(number) for number in numbers]
        self.send("live", PAGE_VIEW, [payload for *_, payload in views])
        if mirror:
            self.copy(numbers)
        self.produced += len(numbers)
        for server in SERVERS:
            counts = Counter(window for window, owner, _ in views if owner == server)
            cells = [(PAGE_VIEW, window, count) for window, count in counts.items()]
            payload = report(self.sequences[server], cells, server=server)
            self.sequences[server] += 1
            self.send("live", AUDIT, [payload, payload])  # a producer may repeat itself

    def load(self) -> None:
        load_here(
            WarehouseConfig(
                zk_connect=self.zk["offline"],
                warehouse_dir=self.warehouse,
                window_ms=WINDOW_MS,
                **FORM_SETTINGS,
            )
        )

    def thin_out(self, tier: str, keep: Callable[[int], bool]) -> Lost:
        """Take entries out of the first segment with page views; what is lost."""
        found = sorted(self.brokers[tier].log_dir.glob(f"{PAGE_VIEW}-*/*.kafka"))
        path = next(path for path in found if path.stat().st_size)
        data, kept, lost = path.read_bytes(), b"", Lost()
        for number, (start, end, _, payload) in enumerate(entries(data)):
            if keep(number):
                kept += data[start:end]
            else:
                header = peek(payload)
                lost[(header.time_ms - T0) // WINDOW_MS, header.server, tier] += 1
        path.write_bytes(kept)
        # By the mark the broker would see that flushed bytes are gone, and not serve the rest.
        (self.brokers[tier].log_dir / flushed_mark.NAME).unlink(missing_ok=True)
        return lost

    # --- the audit ---------------------------------------------------------------------------

    def audit(self, name: str = "audit", **settings: object) -> RunningProcess:
        more = {
            "warehouse.dir": self.warehouse,
            "audit.commit.ms": 50,
            "audit.warehouse.poll.ms": 100,
            **FORMS.settings(),
        }
        return start_audit(self.root, self.zk, name, **more, **settings)

    def recount(self) -> tuple[int, dict[str, Any]]:
        """Status and report of `kafka2011 audit` from the files alone."""
        dirs = {
            "--live-dir": self.brokers["live"].log_dir,
            "--offline-dir": self.brokers["offline"].log_dir,
            "--warehouse-dir": self.warehouse,
            "--live-zookeeper": self.zk["live"],
        }
        return audit_report(*(word for option in dirs.items() for word in option))

    def balanced(self, service: RunningProcess) -> dict[str, Any]:
        """The summary once every message that was produced has arrived everywhere."""

        def balanced() -> dict[str, Any]:
            found = summary(service)
            return found if found["produced"] == self.produced and found["balanced"] else {}

        return wait_until(balanced, lambda: f"balanced: {service.get('/audit')}\n{service.log()}")


def incomplete(told: dict[str, Any]) -> dict[tuple[int, str, str], str]:
    """(window, server, tier) -> verdict of the cells that are not complete."""
    return {
        ((cell["window_start_ms"] - T0) // WINDOW_MS, cell["server"], tier): found["verdict"]
        for cell in told["cells"]
        for tier, found in cell["tiers"].items()
        if found["verdict"] != "complete"
    }


def missing(lost: Lost) -> dict[tuple[int, str, str], str]:
    return {cell: f"missing {count}" for cell, count in lost.items()}


@pytest.fixture
def deployment(tmp_path: Path, zk_connect: str) -> Iterator[Deployment]:
    with datacenters(zk_connect, tmp_path, [1], [11]) as clusters:
        yield Deployment(tmp_path, *clusters)


def test_every_kind_of_producer_counts_itself(
    deployment: Deployment, tmp_path: Path, run: Callable[..., Any]
) -> None:
    zk = deployment.zk["live"]
    lines = tmp_path / "app.log"
    lines.write_text("".join(f"line {number}\n" for number in range(7)))

    def counting(server: str) -> dict[str, Any]:
        """The settings of a producer of its own name and journal."""
        return {
            "zk_connect": zk,
            "audit_enable": True,
            "audit_dir": tmp_path / "counts" / server,
            "audit_server": server,
            "window_ms": WINDOW_MS,
            "event_forms": FORMS_2011,
        }

    def words(server: str) -> list[str]:
        found = {**counting(server), "audit_enable": "true", "event_forms": "*:2011"}
        names = {"window_ms": "audit.window.ms", "zk_connect": "zk.connect"}
        settings = {names.get(k, k.replace("_", ".")): v for k, v in found.items()}
        del settings["zk.connect"]
        return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    for kind in ("sync", "async"):
        with Producer(producer_type=kind, **counting(kind)) as producer:
            for number in range(5):
                producer.send("clicks", event(number, T0 + number * WINDOW_MS, kind))

    async def send_some() -> None:
        async with AioProducer(**counting("aio")) as aio:
            await aio.send("clicks", [event(number, T0, "aio") for number in range(6)])

    asyncio.run(send_some())
    run("tail", str(lines), "--topic", "lines", "--zookeeper", zk, "--until-end",
        "--state", str(tmp_path / "positions"), *words("tail"))  # fmt: skip
    run("console-producer", "--topic", "lines", "--zookeeper", zk, *words("console"),
        text=b"one\ntwo\n")  # fmt: skip
    handler = ShippingHandler("lines", **counting("handler"))
    for number in range(3):
        handler.emit(logging.makeLogRecord({"name": "shop", "msg": f"record {number}"}))
    handler.close()
    expected = {"sync": 5, "async": 5, "aio": 6, "tail": 7, "console": 2, "handler": 3}
    deployment.produced = sum(expected.values())
    never_folded = {"audit.fold.after.ms": 10**12}  # some windows are of 2011
    with start_audit(deployment.root, {"live": zk}, **never_folded) as service:
        deployment.balanced(service)
        found: Counter[str] = Counter()
        for cell in service.get_json("/audit")["cell_list"]:
            assert cell["tiers"]["live"]["verdict"] == "complete"
            found[cell["server"]] += cell["produced"]
        assert dict(found) == expected
        assert summary(service)["silent"] == []
        assert service.stop() == 0


def test_everything_balances_and_survives_sigkill_of_the_audit(deployment: Deployment) -> None:
    deployment.produce(range(300))
    with deployment.audit() as service:
        wait_until(
            lambda: summary(service)["tiers"]["offline"]["count"] == 300, "300 counted in offline"
        )
        # The loads have taken nothing yet: the warehouse is late, and nothing is wrong.
        wait_until(
            lambda: summary(service)["tiers"]["warehouse"]["behind"] == 300,
            lambda: f"300 behind in the warehouse: {service.get('/audit')}",
        )
        found = summary(service)
        assert (found["exit_status"], found["tiers"]["warehouse"]["missing"]) == (0, 0)
        assert audit_report("--url", service.metrics_address)[0] == 0
        assert audit_report("--url", service.metrics_address, "--max-behind", 0)[0] == 1
        deployment.load()
        assert deployment.balanced(service)["exit_status"] == 0
        service.kill()
    # While it is away, more comes; nothing is counted twice or missed.
    for first in (1000, 2000, 3000):
        deployment.produce(range(first, first + 200))
        deployment.sell(100)
        deployment.load()
        with deployment.audit() as service:
            settled = deployment.balanced(service)
            service.kill()
    assert settled["produced"] == 1200
    counts = {tier: told["count"] for tier, told in settled["tiers"].items()}
    assert counts == {"live": 1200, "offline": 1200, "warehouse": 1200}
    assert settled["topics"]["sales"]["is_audited"]


def test_the_command_asks_the_service_and_recounts_through_the_brokers(
    deployment: Deployment,
) -> None:
    deployment.produce(range(120))
    deployment.sell(30)
    deployment.load()
    with deployment.audit() as service:
        deployment.balanced(service)
        url = service.metrics_address
        for words in (("--url", url), ("--url", url, "--all"), ("--url", url, "--recount")):
            status, told = audit_report(*words)
            assert status == 0, told
            assert told["totals"]["produced"] == 150
            assert all(t["counted"] == 150 for t in told["totals"]["tiers"].values())
        assert told["source"] == "brokers"
        assert len(told["cells"]) == WINDOWS * (len(SERVERS) + 1)  # and the shop's
        page = service.get("/metrics")
        assert 'kafka2011_audit_counted_messages_total{tier="warehouse"} 150.0' in page
        assert service.stop() == 0


def test_messages_deleted_from_the_segments_by_hand_are_named_exactly(
    deployment: Deployment,
) -> None:
    deployment.produce(range(400))
    deployment.load()
    assert deployment.brokers["offline"].stop() == 0
    lost = deployment.thin_out("offline", lambda number: number != 30)
    assert lost.total() == 1

    # From the files, without anything running but the live broker.
    status, told = deployment.recount()
    assert (status, incomplete(told)) == (1, missing(lost))

    # By a service that starts from nothing, and by a recount through the brokers.
    deployment.offline.start(11)
    with deployment.audit("fresh") as service:
        url = service.metrics_address

        def is_told() -> bool:
            status, told = audit_report("--url", url)
            return status == 1 and incomplete(told) == missing(lost)

        wait_until(is_told, lambda: f"exactly {lost}: {audit_report('--url', url)}")
        status, told = audit_report("--url", url, "--recount")
        assert (status, incomplete(told)) == (1, missing(lost))

    # Many, from the files.
    for broker in deployment.brokers.values():
        assert broker.stop() == 0
    lost += deployment.thin_out("offline", lambda number: number % 7 > 0)
    status, told = deployment.recount()
    assert lost.total() > 20
    assert (status, incomplete(told)) == (1, missing(lost))
    totals = {tier: found["missing"] for tier, found in told["totals"]["tiers"].items()}
    assert totals.pop("warehouse") == 0
    assert sum(totals.values()) == lost.total()

    # At live, too. Its log ends before the mirror's offset, as another log would: what is not at
    # offline may be there, for all that this offset says.
    at_offline = {place: f"unknown {count}" for place, count in lost.items()}
    lost_at_live = deployment.thin_out("live", lambda number: number % 17 > 0)
    status, told = deployment.recount()
    assert (status, incomplete(told)) == (1, at_offline | missing(lost_at_live))


def test_what_is_deleted_before_the_mirror_has_it_is_missing_and_its_range_stays_known(
    zk_connect: str, tmp_path: Path
) -> None:
    """A segment goes, as by retention, while the mirror has taken nothing; then it takes the
    rest."""
    small = {"log_file_size": 10_000, "num_partitions": 1}
    with datacenters(zk_connect, tmp_path, [1], [11], **small) as clusters:
        deployment = Deployment(tmp_path, *clusters)
        deployment.produce(range(400), mirror=False)
        with deployment.audit() as service:

            def offline(verdict: str) -> Callable[[], bool]:
                return lambda: summary(service)["tiers"]["offline"]["verdict"] == verdict

            wait_until(offline("behind 400"), lambda: f"all is behind: {summary(service)}")
            assert deployment.brokers["live"].stop() == 0
            first, second, *_ = sorted(
                deployment.brokers["live"].log_dir.glob(f"{PAGE_VIEW}-0/*.kafka")
            )
            lost, end = len(list(entries(first.read_bytes()))), int(second.stem)
            assert 0 < lost < 400
            first.unlink()
            deployment.live.start(1)
            wait_until(lambda: summary(service)["deleted"], lambda: f"named: {summary(service)}")
            [named] = summary(service)["deleted"]
            assert (named["first"], named["last"]) == (0, end)
            deployment.copy(range(lost, 400))
            wait_until(offline(f"missing {lost}"), lambda: f"missing: {summary(service)}")
            wait_until(lambda: not summary(service)["deleted"], "the mirror has passed it")
            assert named["what"] in summary(service)["notes"]
            assert service.stop() == 0


def test_a_recount_after_a_stop_asks_the_stopped_zookeeper_how_far_the_mirror_had_come(
    tmp_path: Path,
) -> None:
    views = message_set.encode([view(number)[2] for number in range(12)])
    counts = Counter(view(number)[:2] for number in range(12))
    reports = [
        report(
            0,
            [(PAGE_VIEW, window, n) for (window, one), n in counts.items() if one == server],
            server=server,
        )
        for server in SERVERS
    ]
    write_log(tmp_path / "broker-1", AUDIT, 0, message_set.encode(reports))
    write_log(tmp_path / "broker-1", PAGE_VIEW, 0, views)
    copied = next(end for start, end, *_ in entries(views) if end > len(views) // 2)
    write_log(tmp_path / "broker-11", PAGE_VIEW, 0, views[:copied])
    late = 12 - len(list(entries(views[:copied])))
    path = paths.offset_path("mirror", PAGE_VIEW, paths.BrokerPartition(1, 0))
    for confirmed, found, status in ((copied, "behind", 0), (len(views), "missing", 1)):
        with (
            start_zookeeper(tmp_path / "zookeeper-live") as server,
            registry_at(f"{server.host}:{server.port}") as registry,
        ):
            registry.put(path, b"%d" % confirmed)
        assert late
        ended, told = audit_report("--dir", tmp_path, "--event-forms", "*:2011")
        assert (ended, told["totals"]["tiers"]["offline"][found]) == (status, late)


def test_a_broker_that_is_away_is_named_and_read_on_when_it_is_back(
    deployment: Deployment,
) -> None:
    """What the mirror has passed and not copied is missing from there on, until it comes."""
    deployment.produce(range(60))
    deployment.load()
    with deployment.audit() as service:
        deployment.balanced(service)
        deployment.produce(range(1000, 1003), mirror=False)
        wait_until(lambda: summary(service)["produced"] == 63, "three more reported")

        def verdicts() -> dict[str, str]:
            return {tier: found["verdict"] for tier, found in summary(service)["tiers"].items()}

        late = {"live": "complete", "offline": "behind 3", "warehouse": "behind 3"}
        wait_until(lambda: verdicts() == late, lambda: f"late, not lost: {verdicts()}")
        deployment.confirm()
        lost = {"live": "complete", "offline": "missing 3", "warehouse": "missing 3"}
        wait_until(lambda: verdicts() == lost, lambda: f"lost: {verdicts()}")
        deployment.copy(range(1000, 1003))
        deployment.load()
        deployment.balanced(service)

        deployment.brokers["offline"].kill()
        wait_until(
            lambda: "offline broker 11" in summary(service)["tiers"]["offline"]["away"],
            "named as away",
        )
        # What is counted stays counted.
        assert summary(service)["exit_status"] == 0
        deployment.produce(range(60, 80), mirror=False)

        def behind_offline() -> list[dict[str, Any]]:
            found = service.get_json("/audit?verdict=behind")["cell_list"]
            return [c["tiers"]["offline"] for c in found if c["tiers"]["offline"]["behind"]]

        cells = wait_until(behind_offline, "behind in offline")
        assert all("offline broker 11 does not answer" in cell["reason"] for cell in cells)
        deployment.offline.start(11)
        deployment.copy(range(60, 80))
        deployment.load()
        assert deployment.balanced(service)["tiers"]["offline"]["away"] == ""


def test_a_removed_log_directory_is_never_called_complete(deployment: Deployment) -> None:
    """Messages and the monitoring events that counted them go together."""
    deployment.produce(range(60))
    deployment.produce(range(60, 80), mirror=False)
    deployment.load()
    live = deployment.brokers["live"]
    assert live.stop() == 0
    shutil.rmtree(live.log_dir)
    deployment.live.start(1)
    deployment.produce(range(100, 160))
    deployment.load()
    status, told = deployment.recount()
    assert (status, len(told["unknown"])) == (1, len(SERVERS))
    with deployment.audit() as service:
        url = service.metrics_address
        wait_until(lambda: summary(service)["produced"] == 60, "what is left is reported")
        wait_until(
            lambda: {gap["server"] for gap in summary(service)["unknown"]} == set(SERVERS),
            lambda: f"each server's gap is found: {summary(service)['unknown']}",
        )
        assert audit_report("--url", url)[0] == 1
        status, told = audit_report("--url", url, "--recount")
        assert (status, len(told["unknown"])) == (1, len(SERVERS))


def test_a_log_that_is_lost_while_the_service_runs_is_never_called_complete(
    deployment: Deployment,
) -> None:
    deployment.produce(range(60))
    deployment.load()
    with deployment.audit() as service:
        deployment.balanced(service)
        live = deployment.brokers["live"]
        live.kill()
        shutil.rmtree(live.log_dir)
        deployment.live.start(1)
        deployment.produce(range(100, 110))
        wait_until(
            lambda: any(
                lost["what"].startswith("live page-view 1-") for lost in summary(service)["unknown"]
            ),
            lambda: f"the lost log is named: {summary(service)['unknown']}",
        )
        assert audit_report("--url", service.metrics_address)[0] == 1


def test_redelivered_messages_balance_when_a_process_was_restarted(deployment: Deployment) -> None:
    deployment.produce(range(60))
    deployment.copy(range(6))
    deployment.load()
    restarts = deployment.root / "restarts.json"
    with deployment.audit(**{"audit.restarts.file": restarts}) as service:
        url = service.metrics_address
        wait_until(lambda: summary(service)["tiers"]["warehouse"]["count"] == 66, "loaded")
        wait_until(lambda: audit_report("--url", url)[0] == 1, "extras are extra")
        restarts.write_text(json.dumps([{"name": "mirror-1", "time_ms": T0}]))
        wait_until(lambda: audit_report("--url", url)[0] == 0, "extras are redelivered")
        tiers = audit_report("--url", url)[1]["totals"]["tiers"]
        assert (tiers["offline"]["redelivered"], tiers["warehouse"]["redelivered"]) == (6, 6)
