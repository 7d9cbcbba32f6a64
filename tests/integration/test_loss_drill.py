"""The loss drill of docs/exercises/loss-drill.md: k messages disappear, the audit names them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.producer import Producer
from tests.support.audits import report as audit_report
from tests.support.audits import start_audit, summary
from tests.support.brokers import start_broker
from tests.support.clusters import datacenters
from tests.support.commands import RunningProcess, start_command
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import T0, WINDOW_MS, event, report

pytestmark = pytest.mark.integration

DROPPED = 7
A_WINDOW = 100


def is_dropping(proxy: RunningProcess) -> bool:
    return bool(proxy.get_json("/faults")["routes"]["link"]["drop_remaining"])


def drop(proxy: RunningProcess) -> None:
    fault = {"drop_messages": {"topic": PAGE_VIEW, "count": DROPPED}}
    proxy.get("/faults", {"faults": fault})


def send_windows(
    producer: Producer, proxy: RunningProcess, start_drill: Callable[[], None]
) -> None:
    """Three windows of page views, the drill in the second; and the report of all of them."""
    for window in range(3):
        if window == 1:
            start_drill()
        made = [event(window * A_WINDOW + n, T0 + window * WINDOW_MS + n) for n in range(A_WINDOW)]
        for start in range(0, A_WINDOW, 5):  # the drill begins in one set, ends in two
            producer.send(PAGE_VIEW, made[start : start + 5])
        producer.flush()
        if window == 1:
            wait_until(lambda: not is_dropping(proxy), "everything is dropped", 30)
    cells = [(PAGE_VIEW, T0 + window * WINDOW_MS, A_WINDOW) for window in range(3)]
    producer.send(AUDIT, report(0, cells))
    producer.flush()


def test_the_audit_names_exactly_what_was_dropped(tmp_path: Path, zk_connect: str) -> None:
    with start_broker(tmp_path / "broker", 1, zk_connect) as broker:
        routes = f"link=127.0.0.1:0>{broker.host}:{broker.port}"
        proxying = {"proxy.routes": routes, "metrics.port": 0}
        with start_command("proxy", proxying, tmp_path / "proxy.log") as proxy:
            address = proxy.wait_for_event("serving")["address"]
            with Producer(broker_list=f"1:{address}") as producer:
                send_windows(producer, proxy, lambda: drop(proxy))
            assert proxy.stop() == 0
        with start_audit(tmp_path, {"live": zk_connect}) as audit:
            arrived = 3 * A_WINDOW - DROPPED

            def settled() -> bool:
                found = summary(audit)
                live = found["tiers"]["live"]
                return (
                    found["produced"] == 3 * A_WINDOW
                    and live["count"] == arrived
                    and not live["pending_cells"]
                )

            wait_until(settled, lambda: f"settled: {audit.get('/audit')}", 30)
            status, told = audit_report("--url", audit.metrics_address)
            assert audit.stop() == 0
    assert status == 1
    (cell,) = told["cells"]
    assert (cell["topic"], cell["window_start_ms"]) == (PAGE_VIEW, T0 + WINDOW_MS)
    assert cell["tiers"]["live"]["verdict"] == f"missing {DROPPED}"


def test_what_is_lost_between_the_datacenters_is_named_behind_them_only(
    tmp_path: Path, zk_connect: str
) -> None:
    with datacenters(zk_connect, tmp_path, [1], [11], num_partitions=1) as (live, offline):
        published = "{}:{}".format(*offline.address(11))
        proxying = {"proxy.routes": f"link=127.0.0.1:0>{published}", "metrics.port": 0}
        with start_command("proxy", proxying, tmp_path / "proxy.log") as proxy:
            address = proxy.wait_for_event("serving")["address"]
            mirroring = {
                "source.zk.connect": live.zk_connect,
                "target.zk.connect": offline.zk_connect,
                "address.map": f"{published}={address}",
            }
            tiers = {"live": live.zk_connect, "offline": offline.zk_connect}
            with (
                start_command("mirror", mirroring, tmp_path / "mirror.log"),
                start_audit(tmp_path, tiers) as audit,
                Producer(broker_list="1:{}:{}".format(*live.address(1))) as producer,
            ):

                def counted(tier: str) -> int:
                    return int(summary(audit)["tiers"][tier]["count"])

                def start_drill() -> None:
                    wait_until(lambda: counted("offline") == A_WINDOW, "the first window", 60)
                    drop(proxy)

                send_windows(producer, proxy, start_drill)
                arrived = {"live": 3 * A_WINDOW, "offline": 3 * A_WINDOW - DROPPED}
                wait_until(
                    lambda: {tier: counted(tier) for tier in arrived} == arrived,
                    lambda: f"all that was not dropped: {audit.get('/audit')}",
                    60,
                )
                status, told = audit_report("--url", audit.metrics_address)
                recounted = audit_report("--url", audit.metrics_address, "--recount")
    assert status == recounted[0] == 1
    for found in (told, recounted[1]):
        (cell,) = [cell for cell in found["cells"] if not cell["complete"]]
        assert (cell["topic"], cell["window_start_ms"]) == (PAGE_VIEW, T0 + WINDOW_MS)
        assert cell["tiers"]["live"]["verdict"] == "complete"
        assert cell["tiers"]["offline"]["verdict"] == f"missing {DROPPED}"
