"""Reading the warehouse's commits: every load once, whatever happens to the table's log."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.events.topics import PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.readers.warehouse_reader import WarehouseReader
from kafka2011.services.audit.recount import warehouse_rows as tables
from kafka2011.services.warehouse.delta_table import Load, LoadedRange, WarehouseTable
from kafka2011.services.warehouse.load.columns import EventColumns, with_source
from kafka2011.services.warehouse.load.parquet_files import HourFiles
from tests.support.clock import ManualClock
from tests.unit.services.audit.samples import SERVER, T0, WINDOW_MS, event

SOURCE = BrokerPartition(11, 0)
CELL = CellKey(PAGE_VIEW, T0, SERVER)


class Warehouse:
    """A table of page views, loaded commit by commit, and its reader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "page_view"
        self.columns = EventColumns(PAGE_VIEW)
        self.table = WarehouseTable.open_or_create(self.path, self.columns.table_schema, "views")
        self.offset = 0
        self.clock = ManualClock(T0)
        self.state = AuditState(("warehouse",), WINDOW_MS, self.clock)
        self.reader = self.new_reader()

    def new_reader(self) -> WarehouseReader:
        return WarehouseReader(self.state, self.root, clock=self.clock, poll_interval_ms=10)

    def load(self, *numbers: int, quarantined: int = 0) -> None:
        payloads = [event(number, T0 + number) for number in numbers]
        schema = self.columns.table_schema
        files = HourFiles(self.path, schema.remove(schema.get_field_index("hour")), ("event_time",))
        decoded = self.columns.decode(payloads)
        size = len(message_set.encode(payloads)) + 1
        files.add(with_source(decoded.batch, *SOURCE, [self.offset + size] * len(payloads)))
        start = self.offset or None
        self.offset += size
        self.table.commit(
            Load(
                PAGE_VIEW,
                [LoadedRange(SOURCE, start, start or 0, self.offset)],
                files.finish(),
                {(T0, SERVER): len(numbers)} if numbers else {},
                WINDOW_MS,
                {(T0, SERVER): quarantined} if quarantined else {},
            )
        )

    def counted(self) -> int:
        cell = self.state.cells().get(CELL)
        return cell.counted[0] if cell else 0


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


def test_each_load_is_counted_once(warehouse: Warehouse) -> None:
    warehouse.load(1, 2, 3)
    assert warehouse.reader.poll() == 1
    assert warehouse.reader.poll() == 0
    warehouse.load(4)
    warehouse.load(5, 6)
    assert warehouse.new_reader().poll() == 2  # another process with the same books
    assert warehouse.counted() == 6


def test_nothing_loaded_yet_is_no_fault(tmp_path: Path) -> None:
    state = AuditState(("warehouse",), WINDOW_MS, ManualClock())
    reader = WarehouseReader(state, tmp_path / "no", clock=ManualClock(), poll_interval_ms=10)
    assert reader.poll() == 0


def test_messages_in_quarantine_have_arrived_and_are_noted(warehouse: Warehouse) -> None:
    warehouse.load(1, quarantined=2)
    warehouse.reader.poll()
    assert warehouse.counted() == 3
    assert any("2 messages in quarantine" in note for note in warehouse.state.notes())


def test_delays_are_from_the_header_time_to_the_commit(warehouse: Warehouse) -> None:
    warehouse.load(1, 2, 3)
    warehouse.reader.poll()
    summary = warehouse.state.delays["warehouse"].summary()
    committed_ms = DeltaTable(str(warehouse.path)).history(1)[0]["timestamp"]
    assert summary.count == 3
    assert summary.p50_ms is not None
    expected_ms = min(committed_ms - T0 - 2, 7 * 24 * 3_600_000)
    assert abs(summary.p50_ms - expected_ms) <= expected_ms // 500


def test_compaction_changes_no_count(warehouse: Warehouse) -> None:
    for number in range(4):
        warehouse.load(number)
    warehouse.reader.poll()
    DeltaTable(str(warehouse.path)).optimize.compact()
    assert warehouse.reader.poll() == 0
    warehouse.table.refresh()
    warehouse.load(9)
    warehouse.reader.poll()
    assert warehouse.counted() == 5
    assert sum(len(rows.guids) for rows in tables.rows_of(warehouse.path)) == 5


def test_versions_that_were_cleaned_up_unread_are_entered_as_unread(warehouse: Warehouse) -> None:
    for number in range(4):
        warehouse.load(number)
    log = warehouse.path / "_delta_log"
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    warehouse.clock.advance(60_000)
    warehouse.reader.poll()
    assert warehouse.counted() == 2
    ((_, unread),) = warehouse.state.progress.unread
    assert (unread.tier, unread.topic, unread.first, unread.last) == (
        "warehouse",
        "page_view",
        0,
        3,
    )
    assert warehouse.reader.poll() == 0


def test_a_table_is_known_by_the_topic_that_was_loaded_into_it(warehouse: Warehouse) -> None:
    warehouse.load(1)
    assert tables.topic_tables(warehouse.root) == [(PAGE_VIEW, warehouse.path)]
    (rows,) = tables.rows_of(warehouse.path)
    assert rows.times_ms == [T0 + 1]
    assert rows.servers == [SERVER]
    assert len(rows.guids[0]) == 16
