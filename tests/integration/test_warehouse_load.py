"""The load job and the report against real brokers, ZooKeeper and Spark.

The figures are compared with ones computed here from the lines themselves, without any code of
the project, and once by awk.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafka2011.producer import Producer
from kafka2011.services.frontend.access_log import LineEncoder
from kafka2011.services.frontend.lines import Line
from kafka2011.services.warehouse.delta_table import WarehouseTable, read_commits
from kafka2011.services.warehouse.session import CONF_DIR
from tests import ROOT
from tests.support.clusters import Cluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

SAMPLE_LOG = ROOT.parent / "shared" / "data" / "apache_access.log"


@dataclass
class Known:
    """One readable line and what it says, known because it was made here."""

    line: bytes
    host: str
    hour: str
    path: str
    status: int
    size: int


def known_lines(count: int, seed: int) -> list[Known]:
    """Readable lines, regular and odd, over two days of May 2015."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        host = f"10.0.{rng.randrange(3)}.{rng.randrange(20)}"
        day, hour, minute = 17 + rng.randrange(2), rng.randrange(24), rng.randrange(60)
        path = f"/p/{rng.randrange(40)}" + ("?q=ä b".replace(" ", "+") if number % 7 == 0 else "")
        status = rng.choice([200, 200, 200, 304, 399, 400, 404, 500])
        size = rng.choice([0, 17, 5_000_000_000, None])
        size_text = "-" if size is None else str(size)
        request = f"GET {path} HTTP/1.1"
        tail = ' "-" "an agent"'
        if number % 50 == 3:
            request = path = "only-two words"  # not three words: the raw text is the path
        if number % 50 == 5:
            tail = ' "-" "no closing quote'
        if number % 50 == 7:
            tail = ""  # the common format
        if number % 50 == 9:
            tail = ' "-" "\udcff\udcfe"'  # bytes that are not UTF-8
        zone, shown_hour, shown_day = "+0000", hour, day
        if number % 50 == 11 and hour < 22:
            zone, shown_hour = "+0200", hour + 2
        text = (
            f"{host} - - [{shown_day}/May/2015:{shown_hour:02}:{minute:02}:00 {zone}] "
            f'"{request}" {status} {size_text}{tail}'
        )
        found.append(
            Known(
                text.encode("utf-8", "surrogateescape"),
                host,
                f"2015-05-{day}-{hour:02}",
                path,
                status,
                size or 0,
            )
        )
    return found


UNREADABLE_LINES = [
    b"",
    b"not a line",
    b"\x00\xff" * 40,
    b'1.1.1.1 - - [yesterday] "GET / X" 200 1',
]


def figures(known: list[Known]) -> dict[str, Any]:
    """The report as the contract defines it, straight from what the lines say."""

    def traffic(part: list[Known]) -> dict[str, Any]:
        errors = sum(line.status >= 400 for line in part)
        return {
            "page_views": len(part),
            "visitors": len({line.host for line in part}),
            "bytes": sum(line.size for line in part),
            "errors": errors,
            "error_share": errors / len(part),
        }

    by_hour = defaultdict(list)
    for line in known:
        by_hour[line.hour].append(line)
    views = Counter(line.path for line in known)
    ranked = sorted(views.items(), key=lambda item: (-item[1], item[0].encode()))
    return {
        "totals": traffic(known),
        "hours": [{**traffic(part), "hour": hour} for hour, part in sorted(by_hour.items())],
        "top_paths": [{"path": path, "page_views": count} for path, count in ranked[:20]],
    }


class Source:
    """Sends lines as the frontend would; remembers nothing."""

    def __init__(self, zk_connect: str) -> None:
        self.producer = Producer(zk_connect=zk_connect)
        self.encoder = LineEncoder(
            b"run-0001", "frontend-1", "access-log", lambda: time.time_ns() // 1_000_000
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
    with Cluster(zk_connect, tmp_path / "brokers", [11, 12]) as found:
        yield found


@pytest.fixture
def source(zk_connect: str, brokers: Cluster) -> Iterator[Source]:
    made = Source(zk_connect)
    yield made
    made.producer.close(5000)


class Jobs:
    """Runs the job scripts as a user would."""

    def __init__(self, directory: Path, zk_connect: str) -> None:
        self.warehouse = directory / "warehouse"
        self.reports = directory / "reports"
        self.zk_connect = zk_connect

    def start(
        self, script: str, *words: str, submit: bool = True, **environment: str
    ) -> subprocess.Popen[str]:
        variables = {k: v for k, v in os.environ.items() if not k.startswith("KAFKA2011_")}
        variables |= {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(CONF_DIR),
            "KAFKA2011_ZK_CONNECT": self.zk_connect,
            "KAFKA2011_WAREHOUSE_DIR": str(self.warehouse),
            "KAFKA2011_REPORT_DIR": str(self.reports),
            "KAFKA2011_AUDIT_WINDOW_MS": "10000",
            "KAFKA2011_EVENT_FORMS": "*:2011",
            **environment,
        }
        launcher = str(Path(sys.executable).parent / "spark-submit") if submit else sys.executable
        return subprocess.Popen(
            [launcher, str(ROOT / "spark-jobs" / script), *words],
            cwd=self.warehouse.parent,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, *words: str, **options: Any) -> tuple[int, str, str]:
        """(status, standard output, standard error)"""
        process = self.start(script, *words, **options)
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    def table(self, name: str = "access_log") -> WarehouseTable:
        opened = WarehouseTable.open(self.warehouse / name)
        assert opened is not None
        return opened

    def count(self, name: str = "access_log") -> tuple[int, int]:
        """(rows, distinct guids) as DuckDB sees them."""
        files = self.table(name).file_paths()
        ((rows, guids),) = duckdb.sql(
            f"select count(*), count(distinct guid) from read_parquet({files!r})"
        ).fetchall()
        return rows, guids


@pytest.fixture
def jobs(tmp_path: Path, zk_connect: str) -> Jobs:
    return Jobs(tmp_path, zk_connect)


def test_lines_become_rows_once_and_the_report_says_what_they_say(
    source: Source, jobs: Jobs
) -> None:
    known = known_lines(3000, seed=1)
    source.send([line.line for line in known] + UNREADABLE_LINES)
    status, _, err = jobs.run("load.py")
    assert status == 0, err
    assert jobs.count() == (3000, 3000)
    assert jobs.count("access_log_unreadable") == (len(UNREADABLE_LINES), len(UNREADABLE_LINES))

    # Again, with nothing new and by the other way to start it: nothing is committed.
    status, _, err = jobs.run("load.py", submit=False)
    assert status == 0, err
    assert [info.rows for info in read_commits(jobs.warehouse / "access_log")] == [3000]

    # An event that was delivered twice is two rows and one page view.
    source.number = 0
    source.send([line.line for line in known[:10]])
    assert jobs.run("load.py")[0] == 0
    assert jobs.count() == (3010, 3000)
    (first, second) = read_commits(jobs.warehouse / "access_log")
    assert sum(first.counts.values()) == first.rows == 3000
    assert sum(second.counts.values()) == second.rows == 10

    status, out, err = jobs.run("report.py", "--json", "-", submit=False)
    assert status == 0, err
    told = json.loads(out)
    expected = figures(known)
    assert {key: told[key] for key in expected} == expected
    assert (told["table"], told["rows"]) == ("access_log", 3010)
    assert (jobs.reports / "access_log.json").read_text() == out
    assert "3,000 page views" in (jobs.reports / "access_log.txt").read_text()
    assert (jobs.reports / "access_log.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_killed_at_every_step_and_run_again_nothing_is_lost_or_repeated(
    source: Source, jobs: Jobs
) -> None:
    sent = 0
    for name in ("after_plan", "after_files_written", "before_commit", "after_commit"):
        source.send([line.line for line in known_lines(200, seed=sent)])
        sent += 200
        status, _, err = jobs.run("load.py", submit=False, KAFKA2011_FAILPOINTS=f"{name}=exit:9")
        assert status == 9, err
    source.send([line.line for line in known_lines(200, seed=sent)])
    sent += 200
    # A worker that dies in the middle of its task is a failed load, not a lost one.
    status, _, err = jobs.run(
        "load.py", submit=False, KAFKA2011_FAILPOINTS="in_task_after_files_written=exit:9"
    )
    assert status == 1, err
    assert "load_failed" in err
    status, _, err = jobs.run("load.py", submit=False)
    assert status == 0, err
    assert jobs.count() == (sent, sent)
    commits = read_commits(jobs.warehouse / "access_log")
    assert sum(info.rows for info in commits) == sent


def test_the_loop_loads_what_comes_survives_a_broker_and_stops_cleanly(
    source: Source, jobs: Jobs, brokers: Cluster
) -> None:
    with jobs.start(
        "load.py",
        *("--interval-ms", "300", "--set", "metrics.port=0", "--set", "process.name=loader"),
        *("--set", "datacenter=offline"),
        submit=False,
    ) as loader:
        assert loader.stderr is not None
        told: list[str] = []

        def read_until(text: str) -> str:
            for line in loader.stderr or ():
                told.append(line)
                if text in line:
                    return line
            raise AssertionError(f"no {text!r} in:\n{''.join(told)}")

        try:
            address = read_until("event=loading").split("metrics=")[1].split()[0]

            def status() -> dict[str, Any]:
                with urllib.request.urlopen(f"http://{address}/status", timeout=10) as page:
                    found: dict[str, Any] = json.loads(page.read())
                    return found

            def rows_loaded(count: int) -> None:
                wait_until(lambda: status()["rows_loaded"] == count, f"{count} rows", 60)

            source.send([line.line for line in known_lines(100, seed=2)])
            rows_loaded(100)
            assert status()["latency_ms"]["p99"] > 0
            brokers.brokers[12].kill()
            wait_until(lambda: status()["problems"], "the lost broker among the problems", 60)
            brokers.start(12)
            wait_until(lambda: not status()["problems"], "no problem any more", 60)
            source.send([line.line for line in known_lines(100, seed=3)])
            rows_loaded(200)
            assert status()["lag_bytes"] == 0
            loader.send_signal(signal.SIGTERM)
            assert loader.wait(60) == 0, "".join(told) + loader.stderr.read()
        finally:
            if loader.poll() is None:
                loader.kill()
        loader.stderr.read()
    assert jobs.count() == (200, 200)


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
    status, _, err = jobs.run("load.py")
    assert status == 0, err
    file = jobs.warehouse.parent / "report.json"
    status, out, _ = jobs.run("report.py", "--json", str(file))
    assert status == 0, out
    assert "10,000" in out
    told = json.loads(file.read_text())
    answer = subprocess.run(
        ["awk", AWK, str(SAMPLE_LOG)],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    rows = [line.split("\t") for line in answer.stdout.decode().splitlines()]
    hours = sorted(row[1:] for row in rows if row[0] == "hour")
    names = ("page_views", "visitors", "bytes", "errors")
    assert [[h["hour"], *(str(h[name]) for name in names)] for h in told["hours"]] == hours
    paths = sorted((-int(row[2]), row[1].encode()) for row in rows if row[0] == "path")
    assert [(-p["page_views"], p["path"].encode()) for p in told["top_paths"]] == paths[:20]
