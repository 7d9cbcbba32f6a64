"""A load that is larger than any process's memory: `make test-large-load [SIZE_MB=5000] [STORE=1]`.

Two executors of 1 GB (Spark's local-cluster), a driver of 512 MB, and an executor that is killed
after the first commit. Every message is then one row, counted by DuckDB from the table's files.
With STORE=1 the table is in the object store of docker-compose.yml, which is killed STORE_KILLS
times, each after a commit. A load that it was away for too long is run again.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from kafka2011.events import codec
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from kafka2011.runtime.storage_paths import ObjectPath, StoragePath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load_commits import read_commits
from kafka2011.services.warehouse.session import CONF_DIR
from tests import ROOT
from tests.support.brokers import start_broker
from tests.support.ceph import BUCKET, CephStore, ceph_store
from tests.support.waiting import wait_until
from tests.unit.services.warehouse.samples import access_log_event

SIZE_MB = int(os.environ.get("LARGE_LOAD_MB", "0"))
STEP_BYTES = 32 * 1024 * 1024  # of each partition in a commit, so that there are several
SET_MESSAGES = 2000
IN_STORE = bool(os.environ.get("LARGE_LOAD_STORE"))
STORE_KILLS = 3
RUNS_MAX = 2 + STORE_KILLS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(0),
    pytest.mark.skipif(SIZE_MB == 0, reason="a large load: make test-large-load"),
]


def send(zk_connect: str, size_bytes: int) -> int:
    """Events of which each has its own guid; returns how many."""
    whole = codec.encode(ACCESS_LOG, access_log_event(1, agent="a browser " * 10))
    head, tail = whole[:17], whole[33:]  # the guid stands in between
    count = size_bytes // len(whole)
    with Producer(zk_connect=zk_connect) as producer:
        for start in range(0, count, SET_MESSAGES):
            numbers = range(start, min(count, start + SET_MESSAGES))
            entries = message_set.encode([head + n.to_bytes(16, "big") + tail for n in numbers])
            broker, partition = divmod(start // SET_MESSAGES % 4, 2)
            producer.send_set(ACCESS_LOG, entries, broker_id=11 + broker, partition=partition)
        producer.flush(600_000)
    return count


def executors(driver_pid: int) -> list[int]:
    """The executors' JVMs under the driver."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            group = os.getpgid(int(entry.name))
        except OSError:
            continue
        if (
            group == driver_pid
            and b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words
        ):
            found.append(int(entry.name))
    return found


@pytest.fixture
def store() -> Iterator[CephStore | None]:
    """The object store, where the table is to be in one."""
    if not IN_STORE:
        yield None
        return
    with ceph_store() as served:
        yield served


def test_more_than_fits_anywhere_is_loaded_although_executor_and_store_die(
    tmp_path: Path, zk_connect: str, store: CephStore | None
) -> None:
    warehouse: StoragePath = ObjectPath(BUCKET, "large") if store else tmp_path / "warehouse"
    table_path = warehouse / "access_log"
    with (
        start_broker(tmp_path, 11, zk_connect, num_partitions=2),
        start_broker(tmp_path, 12, zk_connect, num_partitions=2),
    ):
        count = send(zk_connect, SIZE_MB * 1_000_000)
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", "local-cluster[2,1,1024]", "--driver-memory", "512m"),
            *("--conf", "spark.executor.memory=1024m"),
            *(str(ROOT / "spark-jobs" / "load.py"), "--set", f"zk.connect={zk_connect}"),
            *("--set", f"warehouse.dir={warehouse}", "--set", "event.forms=*:2011"),
            *("--set", f"load.partition.bytes.max={STEP_BYTES}"),
        ]
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("KAFKA2011_")},
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(CONF_DIR),
        }
        output = tmp_path / "load.log"
        load = _started(command, environment, output)
        began = time.monotonic()
        try:
            _wait_for_commits(table_path, 1, load, output)
            assert load.poll() is None, output.read_text()
            victim = wait_until(lambda: executors(load.pid), "an executor")[0]
            os.kill(victim, signal.SIGKILL)
            for number in range(STORE_KILLS if store else 0):
                assert store is not None
                _wait_for_commits(table_path, 2 + number, load, output)
                store.kill()
                store.start()
                store.wait_until_serving()
            runs = 1
            while load.wait() != 0:
                assert store is not None, output.read_text()
                assert runs < RUNS_MAX, output.read_text()
                runs += 1
                load = _started(command, environment, output)
            print(f"{count} messages in {time.monotonic() - began:.0f} s, {runs} runs of the load")
        finally:
            if load.poll() is None:
                os.killpg(load.pid, signal.SIGKILL)
                load.wait()
    table = WarehouseTable.open(table_path)
    assert table is not None
    rows = f"read_parquet({table.file_paths()!r})"
    with duckdb.connect() as connection:
        if store:
            stored = storage.dataset(table.file_paths(), table.schema(), table.path)
            connection.register("stored", stored)
            rows = "stored"
        told = connection.sql(
            f"select count(*), count(distinct guid), min(guid), max(guid) from {rows}"
        ).fetchall()
    last = (count - 1).to_bytes(16, "big")
    assert told == [(count, count, bytes(16), last)]
    assert sum(info.rows for info in read_commits(table_path)) == count


def _started(
    command: list[str], environment: dict[str, str], output: Path
) -> subprocess.Popen[bytes]:
    with output.open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=output.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # its executors are in its process group
        )


def _wait_for_commits(
    table: StoragePath, count: int, load: subprocess.Popen[bytes], output: Path
) -> None:
    """Until there are so many, or the load has ended."""

    def is_there() -> bool:
        with contextlib.suppress(OSError):
            return len(read_commits(table)) >= count or load.poll() is not None
        return False

    wait_until(is_there, lambda: f"commit {count}:\n{output.read_text()}", 1800)
