"""The consumer connector: a member of a consumer group, with its streams, threads and commits.

    with ConsumerConnector(ConsumerConfig(group_id="g", zk_connect="host:2181")) as consumer:
        [stream] = consumer.create_message_streams({"page-view": 1})["page-view"]
        for message in stream:
            work(message.payload)

Threads: one carries out what `groups.rebalance` decides, one per broker fetches, one commits by
timer, one watches the lease: once ZooKeeper has not answered for so long that the session may be
gone, nothing is delivered, because another member may own the partitions by then.
"""

import random
import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from kafka2011.consumer.broker_addresses import BrokerAddresses
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.counting.group_counts import GroupCounts
from kafka2011.consumer.counting.validation import Validation
from kafka2011.consumer.counting.verdicts import Validated
from kafka2011.consumer.errors import ConsumerFailed, ConsumerStateError
from kafka2011.consumer.groups import offset_lookup, rebalance
from kafka2011.consumer.groups.assignment import make_consumer_id, thread_id
from kafka2011.consumer.groups.chunk_queues import ChunkQueue, OwnedPartition
from kafka2011.consumer.groups.committed_offsets import CommittedOffsets, check_offset, run
from kafka2011.consumer.groups.log_tails import LogTails
from kafka2011.consumer.groups.membership import Membership
from kafka2011.consumer.groups.rebalancer import Rebalancer
from kafka2011.consumer.groups.stream_assignment import StreamAssignment
from kafka2011.consumer.groups.topic_filters import TopicFilter
from kafka2011.consumer.simple import EARLIEST, LATEST
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.paths import StaticSubscription, Subscription
from kafka2011.coordination.registry import Handle, Registry, SessionEvent
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

log = get_logger(__name__)

LEASE_CHECK_S = 0.5
LEAVE_TIMEOUT_S = 15.0
START_TIMES = {"smallest": EARLIEST, "largest": LATEST}  # by autooffset.reset


class ConsumerConnector:
    """A group member; it connects to ZooKeeper at once. Raises CoordinationUnavailable when that
    takes longer than `zk.connectiontimeout.ms`.

    `registry`: one that the caller has started and closes (default: a new one).
    `name`: the process's name, for the member's id (default: the host's name, as in 0.7).
    """

    def __init__(
        self,
        config: ConsumerConfig,
        registry: Registry | None = None,
        *,
        rng: random.Random | None = None,
        name: str = "",
    ) -> None:
        self.config = config
        self.stats = ConsumerStats()
        self.consumer_id = make_consumer_id(
            config.group_id, name or socket.gethostname(), config.consumer_id
        )
        self._own_registry: ZooKeeperRegistry | None = None
        if registry is None:
            own = ZooKeeperRegistry(config.zk_connect, config.zk_session_timeout_ms)
            try:
                own.start(config.zk_connection_timeout_ms)
            except CoordinationError:
                own.close()
                raise
            registry = self._own_registry = own
        self._registry: Registry = registry
        self._queues: dict[tuple[str, str], ChunkQueue] = {}
        self._all_queues: list[ChunkQueue] = []
        self._any_topic: dict[str, ChunkQueue] = {}
        self._brokers = BrokerAddresses(self._registry, config)
        self._counts = (
            GroupCounts(self._registry, config.group_id, config.forms, config.window_ms)
            if config.audit_enable
            else None
        )
        self._tails = LogTails(self._registry, config.group_id)
        self._assignment = StreamAssignment(
            config, self.stats, self._brokers.find, self._queue_of, self._counts, tails=self._tails
        )
        self._offsets = self._committed_offsets(by_hand=False)
        self._validation: Validation | None = None
        self._offsets_lock = threading.RLock()
        self._membership: Membership | None = None
        self._listener: Handle | None = None
        self._rebalancer = Rebalancer(
            self.consumer_id, config, self.stats, self._offsets_lock, rng or random.Random()
        )
        self._is_by_hand = False
        self._closing = threading.Event()
        self._shutdown_lock = threading.RLock()
        self._workers: list[Worker] = []
        self._failure: BaseException | None = None  # the error that ended one of them
        self._rebalance_worker: Worker | None = None

    # --- streams ---------------------------------------------------------------------------------

    def create_message_streams(
        self, topic_counts: Mapping[str, int]
    ) -> dict[str, list[MessageStream]]:
        """Create that many streams for each topic; once per connector, and not beside a filter.

        Returns when the first rebalance is settled, or has failed `rebalance.retries.max` times
        (it goes on in the background: the partitions may still belong to a dead member's session).
        Raises IllegalTopicName, ConsumerStateError.
        """
        self._check_fresh()
        for topic, count in topic_counts.items():
            check_topic(topic, "0.7" if self.config.rule == "0.7" else "strict")
            if count < 1:
                raise ValueError(f"{count} streams for {topic}")
        streams: dict[str, list[MessageStream]] = {}
        for topic, count in topic_counts.items():
            streams[topic] = []
            for number in range(count):
                made = self._new_queue()
                self._queues[topic, thread_id(self.consumer_id, number)] = made
                streams[topic].append(self._stream(made))
        self._join(StaticSubscription(dict(topic_counts)))
        return streams

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, stream_count: int = 1
    ) -> list[MessageStream]:
        """Create streams that share all topics that the filter allows, including later ones."""
        self._check_fresh()
        if stream_count < 1:
            raise ValueError(f"{stream_count} streams")
        streams = []
        for number in range(stream_count):
            made = self._new_queue()
            self._any_topic[thread_id(self.consumer_id, number)] = made
            streams.append(self._stream(made))
        self._join(topic_filter.subscription(stream_count))
        return streams

    def create_stream_of_partitions(
        self, starts: Mapping[TopicPartition, int | None]
    ) -> MessageStream:
        """Create a stream of partitions chosen by hand; once per connector, instead of the others.

        `starts` says where each begins: an offset, EARLIEST, LATEST, or None for the group's stored
        offset and, without one, `autooffset.reset`. The group is not joined: nothing is registered,
        shared or taken over. Commits (also by the timer, with `autocommit.enable`) are made under
        `groupid` as long as no member of that group owns the partition; they are refused while one
        does. Choose a group for this use alone.

        Raises BrokerUnavailable (EARLIEST and LATEST ask the broker), CoordinationError,
        ConsumerStateError, IllegalTopicName, ValueError for an impossible offset.
        """
        self._check_fresh()
        chosen = {TopicPartition(*name): start for name, start in starts.items()}
        offsets = self._committed_offsets(by_hand=True)
        places: dict[TopicPartition, int | None] = {}
        for name, start in chosen.items():
            check_topic(name.topic, "0.7" if self.config.rule == "0.7" else "strict")
            stored = offsets.read(name)
            if start is None:
                places[name] = stored
            elif start in (EARLIEST, LATEST):
                found = offset_lookup.offset_of_time(self._brokers, name, start)
                places[name] = found
                self._tails.begin_anew(name, found)
            else:
                places[name] = check_offset(start)
        self._offsets = offsets
        self._is_by_hand = True
        made = self._any_topic[self.consumer_id] = self._new_queue()
        for name, place in places.items():
            self._assignment.start(name, self.consumer_id, place)
        if self.config.autocommit_enable:
            self._workers.append(self._started("commit", self._commit_by_timer))
        return self._stream(made)

    def _committed_offsets(self, *, by_hand: bool) -> CommittedOffsets:
        return CommittedOffsets(
            self._registry,
            self.config.group_id,
            by_hand=by_hand,
            counts=self._counts,
            tails=self._tails,
        )

    def _check_fresh(self) -> None:
        if self._membership is not None or self._is_by_hand or self._closing.is_set():
            raise ConsumerStateError("streams are created once per connector")

    def _new_queue(self) -> ChunkQueue:
        made = ChunkQueue(self.config.queued_chunks_max)
        self._all_queues.append(made)
        return made

    def _stream(self, made: ChunkQueue) -> MessageStream:
        return MessageStream(
            made,
            self.config.consumer_timeout_ms,
            self.stats,
            shallow=self.config.shallow_iterator_enable,
        )

    def _queue_of(self, topic: str, thread: str) -> ChunkQueue:
        shared = self._any_topic.get(thread)
        return self._queues[topic, thread] if shared is None else shared

    def _join(self, subscription: Subscription) -> None:
        self._membership = Membership(
            self._registry,
            self.config.group_id,
            self.consumer_id,
            subscription,
            delivery=self._assignment,
            offsets=self._offsets,
            changed=self._rebalancer.registry_changed,
            commits_on_release=self.config.autocommit_enable,
            find_start=self._find_start if self.config.autocommit_enable else None,
        )
        self._listener = self._registry.add_session_listener(self._on_session)
        self._rebalancer.post(rebalance.Joined())
        membership = self._membership
        self._rebalance_worker = self._started("rebalance", lambda: self._rebalance(membership))
        self._workers.append(self._started("lease", self._watch_lease))
        if self.config.autocommit_enable:
            self._workers.append(self._started("commit", self._commit_by_timer))
        self._rebalancer.first_settled.wait()

    def _find_start(self, name: TopicPartition) -> int | None:
        time_ms = START_TIMES.get(self.config.autooffset_reset)
        try:
            return None if time_ms is None else offset_lookup.start(self._brokers, name, time_ms)
        except KafkaError as error:
            log.info("start_unknown", partition=str(name), reason=str(error))
            return None

    def _started(self, name: str, target: Callable[[], None]) -> Worker:
        made = Worker(target, f"consumer-{name}", restarts=False, on_failure=self._broken)
        made.start()
        return made

    def _broken(self, error: BaseException) -> None:
        """Deliver nothing more, and let the streams raise `error`: a bug has ended a thread."""
        self._failure = self._failure or error
        self._assignment.halt_all()
        for made in self._all_queues:
            made.fail(error)

    def _check_whole(self) -> None:
        if self._failure is not None:
            raise ConsumerFailed(
                f"a thread of the consumer was ended by {self._failure!r}"
            ) from self._failure

    # --- positions and commits -------------------------------------------------------------------

    def owned(self) -> list[TopicPartition]:
        """The partitions that are being delivered to this member at present, sorted."""
        return [owned.name for owned in self._assignment.owned()]

    def positions(self) -> dict[TopicPartition, int | None]:
        """Next offset after what was delivered, per owned partition; None before the start is
        known."""
        return {owned.name: owned.delivered_offset() for owned in self._assignment.owned()}

    def reset_to(self, name: TopicPartition) -> int | None:
        """Where `autooffset.reset` last moved the partition because its log did not hold the
        position; None if it has not while this member owned it, or if the partition is not owned.

        If that is below what had been delivered, what comes from there on is from another log.
        """
        owned = self._assignment.find(name)
        return None if owned is None else owned.reset_to

    @property
    def is_settled(self) -> bool:
        """Whether this member owns its whole share of the partitions, as it last read the group."""
        return self._is_by_hand or self._rebalancer.is_settled

    def lag(self) -> dict[TopicPartition, int | None]:
        """Bytes between what was delivered and the high watermark, per owned partition.

        One request per partition; None where it was not answered, the start is not known yet, or
        the log ends before what was delivered.
        """
        return offset_lookup.lag(self._brokers, self.positions())

    def seek(self, name: TopicPartition, offset: int) -> bool:
        """Go on from `offset` (an entry's start); False when the partition is not owned.

        Raises ValueError for a number that no log can have. An offset that the log does not hold is
        moved by `autooffset.reset`.
        """
        self._check_whole()
        return self._assignment.move(name, check_offset(offset))

    def seek_to_time(self, name: TopicPartition, time_ms: int) -> int | None:
        """Go to an offset before everything written after `time_ms` (ms since the epoch), or to
        EARLIEST or LATEST; returns the offset, None when the partition is not owned.

        Brokers know the times of whole segments only: it goes on from the newest segment last
        written at or before that time, so older messages come first; from the log's start when no
        segment is that old. Raises BrokerUnavailable.
        """
        self._check_whole()
        offset = offset_lookup.offset_of_time(self._brokers, name, time_ms)
        return offset if self._assignment.move(name, offset, is_present=True) else None

    def skip_entry(self, name: TopicPartition, offset: int) -> int:
        """Skip the entry at `offset` (of a PartitionStuck); returns where the stream goes on.

        Raises BrokerUnavailable, and ConsumerStateError when the entry's length cannot be read or
        the partition is not owned.
        """
        self._check_whole()
        following = offset_lookup.end_of_entry(self._brokers, name, offset)
        if not self._assignment.move(name, following, is_present=True):
            raise ConsumerStateError(f"{name} is not owned any more")
        return following

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int] | None = None
    ) -> list[TopicPartition]:
        """Store what was delivered, or exactly `offsets` (smaller ones too).

        It counts as processed, so that neither the timer nor a rebalance takes it back, until the
        application has finished with more than it has now.

        Returns the partitions that were refused because this member does not own them (any more),
        as while a rebalance is under way. Raises CoordinationUnavailable when it is not known
        whether all were stored, and ValueError for a number that no log can have, before anything
        is stored.
        """
        self._check_whole()
        if offsets is not None:
            offsets = {TopicPartition(*name): check_offset(at) for name, at in offsets.items()}
        with self._offsets_lock:
            if offsets is None:
                return self._commit(self._not_committed(OwnedPartition.state_delivered))
            for name, at in offsets.items():
                owned = self._assignment.find(name)
                if owned is not None:
                    owned.state(at)
            return self._commit(offsets)

    def _not_committed(
        self, position: Callable[[OwnedPartition], int | None]
    ) -> dict[TopicPartition, int]:
        """The `position` of each owned partition whose committed offset is another one."""
        return {
            owned.name: offset
            for owned in self._assignment.owned()
            if (offset := position(owned)) is not None and offset != owned.committed
        }

    def validate(self, *, is_final: bool = False) -> Validated:
        """Whether the group has read what the producers reported (docs/audit.md); `is_final`: the
        producers have stopped, so that windows that are still open are judged too.

        Needs `audit.enable`, else ConsumerStateError. One thread at a time. The first call reads
        the whole topic `audit`, later ones what has come since. Raises CoordinationError.
        """
        if self._counts is None:
            raise ConsumerStateError("audit.enable=true makes a consumer count what it reads")
        if self._validation is None:
            self._validation = Validation(self._registry, self.config.group_id, self._brokers)
        return self._validation.look(is_final=is_final)

    def _commit(self, wanted: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Store these; returns those that were refused. Under `_offsets_lock`, since before the
        positions were read: else they could overwrite a later commit, or one of the next owner."""
        refused = []
        disowned = []
        for name, offset in wanted.items():
            owned = self._assignment.find(name)
            if owned is None:
                refused.append(name)
                continue
            try:
                kept = run(self._offsets.commit(name, owned.thread, offset))
            except CoordinationError:
                self.stats.commit_failures += 1
                raise
            if kept:
                owned.committed = offset
                self.stats.commits += 1
            else:
                refused.append(name)
                disowned.append(name)
        if refused:
            self.stats.commits_refused += len(refused)
        if disowned and not self._is_by_hand:
            self._rebalancer.post(rebalance.Disowned(frozenset(disowned)))
        return refused

    def shutdown(self, *, commit: bool = True) -> None:
        """Stop delivering, leave the group and end the streams. A second call waits for the first.

        If ZooKeeper does not answer and the caller gave the registry, leaving goes on in the
        background until that answers or is closed: its session would keep the member in the group.

        With auto-commit what was delivered counts as done and is committed; with `commit` False
        nothing is. Leaving the `with` by an error is in between: it commits what the application
        has finished with.
        """
        self._shut_down_once(commit=commit, delivered=True)

    def _shut_down_once(self, *, commit: bool, delivered: bool) -> None:
        with self._shutdown_lock:
            if not self._closing.is_set():
                self._shut_down(commit=commit, delivered=delivered)

    def _shut_down(self, *, commit: bool, delivered: bool) -> None:
        self._closing.set()
        self._assignment.commits_delivered = delivered
        for made in self._all_queues:
            made.close()
        if self._own_registry is not None:
            self._own_registry.close_if_silent()
        if self._membership is not None:
            if not commit:
                self._membership.commits_on_release = False
            self._rebalancer.post(rebalance.Left())
            self._rebalancer.left.wait(LEAVE_TIMEOUT_S)
        elif self._is_by_hand:
            self._leave_by_hand(commit=commit)
        self._assignment.stop_fetching()
        if self._own_registry is not None:
            self._own_registry.close()
            self._rebalancer.post(rebalance.Closed())
        workers = list(self._workers)
        if self._rebalance_worker and (self._own_registry or self._rebalancer.has_left):
            workers.append(self._rebalance_worker)
        for worker in workers:
            worker.join(LEAVE_TIMEOUT_S)

    def _leave_by_hand(self, *, commit: bool) -> None:
        if commit and self.config.autocommit_enable:
            try:
                with self._offsets_lock:
                    places = {
                        owned.name: self._assignment.position_to_commit(owned)
                        for owned in self._assignment.owned()
                    }
                    self._commit({name: at for name, at in places.items() if at is not None})
            except CoordinationError as error:
                log.warning("commit_failed", group=self.config.group_id, reason=str(error))
        self._assignment.halt_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shut_down_once(commit=True, delivered=kind is None)

    # --- sessions --------------------------------------------------------------------------------

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._assignment.suspend()
            self._rebalancer.post(rebalance.SessionEnded())
        elif event is SessionEvent.RECREATED:
            self._rebalancer.post(rebalance.Joined())

    def _rebalance(self, membership: Membership) -> None:
        """The rebalance thread. It outlives `shutdown` if the caller's registry did not answer."""
        try:
            self._rebalancer.run(membership)
        finally:
            if self._listener is not None:
                self._listener.cancel()

    # --- the other threads -----------------------------------------------------------------------

    def _watch_lease(self) -> None:
        while not self._closing.is_set():
            assert self._membership is not None
            session = self._membership.session
            remaining_ms = self._registry.lease_remaining_ms(session) if session is not None else 0
            if remaining_ms > 0:
                self._assignment.resume()
            else:
                self._assignment.suspend()
            # Waiting half of what is left each time notices its end promptly, with few checks.
            self._closing.wait(min(LEASE_CHECK_S, max(0.005, remaining_ms / 2000)))

    def _commit_by_timer(self) -> None:
        while not self._closing.wait(self.config.autocommit_interval_ms / 1000):
            try:
                with self._offsets_lock:
                    self._commit(self._not_committed(OwnedPartition.processed_offset))
            except CoordinationError as error:
                log.warning("commit_failed", group=self.config.group_id, reason=str(error))
