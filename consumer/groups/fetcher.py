"""One thread per broker that fetches all the partitions owned there, for ever.

Each round is one multifetch of the partitions whose stream has room, and the next begins with those
that had none. A partition that cannot be read is put aside and retried; it never stops the others
(fault B11), nor does a broker that is away: its address is looked up again and the fetching goes on
where it was.
"""

import threading
import time
from collections.abc import Callable, Sequence

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import BrokerUnavailable, ConsumerClosed, PartitionStuck
from kafka2011.consumer.groups.chunk_queues import (
    DAMAGE_ATTEMPTS,
    Grant,
    PartitionFeed,
    StreamQueue,
)
from kafka2011.consumer.simple import EARLIEST, LATEST, FetchedSet, SimpleConsumer
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.protocol.errors import (
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
)
from kafka2011.protocol.requests import FetchRequest
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)

PARTS_MAX = 500  # of one multifetch; brokers refuse thousands
ANSWER_BYTES_MAX = 1 << 26  # of one multifetch: what a round may hold in memory
FAILURE_PAUSE_S = 0.1  # after a failed request, doubling
FAILURE_PAUSE_MAX_S = 2.0

Address = tuple[str, int]
_Asked = tuple[PartitionFeed, Grant, FetchRequest]


class BrokerFetcher:
    """`find_address` says where the broker is at present, None when it is not registered."""

    def __init__(
        self,
        broker_id: int,
        find_address: Callable[[], Address | None],
        config: ConsumerConfig,
        stats: ConsumerStats,
    ) -> None:
        self.broker_id = broker_id
        self._find_address = find_address
        self._config = config
        self._stats = stats
        self._lock = threading.Lock()
        self._feeds: list[PartitionFeed] = []
        self._turn = 0
        self._left_out: list[PartitionFeed] = []  # of this round: there was no room for them
        self._held: list[StreamQueue] = []  # rooms reserved in this round and not used yet
        self._quiet_count = 0  # partitions asked, one after another, of which nothing came
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._client: SimpleConsumer | None = None
        self._failure_pause_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"fetch-{broker_id}", daemon=True)
        self._thread.start()

    def add(self, feed: PartitionFeed) -> None:
        with self._lock:
            self._feeds.append(feed)
        self._woken.set()

    def remove(self, feed: PartitionFeed) -> bool:
        """Fetch it no more; True when this was the last one."""
        with self._lock:
            if feed in self._feeds:
                self._feeds.remove(feed)
            return not self._feeds

    def wake(self) -> None:
        """A partition moved: do not wait for the end of the pause."""
        self._woken.set()

    def stop(self) -> None:
        """Begin to stop; the thread ends soon. Idempotent."""
        self._stopping.set()
        self._woken.set()
        client = self._client
        if client is not None:
            client.close()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        idle_ms = 0
        while True:
            self._woken.clear()
            if self._stopping.is_set():  # looked at after the clearing: `stop` sets both
                break
            try:
                asked, pause_s = self._choose()
                if not asked:
                    self._woken.wait(pause_s)
                    continue
                answers = self._fetch([request for _, _, request in asked])
                progress = [
                    self._take_answer(feed, grant, answer)
                    for (feed, grant, _), answer in zip(asked, answers, strict=True)
                ]
            except KafkaError as error:
                self._after_failure(error)
                continue
            except Exception as error:  # a bug of ours must not stop a broker's partitions for good
                log.exception("fetcher_failed", broker_id=self.broker_id)
                self._after_failure(error)
                continue
            self._failure_pause_s = 0.0
            idle_ms = self._pause_when_idle(idle_ms, any(progress), len(asked))
        if self._client is not None:
            self._client.close()

    def _pause_when_idle(self, idle_ms: int, progress: bool, asked_count: int) -> int:
        """Sleep when nothing came of any partition; returns how long, 0 after progress."""
        if progress:
            self._quiet_count = 0
            return 0
        self._quiet_count += asked_count
        if self._quiet_count < asked_count + len(self._left_out) and any(
            feed.queue.has_room() for feed in self._left_out
        ):
            return idle_ms  # it is their turn first
        self._quiet_count = 0
        first = self._config.fetcher_backoff_ms
        idle_ms = min(max(first, 2 * idle_ms), max(first, self._config.fetcher_backoff_max_ms))
        self._woken.wait(idle_ms / 1000)
        return idle_ms

    def _choose(self) -> tuple[list[_Asked], float | None]:
        """What to ask for in this round, or nothing and how long to wait (None: until woken)."""
        now_s = time.monotonic()
        asked: list[_Asked] = []
        answer_bytes = 0
        wake_at_s: float | None = None
        self._left_out = []
        crowded: set[StreamQueue] = set()
        with self._lock:
            turn = self._turn % max(1, len(self._feeds))
            feeds = self._feeds[turn:] + self._feeds[:turn]
        for feed in feeds:
            if feed.retry_at_s > now_s:
                wake_at_s = min(wake_at_s or feed.retry_at_s, feed.retry_at_s)
                continue
            is_full = len(asked) == PARTS_MAX or (asked and answer_bytes > ANSWER_BYTES_MAX)
            if is_full or not self._reserve(feed):
                self._left_out.append(feed)
                if not is_full:
                    crowded.add(feed.queue)
                continue
            grant = feed.grant
            offset = feed.fetch_offset
            if offset is None:
                offset = self._first_offset(feed, grant)
            if offset is None:
                wake_at_s = min(wake_at_s or feed.retry_at_s, feed.retry_at_s)
                continue
            topic, _, partition = feed.name
            asked.append((feed, grant, FetchRequest(topic, partition, offset, feed.fetch_size)))
            answer_bytes += feed.fetch_size
        # Those left out begin the next round; when none was, another one is the first.
        self._turn += len(asked) if asked and self._left_out else 1
        # Where we have room ourselves, giving it back would be what wakes us, time and again.
        for queue in crowded.difference(feed.queue for feed, _, _ in asked):
            queue.wake_when_room(self._woken)
        return asked, None if wake_at_s is None else max(0.0, wake_at_s - now_s)

    def _fetch(self, requests: Sequence[FetchRequest]) -> list[FetchedSet]:
        self._stats.fetch_requests += 1
        return self._connected().multifetch(requests)

    def _connected(self) -> SimpleConsumer:
        if self._client is None:
            published = self._find_address()
            if published is None:
                raise BrokerUnavailable(f"broker {self.broker_id} is not registered")
            self._client = SimpleConsumer(
                *self._config.dialled(published),
                self._config.socket_timeout_ms,
                self._config.socket_buffer_bytes,
            )
            if self._stopping.is_set():
                self._client.close()
                raise ConsumerClosed("the fetcher was stopped")
        return self._client

    def _after_failure(self, error: Exception) -> None:
        """Hold nothing any more, and pause."""
        for queue in self._held:
            queue.give_back()
        self._held.clear()
        if self._stopping.is_set():
            return
        self._stats.broker_failures += 1
        if not self._failure_pause_s:
            log.warning("fetch_failed", broker_id=self.broker_id, reason=str(error))
        if self._client is not None:
            self._client.close()
            self._client = None  # the next attempt looks the address up again
        self._failure_pause_s = min(
            FAILURE_PAUSE_MAX_S, max(FAILURE_PAUSE_S, 2 * self._failure_pause_s)
        )
        self._stopping.wait(self._failure_pause_s)

    # --- room in the queues ----------------------------------------------------------------------

    def _reserve(self, feed: PartitionFeed) -> bool:
        if not feed.queue.reserve():
            return False
        self._held.append(feed.queue)
        return True

    def _give_back(self, feed: PartitionFeed) -> None:
        self._held.remove(feed.queue)
        feed.queue.give_back()

    def _put(self, feed: PartitionFeed, grant: Grant, item: Chunk | PartitionStuck) -> bool:
        self._held.remove(feed.queue)
        return feed.queue.put(feed, grant, item)

    # --- one partition's answer ------------------------------------------------------------------

    def _take_answer(self, feed: PartitionFeed, grant: Grant, answer: FetchedSet) -> bool:
        """Queue what came; True when something did."""
        try:
            valid = answer.valid_bytes()
        except OffsetOutOfRange as error:
            return self._reset(feed, grant, answer.offset, error)
        except MessageLargerThanFetchSize as error:
            return self._grow(feed, grant, answer.offset, error)
        except InvalidMessage as error:
            return self._damaged(feed, grant, answer.offset, error)
        except KafkaError as error:
            return self._stick(feed, grant, answer.offset, error)
        if not valid:
            self._give_back(feed)
            return False
        data = answer.data if valid == len(answer.data) else answer.data[:valid]
        chunk = Chunk(*feed.name, answer.offset, data, answer.offset + valid)
        if self._put(feed, grant, chunk):
            self._stats.fetched_chunks += 1
            self._stats.fetched_bytes += valid
            feed.fetch_size = self._config.fetch_size
        return True

    def _grow(
        self, feed: PartitionFeed, grant: Grant, offset: int, error: MessageLargerThanFetchSize
    ) -> bool:
        """Ask for more next time. `Unlike 0.7:` there such a message stops the partition (B13)."""
        limit = self._config.fetch_size_max
        if feed.fetch_size >= limit or error.size_needed > limit:
            return self._stick(feed, grant, offset, error)
        self._give_back(feed)
        feed.fetch_size = min(limit, max(2 * feed.fetch_size, error.size_needed))
        self._stats.fetch_size_growths += 1
        return True  # ask again at once

    def _damaged(
        self, feed: PartitionFeed, grant: Grant, offset: int, error: InvalidMessage
    ) -> bool:
        """Fetch again a few times: the damage may have happened on the way (fault N15)."""
        self._stats.damaged_chunks += 1
        feed.damage_count += 1
        if feed.damage_count < DAMAGE_ATTEMPTS:
            self._give_back(feed)
            return True
        return self._stick(feed, grant, offset, error)

    def _stick(self, feed: PartitionFeed, grant: Grant, offset: int, error: KafkaError) -> bool:
        """Put the partition aside for a while; tell the application the first time."""
        news = feed.put_aside()
        log.error("partition_stuck", partition=str(feed.name), offset=offset, reason=str(error))
        if news:
            self._put(feed, grant, feed.stuck(offset, error))
            self._stats.stuck_partitions += 1
        else:
            self._give_back(feed)
        return False

    # --- where to start --------------------------------------------------------------------------

    def _first_offset(self, feed: PartitionFeed, grant: Grant) -> int | None:
        """Ask the broker where to begin when no offset is stored; None when it did not say, and the
        reserved room is used or given back."""
        try:
            offset = self._offset_of_policy(feed, "no offset is stored")
        except OffsetOutOfRange as error:
            self._stick(feed, grant, -1, error)
            return None
        except KafkaError as error:
            self._give_back(feed)
            self._later(feed, error)
            return None
        with feed.queue.lock:
            if feed.grant is grant:
                feed.base = feed.fetch_offset = offset
                return offset
            feed.retry_at_s = 0.0
        self._give_back(feed)
        return None

    def _later(self, feed: PartitionFeed, error: KafkaError) -> None:
        pause_s = min(FAILURE_PAUSE_MAX_S, FAILURE_PAUSE_S * 2**feed.failure_count)
        feed.failure_count += 1
        feed.retry_at_s = time.monotonic() + pause_s
        self._stats.broker_failures += 1
        log.warning("start_offset_failed", partition=str(feed.name), reason=str(error))
        if self._client is not None:
            self._client.close()
            self._client = None

    def _reset(
        self, feed: PartitionFeed, grant: Grant, offset: int, error: OffsetOutOfRange
    ) -> bool:
        """Move by `autooffset.reset`; counted and said aloud, for it may skip messages (B12).

        `Unlike 0.7:` the new offset is not stored at once, but by the next commit.
        """
        try:
            target = self._offset_of_policy(feed, str(error))
        except OffsetOutOfRange as told:
            return self._stick(feed, grant, offset, told)
        except KafkaError as failure:
            self._give_back(feed)
            self._later(feed, failure)
            return False
        self._give_back(feed)
        if target == offset:
            # The broker's range does not hold its own end: it is starting, or its disk failed.
            self._later(feed, error)
            return False
        self._stats.offset_resets += 1
        self._stats.offset_reset_bytes += max(0, target - offset)
        log.warning("offset_reset", partition=str(feed.name), from_offset=offset, to_offset=target)
        with feed.queue.lock:
            if feed.grant is grant:
                feed.fetch_offset = feed.base = target
                grant.last = grant.done = None
        return False

    def _offset_of_policy(self, feed: PartitionFeed, reason: str) -> int:
        """Earliest or latest. Raises OffsetOutOfRange for `reason` when the policy is neither."""
        times = {"smallest": EARLIEST, "largest": LATEST}
        policy = self._config.autooffset_reset
        time_ms = times.get(policy)
        if time_ms is None:
            raise OffsetOutOfRange(
                f"{reason}; autooffset.reset={policy} is neither smallest nor largest"
            )
        topic, _, partition = feed.name
        offsets = self._connected().get_offsets_before(topic, partition, time_ms, 1)
        if not offsets:
            raise BrokerUnavailable(f"no start offset of {feed.name}")
        return offsets[0]
