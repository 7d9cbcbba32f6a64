"""Assigns owned partitions to their fetchers and streams, and takes them off again.

The `Delivery` of `membership`: `start` and `halt` come from the rebalance thread, `suspend` and
`resume` from the threads that watch the session's lease.
"""

import threading
from collections.abc import Callable, Iterable

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.counting.group_counts import GroupCounts
from kafka2011.consumer.groups.chunk_queues import ChunkQueue, OwnedPartition
from kafka2011.consumer.groups.fetcher import BrokerFetcher
from kafka2011.consumer.groups.log_tails import LogTails
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.runtime.shared_settings import Address

JOIN_TIMEOUT_S = 5.0


class StreamAssignment:
    """The owned partitions and their fetchers. `find_address(broker_id)` returns a broker's present
    address, `queue_of(topic, thread)` the queue of the stream that a thread id names."""

    def __init__(
        self,
        config: ConsumerConfig,
        stats: ConsumerStats,
        find_address: Callable[[int], Address | None],
        queue_of: Callable[[str, str], ChunkQueue],
        counts: GroupCounts | None = None,
        *,
        tails: LogTails,
    ) -> None:
        self._config = config
        self._stats = stats
        self._find_address = find_address
        self._queue_of = queue_of
        self._counts = counts
        self._tails = tails
        self._lock = threading.RLock()
        self._owned: dict[TopicPartition, OwnedPartition] = {}
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._stopped: list[BrokerFetcher] = []
        self._suspended = False
        # Set at shutdown, when the application is done with what it was given.
        self.commits_delivered = False

    # --- Delivery --------------------------------------------------------------------------------

    def start(self, name: TopicPartition, thread: str, stored: int | None) -> None:
        with self._lock:
            self._drop([name])
            queue = self._queue_of(name.topic, thread)
            size = self._config.fetch_size
            owned = OwnedPartition(name, thread, queue, stored, size, self._counts)
            if self._suspended:
                owned.suspend()
            self._owned[name] = owned
            self._fetcher(name.broker_id).add(owned)

    def halt(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        positions = {}
        with self._lock:
            for owned in self._drop(names):
                offset = self.position_to_commit(owned)
                if offset is not None and offset != owned.committed:
                    positions[owned.name] = offset
        return positions

    def halt_all(self) -> None:
        with self._lock:
            self._drop(list(self._owned))

    # --- leases ----------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Deliver nothing until `resume`: the session may be gone. Keeps what was fetched."""
        with self._lock:
            if self._suspended:
                return
            self._suspended = True
            if self._owned:
                self._stats.suspensions += 1
            for owned in self._owned.values():
                owned.suspend()

    def resume(self) -> None:
        with self._lock:
            if not self._suspended:
                return
            self._suspended = False
            for owned in self._owned.values():
                owned.resume()

    # --- what is owned ---------------------------------------------------------------------------

    def owned(self) -> list[OwnedPartition]:
        with self._lock:
            return [self._owned[name] for name in sorted(self._owned)]

    def find(self, name: TopicPartition) -> OwnedPartition | None:
        with self._lock:
            return self._owned.get(name)

    def position_to_commit(self, owned: OwnedPartition) -> int | None:
        return owned.delivered_offset() if self.commits_delivered else owned.processed_offset()

    def move(self, name: TopicPartition, offset: int, *, is_present: bool = False) -> bool:
        """Go on from `offset`; False when the partition is not owned. `is_present`: the broker has
        just given the offset, so that it is of its log, whichever was read before."""
        with self._lock:
            owned = self._owned.get(name)
            if owned is None:
                return False
            is_present |= owned.has_raised  # the application knows what is there
            owned.move_to(offset)
            if is_present:
                self._tails.begin_anew(name, offset)
            owned.queue.drop_revoked()
            self._fetchers[name.broker_id].loop.wake()
            return True

    def stop_fetching(self) -> None:
        """Stop every fetcher and wait for their threads; the partitions keep their positions."""
        with self._lock:
            fetchers = [*self._fetchers.values(), *self._stopped]
            self._stopped = []
        for fetcher in fetchers:
            fetcher.loop.stop()
        for fetcher in fetchers:
            fetcher.loop.join(JOIN_TIMEOUT_S)

    # --- inside ----------------------------------------------------------------------------------

    def _drop(self, names: Iterable[TopicPartition]) -> list[OwnedPartition]:
        dropped = []
        for name in names:
            owned = self._owned.pop(name, None)
            if owned is None:
                continue
            owned.revoke()
            dropped.append(owned)
            fetcher = self._fetchers.get(name.broker_id)
            if fetcher is not None and fetcher.remove(owned):
                self._stop(name.broker_id)
        for queue in {id(owned.queue): owned.queue for owned in dropped}.values():
            queue.drop_revoked()
        return dropped

    def _fetcher(self, broker_id: int) -> BrokerFetcher:
        found = self._fetchers.get(broker_id)
        if found is None:
            found = self._fetchers[broker_id] = BrokerFetcher(
                broker_id,
                lambda: self._find_address(broker_id),
                self._config,
                self._stats,
                tails=self._tails,
            )
            found.loop.start()
        return found

    def _stop(self, broker_id: int) -> None:
        """End a fetcher without partitions; its thread is joined at shutdown."""
        fetcher = self._fetchers.pop(broker_id)
        fetcher.loop.stop()
        self._stopped = [*(one for one in self._stopped if one.loop.is_alive()), fetcher]
