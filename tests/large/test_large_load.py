"""A load that is larger than any process's memory: `make test-large-load [SIZE_MB=5000]`.

Two executors of 1 GB (Spark's local-cluster), a driver of 512 MB, and an executor that is killed
after the first commit. Every message is then one row, counted by DuckDB from the table's files.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from kafka2011.events import codec
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from kafka2011.services.warehouse.delta_table import WarehouseTable, read_commits
from kafka2011.services.warehouse.session import CONF_DIR
from tests import ROOT
from tests.support.brokers import start_broker
from tests.support.waiting import wait_until
from tests.unit.services.warehouse.samples import access_log_event

SIZE_MB = int(os.environ.get("LARGE_LOAD_MB", "0"))
STEP_BYTES = 32 * 1024 * 1024  # of each partition in a commit, so that there are several
SET_MESSAGES = 2000

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


def test_more_than_fits_anywhere_is_loaded_although_an_executor_dies(
    tmp_path: Path, zk_connect: str
) -> None:
    warehouse = tmp_path / "warehouse"
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
        with output.open("wb") as log:
            load = subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # its executors are in its process group
            )
        try:
            wait_until(
                lambda: read_commits(warehouse / "access_log") or load.poll() is not None,
                lambda: f"the first commit:\n{output.read_text()}",
                600,
            )
            assert load.poll() is None, output.read_text()
            victim = wait_until(lambda: executors(load.pid), "an executor")[0]
            os.kill(victim, signal.SIGKILL)
            assert load.wait() == 0, output.read_text()
        finally:
            if load.poll() is None:
                os.killpg(load.pid, signal.SIGKILL)
    table = WarehouseTable.open(warehouse / "access_log")
    assert table is not None
    told = duckdb.sql(
        "select count(*), count(distinct guid), min(guid), max(guid) "
        f"from read_parquet({table.file_paths()!r})"
    ).fetchall()
    last = (count - 1).to_bytes(16, "big")
    assert told == [(count, count, bytes(16), last)]
    assert sum(info.rows for info in read_commits(warehouse / "access_log")) == count
