"""Fetches all the partitions that a group member owns on one broker, for their streams.

The policy of a `BrokerLoop`: each round reads the partitions whose stream has room, and the next
begins with those that had none. When nothing came and nothing waits to be taken, one fetch waits
for all of them without reserving room; in the rare case that an answer has more than there is room
for, the rest is dropped and fetched again. A partition that cannot be read is put aside and
retried.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafka2011.consumer.broker_loop import (
    PARTS_MAX,
    UNKNOWN_OFFSET,
    Backoff,
    BrokerLoop,
    PartitionRead,
    Plan,
    ReadingPolicy,
)
from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import BrokerUnavailable, PartitionStuck
from kafka2011.consumer.groups.chunk_queues import (
    DAMAGE_ATTEMPTS,
    ChunkQueue,
    OwnedPartition,
)
from kafka2011.consumer.groups.delivery import Grant
from kafka2011.consumer.groups.log_tails import LogTails
from kafka2011.consumer.log_tail import is_another_log
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.protocol.errors import (
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
)
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address

log = get_logger(__name__)

ROUND_BYTES_MAX = 1 << 26  # of one multifetch: what a round may hold in memory
FAILURE_BACKOFF = Backoff(0.1, 2.0)


@dataclass(slots=True)
class _OwnedRead(PartitionRead):
    owned: OwnedPartition
    grant: Grant  # at the moment when the read was planned
    is_reserved: bool = True  # there is room for what comes


class BrokerFetcher(ReadingPolicy[_OwnedRead]):
    """The fetcher of one broker. `find_address` returns the broker's present address, None when it
    is not registered. `tails`: of what is read; None: a log that was replaced is not noticed."""

    def __init__(
        self,
        broker_id: int,
        find_address: Callable[[], Address | None],
        config: ConsumerConfig,
        stats: ConsumerStats,
        woken: threading.Event | None = None,
        *,
        tails: LogTails | None = None,
    ) -> None:
        self.broker_id = broker_id
        self._find_address = find_address
        self._config = config
        self._stats = stats
        self._tails = tails
        self._client: SimpleConsumer | None = None
        self._clients = 0
        self._lock = threading.Lock()
        self._owned: list[OwnedPartition] = []
        self._turn = 0
        self._planned_count = 0
        self._left_out: list[OwnedPartition] = []  # in this round, for lack of room
        self._held: list[ChunkQueue] = []  # rooms reserved in this round and not used yet
        self._quiet_count = 0  # reads in a row that brought nothing
        self._was_quiet = False  # the last rounds brought nothing of any partition
        first_s = config.fetcher_backoff_ms / 1000
        self.loop = BrokerLoop(
            f"fetch-{broker_id}",
            self,
            idle=Backoff(first_s, max(first_s, config.fetcher_backoff_max_ms / 1000)),
            failure=FAILURE_BACKOFF,
            fetch_size_max=config.fetch_size_max,
            request_bytes_max=ROUND_BYTES_MAX,
            wait_max_s=config.fetch_wait_ms / 1000,
            gather_s=config.fetch_gather_ms / 1000,
            woken=woken,
        )

    def add(self, owned: OwnedPartition) -> None:
        with self._lock:
            self._owned.append(owned)
        self.loop.wake()

    def remove(self, owned: OwnedPartition) -> bool:
        """Stop fetching it; True when it was the last one."""
        with self._lock:
            if owned in self._owned:
                self._owned.remove(owned)
            return not self._owned

    # --- what is fetched next --------------------------------------------------------------------

    def plan(self) -> Plan[_OwnedRead]:
        now_s = time.monotonic()
        reads: list[_OwnedRead] = []
        planned_bytes = 0
        retry_at_s: float | None = None
        self._left_out = []
        crowded: set[ChunkQueue] = set()
        with self._lock:
            turn = self._turn % max(1, len(self._owned))
            in_turn = self._owned[turn:] + self._owned[:turn]
        is_quiet = self._was_quiet and all(owned.queue.is_empty for owned in in_turn)
        for owned in in_turn:
            if owned.retry_at_s > now_s:
                retry_at_s = min(retry_at_s or owned.retry_at_s, owned.retry_at_s)
                continue
            size = owned.fetch_size
            is_full = len(reads) == PARTS_MAX or (reads and planned_bytes + size > ROUND_BYTES_MAX)
            if is_full or not (is_quiet or self._reserve(owned)):
                self._left_out.append(owned)
                if not is_full:
                    crowded.add(owned.queue)
                continue
            grant = owned.grant  # before the offset: a seek between the two revokes it
            topic, _, partition = owned.name
            offset = owned.fetch_offset
            if offset is None:
                offset = UNKNOWN_OFFSET
            reads.append(
                _OwnedRead(topic, partition, offset, size, owned, grant, is_reserved=not is_quiet)
            )
            planned_bytes += size
        self._planned_count = len(reads)
        # The next round begins with those left out; if none was, with the next partition in turn.
        self._turn += len(reads) if reads and self._left_out else 1
        wait_s = None if retry_at_s is None else max(0.0, retry_at_s - now_s)
        # When this round holds room itself, giving it back would wake the loop again and again.
        crowded.difference_update(read.owned.queue for read in reads)
        for queue in crowded:
            queue.wake_when_room(self.loop)
        if reads and any(owned.queue not in crowded for owned in self._left_out):
            wait_s = 0.0  # nothing wakes the loop for these
        if not is_quiet and any(not read.owned.queue.has_room() for read in reads):
            wait_s = 0.0  # a wait would hold the last room, and leave other brokers none
        return Plan(reads, wait_s)

    def goes_on(self, has_moved: bool) -> bool:
        """Whether the next round follows at once: something moved, or partitions that were left out
        have room now and take their turn before a pause."""
        if has_moved:
            self._quiet_count = 0
            self._was_quiet = False
            return True
        self._quiet_count += self._planned_count
        if self._quiet_count < self._planned_count + len(self._left_out) and any(
            owned.queue.has_room() for owned in self._left_out
        ):
            return True
        self._quiet_count = 0
        self._was_quiet = self._config.fetch_wait_ms > 0
        return False

    def _reserve(self, owned: OwnedPartition) -> bool:
        if not owned.queue.reserve():
            return False
        self._held.append(owned.queue)
        return True

    def _give_back(self, read: _OwnedRead) -> None:
        if read.is_reserved:
            self._held.remove(read.owned.queue)
            read.owned.queue.give_back()

    def _put(self, read: _OwnedRead, item: Chunk | PartitionStuck) -> bool:
        queue = read.owned.queue
        if read.is_reserved:
            self._held.remove(queue)
            return queue.put(read.owned, read.grant, item)
        return queue.put_if_room(read.owned, read.grant, item)

    # --- the broker ------------------------------------------------------------------------------

    def connect(self) -> SimpleConsumer:
        published = self._find_address()
        if published is None:
            raise BrokerUnavailable(f"broker {self.broker_id} is not registered")
        self._clients += 1
        self._client = SimpleConsumer(
            *self._config.dialled(published),
            self._config.socket_timeout_ms,
            self._config.socket_buffer_bytes,
        )
        return self._client

    def requesting(self) -> None:
        self._stats.fetch_requests += 1

    def abandoned(self) -> None:
        for queue in self._held:
            queue.give_back()
        self._held.clear()

    def broker_failed(self, _error: Exception) -> None:
        self._stats.broker_failures += 1

    # --- one partition's answer ------------------------------------------------------------------

    def take(self, read: _OwnedRead, data: memoryview, valid_bytes: int) -> bool:
        if not valid_bytes:
            self._give_back(read)
            return False
        if self._is_another_log(read):
            return self._read_anew(read)
        if valid_bytes < len(data):
            data = data[:valid_bytes]
        chunk = Chunk(*read.owned.name, read.offset, data, read.offset + valid_bytes)
        if self._put(read, chunk):
            if self._tails is not None:
                self._tails.took(chunk)
            self._stats.fetched_chunks += 1
            self._stats.fetched_bytes += valid_bytes
            read.owned.fetch_size = self._config.fetch_size
        return True

    def enlarge(self, read: _OwnedRead, size_max: int) -> None:
        if self._is_another_log(read):
            self._read_anew(read)
            return
        self._give_back(read)
        read.owned.fetch_size = size_max
        self._stats.fetch_size_growths += 1

    def refused(self, read: _OwnedRead, error: KafkaError) -> bool:
        # Of another log the offset may be in the middle of an entry.
        is_unreadable = isinstance(error, InvalidMessage | MessageLargerThanFetchSize)
        if is_unreadable and self._is_another_log(read):
            return self._read_anew(read)
        if not isinstance(error, InvalidMessage):
            return self._stick(read, error)
        # The damage may have happened on the way: fetch again a few times.
        self._stats.damaged_chunks += 1
        read.owned.damage_count += 1
        if read.owned.damage_count >= DAMAGE_ATTEMPTS:
            return self._stick(read, error)
        self._give_back(read)
        return True

    def _stick(self, read: _OwnedRead, error: KafkaError) -> bool:
        """Put the partition aside for a while; the stream raises PartitionStuck the first time."""
        is_new = read.owned.put_aside()
        log.error(
            "partition_stuck", partition=str(read.owned.name), offset=read.offset, reason=str(error)
        )
        if is_new:
            self._put(read, read.owned.stuck(read.offset, error))
            self._stats.stuck_partitions += 1
        else:
            self._give_back(read)
        return False

    # --- where to start --------------------------------------------------------------------------

    def locate(self, read: _OwnedRead) -> _OwnedRead | None:
        try:
            offset = self._reset_offset(read, "no offset is stored")
        except OffsetOutOfRange as error:
            self._stick(read, error)
            return None
        owned = read.owned
        with owned.queue.lock:
            if owned.grant is read.grant:
                owned.base = owned.fetch_offset = read.offset = offset
                return read
            owned.retry_at_s = 0.0
        self._give_back(read)
        return None

    def out_of_range(self, read: _OwnedRead, error: OffsetOutOfRange) -> bool:
        """Move to where `autooffset.reset` says; counted and logged, since it may skip messages.

        `Unlike 0.7:` the new offset is not stored at once, but by the next commit.
        """
        try:
            target = self._reset_offset(read, str(error))
        except OffsetOutOfRange as refusal:
            return self._stick(read, refusal)
        if target == read.offset:
            # The broker's range does not hold its own end: it is starting, or its disk failed.
            raise error
        self._reset(read, target, "offset_reset")
        return False

    def _reset(self, read: _OwnedRead, target: int, event: str) -> None:
        self._give_back(read)
        self._stats.offset_resets += 1
        self._stats.offset_reset_bytes += max(0, target - read.offset)
        log.warning(
            event, partition=str(read.owned.name), from_offset=read.offset, to_offset=target
        )
        if read.owned.reset(read.grant, target) and self._tails is not None:
            self._tails.begin_anew(read.owned.name, target)

    # --- a log that was lost, and has grown beyond the position ----------------------------------

    def _is_another_log(self, read: _OwnedRead) -> bool:
        """Whether the broker's log is another one than was read up to this offset. A log is lost
        while its broker is away, so this is asked once on each connection."""
        client, owned = self._client, read.owned
        if self._tails is None or client is None:
            return False
        connection = self._clients, client.connections
        if owned.log_seen == connection:
            return False
        known = self._tails.before(owned.name, read.offset)
        if known is not None and is_another_log(client, read.topic, read.partition, known):
            return True
        owned.log_seen = connection  # if another was made meanwhile, it is asked again
        return False

    def _read_anew(self, read: _OwnedRead) -> bool:
        """Move to where `autooffset.reset` says in a log that is not the one that was read: below
        the offset it has messages that the group has not read."""
        try:
            target = self._reset_offset(
                read, f"the log is not the one that was read up to {read.offset}: it was lost"
            )
        except OffsetOutOfRange as refusal:
            return self._stick(read, refusal)
        self._stats.replaced_logs += 1
        self._reset(read, target, "log_replaced")
        return False

    def offsets_failed(self, read: _OwnedRead, error: KafkaError) -> None:
        self._give_back(read)
        read.owned.failure_count += 1
        pause_s = FAILURE_BACKOFF.pause_s(read.owned.failure_count)
        read.owned.retry_at_s = time.monotonic() + pause_s
        self._stats.broker_failures += 1
        log.warning("start_offset_failed", partition=str(read.owned.name), reason=str(error))

    def _reset_offset(self, read: _OwnedRead, reason: str) -> int:
        """The earliest or latest offset, by `autooffset.reset`; if that says neither, raises
        OffsetOutOfRange with `reason`."""
        match self._config.autooffset_reset:
            case "smallest":
                return self.loop.client().earliest(read.topic, read.partition)
            case "largest":
                return self.loop.client().latest(read.topic, read.partition)
            case policy:
                raise OffsetOutOfRange(
                    f"{reason}; autooffset.reset={policy} is neither smallest nor largest"
                )
