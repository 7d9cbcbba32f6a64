"""The mirror: copies the partitions that the group assigns to it.

    group membership ──start/halt──► Mirror ──► SourceReader (one per source broker)
                                       │             │ sets, epoch by epoch
                                       │             ▼
                                       │        PartitionCopy
                                       │             │ batches, barriers
                                       └──────► TargetWriter (one per target broker)

It is the `Delivery` of its membership: when a partition goes to another member, it returns the
confirmed offset, after a last barrier, so that what is committed is always durable at the target.
One lock (`wake`) guards all copies; it is never held during a request.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka2011.consumer.broker_loop import Backoff
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.log_tails import LogTails
from kafka2011.consumer.tools.lag_rules import total_lag
from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.producer.discovery import ZooKeeperBrokers
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker
from kafka2011.services.mirror_maker.config import NEVER_COPIED, MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy
from kafka2011.services.mirror_maker.end_offsets import KNOWN_INTERVALS, SourceEndOffsets
from kafka2011.services.mirror_maker.lineages import StoredLineages
from kafka2011.services.mirror_maker.mirror_registry import (
    LeftOutEntries,
    Pauses,
    StoredOffsetMaps,
)
from kafka2011.services.mirror_maker.placement import NotPlaced, Placement, make_topic
from kafka2011.services.mirror_maker.refusals import Refusals
from kafka2011.services.mirror_maker.set_cutting import RefusedEntry
from kafka2011.services.mirror_maker.source_reader import SourceReader
from kafka2011.services.mirror_maker.target_writer import TargetWriter

PLACE_RETRY_S = 0.1
IDLE_WAIT_S = 1.0

log = get_logger(__name__)


class Mirror:
    """The copying of one source. `source` and `target` are started registries; the caller closes
    them after `close`.

    `start`, `halt` and `halt_all` are called by the membership's thread.
    """

    def __init__(self, config: MirrorConfig, source: Registry, target: Registry) -> None:
        self._config = config
        self._source = source
        self._target = target
        self.wake = threading.Condition()
        # Set by the membership: the ZooKeeper session that its owner nodes belong to.
        self.owning_session: Callable[[], int | None] = lambda: None
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._pauses = Pauses(source, config.group_id, self._pauses_changed)
        self._maps = StoredOffsetMaps(source, target, config.group_id)
        self.tails = LogTails(source, config.group_id)
        self._lineages = StoredLineages(source, config.group_id, self._may_send)
        self._refusals = Refusals(config, self.wake, LeftOutEntries(source, config.group_id))
        self._readers: dict[int, SourceReader] = {}
        self._writers: dict[int, TargetWriter] = {}
        self._source_brokers = ZooKeeperBrokers(source)
        self._target_brokers = ZooKeeperBrokers(target)
        self._placement = Placement(
            source,
            target,
            config.group_id,
            lambda topic, published: make_topic(topic, config.dialled(published)),
        )
        self._maps_due_s = 0.0
        self._repeated_bytes = 0  # of copies that ended
        # Halted partitions -> bytes that will be repeated unless their last commit was stored.
        self._halted: dict[TopicPartition, int] = {}
        self._closed = threading.Event()
        self._ends = SourceEndOffsets(
            config, self._source_brokers.address_of, self.copies, self.wake
        )
        self._placer = Worker(self._place_all, "placement", restarts=True)
        self._placer.start()

    # --- the group's Delivery --------------------------------------------------------------------

    def start(self, name: TopicPartition, thread: str, stored: int | None) -> None:
        """Copy `name` from `stored` on; from where `autooffset.reset` says when it is None."""
        if name.topic in NEVER_COPIED:
            return
        copy = PartitionCopy(
            name,
            thread,
            stored,
            self._config.partition_bytes_max,
            self._config.fetch_size,
            Backoff(self._config.retry_min_ms / 1000, self._config.retry_max_ms / 1000),
            owned_ms=now_ms(),
        )
        with self.wake:
            self._repeated_bytes += self._halted.pop(name, 0)  # perhaps not stored
            copy.is_paused = self._pauses.holds(name)
            self._copies[name] = copy
            self.wake.notify_all()
        log.info("copy_started", partition=str(name), offset=stored)

    def halt(self, names: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Stop copying these; return the confirmed offsets, after a last barrier if time allows."""
        with self.wake:
            going = [self._copies[name] for name in names if name in self._copies]
            for copy in going:
                copy.begin_closing()
            self.wake.notify_all()
            deadline_s = time.monotonic() + self._config.handover_timeout_ms / 1000
            while any(copy.unconfirmed_bytes for copy in going):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                self.wake.wait(left_s)
        self._lineages.store(going, self.wake)
        with self.wake:
            offsets = {copy.name: at for copy in going if (at := copy.next_commit) is not None}
            for copy in going:
                if copy.unconfirmed_bytes:
                    self._repeated_bytes += copy.unconfirmed_bytes
                    log.warning(
                        "handed_over_unconfirmed",
                        partition=str(copy.name),
                        bytes=copy.unconfirmed_bytes,
                    )
                self._halted[copy.name] = copy.uncommitted_bytes
                self._remove(copy)
        for name, offset in offsets.items():
            log.info("copy_stopped", partition=str(name), offset=offset)
        return offsets

    def halt_all(self) -> None:
        """Stop at once and commit nothing: the session is lost, and nothing is ours any more."""
        with self.wake:
            for copy in list(self._copies.values()):
                committed = copy.committed_offset
                again_from = copy.confirmed_offset if committed is None else committed
                self._repeated_bytes += max(0, copy.sent_offset - again_from)
                self._remove(copy)
            self._repeated_bytes += sum(self._halted.values())
            self._halted.clear()
            self.wake.notify_all()

    def to_commit(self) -> dict[TopicPartition, tuple[str, int]]:
        """Partition -> (thread, confirmed offset), for those that moved since their last commit.

        It includes the start of a partition that the group never copied, so that what comes while
        no member runs is not skipped with `autooffset.reset=largest`.
        """
        self._lineages.store(self.copies(), self.wake)
        with self.wake:
            return {
                copy.name: (copy.thread, offset)
                for copy in self._copies.values()
                if (offset := copy.next_commit) is not None and offset != copy.committed_offset
            }

    def committed(self, name: TopicPartition, offset: int) -> None:
        """Note that `offset` is in the offset registry now."""
        with self.wake:
            copy = self._copies.get(name)
            if copy is not None:
                copy.committed(offset)

    def handed_over(self, name: TopicPartition, *, is_stored: bool) -> None:
        """Note whether the last commit of a halted partition was stored, or refused because it was
        not ours any more: then its next owner repeats what was copied since the commit before."""
        with self.wake:
            if name not in self._copies:
                uncommitted_bytes = self._halted.pop(name, 0)
                self._repeated_bytes += 0 if is_stored else uncommitted_bytes

    def close(self) -> None:
        """Stop all threads. The membership has left before and halted everything."""
        self.halt_all()
        self._closed.set()
        with self.wake:
            self.wake.notify_all()
        self._placer.join()
        self._maps.store(self.wake)
        self._pauses.close()
        self._ends.stop()
        for worker in self._workers():
            worker.stop()
        self._source_brokers.close()
        self._target_brokers.close()

    def _remove(self, copy: PartitionCopy) -> None:
        copy.remove()
        if self._copies.get(copy.name) is copy:
            del self._copies[copy.name]
            self._repeated_bytes += copy.repeated_bytes
        for worker in self._workers():
            if copy in worker.copies:
                worker.copies.remove(copy)

    @property
    def repeated_bytes(self) -> int:
        """How many bytes have been, or may be, sent a second time, by whichever member."""
        with self.wake:
            return self._repeated_bytes + sum(c.repeated_bytes for c in self._copies.values())

    @property
    def is_alive(self) -> bool:
        """Whether its writers run; if not, the process must end, so that another member copies."""
        return all(writer.is_alive for writer in list(self._writers.values()))

    def _workers(self) -> list[SourceReader | TargetWriter]:
        return [*self._readers.values(), *self._writers.values()]

    # --- pausing ---------------------------------------------------------------------------------

    def set_paused(self, topic: str, partition: str, paused: bool) -> None:
        """Pause or resume a topic, or one partition of it (`partition` as "1-0", owned or not), for
        all members of the group; a pause lasts until it is resumed.

        What was sent is still confirmed. Resuming a topic resumes its partitions. Raises
        CoordinationError when the change could not be stored, StillPaused for a partition of a
        topic that is paused as a whole.
        """
        self._pauses.change(topic, partition, paused)
        self._pauses_changed()
        log.info("paused" if paused else "resumed", topic=topic, partition=partition or "all")

    def _pauses_changed(self) -> None:
        with self.wake:
            for copy in self._copies.values():
                copy.is_paused = self._pauses.holds(copy.name)
            self.wake.notify_all()

    # --- giving copies their threads -------------------------------------------------------------

    def _place_all(self) -> None:
        """A thread: finds the target of each new copy and adds it to its reader and its writer."""
        while not self._closed.is_set():
            bug: Exception | None = None
            with self.wake:
                unplaced = [copy for copy in self._copies.values() if copy.target is None]
                if not unplaced:
                    self.wake.wait(IDLE_WAIT_S)
            for copy in unplaced:
                try:
                    self._place(copy)
                except Exception as error:  # one must not hold up the others
                    bug = error
                    with self.wake:
                        copy.trouble = f"an internal error: {error!r}"
            if any(copy.target is None for copy in unplaced):
                self._closed.wait(PLACE_RETRY_S)
            now_s = time.monotonic()
            if now_s >= self._maps_due_s:
                self._maps_due_s = now_s + IDLE_WAIT_S
                self._maps.store(self.wake)
            if bug is not None:
                raise bug

    def _place(self, copy: PartitionCopy) -> None:
        if self._closed.is_set() or copy.is_removed:
            return
        try:
            if self._config.scatter:
                target = self._placement.any_broker()
            else:
                target = self._placement.target_of(copy.name)
                if copy.offsets is None:
                    copy.offsets = self._maps.open(copy.name, target)
            if not (copy.lineage or copy.stored_lineage):
                copy.lineage = copy.stored_lineage = self._lineages.read(copy.name)
        except (NotPlaced, CoordinationError) as error:
            if copy.trouble != str(error):
                log.info("not_placed_yet", partition=str(copy.name), reason=str(error))
            with self.wake:
                copy.trouble = str(error)
            return
        reader, writer = self._reader(copy.name.broker_id), self._writer(target.broker_id)
        with self.wake:
            if copy.is_removed:
                return
            copy.target = target
            copy.trouble = ""
            if copy not in reader.copies:  # when scattering, only its target may be new
                reader.add(copy)
            writer.copies.append(copy)
            self.wake.notify_all()

    def _reader(self, broker_id: int) -> SourceReader:
        if broker_id not in self._readers:
            reader = SourceReader(
                broker_id,
                self._config,
                self.wake,
                address_of=self._source_brokers.address_of,
                is_set=lambda: self._source.exists(paths.replica_state_path(broker_id)),
                refusals=self._refusals,
                tails=self.tails,
            )
            with self.wake:
                self._readers[broker_id] = reader
        return self._readers[broker_id]

    def _writer(self, broker_id: int) -> TargetWriter:
        if broker_id not in self._writers:
            writer = TargetWriter(
                broker_id,
                self._config,
                self.wake,
                address_of=self._target_brokers.address_of,
                may_send=self._may_send,
                refusals=self._refusals,
            )
            with self.wake:
                self._writers[broker_id] = writer
        return self._writers[broker_id]

    def _may_send(self) -> bool:
        """Whether the session that owns our partitions surely lives, so no other member copies."""
        session = self.owning_session()
        return session is not None and self._source.lease_remaining_ms(session) > 0

    # --- status ----------------------------------------------------------------------------------

    @property
    def knows_its_share(self) -> bool:
        """Whether ZooKeeper answers: if not, there may be partitions of ours that are not known."""
        return self._may_send()

    def copies(self) -> list[PartitionCopy]:
        with self.wake:
            return sorted(self._copies.values(), key=lambda copy: copy.name)

    def status(self) -> dict[str, Any]:
        """The answer of /status: every owned partition, and whether all of them are drained.

        `drained` says that everything written before `as_of_ms` (ms since the epoch) is durable at
        the target and committed: compare that time with the moment when writing ended. The lag is
        the present one: None if the source's end has not been known for some intervals.
        """
        copies = self.copies()
        at_ms = now_ms()
        known_ms = at_ms - KNOWN_INTERVALS * self._config.status_interval_ms
        with self.wake:
            return {
                "group": self._config.group_id,
                # A member without partitions has nothing to wait for.
                "drained": all(_is_drained(copy) for copy in copies),
                "as_of_ms": min((copy.source_end_ms for copy in copies), default=at_ms),
                "lag_bytes": total_lag(copy.lag_bytes_since(known_ms) for copy in copies),
                "partitions": [_described(copy, at_ms, known_ms) for copy in copies],
                "targets": {
                    str(broker_id): {
                        "connected": writer.is_connected,
                        "barriers": writer.barriers,
                        "barrier_seconds": round(writer.barrier_s, 3),
                    }
                    for broker_id, writer in self._writers.items()
                },
            }


def _is_drained(copy: PartitionCopy) -> bool:
    return copy.lag_bytes == 0 and copy.is_quiet and copy.committed_offset == copy.confirmed_offset


def _trouble(copy: PartitionCopy) -> str | None:
    if copy.stands_at_refused and copy.refused is not None and not copy.refusal:
        return copy.refused.text
    return copy.refusal or copy.trouble or None


def _described_entry(entry: RefusedEntry) -> dict[str, Any]:
    return {"offset": entry.offset, "bytes": entry.size, "reason": entry.reason}


def _described(copy: PartitionCopy, at_ms: int, known_ms: int) -> dict[str, Any]:
    """A copy's status at `at_ms`; ends asked for before `known_ms` do not count as known."""
    return {
        "topic": copy.name.topic,
        "source": f"{copy.name.broker_id}-{copy.name.partition}",
        "target": copy.target.text if copy.target else None,
        "state": copy.state,
        "trouble": _trouble(copy),
        "source_end": copy.source_end,
        "source_end_age_ms": copy.source_end_age_ms(at_ms),
        "copied_offset": copy.confirmed_offset if copy.is_started else None,
        "committed_offset": copy.committed_offset,
        "in_flight_bytes": copy.unconfirmed_bytes,
        "lag_bytes": copy.lag_bytes_since(known_ms),
        "latency_ms": copy.latency_ms,
        "copied_bytes": copy.copied_bytes,
        "copied_sets": copy.copied_sets,
        "copied_messages": copy.copied_messages,
        "rewinds": copy.rewinds,
        "repeated_bytes": copy.repeated_bytes,
        "skipped_bytes": copy.skipped_bytes,
        "cut_bytes": copy.cut_bytes,
        "source_restarts": copy.source_restarts,
        "refused_entry": _described_entry(copy.refused) if copy.refused else None,
        "refused_entries": copy.refused_entries,
        "left_out_entries": copy.left_out_entries,
    }
