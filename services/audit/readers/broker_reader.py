"""Reads one broker's partitions for the running service: fetch, count, go on where it ended.

The policy of a `BrokerLoop`, without group and ZooKeeper: the offsets stand in the audit's own
books, beside the counts. Nothing is passed over silently: what cannot be read is entered in the
books as unread, with its place and reason.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from kafka2011.consumer.broker_loop import (
    Backoff,
    BrokerClient,
    BrokerLoop,
    PartitionRead,
    Plan,
    ReadingPolicy,
    is_bug,
)
from kafka2011.consumer.log_tail import Tail, bytes_before, tail_of
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.cluster import BrokerAddress
from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.events.origin import origin_of
from kafka2011.events.retention import FIRST_READ
from kafka2011.events.topics import AUDIT
from kafka2011.protocol.errors import (
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
)
from kafka2011.runtime.clock import Clock, has_passed
from kafka2011.runtime.logs import get_logger
from kafka2011.services.audit.books.progress import (
    DELETED_UNREAD,
    Election,
    PartitionKey,
)
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.payloads import Piece, pieces_of

REQUEST_BYTES_MAX = 8 * 1024 * 1024  # of one multifetch; memory is bounded by it
ENTRY_BYTES_MAX = 64 * 1024 * 1024
IDLE_S_MIN = 0.004
# How long the broker waits for data. An empty answer says that all that was visible is counted.
WAIT_S_MAX = 0.5
SILENT_MS = 5_000  # an answer takes WAIT_S_MAX; the deadline of the connection is far longer
STILL_MS = 5_000  # without a request or a look at one the audit itself stood still
GATHER_S = 0.1  # an audit a tenth of a second later costs a fraction of the requests
FAILURE_BACKOFF = Backoff(0.1, 2.0)
TROUBLE_PAUSE_MS = 1000
PIECES_MAX = 16  # of one answer in a round, so that the other partitions get their turn
WATERMARK_AGE_MS = 500
EARLIEST_INTERVAL_MS = 10_000
BEYOND_MS = 5_000  # to wait when a set's log ends too early: an election may explain it

log = get_logger(__name__)

Connect = Callable[[BrokerAddress], SimpleConsumer]


class Watermark(NamedTuple):
    """The end of a partition's log, at `latest` when it was asked for."""

    asked_ms: int
    latest: int


@dataclass(slots=True)
class _KeyRead(PartitionRead):
    key: PartitionKey


class BrokerReader(ReadingPolicy[_KeyRead]):
    """Reads one broker until closed.

    `assign` says where the broker is and which partitions it has. A broker that leaves ZooKeeper
    is still read at its last address: it may only have lost its session. `forms` are those of the
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
        self._lock = threading.Lock()
        self._address: BrokerAddress | None = None
        self._partitions: dict[PartitionKey, bool] = {}  # -> measure delays from its start
        self._fetch_sizes: dict[PartitionKey, int] = {}
        self._measure_from: dict[PartitionKey, int] = {}
        self._paused_ms: dict[PartitionKey, int] = {}  # since when
        self._watermarks: dict[PartitionKey, Watermark] = {}
        self._client: SimpleConsumer | None = None
        self._reaches: dict[PartitionKey, int] = {}  # -> its connection on which the log was seen
        self._elections: list[Election] | None = None  # to be entered
        self._is_set = False
        self._is_away = True  # the books may say so, until it answers
        self._beyond_since_ms: dict[PartitionKey, int] = {}
        self._requested_ms = 0
        self._waits_since_ms = 0  # for an answer; 0: for none
        self._earliest_asked_ms = self._active_ms = clock()
        self._went_on_ms = 0  # after the audit stood still; what was made before waited for it
        self._poll_interval_s = poll_interval_ms / 1000
        self.loop = BrokerLoop(
            f"audit-{tier}-{broker_id}",
            self,
            idle=Backoff(min(IDLE_S_MIN, self._poll_interval_s), self._poll_interval_s),
            failure=FAILURE_BACKOFF,
            fetch_size_max=ENTRY_BYTES_MAX,
            request_bytes_max=REQUEST_BYTES_MAX,
            wait_max_s=WAIT_S_MAX,
            gather_s=GATHER_S,
        )

    def start(self) -> None:
        self.loop.start()

    def close(self) -> None:
        """Stop reading; returns when the thread has ended."""
        self.loop.stop()
        self.loop.join()

    def assign(
        self, address: BrokerAddress | None, partitions: Iterable[PartitionKey], *, first: bool
    ) -> None:
        """Set what is registered now. Partitions and an address of earlier calls stay.

        `first`: these were there when the service started, so that what is already in them says
        nothing about delays.
        """
        with self._lock:
            has_moved = address is not None and address != self._address
            self._address = address or self._address
            known = len(self._partitions)
            for key in partitions:
                self._partitions.setdefault(key, not first)
            is_more = len(self._partitions) > known
        if has_moved:
            self.loop.reconnect()
        elif is_more:
            self.loop.wake()

    def elected(self, elections: list[Election]) -> None:
        """Note that the broker is a replica set, with its unclean elections so far. Those not in
        the books yet are entered before anything more is read."""
        with self._lock:
            self._is_set = True
            self._elections = elections

    # --- what is fetched next ----------------------------------------------------------------

    def plan(self) -> Plan[_KeyRead]:
        with self._lock:
            address, partitions = self._address, dict(self._partitions)
            elections, self._elections = self._elections, None
        if elections is not None and self._state.add_elections(
            self._tier, self._broker_id, elections
        ):
            self._watermarks.clear()
            self._reaches.clear()
            self._beyond_since_ms.clear()
            self._paused_ms.clear()
        if address is None:
            self._away("has not registered since the audit started")
            return Plan([], FAILURE_BACKOFF.longest_s)
        reads = []
        now_ms = self._clock()
        for key, measure_all in partitions.items():
            if not has_passed(TROUBLE_PAUSE_MS, self._paused_ms.get(key, 0), now_ms):
                continue
            offset = self._state.position(key)
            if offset is None:
                self._state.begin(key, 0)
                offset = 0
            if measure_all:
                self._measure_from.setdefault(key, 0)
            size = self._fetch_sizes.get(key, self._fetch_bytes)
            reads.append(_KeyRead(key.topic, key.partition, offset, size, key))
        if not reads:
            self._back()
        return Plan(reads, WAIT_S_MAX)

    def locate(self, read: _KeyRead) -> _KeyRead:
        return read

    # --- the broker --------------------------------------------------------------------------

    def connect(self) -> BrokerClient:
        with self._lock:
            assert self._address is not None  # `plan` waits for it
            client = self._client = self._connect(self._address)
        self._reaches.clear()
        return client

    def _note_active(self) -> None:
        now_ms = self._clock()
        if has_passed(STILL_MS, self._active_ms, now_ms):
            self._went_on_ms = now_ms
        self._active_ms = now_ms

    def requesting(self) -> None:
        self._note_active()
        self._requested_ms = self._waits_since_ms = self._clock()

    def note_silence(self) -> None:
        """Enter an overdue answer in the books, long before the connection's deadline: a broker
        that hangs is not a slow reader. From any thread; an answer undoes it."""
        self._note_active()
        since_ms = self._waits_since_ms
        if since_ms > self._clock():  # it went back
            since_ms = self._waits_since_ms = self._clock()
        if since_ms and self._clock() - since_ms >= SILENT_MS and not self._is_away:
            at = datetime.fromtimestamp(since_ms // 1000, UTC)
            self._away(f"has not answered a request made at {at:%H:%M:%S} UTC")

    def answered(self, _has_moved: bool) -> None:
        self._waits_since_ms = 0
        self._back()
        self._check_earliest(self.loop.client())

    def broker_failed(self, error: Exception) -> None:
        self._waits_since_ms = 0
        if is_bug(error):
            self._away(f"is not read: an internal error, {error!r}")
        else:
            self._away(f"does not answer: {error}")

    def _back(self) -> None:
        if not self._is_away:
            return
        self._is_away = False
        self._state.set_reachable(self._tier, f"broker {self._broker_id}", self._broker_id)

    def _away(self, reason: str) -> None:
        self._is_away = True
        broker = f"broker {self._broker_id}"
        self._state.set_unreachable(
            self._tier, broker, f"{self._tier} {broker} {reason}", self._broker_id
        )

    # --- one partition's answer --------------------------------------------------------------

    def take(self, read: _KeyRead, data: memoryview, valid_bytes: int) -> bool:
        self._note_active()
        self._waits_since_ms = 0
        self._back()  # else the books have its messages, yet say that it does not answer
        key, end = read.key, read.offset
        if end and self._reaches.get(key) != self._connections() and not self._is_same(key, end):
            return False
        if data:
            counted = self._count(key, end, data[:valid_bytes])
            if counted is None:
                return False
            end = counted
        is_full = len(data) >= read.size_max
        if not is_full:
            self._fetch_sizes.pop(key, None)
        if data:
            self._reaches[key] = self._connections()
            self._came_to(key, end, is_full=is_full)
            return True
        self._watermarks[key] = Watermark(self._requested_ms, end)
        self._compare(key, end)
        return False

    def enlarge(self, read: _KeyRead, size_max: int) -> None:
        self._fetch_sizes[read.key] = size_max

    def refused(self, read: _KeyRead, error: KafkaError) -> bool:
        match error:
            case MessageLargerThanFetchSize():
                reason = f"the entry at {read.offset} is not readable: {error}"
            case InvalidMessage():
                reason = f"unreadable from offset {read.offset} on: {error}"
            case _:
                reason = str(error)
        self._stuck(read.key, reason)
        return False

    def out_of_range(self, read: _KeyRead, _error: OffsetOutOfRange) -> bool:
        key, offset = read.key, read.offset
        client = self.loop.client()
        earliest = client.earliest(key.topic, key.partition)
        latest = client.latest(key.topic, key.partition)
        if offset < earliest:
            self._skip(key, offset, earliest, DELETED_UNREAD)
        elif offset > latest:
            self._lost(key, offset, f"the log ends at {latest}")
        return False  # else the log moved on meanwhile; the next fetch will show it

    def _lost(self, key: PartitionKey, offset: int, reason: str) -> None:
        """Read the log, which is not the one that was read up to `offset`, anew from its start."""
        if self._waits_for_election(key):
            return
        earliest = self.loop.client().earliest(key.topic, key.partition)
        self._skip(key, offset, earliest, f"{reason}: it was lost or replaced, and is read anew")

    def _skip(self, key: PartitionKey, offset: int, goes_on_at: int, reason: str) -> None:
        self._watermarks.pop(key, None)  # it may be another log's
        log.warning("unread", place=str(key), first=offset, goes_on_at=goes_on_at, reason=reason)
        self._state.skip(key, offset, goes_on_at, reason)

    def _is_same(self, key: PartitionKey, offset: int) -> bool:
        """Whether the log has at `offset` what was read there; if not, it was lost or replaced, and
        is read anew.

        A broker answers a fetch of a partition that it does not have with an empty set, too. A log
        is lost while its broker is away, so this is asked once a connection.
        """
        connection = self._connections()
        tail = self._state.tail(key)
        stands = b""
        if tail is not None:
            assert self._client is not None
            stands = bytes_before(self._client, key.topic, key.partition, offset, tail.size)
        reason = ""
        if tail is None or len(stands) < tail.size:  # unknown, or deleted, or not confirmed yet
            latest = self.loop.client().latest(key.topic, key.partition)
            if latest < offset:
                reason = f"the log ends at {latest}"
        elif tail_of(stands) != tail:
            reason = f"what stands before {offset} is not what was read there"
        if reason:
            self._lost(key, offset, reason)
            return False
        if self._connections() != connection:
            return False  # what was fetched came on the one before
        self._reaches[key] = connection
        self._beyond_since_ms.pop(key, None)
        return True

    def _connections(self) -> int:
        """The number of the present connection: a client connects again by itself."""
        return self._client.connections if self._client is not None else 0

    def _waits_for_election(self, key: PartitionKey) -> bool:
        if not self._is_set:
            return False
        since_ms = self._beyond_since_ms.setdefault(key, self._clock())
        if has_passed(BEYOND_MS, since_ms, self._clock()):
            del self._beyond_since_ms[key]
            return False
        self._stuck(key, "the log ends before what was read of it")
        return True

    def offsets_failed(self, _read: _KeyRead, error: KafkaError) -> None:
        raise error  # the broker is away

    def _came_to(self, key: PartitionKey, end: int, *, is_full: bool) -> None:
        """Note that the partition is counted up to `end`.

        A short answer may be the end of a segment, not of the log. An empty one is the log end, and
        comes soon where there is little traffic; the broker is asked for the log end only without
        one, twice a second, and when a full answer goes beyond the last known end.
        """
        mark = self._watermarks.get(key)
        if mark is not None:
            self._compare(key, end)
        if (
            mark is None
            or has_passed(WATERMARK_AGE_MS, mark.asked_ms, self._clock())
            or (is_full and mark.latest <= end)
        ):
            asked_ms = self._clock()
            latest = self.loop.client().latest(key.topic, key.partition)
            self._watermarks[key] = Watermark(asked_ms, latest)
            self._compare(key, end)

    def _check_earliest(self, client: BrokerClient) -> None:
        """Ask where logs begin that the next tier has not fully taken: retention may come first."""
        now_ms = self._clock()
        if not has_passed(EARLIEST_INTERVAL_MS, self._earliest_asked_ms, now_ms):
            return
        self._earliest_asked_ms = now_ms
        for key in self._state.unconfirmed(self._tier):
            if key.broker_id == self._broker_id:
                earliest = client.earliest(key.topic, key.partition)
                self._state.set_earliest(key, earliest)

    def _compare(self, key: PartitionKey, end: int) -> None:
        """Set the lag up to the watermark, or note that all that was visible then is counted."""
        mark = self._watermarks[key]
        if end >= mark.latest:
            # What comes from now on comes while it is watched: its delay can be measured.
            self._measure_from.setdefault(key, end)
        self._state.set_read_to(key, mark.asked_ms, max(0, mark.latest - end))

    def _count(self, key: PartitionKey, offset: int, data: memoryview) -> int | None:
        """Count complete entries at `offset`, as many as a round takes; returns the offset after
        them, None when reading is stuck."""
        broken: list[tuple[int, int | None, str]] = []
        measured = key in self._measure_from and offset >= self._measure_from[key]
        end = offset
        pieces = pieces_of(data, offset, lambda *what: broken.append(what))
        for piece in islice(pieces, PIECES_MAX):
            tail = tail_of(data[: piece.next_offset - offset])
            self._enter(key, piece, tail, broken, measured=measured)
            broken.clear()
            end = piece.next_offset
        if not broken:
            return end
        [(stuck_at, _, reason)] = broken
        self._stuck(key, f"unreadable from offset {stuck_at} on: {reason}")
        return None

    def _enter(
        self,
        key: PartitionKey,
        piece: Piece,
        tail: Tail,
        broken: Iterable[tuple[int, int | None, str]],
        *,
        measured: bool,
    ) -> None:
        """Enter in the books a piece, which ends with `tail`, and the entries that it passes
        over."""
        counts: dict[tuple[int, str], int] = {}
        delays: dict[int, int] = {}
        if key.topic != AUDIT:
            window_ms = self._state.ledger.window_ms
            now_ms = self._clock()
            origin = origin_of(self._forms, key.topic)
            origin.count(piece.payloads, window_ms, counts, delays if measured else None, now_ms)
            age_ms = now_ms - self._went_on_ms
            delays = {delay: count for delay, count in delays.items() if delay <= age_ms}
            if self._state.is_without_beginning(key):
                self._state.begins(key, origin.first_times_ms(piece.payloads, FIRST_READ))
        with self._state.lock:  # counts, offset and what was passed over, or none of them
            if key.topic == AUDIT:
                self._state.reports.add(key, piece.payloads, piece.next_offset, tail)
            else:
                self._state.add_messages(key, counts, delays, piece.next_offset, tail)
            for first, last, why in broken:
                assert last is not None
                self._state.note_unread(key, first, last, f"damaged entry: {why}")

    def _stuck(self, key: PartitionKey, reason: str) -> None:
        self._state.set_trouble(key, reason)
        self._paused_ms[key] = self._clock()


def connect_with(
    address_map: dict[tuple[str, int], tuple[str, int]], socket_timeout_ms: int
) -> Connect:
    """A function that connects to a broker through the address map."""

    def connect(address: BrokerAddress) -> SimpleConsumer:
        host, port = address_map.get((address.host, address.port), (address.host, address.port))
        return SimpleConsumer(host, port, socket_timeout_ms)

    return connect
