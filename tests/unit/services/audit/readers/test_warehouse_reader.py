"""Reading the warehouse's commits: every load once, whatever happens to the table's log."""

import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.events.forms import FORMS_2011, parse_forms
from kafka2011.events.header import PREFIX_BYTES_2011, UNREADABLE
from kafka2011.events.retention import SLACK_MS
from kafka2011.events.topic_codec import id_prefix
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.services.audit.books.delays import DELAY_MS_MAX
from kafka2011.services.audit.books.persistence import load_books, take_changes
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.readers.warehouse_reader import GAP_CHECK_MS, WarehouseReader
from kafka2011.services.audit.recount import warehouse_rows as tables
from kafka2011.services.audit.recount.counting import RecountPlan, recount
from kafka2011.services.audit.recount.segment_files import LogDirectory
from kafka2011.services.audit.recount.sources import DiskSource
from kafka2011.services.audit.report import Json, unknown_json
from kafka2011.services.audit.summary import AuditSummary
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.errors import DamagedLog
from kafka2011.services.warehouse.load.columns import EventColumns, with_source
from kafka2011.services.warehouse.load.parquet_files import HourFiles
from kafka2011.services.warehouse.load.tasks import QUARANTINE_SCHEMA
from kafka2011.services.warehouse.load_commits import Counts, Load, LoadedRange
from tests.support.clock import ManualClock
from tests.unit.services.audit.samples import (
    SERVER,
    T0,
    WINDOW_MS,
    end_of,
    event,
    report,
    write_log,
)

SOURCE = BrokerPartition(11, 0)


class Warehouse:
    """A table of page views, loaded commit by commit up to the offset `end`, and its reader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "page_view"
        self.columns = EventColumns(PAGE_VIEW)
        self.table = WarehouseTable.open_or_create(self.path, self.columns.table_schema, "views")
        self.end = 0
        self.clock = ManualClock(T0)
        self.state = AuditState(("warehouse",), WINDOW_MS, self.clock)
        self.clock.current_ms = time.time_ns() // 1_000_000 + 3_600_000  # behind all commits
        self.reader = self.new_reader()

    def new_reader(self) -> WarehouseReader:
        return WarehouseReader(self.state, self.root, clock=self.clock, poll_interval_ms=10)

    def load(
        self, *numbers: int, quarantined: int = 0, topic: str = PAGE_VIEW, start_ms: int = T0
    ) -> None:
        """Commit a load of these page views, a message of the log each."""
        files = HourFiles(self.path, ("event_time",))
        decoded = self.columns.decode([event(number, start_ms + number) for number in numbers])
        start, self.end = self.end, self.end + len(numbers)
        files.add(with_source(decoded.batch, *SOURCE, [self.end] * len(numbers)))
        committed = self.table.next_offset(topic, SOURCE)
        ranges = [LoadedRange(SOURCE, committed, start, self.end)]
        counts = {(start_ms, SERVER): len(numbers)}
        bad = {(start_ms, SERVER): quarantined} if quarantined else {}
        self.table.commit(Load(topic, ranges, files.finish(), counts, WINDOW_MS, bad))

    def counted(self) -> int:
        return sum(cell.counted[0] for cell in self.state.cells().values())


class Audited(Warehouse):
    """The same behind a live tier, in books whose windows are `window_ms` wide."""

    def __init__(self, root: Path, window_ms: int = WINDOW_MS) -> None:
        super().__init__(root)
        self.views = PartitionKey("live", PAGE_VIEW, *SOURCE)
        self.reports = PartitionKey("live", AUDIT, *SOURCE)
        self.produced = self.reported = 0
        config = AuditConfig(
            live_zk_connect="live:1", warehouse_dir=root, window_ms=window_ms, lateness_ms=1000
        )
        self.state = AuditState(config.tiers, window_ms, self.clock)
        self.answers = AuditSummary(self.state, config, self.clock)
        self.reader = self.new_reader()
        for key in (self.views, self.reports):
            self.state.begin(key, 0)

    def produce(self, count: int, start_ms: int = T0) -> None:
        """Messages of a window that are reported, and counted in the live tier."""
        counts = [(PAGE_VIEW, start_ms, count)]
        self.state.reports.add(self.reports, [report(self.reported, counts)], self.reported + 1)
        self.reported += 1
        self.produced += count
        width_ms = self.state.ledger.window_ms
        window = (start_ms - start_ms % width_ms, SERVER)
        self.state.add_messages(self.views, {window: count}, {}, self.produced)

    def judged(self) -> Json:
        """The summary when all tiers are read."""
        for _ in range(2):  # what the loads say that they have taken counts at the next look
            asked_ms = self.clock()
            self.reader.poll()
            for tier in ("live", "warehouse"):
                self.state.set_discovered(tier, asked_ms)
            for key in (self.views, self.reports):
                self.state.set_read_to(key, asked_ms)
            self.clock.advance(GAP_CHECK_MS)
        return self.answers.summary()

    def verdict(self) -> str:
        """The verdict on the warehouse, and the exit status that it means."""
        found = self.judged()
        text: str = found["tiers"]["warehouse"]["verdict"]
        assert found["tiers"]["live"]["verdict"] == "complete"
        assert found["exit_status"] == any(word in text for word in ("missing", "unknown", "extra"))
        return text


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    return Audited(tmp_path)


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


def test_messages_in_quarantine_have_arrived_and_are_noted(
    tmp_path: Path, warehouse: Warehouse
) -> None:
    warehouse.load(1, quarantined=2)
    warehouse.reader.poll()
    assert warehouse.counted() == 3
    notes = [note for note in warehouse.state.notes() if "2 messages in quarantine" in note]
    assert len(notes) == 1
    # A restart does not read the load again.
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=("warehouse",))
    store.write(take_changes(warehouse.state))
    warehouse.state = AuditState(("warehouse",), WINDOW_MS, warehouse.clock)
    load_books(warehouse.state, store)
    store.close()
    assert warehouse.new_reader().poll() == 0
    assert [note for note in warehouse.state.notes() if "quarantine" in note] == notes


def test_many_loads_into_quarantine_are_one_line(warehouse: Warehouse) -> None:
    """A line for each pushed all others out."""
    for count in range(2, 202):
        warehouse.load(1, quarantined=count)
        warehouse.reader.poll()
    [note] = warehouse.state.notes()
    assert f"versions 1 to 200 put {sum(range(2, 202)):,} messages in quarantine" in note
    warehouse.reader = warehouse.new_reader()
    warehouse.load(1, quarantined=1)
    warehouse.reader.poll()  # another run knows only its own
    assert warehouse.state.notes()[0] == note
    assert "version 201 put 1 message in quarantine" in warehouse.state.notes()[1]


@pytest.mark.parametrize(
    ("topic", "forms", "counts", "cure"),
    [
        (
            "greet",
            "*:id",
            {UNREADABLE: 4},
            " (a topic without Avro: event.forms=greet:json or greet:text)",
        ),
        ("greet", "greet:text", {UNREADABLE: 4}, ""),
        ("greet", "*:id", {UNREADABLE: 3, (T0, SERVER): 1}, ""),  # one is an event
        (PAGE_VIEW, "*:id", {UNREADABLE: 4}, ""),  # its schema gave the table columns
        (PAGE_VIEW, "*:id", {UNREADABLE: 1}, ""),
        (PAGE_VIEW, "*:id", {UNREADABLE: 3000}, ""),
    ],
)
def test_a_topic_without_a_schema_in_quarantine_is_noted_with_the_setting_for_it(
    tmp_path: Path, topic: str, forms: str, counts: Counts, cure: str
) -> None:
    path = tmp_path / "topic_s"
    table = WarehouseTable.open_or_create(path, EventColumns(topic).table_schema, "")
    table.commit(Load(topic, [LoadedRange(SOURCE, None, 0, 40)], [], {}, WINDOW_MS, counts))
    state = AuditState(("warehouse",), WINDOW_MS, ManualClock(T0))
    reader = WarehouseReader(
        state, tmp_path, clock=ManualClock(T0), poll_interval_ms=10, forms=parse_forms(forms)
    )
    assert reader.poll() == 1
    [note] = [note for note in state.notes() if "quarantine" in note]
    messages = {1: "1 message", 4: "4 messages", 3000: "3,000 messages"}[sum(counts.values())]
    assert note.endswith(
        f"{topic}: version 1 put {messages} in quarantine, which could not become rows then{cure}; "
        f"what load --replay-quarantine {topic} has read since is in the table"
    )


@pytest.mark.parametrize(
    ("payloads", "cure"),
    [
        ([b"hello", b"world"], " (a topic without Avro: event.forms=greet:json or greet:text)"),
        ([b"hello", id_prefix(1) + event(1)[PREFIX_BYTES_2011:]], ""),  # one is an event
    ],
)
def test_a_recount_notes_it_with_the_setting_too(
    tmp_path: Path, payloads: list[bytes], cure: str
) -> None:
    load = Load("greet", [LoadedRange(SOURCE, None, 0, 40)], [], {}, WINDOW_MS, {})
    columns = EventColumns("greet").table_schema
    WarehouseTable.open_or_create(tmp_path / "greet", columns, "").commit(load)
    aside = tmp_path / "quarantine-tables" / "greet"
    WarehouseTable.open_or_create(aside, QUARANTINE_SCHEMA, "").commit(load)
    rows = [dict.fromkeys(QUARANTINE_SCHEMA.names) | {"payload": each} for each in payloads]
    write_deltalake(str(aside), pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), mode="append")
    plan = RecountPlan(
        tiers=("warehouse",), sources=[], warehouse_dir=tmp_path, forms=parse_forms("*:id")
    )
    notes = recount(plan, now_ms=0)["notes"]
    assert notes == [f"warehouse greet: 2 of its messages in quarantine_greet, not rows{cure}"]


def test_delays_are_from_the_header_time_to_the_commit(warehouse: Warehouse) -> None:
    warehouse.load(1, 2, 3)
    warehouse.reader.poll()
    summary = warehouse.state.delays["warehouse"].summary()
    committed_ms = DeltaTable(str(warehouse.path)).history(1)[0]["timestamp"]
    assert summary.count == 3
    assert summary.p50_ms == pytest.approx(min(committed_ms - T0 - 2, DELAY_MS_MAX), rel=1 / 500)


def test_a_damaged_table_keeps_no_other_from_being_counted(warehouse: Warehouse) -> None:
    commit = warehouse.root / "a_table" / "_delta_log" / f"{0:020d}.json"
    commit.parent.mkdir(parents=True)
    commit.write_bytes(bytes(50))
    warehouse.load(1, 2, 3)
    for _ in range(2):
        with pytest.raises(DamagedLog, match=f"{commit} is damaged"):
            warehouse.reader.poll()
        assert warehouse.counted() == 3
    commit.unlink()
    assert warehouse.reader.poll() == 0


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


def test_a_damaged_log_keeps_no_other_table_from_being_read(audited: Audited) -> None:
    """All topics were pending: the warehouse could not be read."""
    other = WarehouseTable.open_or_create(
        audited.root / "a_first", audited.columns.table_schema, "events of topic a-first"
    )
    other.commit(Load("a-first", [LoadedRange(SOURCE, None, 0, 5)], [], {}, WINDOW_MS))
    audited.produce(3)
    audited.load(1)
    audited.end = 3
    audited.load()
    assert audited.verdict() == "missing 2"
    other.commit(Load("a-first", [LoadedRange(SOURCE, 5, 5, 9)], [], {}, WINDOW_MS))
    file = other.path / "_delta_log" / f"{2:020d}.json"
    good = file.read_bytes()
    file.write_bytes(bytes(40))
    audited.produce(4)
    audited.load(2, 3, 4, 5)
    assert audited.verdict() == "missing 2"
    why = f"warehouse a-first: table a_first cannot be read on: {file} is damaged: "
    assert [note.startswith(why) for note in audited.state.notes()] == [True]
    # What lacks of its own topic may stand there.
    file.write_bytes(good)
    audited.load(6)
    newest = max((audited.path / "_delta_log").glob("*.json"))
    newest.write_bytes(bytes(40))
    assert audited.verdict() == "unknown 2"


def test_versions_that_were_cleaned_up_unread_are_entered_as_unread(warehouse: Warehouse) -> None:
    for number in range(4):
        warehouse.load(number)
    DeltaTable(str(warehouse.path)).create_checkpoint()
    log = warehouse.path / "_delta_log"
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    warehouse.clock.advance(60_000)
    warehouse.reader.poll()
    assert warehouse.counted() == 2
    ((_, unread),) = warehouse.state.progress.unread
    assert (unread.tier, unread.topic) == ("warehouse", PAGE_VIEW)
    assert (unread.first, unread.last) == (0, 3)
    assert warehouse.reader.poll() == 0


def test_what_the_versions_that_were_cleaned_up_had_loaded_is_unknown_not_missing(
    audited: Audited,
) -> None:
    for number in range(5):
        audited.produce(1)
        audited.load(number)
    DeltaTable(str(audited.path)).create_checkpoint()
    for version in range(4):
        (audited.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert audited.verdict() == "unknown 3"
    # What is loaded from now on is counted again.
    later = audited.clock() + SLACK_MS
    later -= later % WINDOW_MS - WINDOW_MS
    audited.clock.current_ms = later + 3 * WINDOW_MS
    audited.produce(2, later)
    audited.load(6, start_ms=later)
    audited.end += 1
    audited.load()
    assert audited.verdict() == "missing 1, unknown 3"


@pytest.mark.parametrize(
    ("window_ms", "verdict"), [(3 * WINDOW_MS, "complete"), (WINDOW_MS // 2, "unknown 9")]
)
def test_loads_that_counted_in_other_windows_are_aligned_or_not_counted(
    tmp_path: Path, window_ms: int, verdict: str
) -> None:
    """Books of wider windows, as the refusal of the old ones advises, had 9 missing and 9 extra."""
    audited = Audited(tmp_path, window_ms)
    for number, start_ms in enumerate((T0 - T0 % window_ms, T0 + WINDOW_MS)):
        counts = [(PAGE_VIEW, start_ms, 4 + number)]
        payload = report(number, counts, window_ms=min(window_ms, WINDOW_MS))
        audited.state.reports.add(audited.reports, [payload], number + 1)
        window = (start_ms - start_ms % window_ms, SERVER)
        audited.produced += 4 + number
        audited.state.add_messages(audited.views, {window: 4 + number}, {}, audited.produced)
        audited.load(*range(4 + number), start_ms=start_ms)
    audited.load(quarantined=0)
    assert audited.verdict() == verdict
    notes = [note for note in audited.state.notes() if "do not fit" in note]
    ranges = audited.state.progress.newest_unread(9)
    is_whole = verdict == "complete"
    assert (len(notes), len(ranges)) == ((0, 0) if is_whole else (1, 1))
    if ranges:
        assert (ranges[0].first, ranges[0].last) == (1, 4)
        assert ranges[0].reason == f"counted in windows of {WINDOW_MS} ms"


def restored(audited: Audited, backup: Path, end: int) -> None:
    """Replace the table by a backup whose loads went up to the offset `end`."""
    shutil.rmtree(audited.path)
    shutil.copytree(backup, audited.path)
    audited.table, audited.end = WarehouseTable.open(audited.path), end  # type: ignore[assignment]


@pytest.mark.parametrize("looked", [True, False], ids=["seen at once", "with loads since"])
def test_of_a_table_that_was_restored_nothing_is_known_up_to_then(
    audited: Audited, tmp_path: Path, *, looked: bool
) -> None:
    """The loads made anew were missing for good, with all rows there."""
    store = AuditStore(
        tmp_path / "books" / "audit.sqlite", window_ms=WINDOW_MS, tiers=("live", "warehouse")
    )
    audited.produce(3)
    audited.load(1, 2, 3)
    backup = shutil.copytree(audited.path, tmp_path / "backups" / "page_view")
    audited.produce(2)
    audited.load(4, 5)
    assert audited.verdict() == "complete"
    store.write(take_changes(audited.state))
    restored(audited, backup, 3)
    if looked:
        assert audited.verdict() == "unknown"
    audited.produce(2)
    audited.load(4, 5, 6, 7)
    assert audited.verdict().startswith("unknown")
    audited.produce(1)
    audited.load(8)
    summary = audited.judged()
    assert summary["tiers"]["warehouse"]["verdict"].startswith("unknown")
    assert not summary["balanced"]
    [why] = [each["what"] for each in summary["unknown"]]
    assert "table page_view is another than was read up to version 2 (restored, or" in why
    assert "until the audit has fresh books" in why

    store.write(take_changes(audited.state))
    audited.state = AuditState(("live", "warehouse"), WINDOW_MS, audited.clock)
    load_books(audited.state, store)
    store.close()
    assert [each["what"] for each in unknown_json([], audited.state.progress.lost_logs())] == [why]
    assert audited.new_reader().poll() == 0
    later = audited.clock() + SLACK_MS
    (doubt,) = audited.state.progress.doubts()["warehouse", PAGE_VIEW]
    assert audited.clock() - 3_600_000 < doubt.until_ms < later
    audited.new_reader().poll()
    assert len(audited.state.progress.lost_logs()) == 1


def test_a_table_that_is_gone_is_not_whole_and_what_is_loaded_again_is_counted(
    audited: Audited,
) -> None:
    """It balanced: eight messages in every tier."""
    for number in range(8):
        audited.produce(1)
        audited.load(number)
    assert audited.verdict() == "complete"
    away = audited.path.rename(audited.root.parent / f"{audited.root.name}-away")
    assert audited.verdict() == "unknown"
    [lost] = audited.answers.summary()["unknown"]
    assert lost["what"] == f"warehouse {PAGE_VIEW}: table page_view is not there any more"
    away.rename(audited.path)
    assert audited.verdict() == "complete"  # it was only moved

    audited.reader.poll()
    shutil.rmtree(audited.path)
    audited.reader.poll()
    audited.table = WarehouseTable.open_or_create(audited.path, audited.columns.table_schema, "x")
    audited.end = 0
    audited.reader.poll()
    assert "is another than was read" in audited.state.progress.lost_logs()[0].reason
    assert audited.verdict() == "unknown"
    audited.load(*range(8))
    assert audited.reader.poll() == 1
    assert audited.verdict() == "unknown"


def test_a_table_of_a_topic_that_nobody_reports_may_go(audited: Audited) -> None:
    audited.load(1)
    audited.judged()
    shutil.rmtree(audited.path)
    summary = audited.judged()
    assert (summary["exit_status"], summary["unknown"]) == (0, [])


def test_a_warehouse_that_is_not_mounted_any_more_cannot_be_read(warehouse: Warehouse) -> None:
    warehouse.load(1)
    warehouse.reader.poll()
    warehouse.root.rename(warehouse.root.parent / f"{warehouse.root.name}-away")
    with pytest.raises(FileNotFoundError, match="is not there any more"):
        warehouse.reader.poll()


def test_books_of_before_know_their_tables_from_the_first_look_on(warehouse: Warehouse) -> None:
    warehouse.load(1)
    warehouse.reader.poll()
    marks = warehouse.state.progress.table_marks
    (before,) = marks.values()
    marks.clear()
    warehouse.new_reader().poll()
    assert marks == {"page_view": before}


def test_a_table_is_known_by_the_topic_that_was_loaded_into_it(warehouse: Warehouse) -> None:
    warehouse.load(1)
    assert tables.topic_tables(warehouse.root) == [(PAGE_VIEW, warehouse.path)]
    (rows,) = tables.rows_of(warehouse.path)
    assert (rows.times_ms, rows.servers) == ([T0 + 1], [SERVER])
    assert [len(guid) for guid in rows.guids] == [16]


def test_rows_of_a_table_that_two_topics_shared_are_each_counted_once(warehouse: Warehouse) -> None:
    warehouse.load(1, 2, 3)
    warehouse.load(4, 5, topic="page_view")
    assert recounted(warehouse) == {PAGE_VIEW: 3, "page_view": 2}
    DeltaTable(str(warehouse.path)).optimize.compact()
    assert recounted(warehouse) == {}  # cannot be told apart any more, and are not counted
    assert "mixed by compaction" in str(recount_of(warehouse)["notes"])


def test_what_a_file_that_cannot_be_read_had_is_unknown(warehouse: Warehouse) -> None:
    """A vacuum may delete it while the recount reads others; it ended with a traceback, status 1"""
    warehouse.load(1, 2, 3)
    warehouse.load(4)
    log = warehouse.root / "broker-1"
    write_log(log, AUDIT, 0, message_set.encode([report(0, [(PAGE_VIEW, T0, 4)])]))
    write_log(log, PAGE_VIEW, 0, message_set.encode([event(n, T0 + n) for n in range(1, 5)]))
    directory = LogDirectory("live", "broker-1", log)
    live = DiskSource(directory, end_of(directory))
    plan = RecountPlan(("live", "warehouse"), [live], warehouse.root, forms=FORMS_2011)
    assert recount(plan, now_ms=0)["exit_status"] == 0
    gone, damaged = map(Path, warehouse.table.file_paths())
    gone.unlink()
    for unknown in (1, 4):
        found = recount(plan, now_ms=0)
        (cell,) = found["cells"]
        assert cell["tiers"]["warehouse"]["verdict"] == f"unknown {unknown}"
        assert found["exit_status"] == 1
        assert [note.split(" of table")[0] for note in found["notes"]] == [
            f"warehouse {PAGE_VIEW}: file {path.relative_to(warehouse.path)}"
            for path in ([gone] if unknown == 1 else [gone, damaged])
        ]
        damaged.write_bytes(b"PAR1")


def recount_of(warehouse: Warehouse) -> Json:
    plan = RecountPlan(tiers=("warehouse",), sources=[], warehouse_dir=warehouse.root)
    return recount(plan, now_ms=0)


def recounted(warehouse: Warehouse) -> dict[str, int]:
    """The number of messages by topic."""
    return {
        topic: found["tiers"]["warehouse"]["counted"]
        for topic, found in recount_of(warehouse)["topics"].items()
    }
