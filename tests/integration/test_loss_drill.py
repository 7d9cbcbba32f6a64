"""The loss drill of docs/exercises/loss-drill.md: k messages disappear, the audit names them."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.producer import Producer
from tests.integration.test_audit_service import ask, command
from tests.support.brokers import start_broker
from tests.support.commands import RunningProcess, start_command
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import T0, WINDOW_MS, event, report

pytestmark = pytest.mark.integration

DROPPED = 7
A_WINDOW = 100


def faults(proxy: RunningProcess, change: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask for a fault; the route's state."""
    address = proxy.wait_for_event("serving")["metrics"]
    request = urllib.request.Request(
        f"http://{address}/faults",
        None if change is None else json.dumps({"faults": change}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        found = json.loads(answer.read())
    routes: dict[str, Any] = found["routes"]
    return routes["link"]


def drop(proxy: RunningProcess) -> None:
    faults(proxy, {"drop_messages": {"topic": PAGE_VIEW, "count": DROPPED}})


def send_windows(
    producer: Producer, is_drilling: Callable[[], bool], start_drill: Callable[[], None]
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
            wait_until(lambda: not is_drilling(), "everything is dropped", 30)
    cells = [(PAGE_VIEW, T0 + window * WINDOW_MS, A_WINDOW) for window in range(3)]
    producer.send(AUDIT, report(0, cells))
    producer.flush()


def test_the_audit_names_exactly_what_was_dropped(tmp_path: Path, zk_connect: str) -> None:
    broker = start_broker(tmp_path / "broker", 1, zk_connect)
    try:
        routes = f"link=127.0.0.1:0>{broker.host}:{broker.port}"
        proxying = {"proxy.routes": routes, "metrics.port": 0}
        with start_command("proxy", proxying, tmp_path / "proxy.log") as proxy:
            address = proxy.wait_for_event("serving")["address"]
            with Producer(broker_list=f"1:{address}") as producer:
                send_windows(
                    producer,
                    lambda: bool(faults(proxy)["drop_remaining"]),
                    lambda: drop(proxy),
                )
            assert proxy.stop() == 0
        auditing = {
            "live.zk.connect": zk_connect,
            "data.dir": tmp_path / "audit",
            "audit.window.ms": WINDOW_MS,
            "audit.refresh.ms": 100,
            "metrics.port": 0,
        }
        with start_command("audit serve", auditing, tmp_path / "audit.log") as audit:
            arrived = 3 * A_WINDOW - DROPPED

            def settled() -> bool:
                summary = ask(audit, "/audit/summary")
                live = summary["tiers"]["live"]
                return (
                    summary["produced"] == 3 * A_WINDOW
                    and live["count"] == arrived
                    and not live["pending_cells"]
                )

            wait_until(settled, lambda: f"settled: {ask(audit, '/audit')}", 30)
            url = audit.wait_for_event("serving")["metrics"]
            status, told = command("--url", url)
            assert audit.stop() == 0
    finally:
        broker.kill()
    assert status == 1
    (cell,) = told["cells"]
    assert (cell["topic"], cell["window_start_ms"]) == (PAGE_VIEW, T0 + WINDOW_MS)
    assert cell["tiers"]["live"]["verdict"] == f"missing {DROPPED}"


def test_what_is_lost_between_the_datacenters_is_named_behind_them_only(
    tmp_path: Path, zk_connect: str
) -> None:
    zk = {tier: f"{zk_connect}-{tier}" for tier in ("live", "offline")}
    with (
        start_broker(tmp_path / "live", 1, zk["live"]) as live,
        start_broker(tmp_path / "offline", 11, zk["offline"]) as offline,
    ):
        published = f"{offline.host}:{offline.port}"
        proxying = {"proxy.routes": f"link=127.0.0.1:0>{published}", "metrics.port": 0}
        with start_command("proxy", proxying, tmp_path / "proxy.log") as proxy:
            address = proxy.wait_for_event("serving")["address"]
            mirroring = {
                "source.zk.connect": zk["live"],
                "target.zk.connect": zk["offline"],
                "address.map": f"{published}={address}",
            }
            auditing = {
                "live.zk.connect": zk["live"],
                "offline.zk.connect": zk["offline"],
                "data.dir": tmp_path / "audit",
                "audit.window.ms": WINDOW_MS,
                "audit.refresh.ms": 100,
                "metrics.port": 0,
            }
            with (
                start_command("mirror", mirroring, tmp_path / "mirror.log"),
                start_command("audit serve", auditing, tmp_path / "audit.log") as audit,
                Producer(broker_list=f"1:{live.host}:{live.port}") as producer,
            ):

                def counted(tier: str) -> int:
                    return int(ask(audit, "/audit/summary")["tiers"][tier]["count"])

                def start_drill() -> None:
                    wait_until(lambda: counted("offline") == A_WINDOW, "the first window", 60)
                    drop(proxy)

                send_windows(producer, lambda: bool(faults(proxy)["drop_remaining"]), start_drill)
                arrived = {"live": 3 * A_WINDOW, "offline": 3 * A_WINDOW - DROPPED}
                wait_until(
                    lambda: {tier: counted(tier) for tier in arrived} == arrived,
                    lambda: f"all that was not dropped: {ask(audit, '/audit')}",
                    60,
                )
                status, told = command("--url", audit.wait_for_event("serving")["metrics"])
                recounted = command(
                    "--url", audit.wait_for_event("serving")["metrics"], "--recount"
                )
    assert status == recounted[0] == 1
    for found in (told, recounted[1]):
        (cell,) = [cell for cell in found["cells"] if not cell["complete"]]
        assert (cell["topic"], cell["window_start_ms"]) == (PAGE_VIEW, T0 + WINDOW_MS)
        assert cell["tiers"]["live"]["verdict"] == "complete"
        assert cell["tiers"]["offline"]["verdict"] == f"missing {DROPPED}"
