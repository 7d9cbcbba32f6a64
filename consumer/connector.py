"""The consumer connector: a member of a consumer group, with its streams, threads and commits.

    with ConsumerConnector(ConsumerConfig(group_id="g", zk_connect="host:2181")) as consumer:
        [stream] = consumer.create_message_streams({"page-view": 1})["page-view"]
        for message in stream:
            work(message.payload)

Threads: one carries out what `consumer.rebalance` decides, one fetches per broker, one commits by
timer, one watches the lease: while ZooKeeper has not answered for so long that the session may be
gone, nothing is handed out, because another member may own the partitions by then (faults Z2, Z3).
"""

import queue
import random
import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from consumer import rebalance
from consumer.assignment import make_consumer_id, thread_id
from consumer.chunk import TopicPartition
from consumer.config import Address, ConsumerConfig
from consumer.delivery import DeliveryHub
from consumer.errors import BrokerUnavailable, ConsumerStateError
from consumer.feed import StreamQueue
from consumer.filters import TopicFilter
from consumer.membership import Membership
from consumer.offsets import OffsetStore, run
from consumer.rebalance import Phase, State
from consumer.simple import SimpleConsumer
from consumer.stats import ConsumerStats
from consumer.stream import MessageStream
from coordination import paths
from coordination.errors import BadZnode, CoordinationError
from coordination.paths import StaticSubscription, Subscription
from coordination.registry import Handle, Registry, SessionEvent
from coordination.zookeeper import ZooKeeperRegistry
from protocol.names import check_topic
from runtime.logs import get_logger

log = get_logger(__name__)

FIRST_PAUSE_MS = 50  # before the second attempt of a rebalance; doubles up to rebalance.backoff.ms
LEASE_LOOK_S = 0.1
LEAVE_TIMEOUT_S = 15.0


class ConsumerConnector:
    """Connects to ZooKeeper at once. Raises CoordinationUnavailable when that takes longer than
    `zk.connectiontimeout.ms`.

    `registry`: use this one, started by the caller, who also closes it.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        registry: Registry | None = None,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self.stats = ConsumerStats()
        self._rng = rng or random.Random()
        self.consumer_id = make_consumer_id(
            config.group_id, socket.gethostname(), config.consumer_id
        )
        self._owns_registry = registry is None
        self._registry: Registry = registry or ZooKeeperRegistry(
            config.zk_connect, config.zk_session_timeout_ms
        )
        if self._owns_registry:
            try:
                self._registry.start(config.zk_connection_timeout_ms)
            except CoordinationError:
                self._registry.close()
                raise
        self._queues: dict[tuple[str, str], StreamQueue] = {}
        self._all_queues: list[StreamQueue] = []
        self._any_topic: dict[str, StreamQueue] = {}
        self._hub = DeliveryHub(config, self.stats, self._find_address, self._queue_of)
        self._offsets = OffsetStore(self._registry, config.group_id)
        self._offsets_lock = threading.RLock()
        self._membership: Membership | None = None
        self._listener: Handle | None = None
        self._state = State(self.consumer_id)
        self._events: queue.Queue[rebalance.Event] = queue.Queue()
        self._change_pending = threading.Event()
        self._first_rebalance = threading.Event()
        self._closing = threading.Event()
        self._shutdown_lock = threading.RLock()
        self._left = threading.Event()
        self._threads: list[threading.Thread] = []
        self._known_addresses: dict[int, Address] = {}

    # --- streams ---------------------------------------------------------------------------------

    def create_message_streams(
        self, topic_counts: Mapping[str, int]
    ) -> dict[str, list[MessageStream]]:
        """So many streams for each of these topics; once per connector, and not beside a filter.

        Returns when the first rebalance is settled, or has failed `rebalance.retries.max` times
        (it goes on in the background: the partitions may still belong to a dead member's session).
        Raises IllegalTopicName, ConsumerStateError.
        """
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
        """So many streams that share all the topics the filter allows, later ones too."""
        if stream_count < 1:
            raise ValueError(f"{stream_count} streams")
        streams = []
        for number in range(stream_count):
            made = self._new_queue()
            self._any_topic[thread_id(self.consumer_id, number)] = made
            streams.append(self._stream(made))
        self._join(topic_filter.subscription(stream_count))
        return streams

    def _new_queue(self) -> StreamQueue:
        made = StreamQueue(self.config.queued_chunks_max)
        self._all_queues.append(made)
        return made

    def _stream(self, made: StreamQueue) -> MessageStream:
        return MessageStream(made, self.config.consumer_timeout_ms, self.stats)

    def _queue_of(self, topic: str, thread: str) -> StreamQueue:
        shared = self._any_topic.get(thread)
        return self._queues[topic, thread] if shared is None else shared

    def _join(self, subscription: Subscription) -> None:
        if self._membership is not None or self._closing.is_set():
            raise ConsumerStateError("streams are created once per connector")
        self._membership = Membership(
            self._registry,
            self.config.group_id,
            self.consumer_id,
            subscription,
            delivery=self._hub,
            offsets=self._offsets,
            changed=self._on_change,
            commits_on_release=self.config.autocommit_enable,
        )
        self._listener = self._registry.add_session_listener(self._on_session)
        self._events.put(rebalance.Joined())
        self._start_thread("rebalance", self._run_rebalances)
        self._start_thread("lease", self._watch_lease)
        if self.config.autocommit_enable:
            self._start_thread("commit", self._commit_by_timer)
        self._first_rebalance.wait()

    def _start_thread(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"consumer-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- what the application asks ---------------------------------------------------------------

    def owned(self) -> list[TopicPartition]:
        """The partitions that are being delivered to this member at present, sorted."""
        return [feed.name for feed in self._hub.feeds()]

    def positions(self) -> dict[TopicPartition, int | None]:
        """Next offset after what was handed out, per owned partition; None before the start is
        known."""
        return {feed.name: feed.delivered_offset() for feed in self._hub.feeds()}

    @property
    def is_settled(self) -> bool:
        """Whether this member has all it should have, as far as it knows."""
        return self._state.phase is Phase.SETTLED

    def lag(self) -> dict[TopicPartition, int | None]:
        """Bytes between what was handed out and the high watermark, per owned partition.

        Asks every broker; None where one did not answer or the start is not known yet.
        """
        found: dict[TopicPartition, int | None] = {}
        clients: dict[int, SimpleConsumer | None] = {}
        for name, position in self.positions().items():
            found[name] = None
            if position is None:
                continue
            if name.broker_id not in clients:
                clients[name.broker_id] = self._client_of(name.broker_id)
            client = clients[name.broker_id]
            if client is not None:
                try:
                    found[name] = max(0, client.latest(name.topic, name.partition) - position)
                except BrokerUnavailable:
                    pass
        for client in clients.values():
            if client is not None:
                client.close()
        return found

    def seek(self, name: TopicPartition, offset: int) -> bool:
        """Go on from `offset` (an entry's start); False when the partition is not owned."""
        return self._hub.move(name, offset)

    def seek_to_time(self, name: TopicPartition, time_ms: int) -> int | None:
        """Go back to the newest segment start last written at or before `time_ms`, or EARLIEST or
        LATEST; returns the offset, None when there is none or the partition is not owned.

        Raises BrokerUnavailable.
        """
        client = self._client_of(name.broker_id)
        if client is None:
            raise BrokerUnavailable(f"broker {name.broker_id} is not registered")
        with client:
            offsets = client.get_offsets_before(name.topic, name.partition, time_ms, 1)
        return offsets[0] if offsets and self._hub.move(name, offsets[0]) else None

    def skip_entry(self, name: TopicPartition, offset: int) -> int:
        """Leave out the entry at `offset` (of a PartitionStuck); returns where it goes on.

        Raises BrokerUnavailable, and ConsumerStateError when nothing there says how long it is.
        """
        client = self._client_of(name.broker_id)
        if client is None:
            raise BrokerUnavailable(f"broker {name.broker_id} is not registered")
        with client:
            head = client.fetch(name.topic, name.partition, offset, 4).data
        size = int.from_bytes(head, "big", signed=True) if len(head) == 4 else -1
        if size < 0:
            raise ConsumerStateError(f"no entry of a known length at {offset} of {name}")
        if not self._hub.move(name, offset + 4 + size):
            raise ConsumerStateError(f"{name} is not owned any more")
        return offset + 4 + size

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int] | None = None
    ) -> list[TopicPartition]:
        """Store what was handed out, or exactly `offsets` (smaller ones too).

        Returns the partitions that were refused because another member owns them now; a rebalance
        is under way then. Raises CoordinationUnavailable when it is not known whether all were
        stored.
        """
        if offsets is None:
            wanted = {
                feed.name: offset
                for feed in self._hub.feeds()
                if (offset := feed.delivered_offset()) is not None and offset != feed.committed
            }
        else:
            wanted = {TopicPartition(*name): offset for name, offset in offsets.items()}
        return self._commit(wanted)

    def _commit(self, wanted: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        refused = []
        disowned = []
        for name, offset in wanted.items():
            with self._offsets_lock:
                feed = self._hub.feed(name)
                if feed is None:
                    refused.append(name)
                    continue
                try:
                    kept = run(self._offsets.commit(name, feed.thread, offset))
                except CoordinationError:
                    self.stats.commit_failures += 1
                    raise
                if kept:
                    feed.committed = offset
                    self.stats.commits += 1
                else:
                    refused.append(name)
                    disowned.append(name)
        if refused:
            self.stats.commits_refused += len(refused)
        if disowned:
            self._events.put(rebalance.Disowned(frozenset(disowned)))
        return refused

    def shutdown(self, *, commit: bool = True) -> None:
        """Stop delivering, commit (with auto-commit, and unless `commit` is False), leave the group
        and end the streams. What was handed out counts as done. A second call waits for the first.
        """
        with self._shutdown_lock:
            if not self._closing.is_set():
                self._shut_down(commit=commit)

    def _shut_down(self, *, commit: bool) -> None:
        self._closing.set()
        self._hub.commits_delivered = commit
        for made in self._all_queues:
            made.close()
        if self._membership is not None:
            self._events.put(rebalance.Left())
            self._left.wait(LEAVE_TIMEOUT_S)
        self._hub.stop_fetching()
        if self._listener is not None:
            self._listener.cancel()
        if self._owns_registry:
            self._registry.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(LEAVE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown(commit=kind is None)

    # --- the rebalance thread --------------------------------------------------------------------

    def _on_change(self) -> None:
        """A watch fired; several of them make one rebalance."""
        if not self._change_pending.is_set():
            self._change_pending.set()
            self._events.put(rebalance.Changed())

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._hub.suspend()
            self._events.put(rebalance.SessionLost())
        elif event is SessionEvent.RECREATED:
            self._events.put(rebalance.Joined())

    def _run_rebalances(self) -> None:
        try:
            self._rebalance_until_left()
        except Exception:  # a bug of ours: deliver nothing more, and leave nobody waiting
            log.exception("rebalance_thread_failed", group=self.config.group_id)
            self._hub.halt_all()
            for made in self._all_queues:
                made.close()
        finally:
            self._first_rebalance.set()
            self._left.set()

    def _rebalance_until_left(self) -> None:
        waiting: rebalance.Wait | None = None
        while self._state.phase is not Phase.LEFT:
            event = self._next_event(waiting)
            if event is None:
                assert waiting is not None
                event, waiting = rebalance.Waited(waiting.epoch), None
            if isinstance(event, rebalance.Changed):
                self._change_pending.clear()
            self._state, actions = rebalance.step(self._state, event)
            for action in actions:
                if isinstance(action, rebalance.Wait):
                    waiting = action
                    self._tell_attempt(action.attempt)
                else:
                    answer = self._carry_out(action)
                    if answer is not None:
                        self._events.put(answer)
            if self._state.phase is Phase.SETTLED:
                self._first_rebalance.set()

    def _next_event(self, waiting: rebalance.Wait | None) -> rebalance.Event | None:
        """The next event; None when the pause that `waiting` asked for is over first."""
        if waiting is None:
            return self._events.get()
        pause_ms = min(
            FIRST_PAUSE_MS * 2 ** min(waiting.attempt - 1, 16), self.config.rebalance_backoff_ms
        )
        try:
            # Members that lost the same race must not meet again at the next one.
            return self._events.get(timeout=pause_ms * self._rng.uniform(0.5, 1.0) / 1000)
        except queue.Empty:
            return None

    def _tell_attempt(self, attempt: int) -> None:
        self.stats.rebalance_failures += 1
        if attempt == self.config.rebalance_retries_max:
            missing = sorted(map(str, set(self._state.wanted) - set(self._state.owned)))
            log.warning("rebalance_unsettled", attempts=attempt, missing=missing)
            self._first_rebalance.set()

    def _carry_out(self, action: rebalance.Action) -> rebalance.Event | None:
        """Do it, and say how it went; what goes wrong in ZooKeeper is an answer, not an error."""
        assert self._membership is not None
        try:
            match action:
                case rebalance.Register(epoch):
                    run(self._membership.register())
                    return rebalance.Registered(epoch)
                case rebalance.ReadRegistry(epoch):
                    view = run(self._membership.read())
                    self.stats.rebalances += 1
                    return rebalance.Read(epoch, view.members, view.partitions)
                case rebalance.Release(epoch, claims):
                    with self._offsets_lock:
                        run(self._membership.release(claims))
                    self._log_claims("released", claims)
                    return rebalance.Released(epoch, frozenset(claims))
                case rebalance.Claim(epoch, claims):
                    with self._offsets_lock:
                        granted, error = run(self._membership.claim(claims))
                    self._log_claims("claimed", granted)
                    if error is not None:
                        log.warning("rebalance_failed", step="Claim", reason=str(error))
                        return rebalance.Failed(epoch, granted)
                    return rebalance.Claimed(epoch, granted)
                case rebalance.Abandon():
                    self._membership.abandon()
                case rebalance.Deregister():
                    run(self._membership.deregister())
        except CoordinationError as failure:
            log.warning("rebalance_failed", step=type(action).__name__, reason=str(failure))
            return rebalance.Failed(getattr(action, "epoch", -1))
        return None

    def _log_claims(self, what: str, names: "rebalance.Claims | frozenset[TopicPartition]") -> None:
        if names:
            log.info(what, group=self.config.group_id, partitions=sorted(map(str, names)))

    # --- the other threads -----------------------------------------------------------------------

    def _watch_lease(self) -> None:
        while not self._closing.is_set():
            assert self._membership is not None
            session = self._membership.session
            remaining_ms = self._registry.lease_remaining_ms(session) if session is not None else 0
            if remaining_ms > 0:
                self._hub.resume()
            else:
                self._hub.suspend()
            self._closing.wait(min(LEASE_LOOK_S, max(0.005, remaining_ms / 1000)))

    def _commit_by_timer(self) -> None:
        while not self._closing.wait(self.config.autocommit_interval_ms / 1000):
            wanted = {
                feed.name: offset
                for feed in self._hub.feeds()
                if (offset := feed.processed_offset()) is not None and offset != feed.committed
            }
            try:
                self._commit(wanted)
            except CoordinationError as error:
                log.warning("commit_failed", group=self.config.group_id, reason=str(error))

    # --- brokers ---------------------------------------------------------------------------------

    def _find_address(self, broker_id: int) -> Address | None:
        """Where a broker listens, by the registry; the last known place while that is silent."""
        try:
            stored = self._registry.get(paths.broker_id_path(broker_id))
            if stored is None:
                return None
            self._known_addresses[broker_id] = paths.decode_broker(stored.value)
        except BadZnode as error:
            log.error("znode_ignored", path=paths.broker_id_path(broker_id), reason=str(error))
            return None
        except CoordinationError:
            pass
        return self._known_addresses.get(broker_id)

    def _client_of(self, broker_id: int) -> SimpleConsumer | None:
        published = self._find_address(broker_id)
        if published is None:
            return None
        return SimpleConsumer(*self.config.dialled(published), self.config.socket_timeout_ms)
