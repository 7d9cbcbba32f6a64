"""Online consumers as real processes: they share, take over, commit, report lateness."""

import time
from pathlib import Path
from typing import Any

import pytest

from kafka2011.coordination import paths
from kafka2011.events.monitoring import encode_monitoring
from kafka2011.events.topics import PAGE_VIEW
from kafka2011.events.windows import WindowCount
from kafka2011.protocol.message_set import encode
from tests.support.clusters import Cluster
from tests.support.commands import RunningProcess, run, start_command
from tests.support.waiting import wait_until
from tests.support.zookeeper import end_session
from tests.unit.events.samples import page_view

pytestmark = pytest.mark.integration


WINDOW_MS = 1_000


def write_events(cluster: Cluster, count: int, sequence: int) -> None:
    """`count` page views, made now, to each of the four partitions, and the monitoring event that
    says so."""
    now_ms = time.time_ns() // 1_000_000
    data = encode([page_view(now_ms)] * count)
    for broker in cluster.brokers.values():
        for partition in range(2):
            assert broker.store(PAGE_VIEW.encode(), data, partition)
    report = encode_monitoring(
        server="frontend-1",
        service="site",
        instance="only",
        sequence=sequence,
        time_ms=now_ms,
        window_ms=WINDOW_MS,
        counts=[WindowCount(PAGE_VIEW, now_ms - now_ms % WINDOW_MS, 4 * count, len(data))],
    )
    assert cluster.brokers[1].store(b"audit", encode([report]))


def start(cluster: Cluster, log: Path) -> RunningProcess:
    settings = {
        "zk.connect": cluster.zk_connect,
        "metrics.port": 0,
        "process.name": log.stem,
        "zk.sessiontimeout.ms": 20_000,
        "consumerid": log.stem,
        "autocommit.interval.ms": 100,
        "online.status.interval.ms": 100,
        "audit.window.ms": WINDOW_MS,
    }
    return start_command("online-consumer", settings, log)


def status(member: RunningProcess) -> dict[str, Any]:
    found: dict[str, Any] = member.get_json("/status")
    return found


def messages(*members: RunningProcess) -> int:
    return sum(status(one)["topics"].get(PAGE_VIEW, {}).get("messages", 0) for one in members)


def validated(member: RunningProcess) -> tuple[str, int, int] | None:
    """Verdict on the page views, and how many the group counted and the producer reported."""
    found = (status(member)["validated"] or {"topics": {}})["topics"].get(PAGE_VIEW)
    return found and (found["state"], found["counted"], found["expected"])


def test_two_members_share_one_takes_over_and_the_next_goes_on_where_it_ended(
    zk_connect: str, tmp_path: Path
) -> None:
    with Cluster(zk_connect, tmp_path, [1, 2]) as cluster:
        write_events(cluster, 100, 0)
        cluster.write("audit", 10)
        with start(cluster, tmp_path / "online-1.log") as first:
            wait_until(lambda: messages(first) == 400, lambda: first.get("/status"))
            with start(cluster, tmp_path / "online-2.log") as second:
                wait_until(
                    lambda: len(status(first)["owned"]) == len(status(second)["owned"]) == 2,
                    "the two share",
                )
                write_events(cluster, 100, 1)
                wait_until(lambda: messages(first, second) == 800, "both read, nothing twice")
                assert messages(second) == 200
                assert "audit" not in status(first)["topics"]
                text = second.get("/metrics")
                assert 'kafka2011_online_messages_total{topic="page-view"} 200.0' in text
                assert 'kafka2011_online_latency_ms{quantile="0.99",topic="page-view"}' in text
                assert status(second)["topics"][PAGE_VIEW]["latency_ms"]["0.5"] < 1_000_000
                wait_until(lambda: sorted(status(second)["lag_bytes"].values()) == [0, 0], "no lag")
                wait_until(
                    lambda: (
                        "kafka2011_online_lag_bytes" in second.get("/metrics")
                        and cluster.registry.children(f"{paths.PROCESSES}/live")
                        == ["online-1", "online-2"]
                    ),
                    "both stand in the process registry",
                )
                first.kill()
                end_session(cluster.registry, paths.consumer_id_path("online", "online_online-1"))
                write_events(cluster, 100, 2)
                wait_until(lambda: len(status(second)["owned"]) == 4, "the other takes over")
                # What the first had read and not committed is read again.
                wait_until(lambda: messages(second) >= 200 + 400, "it reads what was left")
                # Of all four: a figure from before the takeover has two.
                wait_until(lambda: [*status(second)["lag_bytes"].values()] == [0] * 4, "all read")
                assert second.stop() == 0
        ends = {partition.text: end for partition, end in cluster.ends(PAGE_VIEW).items()}
        for name, end in ends.items():
            stored = cluster.registry.get(f"{paths.offsets_path('online', PAGE_VIEW)}/{name}")
            assert stored is not None
            assert int(stored.value or b"") == end, "what was read is committed at the end"
        write_events(cluster, 10, 3)
        with start(cluster, tmp_path / "online-3.log") as third:
            wait_until(lambda: messages(third) == 40, lambda: third.get("/status"))
            # Two members counted before, one of them was killed: each message once all the same.
            wait_until(lambda: validated(third) == ("complete", 1240, 1240), third.log)
            missing = 'kafka2011_consumed_messages{group="online",verdict="missing"} 0.0'
            assert missing in third.get("/metrics")
            words = ("groups", "validate", "online", "--zookeeper", cluster.zk_connect)
            (line,) = run(*words).stdout.splitlines()[1:]
            assert line.split()[:4] == [PAGE_VIEW, "1,240", "1,240", "complete"]
            assert third.stop() == 0


def test_a_bad_filter_exits_2(zk_connect: str, tmp_path: Path) -> None:
    settings = {"zk.connect": zk_connect, "topics.whitelist": "("}
    with start_command("online-consumer", settings, tmp_path / "log") as command:
        assert command.wait() == 2
        assert len(command.events("start_failed")) == 1
