"""The loop that reads one broker: a thread that fetches, sorts the answers, backs off and goes on.

The loop owns what all readers of a broker have in common: the connection and its address, requests
of a bounded size, the pause while nothing comes, the longer one while the broker is away, the
larger fetch for a large entry, and stopping. A `ReadingPolicy` decides what is fetched next and
what becomes of it. There are three: the group consumer's (`consumer.groups.fetcher`), the mirror's
(`services.mirror_maker.source_reader`) and the audit's (`services.audit.readers.broker_reader`).

One round: `plan` says what is due, `locate` finds the offset of each partition that has none, and
the reads go out in as few multifetches as `request_bytes_max` allows. If one is enough, it waits
at the broker for data, where the broker can do so. If not, but the answers of the last round were
not full, the round is still one request, which asks for less of each partition. A round that
cannot wait and moved nothing is followed by a pause, longer each time. A round that moved something
but filled no answer has read all there was: the next may be held back a little, to fetch in one
request what arrives meanwhile. Each answer is one call of `take`, `enlarge`, `out_of_range` or
`refused`. A partition that cannot be read never stops the others, and a broker that is away never
ends the thread.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from kafka2011.consumer.errors import ConsumerClosed
from kafka2011.consumer.simple import FetchedSet
from kafka2011.coordination.errors import CoordinationError
from kafka2011.protocol.errors import KafkaError, MessageLargerThanFetchSize, OffsetOutOfRange
from kafka2011.protocol.requests import FetchRequest
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

UNKNOWN_OFFSET = -1
PARTS_MAX = 500  # of one multifetch; brokers refuse thousands
# An answer smaller than this share of its response is copied, so that it does not keep the whole
# response in memory while it waits. Larger ones are not: copying costs a tenth of reading.
COPIED_SHARE = 1 / 16

log = get_logger(__name__)


class BrokerClient(Protocol):
    """The part of a SimpleConsumer that is used here."""

    def multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]: ...
    def waiting_fetch(
        self, parts: Sequence[FetchRequest], wait_ms: int, is_ended: Callable[[], bool]
    ) -> list[FetchedSet] | None: ...
    def end_wait(self) -> None: ...
    def earliest(self, topic: str, partition: int) -> int: ...
    def latest(self, topic: str, partition: int) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double: `pause_s(1)` is the shortest."""

    first_s: float
    longest_s: float

    def pause_s(self, attempt: int) -> float:
        return min(self.first_s * 2.0 ** min(attempt - 1, 30), self.longest_s)


@dataclass(slots=True)
class PartitionRead:
    """One partition's part of a round; policies add fields of their own.

    `offset` may be UNKNOWN_OFFSET, and `locate` finds it.
    """

    topic: str
    partition: int
    offset: int
    size_max: int


Read = TypeVar("Read", bound=PartitionRead)


class Plan(NamedTuple, Generic[Read]):
    """What a round reads, and how long until something else may be due (None: not before `wake`):
    the loop waits that long if there are no reads, and a fetch waits no longer at the broker."""

    reads: list[Read]
    wait_s: float | None = 0.0


class ReadingPolicy(ABC, Generic[Read]):
    """What one kind of reader reads, and what it does with it. All calls come from the thread;
    `loop.client()` may be used to look up offsets.

    A bool that a call returns says whether it moved something on: the next round then follows
    without a pause. An exception from a call is a failure of the whole broker, except where stated
    otherwise.
    """

    @abstractmethod
    def plan(self) -> Plan[Read]:
        """The reads of the next round: partitions that are due and have room."""

    @abstractmethod
    def connect(self) -> BrokerClient:
        """A client for the broker's present address, which needs no connection yet.

        Raises KafkaError or CoordinationError when no address is known.
        """

    @abstractmethod
    def locate(self, read: Read) -> Read | None:
        """Return `read` with its first offset; None to leave it out. A KafkaError that it raises
        leads to `offsets_failed`."""

    @abstractmethod
    def take(self, read: Read, data: memoryview, valid_bytes: int) -> bool:
        """Take `data`: complete entries up to `valid_bytes`; empty at the end of a segment or of
        the log. It may be kept: see COPIED_SHARE."""

    @abstractmethod
    def out_of_range(self, read: Read, error: OffsetOutOfRange) -> bool:
        """Handle an offset that the log does not hold. A KafkaError leads to `offsets_failed`."""

    @abstractmethod
    def enlarge(self, read: Read, size_max: int) -> None:
        """Plan `size_max` from now on: the first entry is larger than the fetch."""

    @abstractmethod
    def refused(self, read: Read, error: KafkaError) -> bool:
        """Handle a partition that cannot be read here: damage, an entry above the largest fetch
        size (MessageLargerThanFetchSize), or the broker's refusal."""

    @abstractmethod
    def offsets_failed(self, read: Read, error: KafkaError) -> None:
        """Handle a failed look-up of offsets; for a damaged partition the broker hangs up."""

    @abstractmethod
    def broker_failed(self, error: Exception) -> None:
        """Handle a round that failed as a whole; another follows after a pause, on a new
        connection. If `is_bug(error)`, the broker is not to blame."""

    # Optional: not every policy needs these.

    def requesting(self) -> None:
        """Called before a multifetch is sent."""

    def abandoned(self) -> None:
        """Free what the round reserved: it ended early, by a failure or by `stop`."""

    def answered(self, has_moved: bool) -> None:
        """Called when all answers of a multifetch have been sorted."""

    def goes_on(self, has_moved: bool) -> bool:
        """Whether the next round follows this one without a pause."""
        return has_moved


def _smaller(read: Read, share_bytes: int) -> Read:
    """The read, cut to `share_bytes`; 0: as it is."""
    if not share_bytes or read.size_max <= share_bytes:
        return read
    return replace(read, size_max=share_bytes)


def is_bug(error: Exception) -> bool:
    """Whether the error comes neither from the broker, nor from ZooKeeper, nor from the network."""
    return not isinstance(error, KafkaError | CoordinationError | OSError)


class BrokerLoop(Generic[Read]):
    """Runs `policy` on its own thread from `start` until `stop`.

    `fetch_size_max`: a fetch grows to this for one large entry. `idle` are the pauses after rounds
    that moved nothing, `failure` those after failed ones.
    """

    def __init__(
        self,
        name: str,
        policy: ReadingPolicy[Read],
        *,
        idle: Backoff,
        failure: Backoff,
        fetch_size_max: int,
        request_bytes_max: int,
        wait_max_s: float = 0.0,
        gather_s: float = 0.0,
        woken: threading.Event | None = None,
    ) -> None:
        """`wait_max_s`: how long a fetch waits at the broker; 0: it never does. `gather_s`: the
        pause after a round that got all there was."""
        self.woken = woken or threading.Event()
        self._wait_max_s = wait_max_s
        self._gather_s = gather_s
        self._name = name
        self._policy = policy
        self._idle = idle
        self._failure = failure
        self._fetch_size_max = fetch_size_max
        self._request_bytes_max = request_bytes_max
        self._stopping = threading.Event()
        self._retry_now = threading.Event()
        self._has_moved_address = False
        self._client: BrokerClient | None = None
        self._idle_rounds = 0
        self._waited_s = 0.0  # at the broker, in this round
        self._is_behind = True  # an answer of the last round was full: there is more
        self._has_polled = False
        self._failures = 0
        self._worker = Worker(self.run, name, restarts=True)

    # --- from any thread -------------------------------------------------------------------------

    def start(self) -> None:
        self._worker.start()

    def wake(self) -> None:
        """End an idle pause, or a wait for data at the broker, because something is due."""
        self.woken.set()
        client = self._client
        if client is not None:
            client.end_wait()

    def reconnect(self) -> None:
        """Use the broker's new address at once, even in the pause after a failure."""
        self._has_moved_address = True
        self._retry_now.set()
        self.wake()

    def stop(self) -> None:
        """Begin to stop; the thread ends soon, even if a request is under way. Idempotent."""
        self._stopping.set()
        self._retry_now.set()
        self.woken.set()
        client = self._client
        if client is not None:
            client.close()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def is_alive(self) -> bool:
        return self._worker.is_alive()

    def join(self, timeout_s: float | None = None) -> None:
        self._worker.join(timeout_s)

    # --- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Make rounds until `stop`."""
        while True:
            self.woken.clear()
            if self.is_stopping:  # checked after `clear`: `stop` sets both
                break
            try:
                reads, wait_s = self._policy.plan()
                if not reads:
                    self.woken.wait(wait_s)
                    continue
                self._waited_s = 0.0
                goes_on = self._round(reads, wait_s)
            except Exception as error:
                self._policy.abandoned()
                if self.is_stopping:
                    break
                self._pause_after_failure(error)
                continue
            if goes_on:
                if self._gather_s and not self._is_behind:
                    self.woken.wait(self._gather_s)
            else:
                self._idle_rounds += 1
                pause_s = self._idle.pause_s(self._idle_rounds) - self._waited_s
                if pause_s > 0:
                    self.woken.wait(pause_s)
        self._disconnect()

    def round(self) -> bool:
        """Make one round, if anything is due; return whether the next follows without a pause.

        Raises what a failed round raises.
        """
        reads = self._policy.plan().reads
        return bool(reads) and self._round(reads, 0.0)

    def _round(self, reads: list[Read], wait_s: float | None) -> bool:
        """Make a round of these reads; `wait_s` as in a Plan. Returns as `round`."""
        located = [read for read in map(self._located, reads) if read is not None]
        batches = list(self._batches(located))
        if len(batches) > 1:
            if self._is_behind or wait_s == 0.0 or len(located) > PARTS_MAX:
                wait_s = 0.0  # while one waits, the others would bring nothing
            else:
                batches = [located]
        self._is_behind = False
        has_moved = False
        for batch in batches:
            share = self._request_bytes_max // len(batch) if batch is located else 0
            asked = [_smaller(read, share) for read in batch]
            answers = self._ask(asked, wait_s)
            copied_bytes = COPIED_SHARE * sum(len(answer.data) for answer in answers)
            for read, part, answer in zip(batch, asked, answers, strict=True):
                self._is_behind |= len(answer.data) >= part.size_max
                has_moved |= self._sort(part, answer, read.size_max, copied_bytes)
            if self._failures:
                log.info("broker_reached", reader=self._name)
            self._failures = 0
            self._policy.answered(has_moved)
        if has_moved:
            self._idle_rounds = 0
        return self._policy.goes_on(has_moved)

    def _ask(self, batch: list[Read], wait_s: float | None) -> list[FetchedSet]:
        parts = [
            FetchRequest(read.topic, read.partition, read.offset, read.size_max) for read in batch
        ]
        client = self.client()
        self._policy.requesting()
        wait_ms = int(1000 * min(self._wait_max_s, self._wait_max_s if wait_s is None else wait_s))
        if wait_ms > 0:
            asked_s = time.monotonic()
            answers = client.waiting_fetch(parts, wait_ms, self.woken.is_set)
            if answers is not None:
                self._waited_s = time.monotonic() - asked_s
                return answers
            if not self._has_polled:
                self._has_polled = True
                log.info("broker_polled", reader=self._name, reason="its fetches cannot wait")
        return client.multifetch(parts)

    def _batches(self, reads: list[Read]) -> Iterator[list[Read]]:
        """The reads by multifetch: their size, not the number of partitions, bounds memory."""
        batch: list[Read] = []
        batch_bytes = 0
        for read in reads:
            batch_bytes += read.size_max
            if batch and (batch_bytes > self._request_bytes_max or len(batch) == PARTS_MAX):
                yield batch
                batch, batch_bytes = [], read.size_max
            batch.append(read)
        if batch:
            yield batch

    def _located(self, read: Read) -> Read | None:
        if read.offset != UNKNOWN_OFFSET:
            return read
        self.client()
        try:
            return self._policy.locate(read)
        except KafkaError as error:
            self._offsets_failed(read, error)
            return None

    def _sort(
        self, read: Read, answer: FetchedSet, planned_bytes: int, copied_bytes: float
    ) -> bool:
        """Call the policy for one answer; return whether it moved something on. `planned_bytes`:
        the size that the policy planned, of which the request may have asked for less. Data shorter
        than `copied_bytes` are copied."""
        try:
            valid_bytes = answer.valid_bytes()
        except OffsetOutOfRange as error:
            self.client()
            try:
                return self._policy.out_of_range(read, error)
            except KafkaError as failure:
                self._offsets_failed(read, failure)
                return False
        except MessageLargerThanFetchSize as error:
            largest = self._fetch_size_max
            if read.size_max >= largest or error.size_needed > largest:
                return self._policy.refused(read, error)
            # `Unlike 0.7:` there such a message stops its partition for good.
            grown = planned_bytes if read.size_max < planned_bytes else 2 * planned_bytes
            self._policy.enlarge(read, min(largest, max(grown, error.size_needed)))
            return True
        except KafkaError as error:
            return self._policy.refused(read, error)
        data = answer.data
        if len(data) < copied_bytes:
            data = memoryview(bytes(data))
        return self._policy.take(read, data, valid_bytes)

    def _offsets_failed(self, read: Read, error: KafkaError) -> None:
        self._disconnect()  # the next request looks the address up again
        if self.is_stopping:
            raise error
        self._policy.offsets_failed(read, error)

    # --- the connection --------------------------------------------------------------------------

    def client(self) -> BrokerClient:
        """The connection's client, made if there is none. Raises as `ReadingPolicy.connect`."""
        if self._has_moved_address:
            self._has_moved_address = False
            self._retry_now.clear()
            self._disconnect()
        if self._client is None:
            self._client = self._policy.connect()
            if self.is_stopping:
                self._client.close()
                raise ConsumerClosed(f"{self._name} was stopped")
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _pause_after_failure(self, error: Exception) -> None:
        """Log a failed round and pause. Either the broker is away, or there is a bug, which must be
        seen, and must not stop the broker's partitions for good."""
        if is_bug(error):
            log.exception("broker_loop_failed", reader=self._name)
        elif not self._failures:
            log.warning("broker_not_answering", reader=self._name, reason=str(error))
        self._failures += 1
        self._disconnect()
        self._policy.broker_failed(error)
        self._retry_now.wait(self._failure.pause_s(self._failures))
        if not self.is_stopping:
            self._retry_now.clear()
