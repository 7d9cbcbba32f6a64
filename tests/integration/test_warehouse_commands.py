"""`kafka2011 stream` and `kafka2011 schedule` as processes beside real brokers and a ZooKeeper.

What the stream jobs compute is held against plain Python in test_spark_streams.py; here it is that
the commands run, stop and go on: with their own sessions, settings, checkpoints and signals.
"""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.events import codec
from kafka2011.events.topics import CLICK
from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load_commits import read_commits
from tests.support.brokers import RunningBroker
from tests.support.clusters import Cluster
from tests.support.commands import RunningProcess, start_command
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

START = datetime(2026, 5, 17, 10, 0, tzinfo=UTC)
WAIT_S = 600  # a JVM, a first query and what else there is, on two cores that others use, too
TOP = 2
TOPIC = "top-of-the-minute"


@pytest.fixture
def brokers(tmp_path: Path, zk_connect: str) -> Iterator[list[RunningBroker]]:
    with Cluster(zk_connect, tmp_path, [11, 12]) as found:
        yield list(found.brokers.values())


class Clicks:
    """Sends clicks on items with numbers, and remembers how many an item had in each minute."""

    def __init__(self, zk_connect: str) -> None:
        self.zk_connect = zk_connect
        self.sent = 0
        self.by_minute: dict[datetime, Counter[str]] = defaultdict(Counter)

    def send(self, minutes: Sequence[int], count: int) -> None:
        """`count` clicks over each of the minutes, item 0 the most, in every partition."""
        payloads = []
        for minute in minutes:
            at = START + timedelta(minutes=minute)
            for number in range(count):
                item = f"item-{number % (2 + number % 3)}"
                payloads.append(self._event(at + timedelta(milliseconds=number), item))
                self.by_minute[at][item] += 1
        self._send(payloads)

    def close_windows(self, minute: int) -> None:
        """An event so late that every window before it is closed, in each partition."""
        late = START + timedelta(minutes=minute)
        self._send([self._event(late, "late") for _ in range(8)])

    def _event(self, at: datetime, item: str) -> bytes:
        self.sent += 1
        ms = int(at.timestamp() * 1000)
        header = {"guid": self.sent.to_bytes(16, "big"), "time": ms, "server": "s"}
        fields = {"member_id": self.sent % 7, "path": "/p", "item": item, "position": 0}
        event = {"header": {**header, "service": "web"}, "event_time": ms, **fields}
        return codec.encode(CLICK, {**event, "impression": bytes(16)})

    def _send(self, payloads: list[bytes]) -> None:
        with Producer(zk_connect=self.zk_connect) as producer:
            for place in range(4):
                broker, partition = divmod(place, 2)
                entries = message_set.encode(payloads[place::4])
                producer.send_set(CLICK, entries, broker_id=11 + broker, partition=partition)
            producer.flush()

    def top(self) -> list[tuple[datetime, int, str, int]]:
        """(window, rank, item, clicks) as the job must have it."""
        return [
            (minute, rank, item, clicks)
            for minute, items in sorted(self.by_minute.items())
            for rank, (item, clicks) in enumerate(
                sorted(items.items(), key=lambda pair: (-pair[1], pair[0]))[:TOP], 1
            )
        ]


@pytest.fixture
def clicks(zk_connect: str, brokers: list[RunningBroker]) -> Clicks:
    return Clicks(zk_connect)


def written(brokers: list[RunningBroker]) -> list[tuple[datetime, int, str, int]]:
    """The rows of the topic of the top items, from both brokers."""
    found = []
    for broker in brokers:
        with SimpleConsumer(broker.host, broker.port) as client:
            for partition in range(2):
                data = client.fetch(TOPIC, partition, 0, 1_000_000).data
                found += [json.loads(payload) for payload in message_set.payloads(data)]
    return sorted(
        (datetime.fromisoformat(row["window_start"]), row["rank"], row["item"], row["clicks"])
        for row in found
    )


def until(job: RunningProcess, condition: Callable[[], Any]) -> None:
    """Wait for it as long as the job runs."""
    wait_until(lambda: condition() or not job.is_running, job.log, WAIT_S)
    assert job.is_running, job.log()


def below(pid: int) -> set[tuple[int, str]]:
    """(pid, when it started) of every process below this one that is no zombie."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1]), fields[19]
    found = {pid}
    while more := {child for child, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return {(child, parents[child][1]) for child in found - {pid}}


def test_windows_come_out_of_the_stream_and_go_on_after_a_stop(
    clicks: Clicks, brokers: list[RunningBroker], tmp_path: Path, zk_connect: str
) -> None:
    settings: dict[str, object] = {
        "zk.connect": zk_connect,
        "stream.dir": tmp_path / "streams",
        "stream.topic": TOPIC,
        "stream.top": TOP,
        "stream.interval.ms": 200,
    }
    clicks.send([0, 1, 2], 40)
    clicks.close_windows(30)
    log = tmp_path / "top-items.log"
    with start_command("stream top-items", settings, log) as job:
        job.wait_for_event("streaming", WAIT_S)
        expected = clicks.top()
        until(job, lambda: written(brokers) == expected)
        # More of them while it runs, in windows that the watermark has not passed.
        clicks.send([31, 32], 30)
        clicks.close_windows(60)
        late = (START + timedelta(minutes=30), 1, "late", 8)
        expected = sorted([*clicks.top(), late])
        until(job, lambda: written(brokers) == expected)
        assert job.stop(WAIT_S) == 0, job.log()
    # No job counts now; run again, it goes on where it was, to the end of what is there. Only a
    # batch that the stop cut off is sent again: window, rank and item let a reader drop the repeat.
    clicks.send([61], 50)
    clicks.close_windows(90)
    with start_command("stream top-items --once", settings, log) as job:
        assert job.wait(WAIT_S) == 0, job.log()
        assert job.events("stream_ended"), job.log()
    late = (START + timedelta(minutes=60), 1, "late", 8)
    expected = sorted([*expected, *clicks.top()[-TOP:], late])
    assert sorted(set(written(brokers))) == expected


def test_a_stream_that_needs_a_table_of_items_says_so_before_there_is_a_jvm(tmp_path: Path) -> None:
    settings = {"zk.connect": "127.0.0.1:1", "stream.dir": tmp_path / "streams"}
    with start_command("stream clicks-by-category --once", settings, tmp_path / "log") as job:
        assert job.wait(WAIT_S) == 2
        assert "needs stream.items" in job.log()


def test_a_schedule_loads_again_and_again_and_outlives_a_job_that_fails(
    clicks: Clicks, tmp_path: Path, zk_connect: str
) -> None:
    file = tmp_path / "schedule"
    never = f"{datetime.now(UTC) + timedelta(hours=12):%H:%M}"  # while the test runs
    file.write_text(f"every 1s load\nevery 8s report --table nowhere\ndaily {never} reports\n")
    settings: dict[str, object] = {
        "zk.connect": zk_connect,
        "warehouse.dir": tmp_path / "warehouse",
        "metrics.port": 0,
    }

    def loaded() -> int:
        return sum(info.rows for info in read_commits(tmp_path / "warehouse" / "click"))

    def jobs_now() -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = schedule.get_json("/status")["jobs"]
        return jobs

    clicks.send([0], 40)
    with start_command(f"schedule {file}", settings, tmp_path / "schedule.log") as schedule:
        until(schedule, lambda: loaded() == 40)
        clicks.send([1], 25)
        until(schedule, lambda: loaded() == 65)
        until(schedule, lambda: jobs_now()[1]["failures"] >= 1)
        load, report, reports = jobs_now()
        assert (load["command"], load["failures"]) == ("load", 0)
        assert load["last"]["status"] == 0
        assert report["failures"] == report["runs"]
        assert (report["last"]["status"], reports["runs"], reports["last"]) == (1, 0, None)
        # Stopped while a load runs, it takes that with it.
        until(schedule, lambda: jobs_now()[0]["is_running"])
        jobs = wait_until(lambda: below(schedule.pid), "the load's processes")
        assert schedule.stop(WAIT_S) == 0, schedule.log()
        wait_until(lambda: not jobs & below(1), lambda: f"left behind: {jobs & below(1)}")
    table = WarehouseTable.open(tmp_path / "warehouse" / "click")
    assert table is not None
    counted = duckdb.sql(
        f"select count(*), count(distinct guid) from read_parquet({table.file_paths()!r})"
    ).fetchall()
    assert counted == [(65, 65)]
