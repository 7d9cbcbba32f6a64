"""The load job and the report against real brokers, ZooKeeper and Spark.

What the tables must have is computed without any code of the project: from the brokers' segment
files by their format and fastavro, from the lines themselves, and once by awk.
"""

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow.parquet as pq
import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.processes import read_record
from kafka2011.events import schemas
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.runtime.usage import PROC, with_descendants
from kafka2011.services.frontend.access_log import LineEncoder
from kafka2011.services.frontend.lines import Line
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load_commits import read_commits
from kafka2011.services.warehouse.session import CONF_DIR
from kafka2011.services.warehouse.table_paths import tables_in
from tests import ROOT
from tests.support.access_lines import UNREADABLE_LINES, figures, known_lines
from tests.support.clusters import Cluster
from tests.support.commands import RunningProcess, children_of, execute
from tests.support.loader_process import load_here
from tests.support.stored import entries, stored_entries
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.zookeeper import registry_at
from tests.unit.services.warehouse.samples import access_log_payload

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

SAMPLE_LOG = ROOT.parent / "shared" / "data" / "apache_access.log"


class Source:
    """Sends lines as the frontend would."""

    def __init__(self, zk_connect: str) -> None:
        self.producer = Producer(zk_connect=zk_connect)
        self.encoder = LineEncoder(
            b"run-0001", "frontend-1", ACCESS_LOG, lambda: time.time_ns() // 1_000_000
        )
        self.number = 0

    def send(self, lines: list[bytes]) -> None:
        by_topic = defaultdict(list)
        for line in lines:
            self.number += 1
            topic, _, payload = self.encoder.encode(Line(line, self.number, end=0))
            by_topic[topic].append(payload)
        for topic, payloads in by_topic.items():
            # A send chooses its partition by chance: twenty of them leave no broker without any
            # (two did, once in four runs, and then the death of a broker went unnoticed).
            step = max(1, min(50, len(payloads) // 20))
            for start in range(0, len(payloads), step):
                self.producer.send(topic, payloads[start : start + step])
        self.producer.flush()


@pytest.fixture
def brokers(tmp_path: Path, zk_connect: str) -> Iterator[Cluster]:
    with Cluster(zk_connect, tmp_path / "brokers", [11, 12], log_file_size=20_000) as found:
        yield found


@pytest.fixture
def source(zk_connect: str, brokers: Cluster) -> Iterator[Source]:
    made = Source(zk_connect)
    yield made
    made.producer.close(5000)


def dying_at(failpoint: str) -> dict[str, str]:
    return {"KAFKA2011_FAILPOINTS": f"{failpoint}=exit:9"} if failpoint else {}


class Jobs:
    """Runs the job scripts as a user would."""

    def __init__(self, directory: Path, zk_connect: str) -> None:
        self.directory = directory
        self.warehouse = directory / "warehouse"
        self.reports = directory / "reports"
        self.variables = {
            "PYSPARK_PYTHON": str(Path(sys.executable).with_name("kafka2011-spark-python")),
            "KAFKA2011_ZK_CONNECT": zk_connect,
            "KAFKA2011_WAREHOUSE_DIR": str(self.warehouse),
            "KAFKA2011_REPORT_DIR": str(self.reports),
            "KAFKA2011_AUDIT_WINDOW_MS": "10000",
            "KAFKA2011_EVENT_FORMS": "*:2011,sales:json,lines:text",
            "KAFKA2011_EVENT_TIME_FIELD": "sales:at",
            "KAFKA2011_EVENT_SERVER_FIELD": "sales:host",
        }

    def run(
        self,
        script: str,
        *words: object,
        submit: bool = False,
        status: int = 0,
        failpoint: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """By `spark-submit`, or by Python alone."""
        launcher = Path(sys.executable).parent / "spark-submit" if submit else sys.executable
        conf_dir = {"SPARK_CONF_DIR": str(CONF_DIR)} if submit else {}
        return execute(
            [launcher, ROOT / "spark-jobs" / script, *words],
            variables={**self.variables, **conf_dir, **dying_at(failpoint)},
            status=status,
            timeout_s=600,
        )

    def die(self, failpoint: str) -> None:
        """A load that dies at a step outside of Spark, and so needs none."""
        execute(
            [sys.executable, "-m", "tests.support.loader_process"],
            variables={**self.variables, **dying_at(failpoint)},
            status=9,
        )

    def loop(self) -> RunningProcess:
        """The load job again and again until it is stopped."""
        words = [sys.executable, str(ROOT / "spark-jobs" / "load.py"), "--interval-ms", "300"]
        for setting in ("metrics.port=0", "process.name=loader", "datacenter=offline"):
            words += ["--set", setting]
        return RunningProcess(words, self.directory / "loader.log", variables=self.variables)

    def files(self, name: str = ACCESS_LOG) -> list[str]:
        """The files that the log of the table names which has this view."""
        opened = WarehouseTable.open(tables_in(self.warehouse)[name.replace("-", "_")])
        assert opened is not None
        return opened.file_paths()

    def ends(self) -> dict[str, dict[BrokerPartition, int]]:
        """Up to where each topic of the test was loaded."""
        found = {}
        for topic in (ACCESS_LOG, "sales", "lines"):
            opened = WarehouseTable.open(tables_in(self.warehouse)[topic.replace("-", "_")])
            assert opened is not None
            found[topic] = dict(opened.known_partitions(topic))
        return found

    def committed_rows(self) -> list[int]:
        """Rows of each commit. Every one goes on: what moves no offset is not committed."""
        rows = []
        ends: dict[BrokerPartition, int] = {}
        for info in read_commits(self.warehouse / "access_log"):
            # A load that meets only messages for the quarantine adds no row; it has passed them.
            assert any(end > ends.get(at, 0) for at, end in info.offsets.items()), info
            ends |= info.offsets
            rows.append(info.rows)
        return rows

    def count(self, name: str = ACCESS_LOG) -> tuple[int, int]:
        """(rows, distinct guids) as DuckDB sees them."""
        ((rows, guids),) = duckdb.sql(
            f"select count(*), count(distinct guid) from read_parquet({self.files(name)!r})"
        ).fetchall()
        return rows, guids


@pytest.fixture
def jobs(tmp_path: Path, zk_connect: str) -> Jobs:
    return Jobs(tmp_path, zk_connect)


# --- the segments against the tables --------------------------------------------------------------


def at_ms(step: int) -> int:
    """The time of the sales of a step."""
    return 1_300_000_000_000 + step


GZIP = 1
SCHEMA = fastavro.parse_schema(json.loads(schemas.schema_text(ACCESS_LOG)))
PREFIX_BYTES = 17  # a zero and the MD5 of the schema
Place = tuple[int, int, int, bytes]  # broker, partition, next offset, guid or payload
# Of each step; all but the first in each of the four partitions, PLAIN of JSON and of text.
LINES, PACKED, JUNK, PLAIN = 200, 40, 3, 5


def stored_rows(brokers: Cluster) -> tuple[dict[Place, dict[str, Any]], set[Place]]:
    """What the table must have of each event, and what must be in quarantine, from the segment
    files; a message's offset is the end of the entry that stands in the log."""
    rows: dict[Place, dict[str, Any]] = {}
    junk = set()
    for number, broker in brokers.brokers.items():
        for entry in stored_entries(broker.log_dir, ACCESS_LOG):
            payloads = [entry.payload]
            if entry.attributes & 3 == GZIP:
                payloads = [inner for *_, inner in entries(gzip.decompress(entry.payload))]
            source = (number, entry.partition, entry.end)
            for payload in payloads:
                if payload.startswith(b"junk"):
                    junk.add((*source, payload))
                else:
                    row = as_row(payload, source)
                    rows[*source, row["guid"]] = row
    return rows, junk


def stored_plain(brokers: Cluster, topic: str) -> list[Place]:
    """The places of a topic without Avro, with the payloads."""
    return sorted(
        (number, entry.partition, entry.end, entry.payload)
        for number, broker in brokers.brokers.items()
        for entry in stored_entries(broker.log_dir, topic)
    )


def as_row(payload: bytes, source: tuple[int, int, int]) -> dict[str, Any]:
    event: Any = fastavro.schemaless_reader(io.BytesIO(payload[PREFIX_BYTES:]), SCHEMA)
    header = event.pop("header")
    at = header["time"]
    return {
        "guid": bytes(header["guid"]),
        "header_time": datetime.fromtimestamp(at / 1000, UTC) if isinstance(at, int) else at,
        "server": header["server"],
        "service": header["service"],
        **event,
        "hour": f"{event['event_time']:%Y-%m-%d-%H}",
        **dict(zip(("source_broker", "source_partition", "source_offset"), source, strict=True)),
    }


def table_rows(jobs: Jobs, name: str, key: str) -> list[tuple[Place, dict[str, Any]]]:
    """The rows of the table's files, with the hour that their place says."""
    found = []
    for file in jobs.files(name):
        hour = Path(file).parent.name.removeprefix("hour=")
        for row in pq.ParquetFile(file).read().to_pylist():
            at = (row["source_broker"], row["source_partition"], row["source_offset"], row[key])
            found.append((at, {**row, "hour": hour}))
    return found


def test_each_message_of_the_segments_is_one_row_or_one_quarantined_message_whatever_dies(
    source: Source, jobs: Jobs, brokers: Cluster
) -> None:
    """Loads die at every step, a task dies, then a loop of loads outlives a broker: sets are
    compressed, segments roll, some messages are no events. Topics of JSON and text are the same."""
    steps = 0

    def send(junk: int = JUNK) -> int:
        """How many events have been sent in all."""
        nonlocal steps
        steps += 1
        source.send([line.line for line in known_lines(LINES, steps)])
        packed = [access_log_payload(1000 * steps + number) for number in range(PACKED)]
        sets = [message_set.encode_compressed(packed, Codec.GZIP)]
        if junk:
            sets.append(message_set.encode([b"junk-%d-%d" % (steps, n) for n in range(junk)]))
        for data in sets:
            for broker, partition in ((11, 0), (11, 1), (12, 0), (12, 1)):
                source.producer.send_set(ACCESS_LOG, data, broker_id=broker, partition=partition)
        for broker, partition in ((11, 0), (11, 1), (12, 0), (12, 1)):
            places = [f"{steps}/{broker}/{partition}/{number}" for number in range(PLAIN)]
            sales = [json.dumps({"at": at_ms(steps), "host": "shop", "n": n}) for n in places]
            for topic, texts in (("sales", [*sales, "{"]), ("lines", places)):
                data = message_set.encode([text.encode() for text in texts])
                source.producer.send_set(topic, data, broker_id=broker, partition=partition)
        source.producer.flush()
        return steps * (LINES + 4 * PACKED)

    # The messages in quarantine are a commit of their own, before the events'.
    for place in ("after_plan", "after_files_written", "before_commit", "after_commit"):
        before = send(junk=0)
        jobs.die(place)
    assert sum(jobs.committed_rows()) == before, "the last died after its commit"
    send()
    jobs.die("after_quarantine")
    # A worker that dies in the middle of its task is a failed load, not a lost one.
    sent = send()
    done = jobs.run("load.py", failpoint="in_task_after_files_written", status=1)
    assert "load_failed" in done.stderr
    assert sum(jobs.committed_rows()) == before

    with jobs.loop() as loader:
        address = loader.wait_for_event("loading")["metrics"]

        def status() -> dict[str, Any]:
            with urllib.request.urlopen(f"http://{address}/status", timeout=DEADLINE_S) as page:
                found: dict[str, Any] = json.loads(page.read())
                return found

        def wait_until_loaded(count: int) -> None:
            # All loads before this one died before they came to the topics without Avro.
            wanted = count - before + steps * 2 * 4 * PLAIN
            wait_until(lambda: status()["rows_loaded"] == wanted, loader.log)

        wait_until_loaded(sent)
        assert status()["latency_ms"]["p99"] > 0
        brokers.brokers[12].kill()
        wait_until(lambda: status()["problems"], "the lost broker among the problems")
        brokers.start(12)
        wait_until(lambda: not status()["problems"], "no problem any more")
        sent = send()
        wait_until_loaded(sent)
        # What is for the quarantine may come to be visible after all rows are.
        wait_until(lambda: jobs.ends() == {t: brokers.ends(t) for t in jobs.ends()}, "the rest")
        wait_until(lambda: status()["lag_bytes"] == 0, "no lag")
        assert loader.stop() == 0, loader.log()
    assert sum(jobs.committed_rows()) == sent
    assert [broker.stop() for broker in brokers.brokers.values()] == [0, 0]
    segments = list((brokers.brokers[11].log_dir / f"{ACCESS_LOG}-0").glob("*.kafka"))
    assert len(segments) > 2, "nothing rolled"

    expected, junk = stored_rows(brokers)
    assert (len(expected), len(junk)) == (sent, 3 * 4 * JUNK)
    found = table_rows(jobs, ACCESS_LOG, "guid")
    assert len(found) == sent
    assert dict(found) == expected
    aside = table_rows(jobs, f"quarantine_{ACCESS_LOG}", "payload")
    assert sorted(at for at, _ in aside) == sorted(junk)
    assert all(row["reason"] for _, row in aside)

    lines = [(*at[:3], at[3].encode()) for at, _ in table_rows(jobs, "lines", "value")]
    assert sorted(lines) == stored_plain(brokers, "lines")
    rows = table_rows(jobs, "sales", "n")
    assert {row["server"] for _, row in rows} == {"shop"}
    assert {row["header_time"] for _, row in rows} == {
        datetime.fromtimestamp(at_ms(step + 1) / 1000, UTC) for step in range(steps)
    }
    told = [(*at[:3], json.dumps({"at": row["at"], "host": "shop", "n": at[3]}).encode())
            for at, row in rows]  # fmt: skip
    told += [at for at, _ in table_rows(jobs, "quarantine_sales", "payload")]
    assert sorted(told) == stored_plain(brokers, "sales")
    (counts, quarantined) = (Counter[str](), Counter[str]())
    for info in read_commits(jobs.warehouse / "sales"):
        counts.update({server: n for (_, server), n in info.counts.items()})
        quarantined.update({server: n for (_, server), n in info.quarantined.items()})
    assert counts == {"shop": steps * 4 * PLAIN}
    assert quarantined == {"unreadable-header": steps * 4}


# --- the report -----------------------------------------------------------------------------------


def test_lines_become_rows_once_and_the_report_says_what_they_say(
    source: Source, jobs: Jobs, zk_connect: str
) -> None:
    known = known_lines(3000, seed=1)
    source.send([line.line for line in known] + UNREADABLE_LINES)
    jobs.run("load.py", submit=True)
    assert jobs.count() == (3000, 3000)
    assert jobs.count("access_log_unreadable") == (len(UNREADABLE_LINES), len(UNREADABLE_LINES))

    # An event that was delivered twice is two rows and one page view.
    source.number = 0
    source.send([line.line for line in known[:10]])
    config = WarehouseConfig(
        zk_connect=zk_connect,
        warehouse_dir=jobs.warehouse,
        window_ms=10_000,
        event_forms=FORMS_2011,
    )
    load_here(config)
    assert jobs.count() == (3010, 3000)
    commits = read_commits(jobs.warehouse / "access_log")
    assert [(info.rows, sum(info.counts.values())) for info in commits] == [(3000, 3000), (10, 10)]

    out = jobs.run("report.py", "--json", "-").stdout
    told = json.loads(out)
    expected = {**figures(known), "table": "access_log", "rows": 3010}
    assert {key: told[key] for key in expected} == expected
    assert (jobs.reports / "access_log.json").read_text() == out
    assert "3,000 page views" in (jobs.reports / "access_log.txt").read_text()
    assert (jobs.reports / "access_log.svg").read_text().startswith("<svg")


AWK = r"""
{ n = split($0, q, "\""); split(q[1], left, " "); split(q[2], request, " "); split(q[3], after, " ")
  split(q[1], t, "["); hour = substr(t[2], 8, 4) "-05-" substr(t[2], 1, 2) "-" substr(t[2], 13, 2)
  views[hour]++; bytes[hour] += after[2] == "-" ? 0 : after[2]; errors[hour] += after[1] >= 400
  if (!((hour, left[1]) in seen)) { seen[hour, left[1]] = 1; visitors[hour]++ }
  paths[request[2]]++ }
END { for (h in views)
        printf "hour\t%s\t%d\t%d\t%.0f\t%d\n", h, views[h], visitors[h], bytes[h], errors[h]
      for (p in paths) printf "path\t%s\t%d\n", p, paths[p] }
"""


@pytest.mark.skipif(not SAMPLE_LOG.exists(), reason=f"{SAMPLE_LOG.name} is not beside the project")
def test_the_report_on_a_real_log_equals_awk(source: Source, jobs: Jobs) -> None:
    source.send(SAMPLE_LOG.read_bytes().splitlines())
    jobs.run("load.py", submit=True)
    file = jobs.directory / "report.json"
    assert "10,000" in jobs.run("report.py", "--json", file, submit=True).stdout
    told = json.loads(file.read_text())
    answer = execute(["awk", AWK, SAMPLE_LOG], variables={"LC_ALL": "C"})
    rows = [line.split("\t") for line in answer.stdout.splitlines()]
    hours = sorted(row[1:] for row in rows if row[0] == "hour")
    names = ("page_views", "visitors", "bytes", "errors")
    assert [[h["hour"], *(str(h[name]) for name in names)] for h in told["hours"]] == hours
    paths = sorted((-int(row[2]), row[1].encode()) for row in rows if row[0] == "path")
    assert [(-p["page_views"], p["path"].encode()) for p in told["top_paths"]] == paths[:20]


# --- pauses and the end of Spark ------------------------------------------------------------------

PAUSE_S = 6.0
# As if the pause were longer than Spark's two minutes.
TIMEOUTS = """
spark.network.timeout 3s
spark.network.timeoutInterval 1s
spark.executor.heartbeatInterval 1s
"""


def test_a_loader_that_was_paused_keeps_its_executor(source: Source, jobs: Jobs) -> None:
    """Spark removed it, went on, and ended the JVM 60 heartbeats (ten minutes) later."""
    conf_dir = jobs.directory / "spark_conf"
    shutil.copytree(CONF_DIR, conf_dir)
    with (conf_dir / "spark-defaults.conf").open("a") as file:
        file.write(TIMEOUTS)
    jobs.variables["SPARK_CONF_DIR"] = str(conf_dir)
    with jobs.loop() as loader:
        loader.wait_for_event("loading", 600)
        paused = with_descendants(PROC, loader.pid)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in paused:
                os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(PAUSE_S)  # the fault itself
        for loads in range(1, 4):  # some seconds, in which Spark looks at its executor
            source.send([line.line for line in known_lines(10, seed=loads)])
            wait_until(lambda n=loads: len(loader.events("loaded")) >= n, "it loads", 600)
        assert "Removing executor" not in loader.log(), loader.log()


def test_a_loader_whose_spark_has_ended_fails_and_says_no_goodbye(
    source: Source, jobs: Jobs, zk_connect: str
) -> None:
    """It was *stopped* in `status`, and its last lines were a stack of the connection to Spark; one
    that had nothing to load went on, and served."""
    with jobs.loop() as loader, registry_at(zk_connect) as registry:
        loader.wait_for_event("loading", 600)
        node = paths.process_path("offline", "loader")
        wait_until(lambda: registry.get(node), "it is registered")
        for child in children_of(loader.pid):
            os.kill(child, signal.SIGKILL)
        assert loader.wait(600) == 1
        record = read_record(registry, "offline", "loader")
    last = loader.log().splitlines()[-1]
    assert "spark_gone" in last, loader.log()
    assert "Spark's JVM has ended: start this process again" in last.replace("\\", "")
    assert not record.said_goodbye
