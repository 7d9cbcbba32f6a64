"""From a request to what is to be done about it; no sockets and no waiting in here.

A handler answers with a `Reply`, with a `Pause` (the connection must wait for the disk before
anything else of it is looked at), or with None (a produce has no response). `RequestRefused` means
that the connection is to be closed; the sets that were taken before it stay taken.

The table of what closes and what answers is reference 1.4 and kafka-0.7 captures section 6, kept in
docs/protocol.md; contracts section 1 says when Offsets(-1) waits.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final, Protocol, TypeAlias

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.log.errors import LimitReached, LogError, PartitionOffline
from kafka2011.broker.log.file_layer import Buffer
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.log import Appender, Log, LogState
from kafka2011.broker.metrics import BrokerMetrics
from kafka2011.protocol import message_set as message_sets
from kafka2011.protocol import names, requests, responses
from kafka2011.protocol.compression import DecompressionBudget
from kafka2011.protocol.errors import (
    IllegalTopicName,
    InvalidMessage,
    KafkaError,
    MessageSizeTooLarge,
    OffsetOutOfRange,
    UnknownBrokerError,
    WrongPartition,
)
from kafka2011.protocol.requests import (
    ANY_PARTITION,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
)

Piece: TypeAlias = bytes | FileRegion

# A frame's size is an i32 that counts the error code as well.
RESPONSE_BYTES_MAX = 2**31 - 1
ERROR_CODE_BYTES = 2

# At most this much of a receive buffer is taken as runs at a time.
RUN_BYTES_MAX = 1024 * 1024

# A Fetch around its route: request id and topic length; offset and max size.
_FETCH_HEAD: Final = Struct(">hh")
_FETCH_TAIL: Final = Struct(">qi")
_PARTITION_BYTES: Final = 4


class RequestRefused(Exception):
    """Close the connection. `reason` is the metric's label, the text is for the log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(slots=True)
class Reply:
    """A whole response; whoever gets it must send it or release its regions."""

    pieces: list[Piece]
    close_after: bool = False

    def release(self) -> None:
        for piece in self.pieces:
            if isinstance(piece, FileRegion):
                piece.release()


@dataclass(slots=True)
class Pause:
    """Wait until each log is written (`written`) or flushed (`flushed`) up to its offset.

    Then do `then` and go on with the connection's next request; when a log fails, close it.
    """

    flushed: list[tuple[Log, int]] = field(default_factory=list)
    written: list[tuple[Log, int]] = field(default_factory=list)
    then: Callable[[], Reply] | None = None

    def joined(self, other: "Pause") -> "Pause":
        """Wait for what both wait for."""
        return Pause(self.flushed + other.flushed, self.written + other.written, self.then)


Outcome: TypeAlias = Reply | Pause | None


class Logs(Protocol):
    """What handlers need of the log manager."""

    def get(self, topic: str, partition: int) -> Log | None: ...
    def get_or_create(self, topic: str, partition: int) -> Log: ...


class Session(Appender, Protocol):
    """What the broker remembers of one connection, for the barrier."""

    unflushed: dict[Log, int]  # log -> end of what this connection appended to it
    refused: bool  # whether a set of it was not kept
    last_log: Log | None  # where it appended last


class RequestHandlers:
    """Knows the logs; one for all connections.

    `appended(log)` is told of every log that has something to write in this turn, `topic_seen` of
    every topic that gets its first log.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: Logs,
        metrics: BrokerMetrics,
        *,
        rng: random.Random,
        appended: Callable[[Log], None],
        topic_seen: Callable[[str], None],
    ) -> None:
        self._config = config
        self._logs = logs
        self._metrics = metrics
        self._rng = rng
        self._appended = appended
        self._topic_seen = topic_seen
        self._rule: names.TopicRule = "0.7" if config.topic_name_rule == "0.7" else "strict"
        self._message_bytes_max = config.message_bytes_max
        self._budget = self._new_budget()
        # A produce to a known partition, or a fetch from one, costs one look-up. Only legal routes
        # of logs that are there get in, so the limits of topics and partitions bound it.
        self._routes: dict[bytes, Log] = {}
        self._small_segments = (
            min(config.segment_bytes_max, *config.topic_segment_bytes_max.values(), RUN_BYTES_MAX)
            < RUN_BYTES_MAX
        )

    def _new_budget(self) -> DecompressionBudget:
        return DecompressionBudget(
            self._config.decompressed_bytes_max, self._config.decompression_depth_max
        )

    # --- produce -------------------------------------------------------------------------------

    def takes_runs(self, session: Session) -> bool:
        """Whether this connection's requests may be taken in runs. Not while the log that it
        appends to is about to roll: 0.7 decides that before every single set. A connection that
        turns to another log in the middle of a buffer may overshoot that log's size by the buffer.
        """
        if self._small_segments:
            return False
        log = session.last_log
        return log is None or log.room_bytes >= RUN_BYTES_MAX

    def produce_run(
        self,
        route: bytes,
        message_set: Buffer,
        message_count: int,
        session: Session,
        now_ms: int,
    ) -> Pause | None:
        """Several Produce requests for one partition, found valid and moved together by
        `requests.produce_runs`; `route` is the bytes that name topic and partition."""
        log = self._routes.get(route)
        if log is None:
            log = self._log_on(route)
        return self._append(log, message_set, message_count, session, now_ms)

    def _log_on(self, route: bytes) -> Log:
        topic, partition = requests.decode_route(route)
        log = self._log_for(topic, partition)
        if partition != ANY_PARTITION:
            self._routes[route] = log
        return log

    def produce(self, body: memoryview, session: Session, now_ms: int) -> Pause | None:
        """A Produce request's body, request id included. Raises RequestRefused."""
        part = self._decode(body)
        assert isinstance(part, ProduceRequest)
        try:
            return self._scan_and_append(part, session, now_ms)
        finally:
            self._renew_budget()

    def multi_produce(self, body: memoryview, session: Session, now_ms: int) -> Outcome:
        """Parts in order; one with too large a message is left out, any other fault ends it."""
        request = self._decode(body)
        assert isinstance(request, MultiProduceRequest)
        self._check_part_count(request.parts)
        pause = None
        try:
            for part in request.parts:
                outcome = self._scan_and_append(part, session, now_ms)
                if outcome is not None:
                    pause = outcome if pause is None else pause.joined(outcome)
        finally:
            self._renew_budget()
        return pause

    def _scan_and_append(self, part: ProduceRequest, session: Session, now_ms: int) -> Pause | None:
        log = self._log_for(part.topic, part.partition)
        message_set = part.message_set
        try:
            found = message_sets.scan(message_set, self._message_bytes_max, budget=self._budget)
        except MessageSizeTooLarge:
            session.refused = True
            self._metrics.count_refused_set(log.topic, "message-too-large")
            return None
        except InvalidMessage as error:
            session.refused = True
            self._metrics.count_refused_set(log.topic, "invalid-message")
            raise RequestRefused("invalid-message", f"{log.name}: {error}") from None
        if found.valid_bytes != len(message_set):
            message_set = message_set[: found.valid_bytes]
        return self._append(log, message_set, found.message_count, session, now_ms)

    def _append(
        self, log: Log, message_set: Buffer, message_count: int, session: Session, now_ms: int
    ) -> Pause | None:
        try:
            end = log.append(message_set, message_count, now_ms, session)
        except LogError as error:
            session.refused = True
            self._metrics.count_refused_set(log.topic, error.reason)
            raise RequestRefused(error.reason, str(error)) from None
        self._appended(log)
        session.unflushed[log] = end
        session.last_log = log
        if log.messages_since_flush_began >= log.flush_interval_messages:
            return Pause(flushed=[(log, end)])
        if log.is_held:
            if message_count >= log.flush_interval_messages:
                return Pause(flushed=[(log, end)])
            return Pause(written=[(log, end)])
        return None

    def _renew_budget(self) -> None:
        if self._budget.bytes_left != self._config.decompressed_bytes_max:
            self._budget = self._new_budget()

    def _log_for(self, topic: str, partition: int) -> Log:
        try:
            partition_count = self._partition_count(topic)
        except IllegalTopicName as error:
            raise RequestRefused("illegal-topic", str(error)) from None
        if partition == ANY_PARTITION:
            partition = self._any_partition(topic, partition_count)
        if not 0 <= partition < partition_count:
            raise RequestRefused("wrong-partition", f"{topic!a} has no partition {partition}")
        log = self._logs.get(topic, partition)
        if log is None:
            try:
                log = self._logs.get_or_create(topic, partition)
            except LimitReached as error:
                raise RequestRefused(error.reason, str(error)) from None
            except OSError as error:
                raise RequestRefused(
                    "cannot-create-log", f"{topic!a}-{partition}: {error.strerror}"
                ) from None
            self._topic_seen(topic)
        return log

    def _any_partition(self, topic: str, partition_count: int) -> int:
        """One at random. Unlike 0.7: not one whose disk failed, while there is another."""
        partition = self._rng.randrange(partition_count)
        log = self._logs.get(topic, partition)
        if log is None or log.state is LogState.ONLINE:
            return partition
        online = []
        for number in range(partition_count):
            log = self._logs.get(topic, number)
            if log is None or log.state is LogState.ONLINE:
                online.append(number)
        return self._rng.choice(online) if online else partition

    def _partition_count(self, topic: str) -> int:
        """How many partitions a legal topic has here. Raises IllegalTopicName."""
        names.check_topic(topic, self._rule)
        if len(topic) > self._config.max_topic_name_length:
            raise IllegalTopicName(
                f"a topic of {len(topic)} characters is above the limit of "
                f"{self._config.max_topic_name_length}"
            )
        return self._config.partition_count(topic)

    # --- fetch ---------------------------------------------------------------------------------

    def fetch(self, body: memoryview) -> Reply | None:
        """A Fetch of a partition that was fetched or produced to before: the short way. None when
        it is anything else, or must be answered with an error: then `handle` it."""
        try:
            _, topic_size = _FETCH_HEAD.unpack_from(body)
            end = _FETCH_HEAD.size + topic_size + _PARTITION_BYTES
            log = self._routes.get(bytes(body[2:end]))
            if log is None or topic_size < 0:
                return None
            offset, size_max = _FETCH_TAIL.unpack_from(body, end)
            if size_max < 0:
                return None
            region = log.read(offset, min(size_max, self._config.fetch_bytes_max))
        except (StructError, KafkaError, LogError, OSError):
            return None
        if region is None:
            return Reply([_EMPTY_FETCH])
        log.count_out(region.count)
        return Reply([responses.encode_fetch_header(0, region.count), region])

    def handle(self, body: memoryview, session: Session) -> Outcome:
        """Fetch, MultiFetch and Offsets. Raises RequestRefused."""
        request = self._decode(body)
        match request:
            case FetchRequest():
                code, region, count = self._read(request, RESPONSE_BYTES_MAX - ERROR_CODE_BYTES)
                log = self._logs.get(request.topic, request.partition) if not code else None
                if log is not None:
                    self._routes[requests.encode_route(request.topic, request.partition)] = log
                return _fetch_reply(b"", [(code, region, count)])
            case MultiFetchRequest(parts):
                return self._multi_fetch(parts)
            case OffsetsRequest():
                return self._offsets(request, session)
        raise RequestRefused("malformed-request", "a produce request in the wrong place")

    def _multi_fetch(self, parts: Sequence[FetchRequest]) -> Reply:
        self._check_part_count(parts)
        left = RESPONSE_BYTES_MAX - ERROR_CODE_BYTES - len(parts) * responses.FETCH_HEADER_BYTES
        answers = []
        for part in parts:
            code, region, count = self._read(part, left)
            left -= max(count, 0)
            answers.append((code, region, count))
        header = responses.encode_multifetch_header([count for _, _, count in answers])
        return _fetch_reply(header, answers)

    def _read(self, part: FetchRequest, bytes_max: int) -> tuple[int, FileRegion | None, int]:
        """Error code, region (None when empty) and number of bytes for one part."""
        try:
            partition_count = self._partition_count(part.topic)
            if not 0 <= part.partition < partition_count:
                raise WrongPartition(f"{part.topic} has no partition {part.partition}")
            log = self._logs.get(part.topic, part.partition)
            if log is None:
                return 0, None, 0
            size_max = min(part.size_max, self._config.fetch_bytes_max, bytes_max)
            region = log.read(part.offset, size_max)
        except IllegalTopicName:
            return self._fetch_failed(part, UnknownBrokerError.code, "illegal-topic")
        except WrongPartition:
            return self._fetch_failed(part, WrongPartition.code, "wrong-partition")
        except OffsetOutOfRange:
            return self._fetch_failed(part, OffsetOutOfRange.code, "offset-out-of-range")
        except PartitionOffline as error:
            return self._fetch_failed(part, UnknownBrokerError.code, error.reason)
        except OSError:
            return self._fetch_failed(part, UnknownBrokerError.code, "cannot-read")
        if region is None:
            return 0, None, 0
        if region.count > 0:
            log.count_out(region.count)
            return 0, region, region.count
        return 0, None, region.count

    def _fetch_failed(
        self, part: FetchRequest, code: int | None, reason: str
    ) -> tuple[int, None, int]:
        self._metrics.count_failed_fetch(part.topic, reason)
        assert code is not None
        return code, None, 0

    # --- offsets -------------------------------------------------------------------------------

    def _offsets(self, request: OffsetsRequest, session: Session) -> Outcome:
        try:
            partition_count = self._partition_count(request.topic)
        except IllegalTopicName as error:
            raise RequestRefused("illegal-topic", str(error)) from None
        if not 0 <= request.partition < partition_count:
            raise RequestRefused(
                "wrong-partition", f"{request.topic} has no partition {request.partition}"
            )
        if request.count_max < 0 and self._logs.get(request.topic, request.partition) is not None:
            raise RequestRefused("malformed-request", f"max count {request.count_max}")
        if request.time == LATEST:
            if session.refused:
                raise RequestRefused(
                    "barrier-failed", "a set sent earlier on this connection was not kept"
                )
            waiting = [
                (log, end) for log, end in session.unflushed.items() if log.high_watermark < end
            ]
            if waiting:
                return Pause(flushed=waiting, then=lambda: self._after_barrier(request, session))
            session.unflushed.clear()
        return self._offsets_reply(request, session)

    def _after_barrier(self, request: OffsetsRequest, session: Session) -> Reply:
        session.unflushed.clear()
        return self._offsets_reply(request, session)

    def _offsets_reply(self, request: OffsetsRequest, session: Session) -> Reply:
        log = self._logs.get(request.topic, request.partition)
        if log is None:
            offsets = [0] if request.time in (LATEST, requests.EARLIEST) else []
        else:
            try:
                offsets = log.offsets_before(request.time, request.count_max)
            except PartitionOffline as error:
                # A barrier is asked for (topic, 0), whatever was appended to, and has held: there
                # is no offset to tell, but that is (decision 103).
                if request.time != LATEST or session.last_log is None:
                    raise RequestRefused(error.reason, str(error)) from None
                offsets = []
        return Reply([responses.encode_offsets_response(offsets)])

    # --- shared --------------------------------------------------------------------------------

    def _decode(self, body: memoryview) -> requests.Request:
        try:
            return requests.decode_request(body)
        except KafkaError as error:
            raise RequestRefused("malformed-request", str(error)) from None

    def _check_part_count(self, parts: Sequence[object]) -> None:
        if len(parts) > self._config.parts_max:
            raise RequestRefused(
                "too-many-parts", f"{len(parts)} parts, the limit is {self._config.parts_max}"
            )


_EMPTY_FETCH: Final = responses.encode_fetch_header(0, 0)


def _fetch_reply(header: bytes, answers: Sequence[tuple[int, FileRegion | None, int]]) -> Reply:
    """One response of fetch parts; a negative size closes the connection after its nonsense, as
    the original does (reference 2.4 rule 8): the parts behind it are not sent."""
    pieces: list[Piece] = []
    pending = header
    close_after = False
    for code, region, count in answers:
        if close_after:
            if region is not None:
                region.release()
            continue
        pending += responses.encode_fetch_header(code, count)
        close_after = count < 0
        if region is not None:
            pieces += [pending, region]
            pending = b""
    if pending:
        pieces.append(pending)
    return Reply(pieces, close_after)
