"""Reads the warehouse: each table's new versions, and the counts in their commits.

Counts of the tier `warehouse` come from the loads' commits, whose metadata has the rows counted by
window and server as they were decoded. Messages that could be read but not become rows are in the
quarantine table and have arrived; a note says how many. Versions that log clean-up removed before
they were read are entered in the books as unread. Delays are from the rows' header times, read from
the files that the commit names, to the time of the commit. Importing this module loads Arrow and
delta-rs.
"""

import hashlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from kafka2011.coordination.paths import BrokerPartition, decode_broker_partition
from kafka2011.events.forms import FORMS_DEFAULT, Form, Forms
from kafka2011.events.header import UNREADABLE
from kafka2011.events.windows import window_start
from kafka2011.runtime.clock import Clock, has_passed
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.runtime.workers import Worker
from kafka2011.services.audit.books.progress import WAREHOUSE, TableMark
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.warehouse import delta_log, storage
from kafka2011.services.warehouse.delta_table import WarehouseTable, loaded_topics
from kafka2011.services.warehouse.errors import DamagedLog
from kafka2011.services.warehouse.load.schema_columns import RESERVED
from kafka2011.services.warehouse.load_commits import APP_PREFIX, CommitInfo, read_commits
from kafka2011.services.warehouse.table_paths import quarantine_view

GAP_CHECK_MS = 10_000  # listing a log directory is slow when it holds a month of loads

log = get_logger(__name__)


@dataclass(slots=True)
class _Quarantined:
    """What the loads of a table, by its versions `first` to `last`, have put into quarantine.
    `is_unreadable`: none of it is an event. `note`: the line that says so."""

    first: int
    last: int
    count: int
    is_unreadable: bool
    note: str = ""


class WarehouseReader:
    """Polls every table below `directory` for commits until closed."""

    def __init__(
        self,
        state: AuditState,
        directory: StoragePath,
        *,
        clock: Clock,
        poll_interval_ms: int,
        forms: Forms = FORMS_DEFAULT,
    ) -> None:
        self._state = state
        self._directory = directory
        self._clock = clock
        self._forms = forms
        self._poll_interval_s = poll_interval_ms / 1000
        self._checked_ms: dict[str, int] = {}
        self._located: set[str] = set()
        self._quarantined: dict[tuple[str, str], _Quarantined] = {}  # by table and topic
        self._stop = threading.Event()
        self._worker = Worker(
            self._run, "audit-warehouse", restarts=True, on_failure=self._note_failure
        )

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        self._stop.set()
        self._worker.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            asked_ms = self._clock()
            try:
                self.poll()
            except (OSError, ValueError, KeyError) as error:
                log.warning("warehouse_unreadable", reason=repr(error))
                self._note_failure(error)
            else:
                self._state.set_reachable(WAREHOUSE, "tables")
                self._state.set_discovered(WAREHOUSE, asked_ms)
                self._state.asked(WAREHOUSE, asked_ms)
            self._stop.wait(self._poll_interval_s)

    def _note_failure(self, error: BaseException) -> None:
        self._state.set_unreachable(WAREHOUSE, "tables", f"the warehouse cannot be read: {error!r}")

    def poll(self) -> int:
        """Read every commit that is new; returns how many loads there were.

        A table that cannot be read keeps no other from being read. Raises OSError when the
        directory cannot be read, ValueError or KeyError for a commit that no load of ours wrote.
        """
        known = self._state.progress.table_marks
        if not self._directory.is_dir():
            if known:
                raise FileNotFoundError(f"{self._directory} is not there any more")
            return 0  # nothing was ever loaded
        loads = 0
        failure: Exception | None = None
        there: set[str] = set()
        damaged: dict[str, str] = {}  # by topic
        for path in sorted(self._directory.iterdir()):
            if (path / "_delta_log").is_dir():
                there.add(path.name)
                try:
                    loads += self._poll_unless_damaged(path, damaged)
                except (OSError, ValueError, KeyError) as error:
                    failure = failure or error
        absent = [name for name in known if name not in there]
        self._located.difference_update(absent)  # one that is back is looked at anew, at once
        self._state.set_absent(
            WAREHOUSE,
            {
                topic: f"table {name} is not there any more"
                for name in absent
                for topic in known[name].topics
            },
            damaged,
        )
        if failure is not None:
            raise failure
        return loads

    def _poll_unless_damaged(self, path: StoragePath, damaged: dict[str, str]) -> int:
        """Read a table's new commits; returns how many loads there were. Why a damaged log cannot
        be read on is added for its topics. Raises as `poll`."""
        try:
            return self._poll_table(path)
        except DamagedLog as error:
            why = f"table {path.name} cannot be read on: {error}"
            damaged |= dict.fromkeys(self._topics_of(path), why)
            return 0

    def _topics_of(self, path: StoragePath) -> Iterable[str]:
        """The topics that were loaded into a table. Raises DamagedLog where that is not known."""
        known = self._state.progress.table_marks.get(path.name)
        return known.topics if known is not None else loaded_topics(path)

    def _poll_table(self, path: StoragePath) -> int:
        seen = self._state.progress.table_versions.get(path.name, -1)
        is_first_look = path.name not in self._located
        has_next = _exists(path, seen + 1)
        is_due = self._is_check_due(path)
        is_checked = is_first_look or has_next or is_due
        if is_checked and seen >= 0 and self._was_replaced(path, seen):
            seen = self._take_over(path, seen)
            is_first_look, has_next = True, False
        if is_first_look:  # what earlier runs of the service read
            self._confirm_known(path)
        if not has_next and is_due:
            seen = self._skip_gap(path, seen)
        newest = seen
        while _exists(path, newest + 1):
            newest += 1
        if newest == seen:
            return 0
        loads = [info for info in read_commits(path, seen) if info.version <= newest]
        for info in loads:
            self._take(path.name, info)
        # Versions that load nothing (creation, compaction) need not be read again either.
        self._state.advance_table(path.name, newest)
        self._mark(path, newest, {info.topic for info in loads})
        return len(loads)

    def _is_check_due(self, path: StoragePath) -> bool:
        """Whether what costs more than a request for each table is to be done for this one."""
        now_ms = self._clock()
        if not has_passed(GAP_CHECK_MS, self._checked_ms.get(path.name, 0), now_ms):
            return False
        self._checked_ms[path.name] = now_ms
        return True

    def _was_replaced(self, path: StoragePath, seen: int) -> bool:
        """Whether the table is not the one that was read: it ends before that, or has another
        commit at a version that was read."""
        mark = self._state.progress.table_marks.get(path.name)
        if mark is not None and mark.digest:
            digest = _digest(path, mark.version)
            if digest:
                return digest != mark.digest
        # That commit was cleaned up; the newest one never is.
        return max(delta_log.versions(path), default=-1) < (mark.version if mark else seen)

    def _take_over(self, path: StoragePath, seen: int) -> int:
        """Go on with the table that stands in place of the one that was read; returns its newest
        version."""
        newest = max(delta_log.versions(path), default=-1)
        known = self._state.progress.table_marks.get(path.name)
        topics = sorted({*(known.topics if known else ()), *loaded_topics(path)})
        self._state.replace_table(WAREHOUSE, path.name, topics, seen=seen, newest=newest)
        mark = TableMark(newest, _digest(path, newest), tuple(topics))
        self._state.mark_table(path.name, mark)
        return newest

    def _mark(self, path: StoragePath, version: int, topics: Iterable[str]) -> None:
        """Note by what the table is known again, and topics that were loaded into it."""
        known = self._state.progress.table_marks.get(path.name)
        every = {*(known.topics if known else ()), *topics}
        mark = TableMark(version, _digest(path, version), tuple(sorted(every)))
        if mark.digest:
            self._state.mark_table(path.name, mark)

    def _confirm_known(self, path: StoragePath) -> None:
        """Take from the table's state the loaded offsets of commits that are not read again.

        They count once a poll has read every commit up to now.
        """
        asked_ms = self._clock()
        found: dict[str, dict[BrokerPartition, int]] = {}
        for name, offset in delta_log.app_transactions(path).items():
            if name.startswith(APP_PREFIX):
                topic, _, partition = name.removeprefix(APP_PREFIX).rpartition("/")
                found.setdefault(topic, {})[decode_broker_partition(partition)] = offset
        for topic, offsets in found.items():
            self._state.confirm(WAREHOUSE, topic, offsets, asked_ms)
        if path.name not in self._state.progress.table_marks:  # of books of an older version
            self._mark(path, self._state.progress.table_versions.get(path.name, -1), found)
        self._located.add(path.name)

    def _skip_gap(self, path: StoragePath, seen: int) -> int:
        later = [version for version in delta_log.versions(path) if version > seen + 1]
        if not later or _exists(path, seen + 1):
            return seen
        self._state.skip_versions(
            WAREHOUSE,
            path.name,
            sorted(loaded_topics(path)) or [path.name],
            first=seen + 1,
            last=later[0],
            why="the table's log was cleaned up before the audit read it",
        )
        return later[0] - 1

    def _take(self, table: str, info: CommitInfo) -> None:
        window_ms = self._state.ledger.window_ms
        counts: dict[tuple[int, str], int] = {}
        fits = window_ms % info.window_ms == 0
        if fits:
            for (start_ms, server), count in (*info.counts.items(), *info.quarantined.items()):
                aligned_ms = window_start(start_ms, window_ms) if start_ms >= 0 else start_ms
                key = aligned_ms, server
                counts[key] = counts.get(key, 0) + count
        else:
            self._state.note(
                f"{WAREHOUSE} {info.topic}: a load counted in windows of {info.window_ms} ms, "
                f"which do not fit into this audit's of {window_ms} ms: it is not counted"
            )
        if info.quarantined:
            self._note_quarantined(table, info)
        if not fits:
            why = f"counted in windows of {info.window_ms} ms"
            self._state.skip_load(WAREHOUSE, info.topic, info.version, why)
        self._state.add_load(
            table,
            tier=WAREHOUSE,
            topic=info.topic,
            counts=counts,
            delays=row_delays(self._directory / table, info),
            version=info.version,
            offsets=info.offsets,
        )

    def _note_quarantined(self, table: str, info: CommitInfo) -> None:
        """Note what has gone into quarantine, in one line for all loads of a topic in this run."""
        is_unreadable = set(info.quarantined) == {UNREADABLE}
        count = sum(info.quarantined.values())
        now = _Quarantined(info.version, info.version, count, is_unreadable)
        before = self._quarantined.get((table, info.topic))
        if before is not None and before.last < now.last:
            now.first, now.note = before.first, before.note
            now.count += before.count
            now.is_unreadable &= before.is_unreadable
        versions, messages = f"version {now.last}", f"{now.count:,} messages"
        if now.first < now.last:
            versions = f"versions {now.first} to {now.last}"
        if now.count == 1:
            messages = "1 message"
        cure = ""
        if now.is_unreadable:
            cure = cure_of(self._forms, info.topic, self._directory / table)
        view = quarantine_view(self._directory, info.topic) or "quarantine"
        text = (
            f"{WAREHOUSE} {info.topic}: {versions} put {messages} in {view}, which could not "
            f"become rows then{cure}; what load --replay-quarantine {info.topic} has read since is "
            "in the table"
        )
        self._state.note(text, is_kept=True, instead_of=now.note)
        now.note = text
        self._quarantined[table, info.topic] = now


def cure_of(forms: Forms, topic: str, table: StoragePath) -> str:
    """What to set for a topic without a schema whose quarantined messages are no events, else "".
    A schema in the registry would have given the table columns before its first row."""
    if forms.of(topic) is not Form.ID:
        return ""
    found = WarehouseTable.open(table)
    if found is None or set(found.schema().names) - set(RESERVED):
        return ""
    return f" (a topic without Avro: event.forms={topic}:json or {topic}:text)"


def row_delays(path: StoragePath, info: CommitInfo) -> dict[int, int]:
    """The rows that the commit added, by ms from header.time to the commit.

    Files that compaction and vacuum have removed since are left out.
    """
    found: dict[int, int] = {}
    for action in delta_log.actions(path, info.version):
        if "add" not in action:
            continue
        file_path = path / unquote(action["add"]["path"])
        try:
            column = storage.read_columns(file_path, ["header_time"]).column(0)
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            log.info("delays_not_read", file=str(file_path), reason=str(error))
            continue
        times_ms = pc.divide(column.drop_null().cast(pa.int64()), 1000)
        for each in pc.value_counts(pc.subtract(info.timestamp_ms, times_ms)).to_pylist():
            delay_ms = max(0, each["values"])
            found[delay_ms] = found.get(delay_ms, 0) + each["counts"]
    return found


def _digest(path: StoragePath, version: int) -> str:
    """The digest of a version's commit; "" if it has none, or none any more."""
    try:
        actions = delta_log.actions(path, version)
    except FileNotFoundError:
        return ""
    text = json.dumps(actions, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _exists(path: StoragePath, version: int) -> bool:
    return (path / "_delta_log" / f"{version:020d}.json").exists()
