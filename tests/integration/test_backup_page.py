"""The commands of docs/backup.md, as they stand there but for the address."""

import os
import re
import shutil
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


REPLICA = "machine-1/broker-2/logs"

# In place of `tar`: whenever 10 KiB of a table's log are copied, a load makes its two commits, and
# a checkpoint behind each. A log is listed by name, so that what a checkpoint changes comes last.
TAR = """#!/bin/sh
case "$*" in
    *-cf*-T*|*-cf*_delta_log*)
        set -- --sort=name --checkpoint=1 --checkpoint-action=exec="{load}" "$@" ;;
esac
exec {tar} "$@"
"""
LOAD = """#!/bin/sh -e
cd '{warehouse}'
version=$(printf %020d $(ls orders/_delta_log | grep -c json))
for log in quarantine-tables/orders/_delta_log orders/_delta_log; do
    cp $log/{first}.json $log/$version.json
    touch $log/$version.checkpoint.parquet
    echo $version > $log/_last_checkpoint
done
"""


def make_tables(original: Path, commands: Path) -> None:
    """Two tables with a commit of 30 KB each, which a load adds to while they are copied."""
    first = f"{0:020}"
    for name in ("orders", "quarantine-tables/orders"):
        log = original / "warehouse" / name / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{first}.json").write_text(" " * 30_000)
        (log / f"{first}.checkpoint.parquet").touch()
        (log / "_last_checkpoint").write_text(first)
        (log.parent / "0.parquet").touch()
    load = commands / "load"
    scripts = {
        load: LOAD.format(warehouse=original / "warehouse", first=first),
        commands / "tar": TAR.format(load=load, tar=shutil.which("tar")),
    }
    commands.mkdir()
    for path, text in scripts.items():
        path.write_text(text)
        path.chmod(0o755)


def newest_commit(log: Path) -> int:
    """The newest version of the copied table, whose log is whole."""
    versions = sorted(int(path.stem) for path in log.glob("*.json"))
    assert versions == [*range(len(versions))]
    checkpoint = (log / "_last_checkpoint").read_text().strip()
    assert (log / f"{checkpoint}.checkpoint.parquet").exists()
    return versions[-1]


def run_block(
    number: int, directory: Path, zk_connect: str = "", commands: Path | None = None
) -> None:
    """Runs one of the page's blocks with the shell, in `directory`; any line that fails ends it.
    Commands in `commands` win over the system's."""
    text = (ROOT / "docs" / "backup.md").read_text(encoding="utf-8")
    script = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[number]
    script = script.replace("localhost:2181", zk_connect)
    path = f"{commands or ''}:{Path(sys.executable).parent}:{os.environ['PATH']}".lstrip(":")
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
    make_tables(original, tmp_path / "commands")
    kept = {f"{REPLICA}/.kafka2011_{mark}" for mark in ("flushed", "replica")}
    for name in (
        *("frontend-1/journal", "broker-11/logs/.kafka2011_flushed", "run/restarts.json"),
        ".kafka2011",  # how it was started: by this the start of a copy is checked
        *(*kept, f"{REPLICA}/.kafka2011_lock", f"{REPLICA}/orders-0/0.kafka"),
    ):
        (original / name).parent.mkdir(parents=True, exist_ok=True)
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
        run_block(0, tmp_path, commands=tmp_path / "commands")
        run_block(1, tmp_path, address(zookeeper))
    for opened in open_files:
        opened.close()
    for name in DATABASES:
        with closing(sqlite3.connect(copy / name)) as copied:
            assert copied.execute("SELECT name FROM names").fetchall() == [(name,)]
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert {"frontend-1/journal", "run/restarts.json", f"{REPLICA}/orders-0/0.kafka"} <= names
    assert ".kafka2011" in names
    assert {name for name in names if "/.kafka" in name} == kept
    # What a load quarantines is never behind the rows that its offsets have passed.
    tables = copy / "warehouse"
    assert {"warehouse/orders/0.parquet", "warehouse/quarantine-tables/orders/0.parquet"} <= names
    aside = newest_commit(tables / "quarantine-tables" / "orders" / "_delta_log")
    assert 0 < newest_commit(tables / "orders" / "_delta_log") <= aside
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
