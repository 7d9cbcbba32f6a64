"""Fetches from one source broker for all copies that have room.

The policy of a `BrokerLoop`. Sets pass through as the broker gives them, cut to complete entries
whose CRCs are right, and to what the target unpacks of one request; messages are counted but not
read, unless a set is large enough to hold one that the target would silently drop. A fetch belongs
to the copy's epoch: what comes back after a rewind is thrown away.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafka2011.consumer.broker_loop import (
    UNKNOWN_OFFSET,
    Backoff,
    BrokerLoop,
    PartitionRead,
    Plan,
    ReadingPolicy,
    is_bug,
)
from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.groups.log_tails import LogTails
from kafka2011.consumer.log_tail import is_another_log
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.protocol.errors import (
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
    RemoteProtocolError,
)
from kafka2011.protocol.lineage import Lineage, OlderLeader, Parted, PartedTooEarly, parted
from kafka2011.protocol.message import MAGIC1_HEADER
from kafka2011.protocol.message_set import check_entries, entries
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy
from kafka2011.services.mirror_maker.refusals import Refusals
from kafka2011.services.mirror_maker.set_cutting import (
    Piece,
    RefusedEntry,
    begins_compressed,
    cut_by_unpacked,
)

# Of one multifetch: a round of many partitions makes several.
FETCH_BYTES_MAX = 8_000_000
IDLE_WAIT_S = 1.0

log = get_logger(__name__)


@dataclass(slots=True)
class _CopyRead(PartitionRead):
    copy: PartitionCopy
    epoch: int  # the copy's when the read was planned


class SourceReader(ReadingPolicy[_CopyRead]):
    """The reader of one source broker. The mirror fills and empties `copies`, under `wake`'s lock.
    `is_set` says whether the broker is a replica set; may raise CoordinationError."""

    def __init__(
        self,
        broker_id: int,
        config: MirrorConfig,
        wake: threading.Condition,
        *,
        address_of: Callable[[int], Address],
        is_set: Callable[[], bool],
        refusals: Refusals,
        tails: LogTails,
    ) -> None:
        self.broker_id = broker_id
        self.copies: list[PartitionCopy] = []
        self._config = config
        self._wake = wake
        self._address_of = address_of
        self._is_set_now = is_set
        self._is_set = False
        self._client: SimpleConsumer | None = None
        self._clients = 0
        self._refusals = refusals
        self._tails = tails
        self._turn = 0
        self._requested_ms = 0  # the answers show a state of the log at or after this time
        self._stopped = False
        first_s = config.fetcher_backoff_ms / 1000
        self._loop = BrokerLoop(
            f"source-{broker_id}",
            self,
            idle=Backoff(first_s, max(first_s, config.fetcher_backoff_max_ms / 1000)),
            failure=Backoff(config.retry_min_ms / 1000, config.retry_max_ms / 1000),
            fetch_size_max=config.fetch_size_max,
            request_bytes_max=FETCH_BYTES_MAX,
            wait_max_s=config.fetch_wait_ms / 1000,
            gather_s=config.fetch_gather_ms / 1000,
        )
        self._loop.start()

    def stop(self) -> None:
        """Stop fetching; returns when the thread has ended. `wake`'s lock must not be held."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        self._loop.stop()
        self._loop.join()

    def add(self, copy: PartitionCopy) -> None:
        """Read this copy, too. The caller holds `wake`'s lock."""
        self.copies.append(copy)
        self._loop.wake()

    # --- what is fetched next --------------------------------------------------------------------

    def plan(self) -> Plan[_CopyRead]:
        """Plan the reads, waiting for copies that have room: whatever makes room notifies the
        mirror's condition."""
        with self._wake:
            now_s = time.monotonic()
            due = [copy for copy in self.copies if copy.wants_fetch(now_s)]
            if not due and not self._stopped:
                self._wake.wait(self._pause_s(now_s))
                return Plan([])
            self._turn = (self._turn + 1) % max(1, len(due))
            reads = [_read_of(copy) for copy in due[self._turn :] + due[: self._turn]]
            if len(due) == len(self.copies) and all(copy.is_quiet for copy in due):
                return Plan(reads, None)  # nothing but data, or another copy, can come
            # No longer than the pause between two polls: new room or a rewind does not end a wait.
            return Plan(reads, self._config.fetcher_backoff_max_ms / 1000)

    def _pause_s(self, now_s: float) -> float:
        ends = [copy.next_event_s() for copy in self.copies]
        return min([IDLE_WAIT_S, *(end - now_s for end in ends if end > now_s)])

    # --- the broker ------------------------------------------------------------------------------

    def connect(self) -> SimpleConsumer:
        host, port = self._config.dialled(self._address_of(self.broker_id))
        self._is_set = self._is_set_now()
        self._clients += 1
        self._client = SimpleConsumer(host, port, self._config.socket_timeout_ms)
        return self._client

    def requesting(self) -> None:
        self._requested_ms = now_ms()

    def answered(self, has_moved: bool) -> None:
        if has_moved:
            with self._wake:
                self._wake.notify_all()

    def broker_failed(self, error: Exception) -> None:
        reason = "an internal error" if is_bug(error) else str(error)
        with self._wake:
            for copy in self.copies:
                copy.trouble = copy.trouble or reason

    # --- one partition's answer ------------------------------------------------------------------

    def take(self, read: _CopyRead, data: memoryview, valid_bytes: int) -> bool:
        copy = read.copy
        if data and not self._is_same_log(read):
            return False
        try:
            ending = check_entries(data[:valid_bytes])
            valid_bytes = ending.valid_bytes
            if ending.fault and not valid_bytes:
                # The target would hang up on it, again and again.
                raise RemoteProtocolError(f"at {read.offset}: {ending.fault}")
            data = data[:valid_bytes]
        except KafkaError as error:
            return self.refused(read, error)
        too_large = self._too_large(data, read.offset)
        if too_large is not None:
            data = data[: too_large.offset - read.offset]
            if not data:
                return self._meet(read, too_large)
        if not data:
            with self._wake:
                copy.fetch_size = self._config.fetch_size
                copy.found_end(read.epoch, self._requested_ms)
            return False
        entry_count = ending.entry_count
        if too_large is not None:
            entry_count = check_entries(data).entry_count
        pieces = self._pieces(copy, data, entry_count)
        with self._wake:
            copy.fetch_size = self._config.fetch_size
            start = 0
            for end, count in pieces:
                offset = read.offset + start
                chunk = Chunk(*copy.name, offset, data[start:end], read.offset + end)
                if not copy.fetched(read.epoch, chunk, count):
                    return False
                self._tails.took(chunk)
                start = end
        return True

    # --- a log that was lost or cut --------------------------------------------------------------

    def _is_same_log(self, read: _CopyRead) -> bool:
        """Whether what was read up to here is in the log that answers; if not, the answer is
        useless, and the copy goes on from where the logs diverged.

        On one connection a leader answers in one epoch only, and a log is lost only while its
        broker is away, so it is asked once on each.
        """
        copy, client = read.copy, self._client
        if client is None:
            return True
        connection = self._clients, client.connections
        if copy.log_seen == connection:
            return True
        if not self._is_set:
            known = self._tails.before(copy.name, read.offset)
            if known is not None and is_another_log(client, read.topic, read.partition, known):
                self._begin_anew(read)
                return False
            with self._wake:
                copy.log_seen = connection  # if another was made meanwhile, it is asked again
            return True
        lineage = client.lineage(read.topic, read.partition)
        if (self._clients, client.connections) != connection:
            return False  # the data may be another leader's
        try:
            found = parted(copy.lineage, read.offset, lineage)
        except (OlderLeader, PartedTooEarly) as error:
            with self._wake:
                log.warning("source_refused", partition=str(copy.name), reason=str(error))
                copy.source_failed(time.monotonic(), str(error))
            return False
        if found is not None:
            return self._go_back(read, found, lineage)
        with self._wake:
            if read.epoch != copy.epoch or copy.is_removed:
                return False
            copy.log_seen = connection
            copy.reads(lineage)
        return True

    def _go_back(self, read: _CopyRead, found: Parted, lineage: Lineage) -> bool:
        if self._stands_at(read, f"waits before it goes back: {found.text}"):
            with self._wake:
                read.copy.go_back(found, lineage)
            self._tails.begin_anew(read.copy.name, found.first)
            log.error(
                "source_cut",
                partition=str(read.copy.name),
                first=found.first,
                last=found.last,
                epoch=found.epoch,
            )
        return False

    def _pieces(self, copy: PartitionCopy, data: memoryview, entry_count: int) -> list[Piece]:
        """The pieces that go to the target in one request each.

        Plain entries are not examined one by one: a set that begins with one is examined only after
        a failure, and for as long as that finds wrappers.
        """
        if not (copy.is_suspect or copy.has_wrappers or begins_compressed(data)):
            return [Piece(len(data), entry_count)]
        pieces, copy.has_wrappers = cut_by_unpacked(data, self._config.decompressed_bytes_max)
        return pieces

    def _too_large(self, data: memoryview, offset: int) -> RefusedEntry | None:
        """The first entry whose payload the target would silently drop.

        A set that is no longer than the largest message cannot hold a larger one.
        """
        limit = self._config.message_bytes_max
        if len(data) <= limit + MAGIC1_HEADER.size:
            return None
        for entry in entries(data, offset):
            if len(entry.payload) > limit:
                reason = (
                    f"a message of {len(entry.payload)} bytes is above max.message.size={limit}, "
                    "and would be dropped"
                )
                return RefusedEntry(entry.offset, entry.next_offset - entry.offset, reason)
        return None

    def _meet(self, read: _CopyRead, entry: RefusedEntry) -> bool:
        """Handle an entry to refuse, the first of those read; True if it was left out, else the
        copy stays there."""
        copy = read.copy
        if not self._stands_at(read, f"waits before the entry at {entry.offset}"):
            return False
        if self._refusals.met(copy, entry):
            return True
        with self._wake:
            if self._config.refused_entry == "stop":
                copy.refuse(entry.text)
            else:
                copy.source_failed(time.monotonic(), entry.text)
        return False

    def _stands_at(self, read: _CopyRead, waiting: str) -> bool:
        """Whether everything before the read is durable at the target; if not, it is read again
        later, so that nothing under way is forgotten."""
        copy = read.copy
        with self._wake:
            if read.epoch != copy.epoch or copy.is_removed:
                return False
            if not copy.is_quiet:
                copy.source_failed(time.monotonic(), waiting)
            return copy.is_quiet

    def enlarge(self, read: _CopyRead, size_max: int) -> None:
        with self._wake:
            read.copy.fetch_size = size_max

    def refused(self, read: _CopyRead, error: KafkaError) -> bool:
        """Try again after a pause; a partition that no later attempt can copy stops for good."""
        copy = read.copy
        # Of another log the offset may be in the middle of an entry.
        is_unreadable = isinstance(error, InvalidMessage | MessageLargerThanFetchSize)
        if (self._is_set or is_unreadable) and not self._is_same_log(read):
            return False
        reason = str(error)
        if isinstance(error, MessageLargerThanFetchSize):
            reason = (
                f"an entry of {error.size_needed} bytes at {read.offset} is above "
                f"fetch.size.max={self._config.fetch_size_max}"
            )
            if self._stands_at(read, f"waits: {reason}"):
                log.error("copy_refused", partition=str(copy.name), reason=reason)
                with self._wake:
                    copy.refuse(reason)
            return False
        with self._wake:
            log.warning("source_refused", partition=str(copy.name), reason=reason)
            copy.source_failed(time.monotonic(), reason)
        return False

    # --- where to start --------------------------------------------------------------------------

    def locate(self, read: _CopyRead) -> _CopyRead | None:
        """Start a partition that the group never copied where `autooffset.reset` says."""
        client = self._loop.client()
        ask = client.earliest if self._config.autooffset_reset == "smallest" else client.latest
        offset = ask(read.topic, read.partition)
        with self._wake:
            copy = read.copy
            if copy.is_removed:
                return None
            copy.jump(offset)
            return _read_of(copy) if copy.wants_fetch(time.monotonic()) else None

    def out_of_range(self, read: _CopyRead, _error: OffsetOutOfRange) -> bool:
        """Go on at the log's start, and log it: the offset is not in the source's log (any more).

        Only once everything before is durable at the target, since the jump forgets it.
        """
        copy = read.copy
        if self._is_set and not self._is_same_log(read):
            return False
        earliest = self._loop.client().earliest(read.topic, read.partition)
        if earliest <= read.offset:
            # A log is never cut below its high watermark: this is another log of that name.
            self._begin_anew(read)
            return False
        if not self._stands_at(read, "waits before it jumps"):
            return False
        with self._wake:
            gap_bytes = earliest - copy.fetch_offset
            copy.skipped_bytes += gap_bytes
            copy.jump(earliest)
        log.error("source_retired", partition=str(copy.name), skipped_bytes=gap_bytes)
        return False

    def _begin_anew(self, read: _CopyRead) -> None:
        """Go on at the start of a log that is not the one that was read up to here."""
        copy = read.copy
        earliest = self._loop.client().earliest(read.topic, read.partition)
        if not self._stands_at(read, "waits before it reads another log"):
            return
        with self._wake:
            copy.jump(earliest)
            copy.source_restarts += 1
            if copy.offsets is not None:
                copy.offsets.forget_from(earliest)
        self._tails.begin_anew(copy.name, earliest)
        log.error(
            "source_restarted", partition=str(copy.name), read_to=read.offset, offset=earliest
        )

    def offsets_failed(self, read: _CopyRead, error: KafkaError) -> None:
        """Note the failure for this copy alone: if the broker is away, the fetch will show it."""
        with self._wake:
            read.copy.source_failed(time.monotonic(), f"no offsets: {error}")


def _read_of(copy: PartitionCopy) -> _CopyRead:
    offset = copy.fetch_offset if copy.is_started else UNKNOWN_OFFSET
    return _CopyRead(
        copy.name.topic, copy.name.partition, offset, copy.fetch_size, copy, copy.epoch
    )
