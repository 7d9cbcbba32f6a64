"""Puts owned partitions on their fetchers and streams, and takes them off again.

The `Delivery` of `consumer.membership`: `start` and `halt` come from the rebalance thread,
`suspend` and `resume` from whoever learns that the session may be gone or is sure again.
"""

import threading
from collections.abc import Callable, Iterable

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.groups.chunk_queues import PartitionFeed, StreamQueue
from kafka2011.consumer.groups.fetcher import Address, BrokerFetcher
from kafka2011.consumer.stats import ConsumerStats

JOIN_TIMEOUT_S = 5.0


class DeliveryHub:
    """`find_address(broker_id)` says where a broker is now. `queue_of(topic, thread)` is the queue
    of the stream that a thread id of this consumer names."""

    def __init__(
        self,
        config: ConsumerConfig,
        stats: ConsumerStats,
        find_address: Callable[[int], Address | None],
        queue_of: Callable[[str, str], StreamQueue],
    ) -> None:
        self._config = config
        self._stats = stats
        self._find_address = find_address
        self._queue_of = queue_of
        self._lock = threading.RLock()
        self._feeds: dict[TopicPartition, PartitionFeed] = {}
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._stopped: list[BrokerFetcher] = []
        self._suspended = False
        # At shutdown the application says that it is done with what it was handed.
        self.commits_delivered = False

    # --- Delivery --------------------------------------------------------------------------------

    def start(self, name: TopicPartition, thread: str, stored: int | None) -> None:
        with self._lock:
            self._drop([name])
            queue = self._queue_of(name.topic, thread)
            feed = PartitionFeed(name, thread, queue, stored, self._config.fetch_size)
            if self._suspended:
                feed.grant.suspend()
            self._feeds[name] = feed
            self._fetcher(name.broker_id).add(feed)

    def halt(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        positions = {}
        with self._lock:
            for feed in self._drop(names):
                offset = self.position_to_commit(feed)
                if offset is not None and offset != feed.committed:
                    positions[feed.name] = offset
        return positions

    def halt_all(self) -> None:
        with self._lock:
            self._drop(list(self._feeds))

    # --- leases ----------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Hand out nothing until `resume`: the session may be gone. Keeps what was fetched."""
        with self._lock:
            if self._suspended:
                return
            self._suspended = True
            if self._feeds:
                self._stats.suspensions += 1
            for feed in self._feeds.values():
                with feed.queue.lock:
                    feed.grant.suspend()

    def resume(self) -> None:
        with self._lock:
            if not self._suspended:
                return
            self._suspended = False
            for feed in self._feeds.values():
                with feed.queue.lock:
                    feed.grant.resume()
                    feed.queue.lock.notify_all()

    # --- what is owned ---------------------------------------------------------------------------

    def feeds(self) -> list[PartitionFeed]:
        with self._lock:
            return [self._feeds[name] for name in sorted(self._feeds)]

    def feed(self, name: TopicPartition) -> PartitionFeed | None:
        with self._lock:
            return self._feeds.get(name)

    def position_to_commit(self, feed: PartitionFeed) -> int | None:
        return feed.delivered_offset() if self.commits_delivered else feed.processed_offset()

    def move(self, name: TopicPartition, offset: int) -> bool:
        """Go on from `offset`; False when the partition is not owned."""
        with self._lock:
            feed = self._feeds.get(name)
            if feed is None:
                return False
            feed.move_to(offset)
            feed.queue.drop_revoked()
            self._fetchers[name.broker_id].wake()
            return True

    def stop_fetching(self) -> None:
        """Stop every fetcher and wait for their threads; the feeds keep their positions."""
        with self._lock:
            fetchers = [*self._fetchers.values(), *self._stopped]
            self._stopped = []
        for fetcher in fetchers:
            fetcher.stop()
        for fetcher in fetchers:
            fetcher.join(JOIN_TIMEOUT_S)

    # --- inside ----------------------------------------------------------------------------------

    def _drop(self, names: Iterable[TopicPartition]) -> list[PartitionFeed]:
        dropped = []
        for name in names:
            feed = self._feeds.pop(name, None)
            if feed is None:
                continue
            with feed.queue.lock:
                feed.grant.revoke()
            dropped.append(feed)
            fetcher = self._fetchers.get(name.broker_id)
            if fetcher is not None and fetcher.remove(feed):
                self._stop(name.broker_id)
        for queue in {id(feed.queue): feed.queue for feed in dropped}.values():
            queue.drop_revoked()
        return dropped

    def _fetcher(self, broker_id: int) -> BrokerFetcher:
        found = self._fetchers.get(broker_id)
        if found is None:
            found = self._fetchers[broker_id] = BrokerFetcher(
                broker_id, lambda: self._find_address(broker_id), self._config, self._stats
            )
        return found

    def _stop(self, broker_id: int) -> None:
        """End a fetcher without partitions; its thread is joined at shutdown."""
        fetcher = self._fetchers.pop(broker_id)
        fetcher.stop()
        self._stopped = [
            *(stopped for stopped in self._stopped if stopped.is_alive()),
            fetcher,
        ]
