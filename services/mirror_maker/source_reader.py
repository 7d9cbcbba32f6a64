"""Fetches from one source broker for all copies that have room.

The policy of a `BrokerLoop`. Sets pass through as the broker gives them, cut to complete entries
whose CRCs are right; messages are counted and otherwise not read, except where a set is large
enough to hold one that the target would silently drop.
A fetch belongs to the copy's epoch: what comes back after a rewind is thrown away.
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
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.protocol.errors import (
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
    RemoteProtocolError,
)
from kafka2011.protocol.message import MAGIC1_HEADER
from kafka2011.protocol.message_set import check_entries, entries
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy

# Of one multifetch: a round of many partitions is several.
FETCH_BYTES_MAX = 8_000_000
IDLE_WAIT_S = 1.0

log = get_logger(__name__)


@dataclass(slots=True)
class _CopyRead(PartitionRead):
    copy: PartitionCopy
    epoch: int  # the copy's when the read was planned


class SourceReader(ReadingPolicy[_CopyRead]):
    """`copies` is filled and emptied by the mirror, under `wake`'s lock."""

    def __init__(
        self,
        broker_id: int,
        config: MirrorConfig,
        wake: threading.Condition,
        *,
        address_of: Callable[[int], Address],
    ) -> None:
        self.broker_id = broker_id
        self.copies: list[PartitionCopy] = []
        self._config = config
        self._wake = wake
        self._address_of = address_of
        self._turn = 0
        self._requested_ms = 0  # not later than the answers' state of the log
        self._stopped = False
        first_s = config.fetcher_backoff_ms / 1000
        self._loop = BrokerLoop(
            f"source-{broker_id}",
            self,
            idle=Backoff(first_s, max(first_s, config.fetcher_backoff_max_ms / 1000)),
            failure=Backoff(config.retry_min_ms / 1000, config.retry_max_ms / 1000),
            fetch_size_max=config.fetch_size_max,
            request_bytes_max=FETCH_BYTES_MAX,
        )
        self._loop.start()

    def stop(self) -> None:
        """Fetch nothing more; returns when the thread has ended. `wake`'s lock must not be held."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        self._loop.stop()
        self._loop.join()

    # --- what is fetched next --------------------------------------------------------------------

    def plan(self) -> Plan[_CopyRead]:
        """Waits for copies that have room: what makes room notifies the mirror's condition."""
        with self._wake:
            now_s = time.monotonic()
            due = [copy for copy in self.copies if copy.wants_fetch(now_s)]
            if not due and not self._stopped:
                self._wake.wait(self._pause_s(now_s))
                return Plan([])
            self._turn = (self._turn + 1) % max(1, len(due))
            return Plan([_read_of(copy) for copy in due[self._turn :] + due[: self._turn]])

    def _pause_s(self, now_s: float) -> float:
        ends = [copy.next_event_s() for copy in self.copies]
        return min([IDLE_WAIT_S, *(end - now_s for end in ends if end > now_s)])

    # --- the broker ------------------------------------------------------------------------------

    def connect(self) -> SimpleConsumer:
        host, port = self._config.dialled(self._address_of(self.broker_id))
        return SimpleConsumer(host, port, self._config.socket_timeout_ms)

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
        try:
            ending = check_entries(data[:valid_bytes])
            valid_bytes = ending.valid_bytes
            if ending.fault and not valid_bytes:
                # The target would hang up on it, time and again.
                raise RemoteProtocolError(f"at {read.offset}: {ending.fault}")
            data = data[:valid_bytes]
            self._check_sizes(data, read.offset)
        except KafkaError as error:
            return self.refused(read, error)
        with self._wake:
            copy.fetch_size = self._config.fetch_size
            if not valid_bytes:
                copy.found_end(read.epoch, self._requested_ms)
                return False
            chunk = Chunk(*copy.name, read.offset, data, read.offset + valid_bytes)
            return copy.fetched(read.epoch, chunk, ending.entry_count)

    def _check_sizes(self, data: memoryview, offset: int) -> None:
        """Raises _TooLargeForTarget when a message is too large for the target.

        A set that is no longer than the largest message can hold none that is larger.
        """
        limit = self._config.message_bytes_max
        if len(data) <= limit + MAGIC1_HEADER.size:
            return
        for entry in entries(data, offset):
            if len(entry.payload) > limit:
                raise _TooLargeForTarget(
                    f"the message at {entry.offset} has {len(entry.payload)} bytes, above "
                    f"max.message.size={limit}, and the target would drop it"
                )

    def enlarge(self, read: _CopyRead, size_max: int) -> None:
        with self._wake:
            read.copy.fetch_size = size_max

    def refused(self, read: _CopyRead, error: KafkaError) -> bool:
        """Tried again after a pause; what no later attempt can copy stands still for good."""
        copy = read.copy
        reason = str(error)
        if isinstance(error, MessageLargerThanFetchSize):
            reason = (
                f"an entry of {error.size_needed} bytes at {read.offset} is above "
                f"fetch.size.max={self._config.fetch_size_max}"
            )
        with self._wake:
            if isinstance(error, MessageLargerThanFetchSize | _TooLargeForTarget):
                log.error("copy_refused", partition=str(copy.name), reason=reason)
                copy.refuse(reason)
            else:
                log.warning("source_refused", partition=str(copy.name), reason=reason)
                copy.source_failed(time.monotonic(), reason)
        return False

    # --- where to start --------------------------------------------------------------------------

    def locate(self, read: _CopyRead) -> _CopyRead | None:
        """A partition that the group never copied starts where `autooffset.reset` says."""
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
        """The offset is not in the source's log (any more): go on at its start, and log it.

        Only once everything before has arrived at the target, since the jump forgets it.
        """
        copy = read.copy
        earliest = self._loop.client().earliest(read.topic, read.partition)
        with self._wake:
            if read.epoch != copy.epoch or copy.is_removed:
                return False
            if not copy.is_quiet:
                copy.source_failed(time.monotonic(), "waits before it jumps")
                return False
            gap_bytes = earliest - copy.fetch_offset
            copy.skipped_bytes += max(0, gap_bytes)
            copy.jump(earliest)
        if gap_bytes > 0:
            log.error("source_retired", partition=str(copy.name), skipped_bytes=gap_bytes)
        else:
            # A log never gets shorter below its watermark: this is another log of that name.
            log.error("source_restarted", partition=str(copy.name), offset=earliest)
        return False

    def offsets_failed(self, read: _CopyRead, error: KafkaError) -> None:
        """This copy's trouble, not its neighbours': a broker that is away shows at the fetch."""
        with self._wake:
            read.copy.source_failed(time.monotonic(), f"no offsets: {error}")


class _TooLargeForTarget(KafkaError):
    """A message that the target broker would drop without a word."""


def _read_of(copy: PartitionCopy) -> _CopyRead:
    offset = copy.fetch_offset if copy.is_started else UNKNOWN_OFFSET
    return _CopyRead(
        copy.name.topic, copy.name.partition, offset, copy.fetch_size, copy, copy.epoch
    )
