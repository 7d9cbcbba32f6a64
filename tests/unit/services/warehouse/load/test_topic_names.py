"""Topics whose names could lead to another's table: each has its own, and older ones stay."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.audit.recount import warehouse_rows
from kafka2011.services.warehouse.delta_table import WarehouseTable, owner_of
from kafka2011.services.warehouse.load.parquet_files import HourFiles
from kafka2011.services.warehouse.load.tasks import QUARANTINE_SCHEMA
from kafka2011.services.warehouse.load.topic_tables import table_schema
from kafka2011.services.warehouse.load_commits import Load, LoadedRange
from kafka2011.services.warehouse.table_paths import (
    QUARANTINE,
    QUARANTINE_BEFORE,
    TablePlaces,
    unique_name,
)
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_warehouse
from tests.unit.services.warehouse.load.deployment import FIRST, Deployment
from tests.unit.services.warehouse.samples import WINDOW_MS

NOW = UpkeepPolicy(files_min=2, vacuum_hours=0)  # removes at once what no version names
ASIDE = (-1, "unreadable-header")


def aside(deployment: Deployment, topic: str) -> list[bytes]:
    """The payloads in the topic's quarantine."""
    path = TablePlaces(deployment.warehouse).quarantine(topic)
    return deployment.quarantined(path.name) if path.parent.name == QUARANTINE else []


def partitions(path: Path, topic: str) -> dict[BrokerPartition, int]:
    table = WarehouseTable.open(path)
    assert table is not None
    return table.known_partitions(topic)


HOSTILE = [
    *("quarantine", "quarantine-tables", "quarantine_access_log", "_delta_log", "a-b", "a_b"),
    *("A-b", "a.b", "schemas.json", "access_log", "Access-Log", "hour=2015-05-17-10", "é" * 200),
]


def test_upkeep_leaves_each_topics_messages_whatever_its_name_is(deployment: Deployment) -> None:
    deployment.append(range(3), b"junk")
    for topic in HOSTILE:
        deployment.add_partition(topic, topic.encode())
    loader = deployment.loader()
    assert loader.load().failures == []
    for topic in HOSTILE:
        deployment.add_partition(topic, topic.encode() * 2)
    assert loader.load().failures == []
    for _ in range(2):
        maintain_warehouse(deployment.warehouse, NOW)
        assert deployment.numbers() == [*range(3)]
        assert deployment.quarantined() == [b"junk"]
        for topic in HOSTILE:
            assert aside(deployment, topic) == [topic.encode(), topic.encode() * 2]
    assert deployment.load().versions == {}  # a new process finds them, too
    counted = [table.topic for table in warehouse_rows.quarantine_tables(deployment.warehouse)]
    assert counted == sorted([*HOSTILE, "access-log"])


def test_two_loaders_that_choose_one_name_make_two_tables(deployment: Deployment) -> None:
    first, second = (deployment.loader(topics=frozenset([topic])) for topic in ("a-b", "a_b"))
    second_run, second._run_tasks = second._run_tasks, lambda function, tasks: []
    deployment.add_partition("a_b", b"two")
    second.load()  # has chosen
    second._run_tasks = second_run
    deployment.add_partition("a-b", b"one")
    assert first.load().failures == []
    (failure,) = second.load().failures
    assert "has become the table of topic a-b" in failure
    assert second.load().failures == []
    assert (aside(deployment, "a-b"), aside(deployment, "a_b")) == ([b"one"], [b"two"])
    assert len([*deployment.warehouse.rglob("*.parquet")]) == 2


def test_a_table_that_cannot_be_opened_stops_only_its_own_topic(deployment: Deployment) -> None:
    deployment.add_partition("damaged", b"one")
    deployment.append(range(3))
    log = deployment.warehouse / "damaged" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"commitInfo": {}}\n')
    for _ in range(2):
        maintain_warehouse(deployment.warehouse, NOW)
        (failure,) = deployment.load().failures
        assert failure.startswith("damaged: ")
    assert deployment.numbers() == [*range(3)]


# --- warehouses of before -------------------------------------------------------------------------


def test_older_quarantine_tables_are_used_on_where_they_are(deployment: Deployment) -> None:
    deployment.append(range(2), b"junk 1")
    deployment.load()
    older = deployment.warehouse / QUARANTINE_BEFORE
    (deployment.warehouse / QUARANTINE).rename(older)
    deployment.append(range(2, 4), b"junk 2")
    assert deployment.load().failures == []
    assert not (deployment.warehouse / QUARANTINE).exists()
    found = deployment.select("payload", f"{QUARANTINE_BEFORE}/access_log")
    assert found == [(b"junk 1",), (b"junk 2",)]
    ((topic, path),) = warehouse_rows.quarantine_tables(deployment.warehouse)
    assert (topic, path) == ("access-log", older / "access_log")


def test_a_table_that_holds_others_is_not_vacuumed(deployment: Deployment) -> None:
    """As a version before left them: the table of topic `quarantine` around the quarantine's."""
    deployment.add_partition("quarantine", b"x")
    deployment.append(range(2), b"junk")
    deployment.load()
    older = deployment.warehouse / QUARANTINE_BEFORE
    (deployment.warehouse / unique_name("quarantine")).rename(older)
    shutil.move(deployment.warehouse / QUARANTINE / "access_log", older)
    maintain_warehouse(deployment.warehouse, NOW)
    assert deployment.select("payload", "quarantine/access_log") == [(b"junk",)]
    deployment.add_partition("quarantine", b"y")
    assert deployment.load().failures == []
    assert partitions(older, "quarantine") != {}
    assert not (deployment.warehouse / unique_name("quarantine")).exists()


def shared_by(deployment: Deployment, first: str, second: str) -> dict[str, int]:
    """Tables of rows and quarantine into which an older version loaded both topics; returns the
    next offset of each."""
    ends = {}
    for parent in (deployment.warehouse, deployment.warehouse / QUARANTINE_BEFORE):
        path = parent / "a_b"
        is_rows = parent == deployment.warehouse
        schema = table_schema(first) if is_rows else QUARANTINE_SCHEMA
        text = f"messages of topic {first} that could not become rows"
        table = WarehouseTable.open_or_create(
            path, schema, f"events of topic {first}" if is_rows else text
        )
        for topic in (first, second):
            broker = deployment.brokers[FIRST.broker_id]
            ends[topic] = len(broker.logs[topic, FIRST.partition])
            part = LoadedRange(FIRST, None, 0, ends[topic])
            files = []
            if not is_rows:
                fields = schema.remove(schema.get_field_index("hour"))
                made = HourFiles(path, ("quarantined_at",))
                row = {"reason": "r", "payload": topic.encode(), "quarantined_at": 0}
                made.add(
                    pa.RecordBatch.from_pylist(
                        [{**row, "source_broker": 11, "source_partition": 0, "source_offset": 9}],
                        schema=fields,
                    )
                )
                files = made.finish()
            table.commit(Load(topic, [part], files, {}, WINDOW_MS, {ASIDE: 1}))
    return ends


@pytest.mark.parametrize("first", ["a-b", "a_b"])
def test_a_topic_leaves_a_shared_table_with_its_offsets_and_is_loaded_once(
    deployment: Deployment, first: str
) -> None:
    second = "a_b" if first == "a-b" else "a-b"
    for topic in (first, second):
        deployment.add_partition(topic, topic.encode())
    ends = shared_by(deployment, first, second)
    shared = deployment.warehouse / "a_b"
    assert owner_of(shared) == first
    assert deployment.load().rows == {}
    for topic in (first, second):
        deployment.add_partition(topic, topic.encode() * 2)
    outcome = deployment.load()
    assert (outcome.problems, outcome.failures) == ([], [])
    assert outcome.quarantined == {first: 1, second: 1}
    offset_of = warehouse_rows.loaded_offsets(deployment.warehouse)
    own = deployment.warehouse / unique_name(second)
    for topic, path in ((first, shared), (second, own)):
        assert partitions(path, topic)[FIRST] > ends[topic]
        assert offset_of(topic, FIRST) == partitions(path, topic)[FIRST]
    assert partitions(shared, second)[FIRST] == ends[second]
    assert counted(deployment) == {topic: [topic.encode(), topic.encode() * 2] for topic in ends}


def counted(deployment: Deployment) -> dict[str, list[bytes]]:
    """The quarantined payloads, as the recount reads them."""
    tables = warehouse_rows.quarantine_tables(deployment.warehouse)
    shared = warehouse_rows.shared_files(tables)
    found: dict[str, list[bytes]] = {}
    for topic, path in tables:
        topics = shared.get(path, {})
        files = {file for file, owner in topics.items() if owner == topic}
        for payloads in warehouse_rows.quarantined_of(path, files if topics else None):
            found.setdefault(topic, []).extend(payloads)
    return {topic: sorted(payloads, key=len) for topic, payloads in found.items()}
