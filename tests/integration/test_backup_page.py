"""The commands of docs/backup.md, as they stand there but for the address."""

import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kafka2011.consumer import Consumer
from kafka2011.coordination.paths import BrokerPartition, offset_path
from kafka2011.producer import Producer
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests import ROOT
from tests.support.brokers import start_broker
from tests.support.commands import execute
from tests.support.zookeeper import registry_at, start_zookeeper

pytestmark = pytest.mark.integration

ENTRY = 17  # bytes of a message of 7 in the log
SENT, CONSUMED = 20, 6
OFFSET = offset_path("readers", "orders", BrokerPartition(1, 0))
DATABASES = ("audit/audit.sqlite", "registry/registry.sqlite")


def run_block(number: int, directory: Path, zk_connect: str = "") -> None:
    """Runs one of the page's blocks with the shell, in `directory`; any line that fails ends it."""
    text = (ROOT / "docs" / "backup.md").read_text(encoding="utf-8")
    script = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[number]
    script = script.replace("localhost:2181", zk_connect)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    execute(["sh", "-ec", f"cd '{directory}'; {script}"], variables={"PATH": path})


def read(connect: str, count: int) -> list[bytes]:
    with Consumer(group_id="readers", zk_connect=connect, consumer_timeout_ms=120_000) as consumer:
        [stream] = consumer.create_message_streams("orders", 1)
        return [next(stream).payload for _ in range(count)]


def address(zookeeper: ZooKeeperServer) -> str:
    return f"{zookeeper.host}:{zookeeper.port}"


def test_a_copy_of_running_processes_brings_back_what_was_there(
    tmp_path: Path, zk_connect: str
) -> None:
    original, copy = tmp_path / "var", tmp_path / "backup"
    payloads = [b"order%02d" % number for number in range(SENT)]
    for name in ("warehouse/orders/_delta_log/0.json", "warehouse/orders/0.parquet"):
        (original / name).parent.mkdir(parents=True, exist_ok=True)
        (original / name).write_text(name)
    for name in ("frontend-1/journal", "broker-11/logs/.kafka2011_lock", "run/restarts.json"):
        (original / name).parent.mkdir(parents=True)
        (original / name).write_text(name)
    open_files = []
    for name in DATABASES:
        (original / name).parent.mkdir()
        open_files.append(sqlite3.connect(original / name))
        open_files[-1].execute("PRAGMA journal_mode=wal")
        open_files[-1].execute("CREATE TABLE names (name)")
        open_files[-1].execute("INSERT INTO names VALUES (?)", (name,))
        open_files[-1].commit()  # it is in the -wal file alone
    logs = "broker-1/logs"
    with (
        start_zookeeper(original / "zookeeper-live/data") as zookeeper,
        start_broker(
            tmp_path, 1, address(zookeeper), log_dir=original / logs, hostname="127.0.0.1"
        ),
    ):
        with Producer(zk_connect=address(zookeeper)) as producer:
            producer.send("orders", payloads)
        assert read(address(zookeeper), CONSUMED) == payloads[:CONSUMED]
        run_block(0, tmp_path)
        run_block(1, tmp_path, address(zookeeper))
    for opened in open_files:
        opened.close()
    for name in DATABASES:
        with closing(sqlite3.connect(copy / name)) as copied:
            assert copied.execute("SELECT name FROM names").fetchall() == [(name,)]
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert {"warehouse/orders/_delta_log/0.json", "warehouse/orders/0.parquet"} <= names
    assert {"frontend-1/journal", "run/restarts.json"} <= names
    assert not [name for name in names if "/.kafka" in name]
    # As when the copy was made in the middle of a write: the piece of an entry is cut off.
    segment = copy / logs / "orders-0" / f"{0:020}.kafka"
    os.truncate(segment, SENT * ENTRY - 3)
    with (
        start_zookeeper(copy / "zookeeper-live/data") as zookeeper,
        start_broker(tmp_path, 1, address(zookeeper), log_dir=copy / logs),
    ):
        assert read(address(zookeeper), SENT - 1 - CONSUMED) == payloads[CONSUMED:-1]
    with registry_at(zk_connect) as registry:  # another cluster, without the group
        run_block(2, tmp_path, zk_connect)
        stored = registry.get(OFFSET)
    assert stored is not None
    assert stored[0] == b"%d" % (CONSUMED * ENTRY)
