"""The loss drill of docs/exercises/loss-drill.md: k messages disappear, the audit names them."""

from pathlib import Path
from typing import Any

import pytest

from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.producer import Producer
from tests.support.audits import report as audit_report
from tests.support.audits import start_audit, summary
from tests.support.clusters import datacenters
from tests.support.commands import RunningProcess, start_command
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import T0, WINDOW_MS, event, report

pytestmark = pytest.mark.integration

DROPPED = 7
A_WINDOW = 100
# Between producer and live broker in the second window, between the datacenters in the fourth.
DRILLS = {1: "front", 3: "link"}
WINDOWS = 5


class Drill:
    """A proxy that drops page views on one of its routes."""

    def __init__(self, proxy: RunningProcess) -> None:
        self._proxy = proxy

    def start(self, route: str) -> None:
        fault = {"drop_messages": {"topic": PAGE_VIEW, "count": DROPPED}}
        self._proxy.get("/faults", {"route": route, "faults": fault})

    def wait_until_dropped(self, route: str) -> None:
        def remaining() -> Any:
            return self._proxy.get_json("/routes")["routes"][route]["drop_remaining"]

        wait_until(lambda: not remaining(), "everything is dropped")


def test_the_audit_names_exactly_what_was_dropped_and_behind_where(
    tmp_path: Path, zk_connect: str
) -> None:
    with datacenters(zk_connect, tmp_path, [1], [11], num_partitions=1) as (live, offline):
        places = {"front": "{}:{}".format(*live.address(1))}
        places["link"] = "{}:{}".format(*offline.address(11))
        routes = ",".join(f"{name}=127.0.0.1:0>{place}" for name, place in places.items())
        proxying = {"proxy.routes": routes, "proxy.control": "true", "metrics.port": 0}
        with start_command("proxy", proxying, tmp_path / "proxy.log") as proxy:
            drill = Drill(proxy)
            through = proxy.wait_for_event("serving")["routes"]
            tiers = {"live": live.zk_connect, "offline": offline.zk_connect}
            mirroring = {
                "source.zk.connect": live.zk_connect,
                "target.zk.connect": offline.zk_connect,
                "address.map": f"{places['link']}={through['link']}",
            }
            with (
                start_command("mirror", mirroring, tmp_path / "mirror.log"),
                start_audit(tmp_path, tiers) as audit,
                Producer(broker_list=f"1:{through['front']}") as producer,
            ):
                sent = 0
                arrived = dict.fromkeys(tiers, 0)

                def settled() -> bool:
                    found = summary(audit)["tiers"]
                    return {tier: found[tier]["count"] for tier in tiers} == arrived

                for window in range(WINDOWS):
                    route = DRILLS.get(window, "")
                    if route:
                        drill.start(route)
                    for _ in range(0, A_WINDOW, 5):  # a drill begins in one set, ends in two
                        numbers = range(sent, sent + 5)
                        at = T0 + window * WINDOW_MS
                        producer.send(PAGE_VIEW, [event(n, at + n % A_WINDOW) for n in numbers])
                        sent += 5
                    producer.flush()
                    if route:
                        drill.wait_until_dropped(route)
                    # A topic is audited once there is a report on it.
                    producer.send(
                        AUDIT, report(window, [(PAGE_VIEW, T0 + window * WINDOW_MS, A_WINDOW)])
                    )
                    producer.flush()
                    arrived["live"] += A_WINDOW - (route == "front") * DROPPED
                    arrived["offline"] += A_WINDOW - (route != "") * DROPPED
                    wait_until(settled, lambda: f"{arrived}: {audit.get('/audit')}")
                wait_until(
                    lambda: summary(audit)["produced"] == sent and settled(),
                    lambda: f"settled: {audit.get('/audit')}",
                )
                wait_until(
                    lambda: not summary(audit)["tiers"]["offline"]["behind"],
                    lambda: f"the mirror has passed everything: {audit.get('/audit')}",
                )
                told = audit_report("--url", audit.metrics_address)
                recounted = audit_report("--url", audit.metrics_address, "--recount")
                assert audit.stop() == 0
            assert proxy.stop() == 0
    missing = f"missing {DROPPED}"
    for status, found in (told, recounted):
        assert status == 1
        assert {
            (cell["topic"], (cell["window_start_ms"] - T0) // WINDOW_MS): {
                tier: cell["tiers"][tier]["verdict"] for tier in tiers
            }
            for cell in found["cells"]
            if not cell["complete"]
        } == {
            (PAGE_VIEW, 1): {"live": missing, "offline": missing},
            (PAGE_VIEW, 3): {"live": "complete", "offline": missing},
        }
