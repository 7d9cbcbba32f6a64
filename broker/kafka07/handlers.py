"""Turns one request's body into appends or a response, without sockets and without waiting.

`RequestRefused` closes the connection; the sets that were taken before it stay taken.
docs/protocol.md has the table of what closes a connection and what is answered.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core import errors
from kafka2011.broker.core.appends import Appends
from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.core.partitions import Log, Partitions
from kafka2011.broker.kafka07.checks import (
    CheckedPart,
    CheckJob,
    Limits,
    LoopChecks,
    RequestRefused,
    check_part_count,
)
from kafka2011.broker.network.sender import FileRegion, Piece, Reply
from kafka2011.protocol import errors as wire_errors
from kafka2011.protocol import requests, responses
from kafka2011.protocol.requests import ANY_PARTITION, EARLIEST, FETCH, LATEST, MULTI_FETCH

# A frame's size is an i32 that counts the error code as well.
RESPONSE_BYTES_MAX = 2**31 - 1
ERROR_CODE_BYTES = 2
# Parts that are read between two looks at the clock: a read takes some millionths of a second.
PARTS_AT_A_TIME = 16

# The code of a fetch part that cannot be read; every other refusal is -1.
_CODES: Final[dict[type[errors.PartitionError], int]] = {
    errors.OffsetNotInLog: wire_errors.OffsetOutOfRange.code,
    errors.NoSuchPartition: wire_errors.WrongPartition.code,
}
_UNKNOWN: Final = wire_errors.UnknownBrokerError.code
_EMPTY_FETCH: Final = responses.encode_fetch_header(0, 0)

# Error code, bytes to send (None: none), and their number, which is negative for a negative size.
Answer = tuple[int, FileRegion | None, int]


class WaitingFetch(NamedTuple):
    """A fetch that may wait for at most `wait_s`."""

    parts: list[requests.FetchPart]
    wait_s: float


class OffsetsQuery(NamedTuple):
    """At most `count_max` offsets before `time`: ms since the epoch, LATEST or EARLIEST."""

    route: bytes
    time: int
    count_max: int


class RequestHandlers:
    """Handles the requests of all the protocol's connections."""

    def __init__(
        self, config: BrokerConfig, partitions: Partitions, metrics: BrokerMetrics
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._metrics = metrics
        self._fetch_bytes_max = config.fetch_bytes_max
        self._limits = Limits.of(config)
        self._loop_checks = LoopChecks(self._limits)
        # A produce to a known partition, or a fetch from one, costs one look-up. Only legal routes
        # of logs that are there get in, so the limits of topics and partitions bound it.
        self._routes: dict[bytes, Log] = {}
        # What was drawn for partition -1, and the time (ms) it holds for.
        self._drawn: dict[bytes, Log] = {}
        self._drawn_ms = -1
        partitions.when_gone(self._forget_logs)

    def _forget_logs(self) -> None:
        """Forget the logs that were looked up: one is gone, and may come back."""
        self._routes.clear()
        self._drawn.clear()

    # --- produce -------------------------------------------------------------------------------

    def check(self, body: memoryview) -> list[CheckedPart]:
        """The parts of a Produce or MultiProduce, validated here and now.

        Raises RequestRefused, TooMuchForTheLoop.
        """
        return self._loop_checks.check(body)

    def check_job(self, buffer: memoryview, start: int, end: int) -> CheckJob:
        """A job that validates the produce requests from `start` on."""
        return CheckJob(buffer, start, end, self._limits)

    def produce(self, part: CheckedPart, appends: Appends, now_ms: int) -> None:
        """Append the part; one with too large a message is left out. Raises RequestRefused for any
        other fault: the parts after it are not appended."""
        route, message_set, message_count, fault = part
        if fault is None:
            self.append(route, message_set, message_count, appends, now_ms)
            return
        appends.was_refused = True
        log = self._routes.get(route) or self._log_to_append_to(route, now_ms)
        self._metrics.count_refused_sets(log.topic, fault.reason)
        if fault.closes:
            raise RequestRefused(fault.reason, f"{log.name}: {fault.detail}")

    def append(
        self,
        route: bytes,
        message_set: memoryview,
        message_count: int,
        appends: Appends,
        now_ms: int,
        *,
        set_count: int = 1,
    ) -> None:
        """Append one validated set, or the sets of several requests moved together. Raises
        RequestRefused."""
        log = self._routes.get(route)
        if log is None:
            log = self._log_to_append_to(route, now_ms, set_count)
        try:
            self._partitions.append(
                log, message_set, message_count, now_ms, appends, set_count=set_count
            )
        except errors.PartitionError as error:
            self._drawn.clear()
            self._metrics.count_refused_sets(log.topic, error.reason, set_count)
            raise RequestRefused(error.reason, str(error)) from None

    def append_failed(self, topic: str, error: errors.PartitionError, set_count: int) -> None:
        """Count sets that were taken over and could not be written."""
        self._metrics.count_refused_sets(topic, error.reason, set_count)

    def _log_to_append_to(self, route: bytes, now_ms: int, set_count: int = 1) -> Log:
        """The log for a produce. Unlike 0.7, which draws for each request: what comes for partition
        -1 of a topic within a millisecond goes to one partition, and is flushed together."""
        if now_ms != self._drawn_ms:
            self._drawn.clear()
            self._drawn_ms = now_ms
        elif (drawn := self._drawn.get(route)) is not None:
            return drawn
        topic, partition = requests.decode_route(route)
        try:
            if partition == ANY_PARTITION:
                log = self._drawn[route] = self._partitions.find_or_create(topic, None)
                return log
            log = self._partitions.find_or_create(topic, partition)
        except errors.PartitionError as error:
            self._metrics.count_refused_sets("", error.reason, set_count)
            raise RequestRefused(error.reason, str(error)) from None
        self._routes[route] = log
        return log

    # --- fetch ---------------------------------------------------------------------------------

    def fetch(self, body: memoryview) -> Reply:
        """The response to a Fetch. Raises RequestRefused."""
        [part] = _fetch_parts(body, FETCH)
        code, region, count = self._read(*part, RESPONSE_BYTES_MAX - ERROR_CODE_BYTES)
        header = responses.encode_fetch_header(code, count) if code or count else _EMPTY_FETCH
        return Reply([header] if region is None else [header, region], count < 0)

    def multi_fetch(self, body: memoryview) -> "Reading":
        """What a MultiFetch asks for, not read yet. Raises RequestRefused."""
        parts = _fetch_parts(body, MULTI_FETCH)
        check_part_count(parts, self._config.parts_max)
        return self.reading(parts)

    def reading(self, parts: Sequence[requests.FetchPart]) -> "Reading":
        """The parts, not read yet."""
        return Reading(parts, self._read)

    def waiting_fetch(self, body: memoryview) -> WaitingFetch:
        """What a WaitingFetch asks for. Raises RequestRefused."""
        try:
            wait_ms, parts = requests.waiting_fetch_parts(body)
        except wire_errors.KafkaError as error:
            raise RequestRefused("malformed-request", str(error)) from None
        check_part_count(parts, self._config.parts_max)
        if any(size_max < 0 for _, _, size_max in parts):
            raise RequestRefused("malformed-request", "a waiting fetch with a negative size")
        return WaitingFetch(parts, min(wait_ms, requests.WAIT_MS_MAX) / 1000)

    def ends_behind(self, fetch: WaitingFetch) -> tuple[dict[Log, int], bool] | None:
        """The logs to wait for, each with the offset from which data is wanted; and whether some
        partition has no log. None when one cannot be read any more, since the fetch was read."""
        behind: dict[Log, int] = {}
        is_one_missing = False
        for route, offset, _ in fetch.parts:
            try:
                log = self._routes.get(route) or self._known_log(route)
            except errors.PartitionError:
                return None
            if log is None:
                is_one_missing = True
            else:
                behind[log] = min(offset, behind.get(log, offset))
        return behind, is_one_missing

    def _read(self, route: bytes, offset: int, size_max: int, bytes_max: int) -> Answer:
        try:
            log = self._routes.get(route) or self._known_log(route)
            if log is None:
                return 0, None, 0
            region = self._partitions.read(
                log, offset, min(size_max, self._fetch_bytes_max, bytes_max)
            )
        except errors.PartitionError as error:
            topic, _ = requests.decode_route(route)
            self._metrics.count_failed_fetch(topic, error.reason)
            return _CODES.get(type(error), _UNKNOWN), None, 0
        if region is not None:
            return 0, region, region.count
        if size_max < 0 and offset < self._partitions.ends(log).watermark:
            # As the original: the negative size comes back as the set's size.
            return 0, None, size_max
        return 0, None, 0

    def _known_log(self, route: bytes) -> Log | None:
        """The log of a route; None when nothing was ever appended to it. Raises PartitionError."""
        log = self._routes.get(route)
        if log is None:
            log = self._partitions.find(*requests.decode_route(route))
            if log is not None:
                self._routes[route] = log
        return log

    # --- offsets -------------------------------------------------------------------------------

    def offsets_query(self, body: memoryview) -> OffsetsQuery:
        """The query of an Offsets request, if its partition may be asked about. Raises
        RequestRefused."""
        try:
            query = OffsetsQuery(*requests.offsets_part(body))
        except wire_errors.KafkaError as error:
            raise RequestRefused("malformed-request", str(error)) from None
        if self._log_asked_about(query.route) is not None and query.count_max < 0:
            raise RequestRefused("malformed-request", f"max count {query.count_max}")
        return query

    def _log_asked_about(self, route: bytes) -> Log | None:
        try:
            return self._known_log(route)
        except errors.PartitionError as error:
            raise RequestRefused(error.reason, str(error)) from None

    def awaited(self, query: OffsetsQuery, appends: Appends) -> dict[Log, int]:
        """What must be durable before the latest offset is answered. Raises RequestRefused."""
        waiting = appends.not_durable()
        log = self._log_asked_about(query.route)
        if log is not None and self._partitions.ends(log).watermark < (
            floor := self._partitions.latest_from(log)
        ):
            waiting[log] = max(waiting.get(log, 0), floor)
        return waiting

    def copies_count(self, body: memoryview) -> int:
        """How many replicas a Copies request asks for. Raises RequestRefused."""
        try:
            return requests.copies_count(body)
        except wire_errors.KafkaError as error:
            raise RequestRefused("malformed-request", str(error)) from None

    def copies(self, count: int) -> Reply:
        """The answer to a fulfilled Copies request; an error if the set has too few members."""
        is_possible = count <= self._partitions.copies.members_max
        return Reply([responses.encode_copies_response(is_possible)])

    def lineage(self, body: memoryview) -> Reply:
        """The answer to a Lineage request. Raises RequestRefused."""
        try:
            route = requests.lineage_route(body)
        except wire_errors.KafkaError as error:
            raise RequestRefused("malformed-request", str(error)) from None
        log = self._log_asked_about(route)
        lineage = self._partitions.copies.lineage(log) if log is not None else ()
        return Reply([responses.encode_lineage_response(lineage)])

    def offsets(self, query: OffsetsQuery, appends: Appends) -> Reply:
        """The response to an Offsets request. Raises RequestRefused."""
        log = self._log_asked_about(query.route)
        if log is None:
            offsets = [0] if query.time in (LATEST, EARLIEST) else []
        else:
            try:
                offsets = self._partitions.offsets_before(log, query.time, query.count_max)
            except errors.PartitionOffline as error:
                # A client asks partition 0 for its barrier, wherever it appended. The barrier has
                # held: that is answered, without an offset (decision 103).
                if query.time != LATEST or appends.last is None:
                    raise RequestRefused(error.reason, str(error)) from None
                offsets = []
        return Reply([responses.encode_offsets_response(offsets)])


def _fetch_parts(body: memoryview, request_id: int) -> list[requests.FetchPart]:
    try:
        return requests.fetch_parts(body, request_id)
    except wire_errors.KafkaError as error:
        raise RequestRefused("malformed-request", str(error)) from None


class Reading:
    """The parts of one fetch, read in order and in as many turns of the loop as they need, each
    with its own error. Have its `reply`, or cancel it: it holds files."""

    def __init__(
        self,
        parts: Sequence[requests.FetchPart],
        read: Callable[[bytes, int, int, int], Answer],
    ) -> None:
        """`read`: route, offset, the most that is wanted and the most that has room -> answer."""
        self._parts = iter(parts)
        self._read = read
        self._left = RESPONSE_BYTES_MAX - ERROR_CODE_BYTES
        self._left -= len(parts) * responses.FETCH_HEADER_BYTES
        self._answers: list[Answer] = []

    def go_on(self, until_s: float) -> bool:
        """Read on until then, by `time.perf_counter`; returns whether all is read."""
        for number, (route, offset, size_max) in enumerate(self._parts, 1):
            answer = self._read(route, offset, size_max, self._left)
            region = answer[1]
            if region is not None:
                region.yield_room()  # the parts are sent one after the other
            self._left -= max(answer[2], 0)
            self._answers.append(answer)
            if not number % PARTS_AT_A_TIME and time.perf_counter() > until_s:
                return False
        return True

    @property
    def is_empty(self) -> bool:
        """Whether there are parts, and none has bytes or an error."""
        answers = self._answers
        return bool(answers) and not any(code or count for code, _, count in answers)

    def reply(self) -> Reply:
        """The response, as a MultiFetch's, when all is read."""
        return _multi_fetch_reply(self._answers)

    def cancel(self) -> None:
        """Let go of the files."""
        for _, region, _ in self._answers:
            if region is not None:
                region.release()


def _multi_fetch_reply(answers: Sequence[Answer]) -> Reply:
    """The response of several parts. A negative size closes the connection after it is answered,
    as in the original: the parts after it are not sent."""
    pieces: list[Piece] = []
    pending = responses.encode_multifetch_header([count for _, _, count in answers])
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
