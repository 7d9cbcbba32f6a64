"""The warehouse in an object store: loaders race and are killed, and so is the store. Then Spark
reads it, and the commands of docs/warehouse.md do."""

import contextlib
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.producer import Producer
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load.job import Loader, spark_runner
from kafka2011.services.warehouse.load_commits import read_commits
from kafka2011.services.warehouse.reports.traffic import make_report
from kafka2011.services.warehouse.shell.spark_engine import answer
from kafka2011.services.warehouse.shell.sql import Warehouse
from tests import ROOT
from tests.support.clusters import Cluster
from tests.support.commands import RunningProcess, children_of, held_port
from tests.support.kubernetes_api import POD_IP, KubernetesApi, kubernetes_api
from tests.support.object_store import BUCKET, environment
from tests.support.waiting import wait_until
from tests.support.zookeeper import registry_at
from tests.unit.services.warehouse.samples import access_log_payload

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1200)]

WAREHOUSE = ObjectPath(BUCKET, "tables")


class Store:
    """The store as a process on a port of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = held_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "tests.support.object_store"]
        words += [str(self._directory / "objects"), str(self.port)]
        self.process = RunningProcess(words, self._directory / "store.log")

    def kill(self) -> None:
        self.process.kill()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    made = Store(tmp_path / "store")
    for name, value in environment(made.url).items():
        monkeypatch.setenv(name, value)
    wait_until(_answers, "the store answers")
    yield made
    made.kill()


def _answers() -> bool:
    try:
        return not WAREHOUSE.exists()
    except OSError:
        return False


def outcomes(loader: RunningProcess) -> list[dict[str, Any]]:
    """What its loads that did anything came to."""
    lines = loader.log().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith('{"rows"') and line[-1] == "\n"]


def test_racing_and_killed_loaders_lose_and_double_nothing_and_spark_reads_it(
    *,
    tmp_path: Path,
    zk_connect: str,
    store: Store,
    spark: Any,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {
        "KAFKA2011_ZK_CONNECT": zk_connect,
        "KAFKA2011_WAREHOUSE_DIR": str(WAREHOUSE),
        "KAFKA2011_AUDIT_WINDOW_MS": "10000",
        "KAFKA2011_EVENT_FORMS": "*:2011",
        "KAFKA2011_LOAD_PARTITION_BYTES_MAX": "5000",  # many commits, so that they meet
    }

    def loader(name: str) -> RunningProcess:
        words = [sys.executable, "-m", "tests.support.loader_process"]
        return RunningProcess(words, tmp_path / f"{name}.log", variables=variables)

    table = WAREHOUSE / "access_log"
    sent = 0
    with (
        Cluster(zk_connect, tmp_path / "brokers", [11, 12]),
        Producer(zk_connect=zk_connect) as producer,
    ):

        def send(count: int) -> bool:
            nonlocal sent
            for number in range(sent, sent + count):
                producer.send(ACCESS_LOG, access_log_payload(number, path=f"/{number}"))
            sent += count
            producer.flush()
            return True

        send(100)
        one, other = loader("one"), loader("other")
        try:
            wait_until(
                lambda: (
                    any(o["lost"] for each in (one, other) for o in outcomes(each)) or not send(50)
                ),
                "one of the two was first",
            )
            one.kill()
            send(200)
            one = loader("one")
            store.kill()
            store.start()
            wait_until(lambda: outcomes(one), "the new one loads")
            send(200)
            other.kill()
        finally:
            for each in (one, other):
                each.kill()
        send(100)

        # Spark's workers have this session's environment, which was there before the store.
        for name, value in environment(store.url).items():
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        config = WarehouseConfig(
            zk_connect=zk_connect, warehouse_dir=WAREHOUSE, event_forms=FORMS_2011, window_ms=10_000
        )
        with (
            registry_at(zk_connect) as registry,
            contextlib.closing(Loader(config, registry, spark_runner(spark), 2)) as last,
        ):
            assert last.load().rows[ACCESS_LOG] >= 100

    commits = read_commits(table)
    assert sum(commit.rows for commit in commits) == sent
    for source in {source for commit in commits for source in commit.offsets}:
        ends = [commit.offsets[source] for commit in commits if source in commit.offsets]
        assert ends == sorted(set(ends))

    statement = "select count(*) n, count(distinct path) paths, min(status) s from access_log"
    found = answer(spark, statement, Warehouse(WAREHOUSE).named_in(statement))
    assert [tuple(row) for row in found.rows] == [(sent, sent, 200)]
    report = make_report(spark, WAREHOUSE, "access_log")
    assert (report.rows, report.totals.page_views) == (sent, sent)
    spark.catalog.dropTempView("access_log")

    # The page's commands; the load has just been done, on this session.
    page = (ROOT / "docs" / "warehouse.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    check, _, sql = (shlex.split(line)[1:] for line in block.splitlines() if line[:1] == "k")
    assert "8 writers raced 10 times, and one won each" in run(*check).out
    assert str(sent) in run(*sql, "--format", "csv").lines


def test_executors_in_pods_of_their_own_load_into_the_store(
    *, tmp_path: Path, zk_connect: str, store: Store
) -> None:
    """deploy/kubernetes-spark: what its loader says to spark-submit, against a stand-in of the API
    server that makes a process of each pod."""
    rooms = ROOT / "deploy" / "kubernetes-spark"
    [container] = yaml.safe_load((rooms / "loader.yaml").read_text())["spec"]["template"]["spec"][
        "containers"
    ]
    api = KubernetesApi(
        tmp_path,
        secrets={"store": environment(store.url)},
        commands={
            "/opt/kafka2011/spark_executor.py": [
                sys.executable,
                str(ROOT / "deploy" / "docker" / "spark_executor.py"),
            ]
        },
    )
    api.put("pods", {"metadata": {"name": "loader-0"}, "spec": {"containers": [{}]}})
    with (
        Cluster(zk_connect, tmp_path / "brokers", [11, 12]),
        Producer(zk_connect=zk_connect) as producer,
        kubernetes_api(api) as url,
    ):
        for number in range(500):
            producer.send(ACCESS_LOG, access_log_payload(number, path=f"/{number}"))
        producer.flush()
        values = {
            "https://kubernetes.default.svc": url,
            "/opt/kafka2011/kubernetes": str(rooms),
            "/opt/kafka2011": str(ROOT),
            "$(POD_NAMESPACE)": "kafka2011-offline",
            "$(POD_NAME)": "loader-0",
            "$(POD_IP)": POD_IP,
            "$(EXECUTOR_IMAGE)": "kafka2011/spark",
        }
        said_by_file = "\n".join(container["args"])
        for name, value in values.items():
            said_by_file = said_by_file.replace(name, value)
        polls = "--conf=spark.kubernetes.executor.apiPollingInterval=1s"
        words = [polls, *said_by_file.split("\n")]
        variables = {
            "KAFKA2011_ZK_CONNECT": zk_connect,
            "KAFKA2011_WAREHOUSE_DIR": str(WAREHOUSE),
            "KAFKA2011_EVENT_FORMS": "*:2011",
            "KAFKA2011_LOAD_INTERVAL_MS": "500",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        }
        submit = str(Path(sys.executable).parent / "spark-submit")
        table = WAREHOUSE / "access_log"

        def rows() -> int:
            with contextlib.suppress(OSError):
                return sum(commit.rows for commit in read_commits(table))
            return 0

        def said() -> str:
            logs = [path.read_text() for path in sorted(tmp_path.glob("*.log"))]
            return "\n".join([*logs, *map(str, api.requests)])

        with (
            RunningProcess([submit, *words], tmp_path / "load.log", variables=variables) as loader,
            stopped_driver(loader),
        ):
            wait_until(lambda: rows() == 500, said, 600)  # three JVMs start in it
            pods = api.listed("pods", "spark-role=executor")
            assert len(pods) == 2
            api.kill(pods[0]["metadata"]["name"])
            for number in range(500, 1000):
                producer.send(ACCESS_LOG, access_log_payload(number, path=f"/{number}"))
            producer.flush()
            wait_until(lambda: rows() == 1000, said, 300)
            wait_until(lambda: len(api.running("spark-role=executor")) == 2, said, 300)
        wait_until(lambda: not api.running("spark-role=executor"), "executors end with the loader")


@contextlib.contextmanager
def stopped_driver(submit: RunningProcess) -> Iterator[None]:
    """Ends with SIGTERM for the driver, not for spark-submit's JVM, as deploy/docker/spark-submit
    does: a driver that has lost its JVM would wait for the test's ZooKeeper."""
    try:
        yield
    finally:
        for driver in children_of(submit.pid):
            os.kill(driver, signal.SIGTERM)
        assert submit.wait() == 0, submit.log()
