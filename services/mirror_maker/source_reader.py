"""The way from one source broker: a thread that fetches for all copies that have room.

Sets pass through as the broker gives them, cut to complete entries whose CRCs are right; messages
are counted, and not looked at otherwise, except where a set is large enough to hold one that the
target would drop without a word.
A fetch belongs to the copy's epoch: what comes back after a rewind is thrown away.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable, ConsumerClosed
from kafka2011.consumer.simple import FetchedSet, SimpleConsumer
from kafka2011.coordination.errors import CoordinationError
from kafka2011.producer.errors import BrokerUnavailable as BrokerUnregistered
from kafka2011.protocol.errors import (
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
    RemoteProtocolError,
)
from kafka2011.protocol.message import MAGIC1_HEADER
from kafka2011.protocol.message_set import check_entries, entries
from kafka2011.protocol.requests import FetchRequest
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.services.mirror_maker.config import Address, MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import Backoff, PartitionCopy

# Of one multifetch: partitions take turns above it, so memory does not grow with their number.
FETCH_BYTES_MAX = 8_000_000
IDLE_WAIT_S = 1.0

log = get_logger(__name__)


class _Asked(NamedTuple):
    copy: PartitionCopy
    epoch: int
    request: FetchRequest
    asked_ms: int  # not later than the answer's state of the log


class SourceFetcher:
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
        self.is_reached = False
        self._config = config
        self._wake = wake
        self._address_of = address_of
        self._backoff = Backoff(config.retry_min_ms / 1000, config.retry_max_ms / 1000)
        self._attempt = 0
        self._retry_at_s = 0.0
        self._idle_rounds = 0
        self._turn = 0
        self._stopped = False
        self._stop_event = threading.Event()
        self._client: SimpleConsumer | None = None
        self._thread = threading.Thread(target=self._run, name=f"fetch-{broker_id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Fetch nothing more. `wake`'s lock must not be held."""
        with self._wake:
            self._stopped = True
            self._stop_event.set()
            client = self._client
            self._wake.notify_all()
        if client is not None:
            client.close()
        self._thread.join()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            due = self._next_round()
            if due is None:
                break
            try:
                brought = self._fetch_round(due)
            except ConsumerClosed:
                break
            except (BrokerUnavailable, RemoteProtocolError, BrokerUnregistered) as error:
                self._away(str(error))
                continue
            except CoordinationError as error:
                self._away(str(error))
                continue
            except Exception:  # a bug of ours must not stop a broker's partitions for good
                log.exception("fetcher_failed", source=self.broker_id)
                self._away("an internal error")
                continue
            self._attempt = 0
            if brought:
                self._idle_rounds = 0
                continue
            self._idle_rounds += 1
            self._stop_event.wait(self._idle_pause_s())
        if self._client is not None:
            self._client.close()

    def _idle_pause_s(self) -> float:
        first_ms, longest_ms = self._config.fetcher_backoff_ms, self._config.fetcher_backoff_max_ms
        growing_ms = first_ms * 2.0 ** min(self._idle_rounds - 1, 30)
        return min(growing_ms, max(first_ms, longest_ms)) / 1000

    def _next_round(self) -> list[PartitionCopy] | None:
        """Wait for copies that have room; None at the end."""
        with self._wake:
            while not self._stopped:
                now_s = time.monotonic()
                if now_s >= self._retry_at_s:
                    due = [copy for copy in self.copies if copy.wants_fetch(now_s)]
                    if due:
                        self._turn = (self._turn + 1) % len(due)
                        return due[self._turn :] + due[: self._turn]
                self._wake.wait(self._pause_s(now_s))
            return None

    def _pause_s(self, now_s: float) -> float:
        ends = [self._retry_at_s, *(copy.next_event_s() for copy in self.copies)]
        return min([IDLE_WAIT_S, *(end - now_s for end in ends if end > now_s)])

    def _away(self, reason: str) -> None:
        if self._attempt == 0:
            log.warning("source_away", source=self.broker_id, reason=reason)
        self._attempt += 1
        self._retry_at_s = time.monotonic() + self._backoff.pause_s(self._attempt)
        self.is_reached = False
        if self._client is not None:
            self._client.close()
            self._client = None
        with self._wake:
            for copy in self.copies:
                copy.trouble = copy.trouble or reason

    def _connected(self) -> SimpleConsumer:
        if self._client is None:
            host, port = self._config.dialled(self._address_of(self.broker_id))
            client = SimpleConsumer(host, port, self._config.socket_timeout_ms)
            with self._wake:
                if self._stopped:
                    raise ConsumerClosed("the mirror stops")
                self._client = client
        return self._client

    # --- one round -------------------------------------------------------------------------------

    def _fetch_round(self, due: list[PartitionCopy]) -> bool:
        """Fetch once for each of these; whether anything came."""
        client = self._connected()
        for copy in due:
            if not copy.is_started:
                self._apart(copy, partial(self._find_start, client, copy))
        asked: list[_Asked] = []
        asked_ms = now_ms()
        with self._wake:
            for copy in due:
                if copy.is_started and copy.wants_fetch(time.monotonic()):
                    request = FetchRequest(
                        copy.name.topic, copy.name.partition, copy.fetch_offset, copy.fetch_size
                    )
                    asked.append(_Asked(copy, copy.epoch, request, asked_ms))
        brought = False
        while asked:
            some, asked = _first_of(asked)
            answers = client.multifetch([one.request for one in some])
            if not self.is_reached:
                self.is_reached = True
                log.info("source_reached", source=self.broker_id, address=f"{client.host}")
            for one, answer in zip(some, answers, strict=True):
                brought |= self._take(client, one, answer)
            if brought:
                with self._wake:
                    self._wake.notify_all()
        return brought

    def _take(self, client: SimpleConsumer, asked: _Asked, answer: FetchedSet) -> bool:
        """Give one part of an answer to its copy; whether it brought something."""
        copy = asked.copy
        try:
            ending = check_entries(answer.data[: answer.valid_bytes()])
            valid_bytes = ending.valid_bytes
            if ending.fault and not valid_bytes:
                # The target would hang up on it, time and again.
                raise RemoteProtocolError(f"at {asked.request.offset}: {ending.fault}")
            data = answer.data[:valid_bytes]
            self._check_sizes(data, asked.request.offset)
        except OffsetOutOfRange:
            self._apart(copy, partial(self._find_range, client, asked))
            return False
        except MessageLargerThanFetchSize as error:
            self._grow(asked, error)
            return True  # not an idle round: ask again at once
        except _TooLargeForTarget as error:
            log.error("copy_refused", partition=str(copy.name), reason=str(error))
            with self._wake:
                copy.refuse(str(error))
            return False
        except KafkaError as error:
            log.warning("source_refuses", partition=str(copy.name), reason=str(error))
            with self._wake:
                copy.source_failed(time.monotonic(), str(error))
            return False
        with self._wake:
            copy.fetch_size = self._config.fetch_size
            if not valid_bytes:
                copy.found_end(asked.epoch, asked.asked_ms)
                return False
            offset = asked.request.offset
            name = copy.name
            chunk = Chunk(*name, offset, data, offset + valid_bytes)
            return copy.fetched(asked.epoch, chunk, ending.entry_count)

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

    def _grow(self, asked: _Asked, error: MessageLargerThanFetchSize) -> None:
        copy, size_max = asked.copy, self._config.fetch_size_max
        with self._wake:
            if asked.request.size_max >= size_max or error.size_needed > size_max:
                copy.refuse(
                    f"an entry of {error.size_needed} bytes at {asked.request.offset} is above "
                    f"fetch.size.max={size_max}"
                )
                log.error("copy_refused", partition=str(copy.name), reason=copy.refusal)
                return
            copy.fetch_size = min(size_max, max(2 * asked.request.size_max, error.size_needed))

    # --- where to start --------------------------------------------------------------------------

    def _apart(self, copy: PartitionCopy, ask: Callable[[], None]) -> None:
        """Ask for offsets, which a broker answers for a damaged partition by hanging up: that is
        this copy's trouble, not its neighbours'. A broker that is away shows at the next fetch."""
        try:
            ask()
        except (BrokerUnavailable, RemoteProtocolError) as error:
            with self._wake:
                copy.source_failed(time.monotonic(), f"no offsets: {error}")

    def _find_start(self, client: SimpleConsumer, copy: PartitionCopy) -> None:
        """A partition that the group never copied starts where `autooffset.reset` says."""
        ask = client.earliest if self._config.autooffset_reset == "smallest" else client.latest
        offset = ask(copy.name.topic, copy.name.partition)
        with self._wake:
            if not copy.is_removed:
                copy.jump(offset)

    def _find_range(self, client: SimpleConsumer, asked: _Asked) -> None:
        """What we want is not in the source's log (any more): go on at its start, and say so.

        Only once everything before has arrived at the target, since the jump forgets it.
        """
        copy = asked.copy
        earliest = client.earliest(copy.name.topic, copy.name.partition)
        with self._wake:
            if asked.epoch != copy.epoch or copy.is_removed:
                return
            if not copy.is_quiet:
                copy.source_failed(time.monotonic(), "waits before it jumps")
                return
            gap_bytes = earliest - copy.fetch_offset
            copy.skipped_bytes += max(0, gap_bytes)
            copy.jump(earliest)
        if gap_bytes > 0:
            log.error("source_retired", partition=str(copy.name), skipped_bytes=gap_bytes)
        else:
            # A log never gets shorter below its watermark: this is another log of that name.
            log.error("source_restarted", partition=str(copy.name), offset=earliest)


class _TooLargeForTarget(KafkaError):
    """A message that the target broker would drop without a word."""


def _first_of(asked: list[_Asked]) -> tuple[list[_Asked], list[_Asked]]:
    """As many as fit into one answer, at least one; and the rest."""
    total = 0
    for count, one in enumerate(asked):
        total += one.request.size_max
        if count and total > FETCH_BYTES_MAX:
            return asked[:count], asked[count:]
    return asked, []
