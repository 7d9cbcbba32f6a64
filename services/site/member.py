"""One use as a member of its group: reads events into the state, saves it with the offsets.

One thread takes a batch, the checkpoint and the results in turn, so the state never contains half a
batch and the offsets saved are exactly those of the state. ZooKeeper gets the offsets after the
checkpoint is on the disk: they show the group's lag, and are never ahead of it.

An event that the use fails on is left out. It may have failed in the middle of an update, so the
use is then made anew from its state, as by a restart: what it derives from the state fits again.
"""

import copy
import dataclasses
import json
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kafka2011.consumer.batch import Batch
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.errors import ConsumerStateError, ConsumerTimeout, PartitionStuck
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.groups.topic_filters import whitelist
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.events.codec import Record
from kafka2011.events.errors import EventError
from kafka2011.events.registry_client import RegistryError
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.protocol.errors import BrokerUnavailable, KafkaError
from kafka2011.runtime.clock import Clock, has_passed, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.storage_paths import make_directory
from kafka2011.runtime.workers import Worker
from kafka2011.services.site import checkpoint
from kafka2011.services.site.ages import EventAges
from kafka2011.services.site.config import SiteConfig
from kafka2011.services.site.positions import BatchPosition, Positions, ReadTimes
from kafka2011.services.site.results import ResultWriter
from kafka2011.services.site.use import LATE_MS, Use, time_of

TICK_MS = 250  # longest pause between two looks at the clock
# A fetch is answered as soon as there is one message. A pause after so many small batches lets more
# come, so that the groups do not ask the brokers hundreds of times a second.
ROUND_BATCHES = 16
ROUND_EVENTS = 4_000
ROUND_PAUSE_S = 0.1
REGISTRY_PAUSE_S = 0.5
LONG_BYTES = 1_000  # a payload whose texts may be too long to keep
TEXT_KEPT = 300  # characters
CHECKPOINT = "checkpoint.json"
STOP_S = 15.0

log = get_logger(__name__)


class UseMember:
    """Runs `use` from `start` until `close`. `shown` and `status` may be called by any thread.

    Raises CheckpointDamaged, OSError (the directory).
    """

    def __init__(
        self,
        config: SiteConfig,
        use: Use,
        codec: TopicCodec,
        *,
        registry: Registry,
        writer: ResultWriter,
        clock: Clock = now_ms,
    ) -> None:
        self.use = use
        self._empty = copy.deepcopy(use)
        self._config = config
        self._codec = codec
        self._registry = registry
        self._writer = writer
        self._clock = clock
        self._lock = threading.Lock()
        self._positions = Positions()
        self._met: set[TopicPartition] = set()  # partitions of which a batch came
        self._saved: Mapping[TopicPartition, int] = {}  # offsets of the last checkpoint
        self._stored: dict[TopicPartition, int] = {}  # offsets that the group has
        self._ages = EventAges()
        self._read_times = ReadTimes()
        self._events = self._unreadable = self._left_out = 0
        self._checkpoints = self._checkpoint_bytes = 0
        self._file: Path = config.data_dir / use.name / CHECKPOINT
        make_directory(self._file.parent)
        self._restore()
        self._saved_ms = self._written_ms = clock()
        self._events_written = self._events
        self._has_changed = False
        self._stopping = threading.Event()
        self._connector: ConsumerConnector | None = None
        self._worker = Worker(self._run, f"use-{use.name}", restarts=False)

    def _restore(self) -> None:
        found = checkpoint.load(self._file)
        if found is None:
            return
        positions, state = found
        try:
            self._positions.restore(positions)
            self._saved = self._positions.all()
            self._events, self._unreadable = state["events"], state["unreadable"]
            self.use.restore(state["use"])
        except (KeyError, TypeError, ValueError) as error:
            raise checkpoint.CheckpointDamaged(
                f"{self._file} is of another version ({error!r}); to count anew from where its "
                f"group stands, delete the directory {self._file.parent}"
            ) from None
        log.info("restored", use=self.use.name, events=self._events)

    # --- from any thread ------------------------------------------------------------------------

    def start(self) -> None:
        self._worker.start()

    @property
    def is_running(self) -> bool:
        return self._worker.is_alive()

    @property
    def is_settled(self) -> bool:
        connector = self._connector
        return connector is not None and connector.is_settled

    def shown(self) -> dict[str, Any]:
        """What the page shows, with how much was read for it and when; `behind_ms`: how far behind
        the logs it is, at most; None: not known; `is_late`: whether that is too far to compare."""
        with self._lock:
            at_ms = self._clock()
            return {
                "at_ms": at_ms,
                "behind_ms": self._look_how_late(),
                "is_late": self.use.is_late,
                "events": self._events,
                "ages": self._ages.shown(at_ms),
                "missed_bytes": self._positions.missed_bytes,
                "begun_anew": self._positions.begun_anew,
                "shown": self.use.shown(at_ms),
            }

    def _look_how_late(self) -> int | None:
        behind_ms = self._read_times.behind_ms
        self.use.is_late = behind_ms is None or behind_ms > LATE_MS
        return behind_ms

    def asked(self, question: Callable[[Use], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The answer of the use to a question of a visitor."""
        with self._lock:
            return question(self.use)

    def status(self) -> dict[str, Any]:
        connector = self._connector
        with self._lock:
            return {
                "group": self._config.group_of(self.use.name),
                "settled": self.is_settled,
                "owned": [str(name) for name in connector.owned()] if connector else [],
                "events": self._events,
                "unreadable": self._unreadable,
                "events_left_out": self._left_out,
                "missed_bytes": self._positions.missed_bytes,
                "begun_anew": self._positions.begun_anew,
                "checkpoints": self._checkpoints,
                "checkpoint_bytes": self._checkpoint_bytes,
            }

    def lag(self) -> dict[TopicPartition, int | None]:
        """Bytes that are not read yet, by partition. Raises KafkaError, CoordinationError."""
        connector = self._connector
        at_ms = self._clock()
        found = dict(connector.lag()) if connector is not None else {}
        with self._lock:
            self._read_times.sampled(found, at_ms)
        return found

    def stop(self) -> None:
        """Let the thread stop reading and save, without waiting for it."""
        self._stopping.set()

    def close(self) -> None:
        """Stop reading, save, leave the group."""
        self.stop()
        self._worker.join(STOP_S)
        connector, self._connector = self._connector, None
        if connector is not None:
            connector.shutdown()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        config = dataclasses.replace(
            self._config,
            group_id=self._config.group_of(self.use.name),
            consumer_timeout_ms=TICK_MS,
        )
        connector = self._connector = ConsumerConnector(
            config, self._registry, name=config.process_name
        )
        [stream] = connector.create_message_streams_by_filter(whitelist("|".join(self.use.topics)))
        batches = events = 0
        while not self._stopping.is_set():
            try:
                for batch in stream.batches():
                    self.take(batch, connector)
                    self._tick(connector)
                    batches, events = batches + 1, events + len(batch)
                    if batches >= ROUND_BATCHES:
                        if events < ROUND_EVENTS:
                            self._stopping.wait(ROUND_PAUSE_S)
                        batches = events = 0
                    if self._stopping.is_set():
                        break
                else:
                    break  # shut down
            except ConsumerTimeout:
                self._tick(connector)
            except PartitionStuck as stuck:
                self._skip(stuck, connector)
        self._save(connector)

    def _tick(self, connector: ConsumerConnector) -> None:
        """Do what is due by the clock: results, a checkpoint."""
        at_ms = self._clock()
        every_ms = self._config.result_interval_ms
        has_news = self._events != self._events_written
        if every_ms and has_news and has_passed(every_ms, self._written_ms, at_ms):
            self._written_ms, self._events_written = at_ms, self._events
            with self._lock:
                self._look_how_late()
                results = self.use.results(at_ms)
            self._writer.write(results)
            self._has_changed = self._has_changed or bool(results)
        if has_passed(self._config.checkpoint_interval_ms, self._saved_ms, at_ms):
            self._save(connector)

    def take(self, batch: Batch, connector: ConsumerConnector) -> None:
        """Add what is new of the batch to the state."""
        name = batch.topic_partition
        self._met.add(name)
        reset_to = connector.reset_to(name)
        place = self._positions.place(name, batch.offset, batch.next_offset, reset_to)
        offset, payloads = batch.offset, batch.payloads
        if place is BatchPosition.KNOWN:
            return
        known = self._positions.of(name)
        if place is BatchPosition.GAP and known is not None:
            log.warning("gap_found", partition=str(name), position=known, offset=offset)
            self._positions.sought(name)
            connector.seek(name, known)
            return
        if place is BatchPosition.OVERLAPS and known is not None:
            try:
                payloads, offset = _payloads_from(batch, known), known
            except KafkaError:  # no entry begins there
                place = BatchPosition.ANEW
        if place is BatchPosition.ANEW:
            log.warning("log_begins_anew", partition=str(name), position=known, offset=offset)
            with self._lock:
                self._positions.begin_anew(name, offset)
        events = self._decoded(batch.topic, payloads)
        if events is None:
            return
        with self._lock:
            at_ms = self._clock()
            taken = sum(self._give(name, event, at_ms) for event in events)
            self._events += taken
            self._unreadable += len(payloads) - taken
            if events:
                self._read_times.read(name, time_of(events[-1]))
            self._positions.advance(name, offset, batch.next_offset)
        self._has_changed = True

    def _give(self, name: TopicPartition, event: Record, at_ms: int) -> bool:
        """Have the use take the event. Returns whether it did."""
        # An event of the future, from a clock that is ahead, counts as of now.
        event["header"]["time"] = min(time_of(event), at_ms)
        try:
            self.use.take(name.topic, event, at_ms)
        except Exception:  # a fault of the use, which the next start would meet again
            guid = event["header"]["guid"].hex()
            log.exception("event_not_taken", use=self.use.name, partition=str(name), guid=guid)
            self._mend()
            return False
        self._ages.add(time_of(event), at_ms)
        return True

    def _mend(self) -> None:
        """Make the use anew from its state."""
        anew = copy.deepcopy(self._empty)
        try:
            anew.restore(json.loads(json.dumps(self.use.state())))
        except Exception:
            log.exception("state_not_mended", use=self.use.name)
            return
        self.use = anew

    def _decoded(self, topic: str, payloads: list[bytes]) -> list[Record] | None:
        """The events that can be decoded, of bounded size; waits for the schema registry. None:
        stopping."""
        found: list[Record] = []
        done = 0
        is_reported = False
        try:
            read = self._codec.reader(topic)
        except EventError as error:  # by event.forms the topic has no such events
            log.debug("unreadable", topic=topic, reason=str(error))
            return found
        while True:
            try:
                for payload in payloads[done:]:
                    try:
                        event = read(payload)
                        found.append(event if len(payload) <= LONG_BYTES else _shortened(event))
                    except EventError as error:
                        log.debug("unreadable", topic=topic, reason=str(error))
                    done += 1
                return found
            except RegistryError as error:
                if not is_reported:
                    log.warning("waiting_for_schema_registry", detail=str(error))
                    is_reported = True
                if self._stopping.wait(REGISTRY_PAUSE_S):
                    return None

    def _skip(self, stuck: PartitionStuck, connector: ConsumerConnector) -> None:
        """Leave out an entry that cannot be read: the page goes on without it, and says so."""
        name = TopicPartition(stuck.topic, stuck.broker_id, stuck.partition)
        try:
            behind = connector.skip_entry(name, stuck.offset)
        except (BrokerUnavailable, ConsumerStateError) as error:
            log.error("partition_stuck", detail=str(stuck), why=str(error))
            return
        log.error("entry_left_out", detail=str(stuck), to=behind)
        with self._lock:
            self._left_out += 1
            self._positions.advance(name, stuck.offset, behind)

    def _save(self, connector: ConsumerConnector) -> None:
        """Save the state with its offsets; then commit the offsets for the group."""
        self._saved_ms = self._clock()
        if not self._has_changed:
            self._commit(connector)
            return
        with self._lock:
            positions, offsets = self._positions.state(), self._positions.all()
            state = {
                "events": self._events,
                "unreadable": self._unreadable,
                "use": self.use.state(),
            }
            try:
                self._checkpoint_bytes = checkpoint.save(self._file, positions, state)
            except OSError as error:
                log.error("checkpoint_failed", file=str(self._file), reason=reason_of(error))
                return
        self._has_changed = False
        self._checkpoints += 1
        self._saved = offsets
        self._commit(connector)

    def _commit(self, connector: ConsumerConnector) -> None:
        """Store what the group does not have yet: the checkpoint's offsets and, for a partition of
        which nothing ever came, its start, so that its lag is known. What a rebalance prevents is
        stored by the next call."""
        wanted = {}
        for name, start in connector.positions().items():
            at = self._saved.get(name)
            if at is None and name not in self._met:
                at = start
            if at is not None and at != self._stored.get(name):
                wanted[name] = at
        if not wanted:
            return
        try:
            refused = connector.commit_offsets(wanted)
        except (CoordinationError, KafkaError) as error:
            log.warning("commit_failed", group=self.use.name, reason=str(error))
            return
        self._stored |= {name: at for name, at in wanted.items() if name not in refused}


def _shortened(event: Record) -> Record:
    """The event with its long texts cut: they become keys of counts, which are bounded in number.
    Different texts stay different."""
    return {
        name: f"{value[:TEXT_KEPT]} {zlib.crc32(value.encode()):08x}"
        if isinstance(value, str) and len(value) > TEXT_KEPT
        else value
        for name, value in event.items()
    }


def _payloads_from(batch: Batch, offset: int) -> list[bytes]:
    """The payloads of the batch's entries from `offset` on, which is the start of one."""
    rest = Chunk(
        batch.topic, batch.broker_id, batch.partition, batch.offset, batch.data, batch.next_offset
    ).behind(offset - batch.offset)
    found: list[bytes] = []
    while rest.data:
        payloads, rest = rest.take_payloads()
        found += payloads
    return found
