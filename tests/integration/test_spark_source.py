"""The data source and SQL inside one Spark session, over a real broker."""

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.coordination import cluster, paths
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load.job import Loader, spark_runner
from kafka2011.services.warehouse.load.topic_tables import table_schema
from kafka2011.services.warehouse.load_commits import read_commits
from kafka2011.services.warehouse.reports.traffic import make_report
from kafka2011.services.warehouse.session import CLASS_ARCHIVE
from kafka2011.services.warehouse.shell.prompt import run_shell
from kafka2011.services.warehouse.shell.results import SqlError, write_answer
from kafka2011.services.warehouse.shell.spark_engine import answer as run_sql
from kafka2011.services.warehouse.shell.sql import Warehouse
from kafka2011.services.warehouse.table_paths import tables_in
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.brokers import RunningBroker, start_broker
from tests.support.waiting import despite_slow_starts, run_query, wait_until
from tests.support.zookeeper import registry_at
from tests.unit.services.warehouse.samples import access_log_payload

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module")
def connect(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connect string of a broker; each test has a topic of its own."""
    found = f"{zookeeper.host}:{zookeeper.port}/source"
    with start_broker(tmp_path_factory.mktemp("source"), 11, found, num_partitions=2):
        yield found


@pytest.fixture
def broker(tmp_path: Path, zk_connect: str) -> Iterator[RunningBroker]:
    """A broker of one test, at `zk_connect`."""
    with start_broker(tmp_path, 11, zk_connect, num_partitions=2) as started:
        yield started


def send(zk_connect: str, numbers: range, topic: str) -> None:
    """Events by turns to both partitions, which a new topic's first sends would not reach."""
    with Producer(zk_connect=zk_connect) as producer:
        for start in range(numbers.start, numbers.stop, 50):
            batch = range(start, min(start + 50, numbers.stop))
            payloads = [access_log_payload(n, path=f"/{n}") for n in batch]
            entries = message_set.encode(payloads)
            producer.send_set(topic, entries, broker_id=11, partition=start // 50 % 2)
        producer.flush()
    await_topic(zk_connect, topic)


def test_a_session_takes_its_classes_from_the_archive(spark: Any) -> None:
    """Which `make prepare` left, for this Java and these jars."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    assert str(CLASS_ARCHIVE) in Path(f"/proc/{jvm}/maps").read_text(encoding="utf-8")


def test_workers_import_the_compiled_modules_of_pyspark(spark: Any) -> None:
    """Those of Spark's zip each worker would compile anew: tasks, and what plans a data source."""

    def origin(_: int) -> str:
        import pyspark

        return pyspark.__file__

    import pyspark

    found = despite_slow_starts(spark.sparkContext.parallelize([0], 1).map(origin).collect)
    assert found == [pyspark.__file__]
    of_data_sources = spark._jvm.java.lang.System.getenv("PYSPARK_DRIVER_PYTHON")
    assert of_data_sources == spark.sparkContext.pythonExec


def await_topic(zk_connect: str, topic: str) -> None:
    """The broker registers a new topic beside answering for it."""
    with registry_at(zk_connect) as registry:
        wait_until(lambda: cluster.partitions_of(registry, topic), "the topic in ZooKeeper")


def source(reader: Any, zk_connect: str, topic: str, **options: str) -> Any:
    """The data frame of `spark.read` or `spark.readStream`."""
    options = {"zk.connect": zk_connect, "topic": topic, **options}
    return despite_slow_starts(reader.format("kafka2011").options(**options).load)


def test_a_topic_is_a_data_frame(spark: Any, connect: str) -> None:

    def read(**options: str) -> list[Any]:
        return despite_slow_starts(source(spark.read, connect, "rows", **options).collect)

    assert read() == []
    send(connect, range(1000), "rows")
    rows = read()
    assert len(rows) == 1000
    assert {bytes(row.payload) for row in rows} == {
        access_log_payload(n, path=f"/{n}") for n in range(1000)
    }
    assert {row.partition for row in rows} == {0, 1}
    by_partition: dict[int, list[Any]] = {0: [], 1: []}
    for row in rows:
        by_partition[row.partition].append(row)
    for part in by_partition.values():
        assert part[0].offset == 0
        assert [row.next_offset for row in part[:-1]] == [row.offset for row in part[1:]]
    # Reading on from where those ended finds only what is new.
    ends = {f"11-{number}": part[-1].next_offset for number, part in by_partition.items()}
    send(connect, range(1000, 1010), "rows")
    assert len(read(startingOffsets=json.dumps({"rows": ends}))) == 10


def test_json_comes_as_columns(spark: Any, connect: str) -> None:
    with Producer(zk_connect=connect) as producer:
        producer.send("sales", [b'{"n":%d,"shop":"a"}' % number for number in range(10)])
        producer.send("sales", [b'{"n":"many"}'])
    await_topic(connect, "sales")
    decoded = {"decode": "true", "event.forms": "*:2011,sales:json"}
    columns = source(spark.read, connect, "sales", **decoded).select("n", "shop", "rest")
    rows = despite_slow_starts(columns.collect)
    assert sum(row.n or 0 for row in rows if row.shop == "a") == 45
    assert [row.rest for row in rows if row.rest] == ['{"n":"many"}']


def test_a_stream_takes_what_was_there_in_limited_batches_and_goes_on_later(
    spark: Any, connect: str, tmp_path: Path
) -> None:
    checkpoint, table = tmp_path / "checkpoint", tmp_path / "out"

    def run_available_now() -> list[int]:
        stream = source(spark.readStream, connect, "batches", maxRowsPerTrigger="100")
        writer = (
            stream.select("partition", "offset", "payload")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .option("path", str(table))
            .trigger(availableNow=True)
        )
        query = run_query(writer.start)
        return [progress.numInputRows for progress in query.recentProgress]

    send(connect, range(250), "batches")
    sizes = run_available_now()
    assert sum(sizes) == 250
    assert max(sizes) <= 100
    send(connect, range(250, 300), "batches")
    assert sum(run_available_now()) == 50
    written = spark.read.parquet(str(table))
    assert written.count() == written.distinct().count() == 300


def test_a_stream_waits_for_a_broker_that_is_started_again(
    spark: Any, zk_connect: str, broker: RunningBroker, tmp_path: Path
) -> None:
    send(zk_connect, range(10), "waited")
    stream = source(spark.readStream, zk_connect, "waited")
    query: Any = None

    def seen() -> int:
        if query.exception() is not None:
            raise query.exception()
        count: int = spark.sql("select payload from seen").count()
        return count

    def start() -> None:
        nonlocal query
        query = stream.writeStream.format("memory").queryName("seen").start()
        wait_until(lambda: seen() == 10, "the first ten")

    try:
        despite_slow_starts(start)
        port = broker.port
        assert broker.stop() == 0
        with start_broker(tmp_path, 11, zk_connect, port=port, num_partitions=2):
            send(zk_connect, range(10, 20), "waited")
            wait_until(lambda: seen() == 20, "all twenty")
        assert query.exception() is None
    finally:
        query.stop()


def test_a_report_on_a_table_without_rows_is_all_zeros(spark: Any, tmp_path: Path) -> None:
    WarehouseTable.open_or_create(tmp_path / "access_log", table_schema(ACCESS_LOG), "empty")
    report = make_report(spark, tmp_path, "access_log")
    assert (report.totals.page_views, report.rows) == (0, 0)
    assert (report.hours, report.top_paths) == ([], [])


def test_sql_over_the_warehouse_and_over_raw_topics(
    spark: Any,
    zk_connect: str,
    broker: RunningBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    send(zk_connect, range(100), ACCESS_LOG)
    with Producer(zk_connect=zk_connect) as producer:
        producer.send(ACCESS_LOG, b"junk")
        producer.flush()
    warehouse = tmp_path / "warehouse"
    config = WarehouseConfig(zk_connect=zk_connect, warehouse_dir=warehouse, event_forms=FORMS_2011)
    with (
        registry_at(zk_connect) as registry,
        contextlib.closing(Loader(config, registry, spark_runner(spark), 2)) as loader,
    ):
        outcome = loader.load()
    assert (outcome.rows, outcome.quarantined) == ({ACCESS_LOG: 100}, {ACCESS_LOG: 1})
    assert read_commits(warehouse / "access_log")[0].rows == 100
    assert set(tables_in(warehouse)) == {"access_log", "quarantine_access_log"}

    notices: list[str] = []

    def answer(statement: str, form: str) -> str:
        out = io.StringIO()
        tables = Warehouse(warehouse).named_in(statement)
        source = {"zk.connect": zk_connect}
        notices.clear()
        found = despite_slow_starts(
            lambda: run_sql(spark, statement, tables, source, notices.append)
        )
        write_answer(found, form, out)
        return out.getvalue()

    assert answer("select count(*) from access_log", "csv") == "count(1)\n100\n"
    assert json.loads(
        answer("select path, status, event_time from access_log where path = '/7'", "json")
    ) == [{"path": "/7", "status": 200, "event_time": "2015-05-17 10:05:10"}]
    assert "junk" in answer("select cast(payload as string) p from quarantine_access_log", "table")
    assert answer("select count(*) n from raw_access_log where schema_id is null", "csv") == (
        "n\n1\n"
    )
    assert not notices
    with registry_at(zk_connect) as registry:
        registry.put(paths.process_path("live", "broker-9"), b'{"kind": "broker"}')
    assert answer("select count(*) n from raw_access_log", "csv") == "n\n101\n"
    assert set(notices) == {
        "raw_access_log leaves out what only broker-9 can have, not registered now"
    }
    with pytest.raises(SqlError, match="nowhere"):
        answer("select * from nowhere", "csv")
    # SQL does not tell the case of names; a topic that is not there has no messages to count.
    with Producer(zk_connect=zk_connect) as producer:
        producer.send("MyTopic", [b"x", b"y"])
        producer.flush()
    with registry_at(zk_connect) as registry:
        wait_until(lambda: cluster.partitions_of(registry, "MyTopic"), "the topic in ZooKeeper")
    for name in ("raw_MyTopic", "raw_mytopic"):
        assert answer(f"select count(*) n, 1 as raw_one from {name}", "csv") == "n,raw_one\n2,1\n"
    with pytest.raises(SqlError, match="raw_acess_log"):
        answer("select count(*) from raw_acess_log", "csv")
    with registry_at(zk_connect) as registry:
        registry.put(paths.topic_path("gone-away"), b"")
    with pytest.raises(SqlError, match="no live broker has topic gone-away"):
        answer("select count(*) from raw_gone_away", "csv")

    # The same from the prompt of `kafka2011 pyspark`.
    statements = (
        "print(spark.sql('select count(*) from access_log').first()[0])\n"
        "print(topic('access-log', columns='offset').count())\n"
    )
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patched:
        for prompt in ("ps1", "ps2"):
            patched.setattr(sys, prompt, "", raising=False)
        patched.setattr(sys, "stdin", io.StringIO(statements))
        run_shell(spark, warehouse, {"zk.connect": zk_connect})
    assert capsys.readouterr().out.split() == ["100", "101"]
