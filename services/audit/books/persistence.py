"""Carries the books between memory and the store: changes into rows, rows into books."""

import json
from collections.abc import Mapping

from kafka2011.consumer.log_tail import Tail
from kafka2011.events.sequences import SequenceRange, SequenceRanges
from kafka2011.events.topics import AUDIT
from kafka2011.services.audit.books.delays import DelayMeter
from kafka2011.services.audit.books.heartbeats import Beat, Heartbeats, Sender, Span
from kafka2011.services.audit.books.ledger import (
    CellKey,
    FoldedTotals,
    Instance,
    Ledger,
    ReportsSeen,
)
from kafka2011.services.audit.books.passage import TopicWindow
from kafka2011.services.audit.books.progress import (
    PartitionKey,
    ReadPosition,
    ReadProgress,
    TableMark,
    UnreadRange,
)
from kafka2011.services.audit.books.retained import Cut, LogName, Retained
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore, Changes


def load_books(state: AuditState, store: AuditStore) -> None:
    """Load what an earlier run stored. Call once, before anything else uses `state`."""
    now_ms, meta = state.clock(), dict(store.rows("meta"))
    _load_cells(state.ledger, store, now_ms)
    _load_sequences(state.ledger, store)
    _load_progress(state.progress, store)
    _load_heartbeats(state.reports.heartbeats, store)
    for tier, encoded in store.rows("delays"):
        state.delays[tier] = DelayMeter(encoded)
    state.passages.restore(
        {TopicWindow(key.topic, key.window_start_ms) for key in state.ledger.cells},
        {key: position.next_offset for key, position in state.progress.positions.items()},
    )
    state.ledger.retained = _stored_retained(state.ledger, store, meta)
    if meta.keys() & {"began_ms", "produced_bytes"}:  # an earlier run has written these books
        state.restore_beginning(int(meta.get("began_ms", 0)))
    state.ledger.produced_bytes = int(meta.get("produced_bytes", 0))
    state.remarks.restore(json.loads(meta.get("notes", "[]")))
    state.reports.rejected = int(meta.get("reports_rejected", 0))
    state.clamp(now_ms)


def _load_cells(ledger: Ledger, store: AuditStore, now_ms: int) -> None:
    """Open cells, as reported at `now_ms`, and the totals of folded ones."""
    index = {tier: number for number, tier in enumerate(ledger.tiers)}
    for topic, start_ms, server, tier, produced, counted, counted_ms in store.rows("cells"):
        cell = ledger.opened(CellKey(topic, start_ms, server))
        cell.produced[index[tier]] = produced
        cell.counted[index[tier]] = counted
        cell.counted_ms[index[tier]] = counted_ms
        cell.reported_ms = now_ms
    for tier, topic, *numbers in store.rows("folded"):
        ledger.folded[(tier, topic)] = FoldedTotals(*numbers)
    ledger.produced_messages = sum(sum(cell.produced) for cell in ledger.cells.values())
    ledger.produced_messages += sum(folded.produced for folded in ledger.folded.values())


def _load_sequences(ledger: Ledger, store: AuditStore) -> None:
    ranges: dict[Instance, list[SequenceRange]] = {}
    last_seen: dict[Instance, int] = {}
    finals: dict[Instance, tuple[int, int, int]] = {}
    for server, name, first, last, seen_ms, *times in store.rows("sequences"):
        first_ms, last_ms, known_ms, oldest_ms, newest_ms = times
        instance = Instance(server, name)
        stored = SequenceRange(
            first,
            last,
            first_ms,
            last_ms,
            known_ms or seen_ms,
            oldest_ms or min(first_ms, last_ms),
            newest_ms or max(first_ms, last_ms),
        )
        ranges.setdefault(instance, []).append(stored)
        last_seen[instance] = seen_ms
    for server, name, last_sequence, time_ms, seen_ms, known_ms in store.rows("finals"):
        finals[Instance(server, name)] = (last_sequence, time_ms, known_ms or seen_ms)
        last_seen[Instance(server, name)] = seen_ms
    for instance, seen_ms in last_seen.items():
        sequences = SequenceRanges(ranges.get(instance), *finals.get(instance, ()))
        ledger.seen[instance] = ReportsSeen(sequences, seen_ms)


def _load_progress(progress: ReadProgress, store: AuditStore) -> None:
    for tier, topic, broker_id, partition, next_offset in store.rows("positions"):
        key = PartitionKey(tier, topic, broker_id, partition)
        progress.positions[key] = ReadPosition(next_offset)
    for tier, topic, broker_id, partition, next_offset, *tail in store.rows("tails"):
        position = progress.positions.get(PartitionKey(tier, topic, broker_id, partition))
        # Where they differ, the tail is older: none was known at the position.
        if position is not None and position.next_offset == next_offset:
            position.tail = Tail(*tail)
    progress.table_versions = dict(store.rows("table_versions"))
    for name, version, digest, topics in store.rows("table_marks"):
        progress.table_marks[name] = TableMark(version, digest, tuple(json.loads(topics)))
    for number, *entry in store.rows("unread"):
        progress.keep_unread(number, UnreadRange(*entry))


def _load_heartbeats(heartbeats: Heartbeats, store: AuditStore) -> None:
    for tier, server, time_ms, interval_ms, is_last, name, spans in store.rows("heartbeats"):
        beat = Beat(time_ms, interval_ms, bool(is_last), name)
        heartbeats.restore(Sender(tier, server), beat, [Span(*each) for each in json.loads(spans)])
    kept = sorted(store.rows("restarts"), key=lambda row: int(row[2]))
    heartbeats.restarts.extend((Sender(tier, server), at) for tier, server, at in kept)


def _stored_retained(ledger: Ledger, store: AuditStore, meta: Mapping[str, str]) -> Retained:
    """Since when the logs are whole. Books of earlier formats say it by topic, in `retained`, or
    only that they are not."""
    found = {LogName(tier, topic): from_ms for tier, topic, from_ms in store.rows("retained")}
    if not found and int(meta.get("is_history_cut", 0)):
        found[LogName(ledger.tiers[0], AUDIT)] = _whole_from_ms(ledger)
    rows = store.rows("cuts")
    return Retained(found, {PartitionKey(*row[:4]): Cut(row[4], bool(row[5])) for row in rows})


def _whole_from_ms(ledger: Ledger) -> int:
    """Since when the monitoring events are whole, ms, in books that say only that the oldest were
    deleted: the latest time at which an instance begins after its first sequence."""
    begins = (seen.sequences.ranges()[:1] for seen in ledger.seen.values())
    return max((first.first_ms for part in begins for first in part if first.first), default=0)


def take_changes(state: AuditState) -> Changes:
    """Everything that changed since the last call, as it is now."""
    with state.lock:
        changes = Changes()
        _add_ledger(state, changes)
        _add_progress(state, changes)
        _add_heartbeats(state.reports.heartbeats, changes)
        for tier, meter in state.delays.items():
            if meter.is_dirty:
                changes.delays.append((tier, meter.encoded()))
                meter.is_dirty = False
        if state.remarks.is_dirty:
            changes.meta = [("notes", json.dumps(state.remarks.kept()))]
            state.remarks.is_dirty = False
        if changes:
            changes.meta += [
                ("began_ms", str(state.began_ms)),
                ("produced_bytes", str(state.ledger.produced_bytes)),
                ("reports_rejected", str(state.reports.rejected)),
            ]
        return changes


def _add_ledger(state: AuditState, changes: Changes) -> None:
    ledger = state.ledger
    for cell_key in ledger.dirty_cells:
        cell = ledger.cells.get(cell_key)
        if cell is None:
            changes.gone_cells.append((*cell_key,))
            continue
        for tier, produced, counted, counted_ms in zip(
            ledger.tiers, cell.produced, cell.counted, cell.counted_ms, strict=True
        ):
            changes.cells.append((*cell_key, tier, produced, counted, counted_ms))
    for instance in ledger.dirty_seen:
        changes.rewritten_instances.append((*instance,))
        seen = ledger.seen.get(instance) or ledger.idle.get(instance)
        if seen is None:
            continue
        for each in seen.sequences.ranges():
            row = (*instance, each.first, each.last, seen.last_seen_ms, *each[2:])
            changes.sequences.append(row)
        sequences = seen.sequences
        if sequences.final >= 0:
            times_of_final = (sequences.final_ms, seen.last_seen_ms, sequences.final_seen_ms)
            changes.finals.append((*instance, sequences.final, *times_of_final))
    for folded_key in ledger.dirty_folded:
        folded = ledger.folded[folded_key]
        changes.folded.append(
            (
                *folded_key,
                folded.cells,
                folded.produced,
                folded.expected,
                folded.counted,
                folded.missing,
                folded.extra,
                folded.redelivered,
                folded.not_audited,
            )
        )
    ledger.dirty_cells, ledger.dirty_seen, ledger.dirty_folded = set(), set(), set()
    if ledger.retained.is_dirty:
        changes.cuts = [(*key, *cut) for key, cut in ledger.retained.cuts().items()]
        ledger.retained.is_dirty = False


def _add_progress(state: AuditState, changes: Changes) -> None:
    progress = state.progress
    for key in progress.dirty_positions:
        position = progress.positions[key]
        changes.positions.append((*key, position.next_offset))
        if position.tail is not None:
            changes.tails.append((*key, position.next_offset, *position.tail))
    for table in progress.dirty_versions:
        changes.table_versions.append((table, progress.table_versions[table]))
    for table in progress.dirty_marks:
        mark = progress.table_marks[table]
        row = (table, mark.version, mark.digest, json.dumps(mark.topics))
        changes.table_marks.append(row)
    for number, entry in progress.new_unread:
        changes.unread.append((number, *entry))
    changes.gone_unread = [(number,) for number in progress.gone_unread]
    progress.dirty_positions, progress.dirty_versions = set(), set()
    progress.dirty_marks = set()
    progress.new_unread, progress.gone_unread = [], []


def _add_heartbeats(heartbeats: Heartbeats, changes: Changes) -> None:
    for sender in heartbeats.dirty:
        beat = heartbeats.beats.get(sender)
        if beat is None:
            changes.gone_heartbeats.append((*sender,))
        else:
            row = (*sender, beat.time_ms, beat.interval_ms, beat.is_last, beat.instance)
            changes.heartbeats.append((*row, json.dumps(heartbeats.spans[sender])))
    heartbeats.dirty = set()
    changes.restarts = [(*sender, at_ms) for sender, at_ms in heartbeats.new_restarts]
    heartbeats.new_restarts = []


def put_back(state: AuditState, changes: Changes) -> None:
    """Give back `changes` that the store refused: the next `take_changes` returns them again."""
    ledger, progress, heartbeats = state.ledger, state.progress, state.reports.heartbeats
    with state.lock:
        progress.dirty_positions |= {PartitionKey(*row[:4]) for row in changes.positions}
        progress.dirty_versions |= {name for name, _ in changes.table_versions}
        progress.dirty_marks |= {row[0] for row in changes.table_marks}
        progress.new_unread[:0] = [(row[0], UnreadRange(*row[1:])) for row in changes.unread]
        progress.gone_unread[:0] = [number for (number,) in changes.gone_unread]
        ledger.retained.is_dirty |= bool(changes.cuts)
        ledger.dirty_cells |= {CellKey(*row[:3]) for row in changes.cells}
        ledger.dirty_cells |= {CellKey(*row) for row in changes.gone_cells}
        ledger.dirty_seen |= {Instance(*row) for row in changes.rewritten_instances}
        ledger.dirty_folded |= {(row[0], row[1]) for row in changes.folded}
        gone = [row[:2] for row in changes.heartbeats] + changes.gone_heartbeats
        heartbeats.dirty |= {Sender(*row) for row in gone}
        heartbeats.new_restarts[:0] = [(Sender(*row[:2]), row[2]) for row in changes.restarts]
        state.remarks.is_dirty |= "notes" in dict(changes.meta)
        for tier, _ in changes.delays:
            state.delays[tier].is_dirty = True
