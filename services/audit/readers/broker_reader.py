"""Reads one broker's partitions for the running service: fetch, count, go on where it ended.

One thread and one connection per broker, all its partitions in each round of multifetches, as a
consumer's fetcher does; but no group and no ZooKeeper: the offsets stand in the audit's own books,
beside the counts. A broker that is away is tried again until it is back. Nothing is passed over
without a word: what cannot be read is entered in the books as unread, with its place and reason.
"""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kafka2011.consumer.simple import FetchedSet, SimpleConsumer
from kafka2011.coordination.cluster import BrokerAddress
from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.events.peek import count_by_window
from kafka2011.events.topics import AUDIT
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import (
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
)
from kafka2011.protocol.requests import FetchRequest
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.payloads import payloads_of

ROUND_BYTES_MAX = 8 * 1024 * 1024  # asked for in one multifetch; memory is bounded by it
ENTRY_BYTES_MAX = 64 * 1024 * 1024
IDLE_S_MIN = 0.002
RETRY_S_MIN = 0.1
RETRY_S_MAX = 2.0
TROUBLE_PAUSE_MS = 1000
WATERMARK_AGE_MS = 500

log = get_logger(__name__)


class BrokerClient(Protocol):
    """What is used of a SimpleConsumer."""

    def multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]: ...
    def earliest(self, topic: str, partition: int) -> int: ...
    def latest(self, topic: str, partition: int) -> int: ...
    def close(self) -> None: ...


Connect = Callable[[BrokerAddress], BrokerClient]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Watermark(NamedTuple):
    """The end of a partition's log, at `latest` when it was asked for."""

    asked_ms: int
    latest: int


class BrokerReader:
    """Reads one broker until closed.

    `assign` says where the broker is and which partitions it has. A broker that leaves ZooKeeper
    is still asked at its last address: it may have lost its session only. `forms` are those of the
    topics' events.
    """

    def __init__(
        self,
        state: AuditState,
        tier: str,
        broker_id: int,
        *,
        connect: Connect,
        clock: Clock,
        fetch_bytes: int,
        poll_interval_ms: int,
        forms: Forms = FORMS_2011,
    ) -> None:
        self._state = state
        self._tier = tier
        self._broker_id = broker_id
        self._connect = connect
        self._clock = clock
        self._fetch_bytes = fetch_bytes
        self._forms = forms
        self._poll_interval_s = poll_interval_ms / 1000
        self._lock = threading.Lock()
        self._address: BrokerAddress | None = None
        self._partitions: dict[TopicPartition, bool] = {}  # -> measure delays from its start
        self._client: BrokerClient | None = None
        self._client_address: BrokerAddress | None = None
        self._fetch_sizes: dict[PartitionKey, int] = {}
        self._measure_from: dict[PartitionKey, int] = {}
        self._paused_until_ms: dict[PartitionKey, int] = {}
        self._watermarks: dict[PartitionKey, Watermark] = {}
        self._retry_s = RETRY_S_MIN
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"audit-{tier}-{broker_id}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop reading; returns when the thread has ended."""
        self._stop.set()
        self._wake.set()
        client = self._client
        if client is not None:
            client.close()
        self._thread.join()

    def assign(
        self, address: BrokerAddress | None, partitions: Sequence[TopicPartition], *, first: bool
    ) -> None:
        """Say what is registered now. What was known before stays known.

        `first`: these were there when the service started, so that what is already in them says
        nothing about delays.
        """
        with self._lock:
            if address is not None and address != self._address:
                self._address = address
                self._wake.set()
            for partition in partitions:
                self._partitions.setdefault(partition, not first)

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        idle_s = IDLE_S_MIN
        while not self._stop.is_set():
            with self._lock:
                address, partitions = self._address, dict(self._partitions)
            moved = False
            if address is None:
                self._away("has not registered since the audit started")
                self._pause(RETRY_S_MAX)
                continue
            try:
                client = self._connected(address)
                moved = self.round(client, partitions)
            except Exception as error:
                if self._stop.is_set():
                    return
                self._disconnect()
                if isinstance(error, KafkaError | OSError):
                    self._away(f"does not answer: {error}")
                else:  # a bug of ours must not stop a broker's partitions for good
                    log.exception("reader_failed", tier=self._tier, broker_id=self._broker_id)
                    self._away(f"is not read: an internal error, {error!r}")
                self._pause(self._retry_s)
                self._retry_s = min(RETRY_S_MAX, self._retry_s * 2)
                continue
            self._retry_s = RETRY_S_MIN
            self._state.back(self._tier, f"broker {self._broker_id}", self._broker_id)
            idle_s = IDLE_S_MIN if moved else min(self._poll_interval_s, idle_s * 2)
            if not moved:
                self._pause(idle_s)
        self._disconnect()

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        if not self._stop.is_set():
            self._wake.clear()

    def _away(self, why: str) -> None:
        who = f"broker {self._broker_id}"
        self._state.away(self._tier, who, f"{self._tier} {who} {why}", self._broker_id)

    def _connected(self, address: BrokerAddress) -> BrokerClient:
        if self._client is not None and self._client_address != address:
            self._disconnect()
        if self._client is None:
            self._client, self._client_address = self._connect(address), address
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- one round ---------------------------------------------------------------------------

    def round(self, client: BrokerClient, partitions: dict[TopicPartition, bool]) -> bool:
        """Fetch every partition once and count; True when something was there.

        Raises KafkaError or OSError when the broker does not answer.
        """
        moved = False
        parts: list[FetchRequest] = []
        asked_bytes = 0
        now_ms = self._clock()
        for partition, measure_all in partitions.items():
            key = PartitionKey(self._tier, partition.topic, self._broker_id, partition.partition)
            if self._paused_until_ms.get(key, 0) > now_ms:
                continue
            offset = self._state.position(key)
            if offset is None:
                self._state.begin(key, 0)
                offset = 0
            if measure_all:
                self._measure_from.setdefault(key, 0)
            size = self._fetch_sizes.get(key, self._fetch_bytes)
            if parts and asked_bytes + size > ROUND_BYTES_MAX:
                moved |= self._fetch(client, parts)
                parts, asked_bytes = [], 0
            parts.append(FetchRequest(partition.topic, partition.partition, offset, size))
            asked_bytes += size
        if parts:
            moved |= self._fetch(client, parts)
        return moved

    def _fetch(self, client: BrokerClient, parts: Sequence[FetchRequest]) -> bool:
        moved = False
        asked_ms = self._clock()
        for part, fetched in zip(parts, client.multifetch(parts), strict=True):
            key = PartitionKey(self._tier, part.topic, self._broker_id, part.partition)
            if fetched.error is not None:
                self._refused(client, key, part.offset, fetched.error)
                continue
            end = part.offset
            if fetched.data:
                taken = self._take(key, part, fetched.data)
                if taken is None:  # stuck, or to be fetched again at once with a larger size
                    moved |= self._paused_until_ms.get(key, 0) <= asked_ms
                    continue
                end, moved = taken, True
            is_full = len(fetched.data) >= part.size_max
            if not is_full:
                self._fetch_sizes.pop(key, None)
            if fetched.data:
                self._came_to(client, key, end, is_full=is_full)
            else:
                self._watermarks[key] = Watermark(asked_ms, end)
                self._compare(key, end)
        return moved

    def _came_to(self, client: BrokerClient, key: PartitionKey, end: int, *, is_full: bool) -> None:
        """Counted up to `end`. A short answer is no end of the log: it may be a segment's end.

        An empty one is, and follows soon where little comes; only without one is the broker asked,
        twice a second, and where a full answer goes beyond what it said.
        """
        mark = self._watermarks.get(key)
        if mark is not None:
            self._compare(key, end)
        if (
            mark is None
            or self._clock() - mark.asked_ms >= WATERMARK_AGE_MS
            or (is_full and mark.latest <= end)
        ):
            asked_ms = self._clock()
            latest = client.latest(key.topic, key.partition)
            self._watermarks[key] = Watermark(asked_ms, latest)
            self._compare(key, end)

    def _compare(self, key: PartitionKey, end: int) -> None:
        """Say what is left up to the watermark, or that all is counted that was visible then."""
        mark = self._watermarks[key]
        if end >= mark.latest:
            # What comes from now on comes while it is watched: its delay can be measured.
            self._measure_from.setdefault(key, end)
        self._state.read_to(key, mark.asked_ms, max(0, mark.latest - end))

    def _take(self, key: PartitionKey, part: FetchRequest, data: memoryview) -> int | None:
        """Count what was fetched; the next offset, or None when the next fetch must differ."""
        try:
            valid_bytes = message_set.split(data)
        except MessageLargerThanFetchSize as error:
            if part.size_max >= ENTRY_BYTES_MAX:
                self._stuck(key, f"the entry at {part.offset} is not readable: {error}")
            else:
                wanted = max(2 * part.size_max, error.size_needed)
                self._fetch_sizes[key] = min(ENTRY_BYTES_MAX, wanted)
            return None
        except InvalidMessage as error:
            self._stuck(key, f"unreadable from offset {part.offset} on: {error}")
            return None
        return self._count(key, part.offset, data[:valid_bytes])

    def _count(self, key: PartitionKey, offset: int, data: memoryview) -> int | None:
        """Count complete entries at `offset`; the offset behind them, None when it is stuck."""
        broken: list[tuple[int, int | None, str]] = []
        payloads: list[bytes] = []
        for piece in payloads_of(data, offset, lambda *what: broken.append(what)):
            payloads = payloads + piece if payloads else piece
        stuck_at, reason = None, ""
        if broken and broken[-1][1] is None:
            stuck_at, _, reason = broken.pop()
        end = offset + len(data) if stuck_at is None else stuck_at
        counts: dict[tuple[int, str], int] = {}
        delays: dict[int, int] = {}
        if key.topic != AUDIT:
            measured = key in self._measure_from and offset >= self._measure_from[key]
            window_ms = self._state.ledger.window_ms
            now_ms = self._clock()
            count_by_window(
                payloads,
                window_ms,
                counts,
                delays if measured else None,
                now_ms,
                prefix_bytes=self._forms.prefix_bytes(key.topic),
            )
        with self._state.lock:  # counts, offset and what was passed over, or none of them
            if key.topic == AUDIT:
                self._state.reported(key, payloads, end)
            else:
                self._state.counted(key, counts, delays, end)
            for first, last, why in broken:
                assert last is not None
                self._state.note_unread(key, first, last, f"damaged entry: {why}")
        if stuck_at is None:
            return end
        self._stuck(key, f"unreadable from offset {stuck_at} on: {reason}")
        return None

    def _refused(
        self, client: BrokerClient, key: PartitionKey, offset: int, error: KafkaError
    ) -> None:
        if not isinstance(error, OffsetOutOfRange):
            self._stuck(key, str(error))
            return
        earliest = client.earliest(key.topic, key.partition)
        latest = client.latest(key.topic, key.partition)
        if offset < earliest:
            reason = "deleted by the broker before the audit read it"
        elif offset > latest:
            reason = f"the log ends at {latest}: it was lost or replaced, and is read anew"
        else:
            return  # the log moved on meanwhile; the next fetch will tell
        self._watermarks.pop(key, None)  # perhaps another log's
        log.warning("unread", place=str(key), first=offset, goes_on_at=earliest, reason=reason)
        self._state.passed_over(key, offset, earliest, reason)

    def _stuck(self, key: PartitionKey, reason: str) -> None:
        self._state.trouble(key, reason)
        self._paused_until_ms[key] = self._clock() + TROUBLE_PAUSE_MS


def connect_with(
    address_map: dict[tuple[str, int], tuple[str, int]], socket_timeout_ms: int
) -> Connect:
    """Real connections, through the address map."""

    def connect(address: BrokerAddress) -> BrokerClient:
        host, port = address_map.get((address.host, address.port), (address.host, address.port))
        return SimpleConsumer(host, port, socket_timeout_ms)

    return connect
