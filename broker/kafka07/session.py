"""One connection's requests of the 0.7 protocol, and three of our own, strictly in order.

Sockets are the channel's: a session takes whole requests out of a buffer, sends responses, and
holds the channel up where the protocol must wait for the disk. The barrier is here: Offsets with
the time LATEST is answered only when everything appended earlier on the connection is durable.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core.appends import Appends
from kafka2011.broker.core.data_waits import Waited
from kafka2011.broker.core.errors import PartitionError, TooManyWaits
from kafka2011.broker.core.partitions import Partitions
from kafka2011.broker.kafka07.checks import (
    CheckedPart,
    CheckJob,
    RequestRefused,
    TooMuchForTheLoop,
)
from kafka2011.broker.kafka07.handlers import (
    OffsetsQuery,
    Reading,
    RequestHandlers,
    WaitingFetch,
)
from kafka2011.broker.network.channel import Channel, Wait
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES
from kafka2011.protocol.layout import REQUEST_ID_BYTES
from kafka2011.protocol.requests import (
    COPIES,
    FETCH,
    LATEST,
    LINEAGE,
    MULTI_FETCH,
    MULTI_PRODUCE,
    OFFSETS,
    PRODUCE,
    PRODUCE_OVERHEAD_BYTES,
    WAITING_FETCH,
    ProduceRun,
    produce_runs,
    request_id_of,
)
from kafka2011.runtime.clock import Clock

# At most this much of a buffer is taken as runs at a time. A client that turns to another log in
# the middle of it may overshoot that log's segment size by as much.
RUN_BYTES_MAX = 1024 * 1024
# After this long another connection gets the loop.
TURN_S = 0.002
# Appends to logs that are there get more: another turn writes and flushes each file once more.
APPENDS_TURN_S = 0.006
# So many appends are made between two looks at the clock. One that makes a log takes half a
# millisecond, so there is a look after each of these.
APPENDS_AT_A_TIME = 32
# Less than this is no whole Produce request.
PRODUCE_BYTES_MIN = FRAME_SIZE_BYTES + PRODUCE_OVERHEAD_BYTES

# What stands in the place of a frame's size when a client speaks another protocol.
HTTP_STARTS = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"PATC", b"DELE", b"OPTI", b"CONN"})
TLS_START = b"\x16\x03"


class Session:
    """The 0.7 protocol's `network.channel.Session`."""

    def __init__(
        self,
        channel: Channel,
        config: BrokerConfig,
        partitions: Partitions,
        handlers: RequestHandlers,
        clock: Clock,
        *,
        loop_time: Callable[[], float],
    ) -> None:
        """`clock` gives appends their time, `loop_time` is the clock of the loop's deadlines."""
        self.produced_count = 0
        self._channel = channel
        self._partitions = partitions
        self._handlers = handlers
        self._clock = clock
        self._loop_time = loop_time
        self._request_bytes_max = config.request_bytes_max
        self._message_bytes_max = config.message_bytes_max
        self._appends = Appends(self._append_failed)
        # What a thread has checked, in order: the next requests of the buffer.
        self._job: CheckJob | None = None
        self._checked: deque[list[CheckedPart] | RequestRefused] = deque()
        # Appends that are left to make, and where in the buffer their requests end.
        self._rest: Iterator[None] | None = None
        self._rest_end = 0

    @property
    def keeps_buffer(self) -> bool:
        return self._job is not None or bool(self._checked) or self._rest is not None

    def take(self, buffer: memoryview, start: int, end: int) -> int:
        appends = self._appends
        position = start
        until_s = 0.0
        if self._job is not None and not self._take_over(self._job):
            return position
        try:
            while True:
                if self._rest is not None:
                    if not self._append_on(self._rest):
                        return position
                    position = self._rest_end
                    if appends.must_wait:
                        self._hold_until_ready()
                        return position
                # 0.7 decides before every single set whether a log rolls: no runs near a roll.
                if (
                    PRODUCE_BYTES_MIN <= end - position <= RUN_BYTES_MAX
                    and buffer[position + FRAME_SIZE_BYTES + 1] == PRODUCE
                    and not self._checked
                    and self._partitions.has_room(appends, RUN_BYTES_MAX)
                ):
                    self._rest_end, runs = produce_runs(
                        buffer, position, end, self._request_bytes_max, self._message_bytes_max
                    )
                    if runs:
                        self._rest = self._run_appends(buffer, runs)
                        continue
                if end - position < FRAME_SIZE_BYTES:
                    return position
                size: int = FRAME_SIZE.unpack_from(buffer, position)[0]
                if not REQUEST_ID_BYTES <= size <= self._request_bytes_max:
                    raise RequestRefused("frame-size", self._frame_fault(size))
                body_start = position + FRAME_SIZE_BYTES
                if body_start + size > end:
                    return position
                if not until_s:
                    until_s = time.perf_counter() + TURN_S
                elif time.perf_counter() > until_s:
                    self._channel.give_way()
                    return position
                body = buffer[body_start : body_start + size]
                request_id = request_id_of(body)
                if request_id in (PRODUCE, MULTI_PRODUCE):
                    try:
                        parts = self._checked_parts(body)
                    except TooMuchForTheLoop:
                        self._job = self._handlers.check_job(buffer, position, end)
                        self._channel.check(self._job)
                        return position
                    self.produced_count += 1
                    self._rest, self._rest_end = self._part_appends(parts), body_start + size
                    continue
                position = body_start + size
                if not self._answer(body, request_id, is_last=position == end):
                    return position
        except RequestRefused as refused:
            self._refuse(refused)
            return position

    def _frame_fault(self, size: int) -> str:
        """What is wrong with a frame of that size; other protocols' first bytes are such sizes."""
        text = f"a frame of {size} bytes, the limit is {self._request_bytes_max}"
        head = size.to_bytes(FRAME_SIZE_BYTES, "big", signed=True)
        if head in HTTP_STARTS:
            return f"{text}: it begins as HTTP does"
        return f"{text}: it begins as TLS does" if head.startswith(TLS_START) else text

    def _append_on(self, rest: Iterator[None]) -> bool:
        """Go on with appends; returns whether all are made, and if not, gives way. The buffer stays
        as it is until then: its start is where these requests began."""
        self._rest = None  # where one of them is refused
        began_s, logs_made = time.perf_counter(), self._partitions.logs_made
        for _ in rest:
            took_s = time.perf_counter() - began_s
            has_made_logs = self._partitions.logs_made > logs_made
            if took_s > (TURN_S if has_made_logs else APPENDS_TURN_S):
                self._rest = rest
                self._channel.give_way()
                return False
        return True

    def _run_appends(self, buffer: memoryview, runs: Sequence[ProduceRun]) -> Iterator[None]:
        """Appends the runs; yields for a look at the clock."""
        partitions, append, appends = self._partitions, self._handlers.append, self._appends
        now_ms, logs_made = self._clock(), partitions.logs_made
        for number, (route, set_start, set_end, message_count, request_count) in enumerate(runs, 1):
            self.produced_count += request_count
            message_set = buffer[set_start:set_end]
            append(route, message_set, message_count, appends, now_ms, set_count=request_count)
            if partitions.logs_made > logs_made or not number % APPENDS_AT_A_TIME:
                yield
                now_ms, logs_made = self._clock(), partitions.logs_made

    def _part_appends(self, parts: Sequence[CheckedPart]) -> Iterator[None]:
        """Appends the parts of a request; yields for a look at the clock."""
        partitions = self._partitions
        now_ms, logs_made = self._clock(), partitions.logs_made
        for number, part in enumerate(parts, 1):
            self._handlers.produce(part, self._appends, now_ms)
            if partitions.logs_made > logs_made or not number % APPENDS_AT_A_TIME:
                yield
                now_ms, logs_made = self._clock(), partitions.logs_made

    def _checked_parts(self, body: memoryview) -> list[CheckedPart]:
        """A request's parts, checked. Raises RequestRefused, TooMuchForTheLoop."""
        if not self._checked:
            return self._handlers.check(body)
        parts = self._checked.popleft()
        if isinstance(parts, RequestRefused):
            raise parts
        return parts

    def _take_over(self, job: CheckJob) -> bool:
        """Take what a job has found; returns whether the job could run."""
        self._job = None
        if job.error is not None:
            self._channel.close("internal-error", str(job.error))
            return False
        self._checked.extend(job.found)
        return True

    def _answer(self, body: memoryview, request_id: int, *, is_last: bool) -> bool:
        """Answer one request; returns whether the next may be handled. `is_last`: nothing has come
        after it yet. Raises RequestRefused."""
        began_s = time.perf_counter()
        if request_id == FETCH:
            return self._channel.send(self._handlers.fetch(body), "fetch", began_s)
        if request_id == MULTI_FETCH:
            reading = self._handlers.multi_fetch(body)
            return self._read(
                reading, lambda: self._channel.send(reading.reply(), "fetch", began_s)
            )
        if request_id == OFFSETS:
            return self._offsets(self._handlers.offsets_query(body), began_s)
        if request_id == WAITING_FETCH:
            fetch = self._handlers.waiting_fetch(body)
            deadline_s = self._loop_time() + fetch.wait_s
            return self._fetch_or_wait(fetch, deadline_s, began_s, may_wait=is_last)
        if request_id == COPIES:
            return self._copies(self._handlers.copies_count(body), began_s)
        if request_id == LINEAGE:
            return self._channel.send(self._handlers.lineage(body), "offsets", began_s)
        raise RequestRefused("malformed-request", f"unknown request id {request_id}")

    def _read(self, reading: Reading, then: Callable[[], bool]) -> bool:
        """Read, giving way after each turn, and then call `then`; returns what it returns, or False
        if that is later."""
        if reading.go_on(time.perf_counter() + TURN_S):
            return then()

        def give_way(go_on: Callable[[bool], None]) -> Reading:
            go_on(True)  # in the next turn
            return reading

        self._channel.hold(give_way, lambda: self._read(reading, then))
        return False

    # --- a fetch that waits --------------------------------------------------------------------

    def _fetch_or_wait(
        self, fetch: WaitingFetch, deadline_s: float, began_s: float, *, may_wait: bool
    ) -> bool:
        """Answer now, or when there is something to say; whether the next may be handled."""
        reading = self._handlers.reading(fetch.parts)

        def answer() -> bool:
            is_wait = may_wait and reading.is_empty and deadline_s > self._loop_time()
            if is_wait and self._wait_for_data(fetch, deadline_s):
                return False
            return self._channel.send(reading.reply(), "fetch", began_s)

        return self._read(reading, answer)

    def _wait_for_data(self, fetch: WaitingFetch, deadline_s: float) -> bool:
        """Hold the channel until the fetch has something to read; False if it cannot wait."""
        ends = self._handlers.ends_behind(fetch)
        if ends is None:
            return False
        behind, is_one_missing = ends
        how_ended: Waited | None = None
        tell: Callable[[bool], None]

        def ended(how: Waited) -> None:
            nonlocal how_ended
            how_ended = how
            tell(True)

        def begin(done: Callable[[bool], None]) -> Wait:
            nonlocal tell
            tell = done
            return wait

        def go_on() -> bool:
            # A new log may be another partition's, and has nothing durable yet.
            return self._fetch_or_wait(
                fetch, deadline_s, time.perf_counter(), may_wait=how_ended is Waited.NEW_LOG
            )

        try:
            wait = self._partitions.wait_for_data(
                behind, deadline_s, ended, or_new_log=is_one_missing
            )
        except TooManyWaits:
            return False
        self._channel.hold(begin, go_on, until_client_sends=True)
        return True

    def _hold_until_ready(self) -> None:
        self._channel.hold(lambda done: self._partitions.when_ready(self._appends, done))

    # --- the barrier ---------------------------------------------------------------------------

    def _offsets(self, query: OffsetsQuery, began_s: float) -> bool:
        appends = self._appends
        if query.time == LATEST:
            if appends.was_refused:
                raise RequestRefused(
                    "barrier-failed", "a set sent earlier on this connection was not kept"
                )
            waiting = self._handlers.awaited(query, appends)
            if waiting:
                self._channel.hold(
                    lambda done: self._partitions.when_durable(waiting, done),
                    lambda: self._after_barrier(query, began_s),
                )
                return False
            appends.ends.clear()
        return self._channel.send(self._handlers.offsets(query, appends), "offsets", began_s)

    def _after_barrier(self, query: OffsetsQuery, began_s: float) -> bool:
        self._appends.ends.clear()
        try:
            reply = self._handlers.offsets(query, self._appends)
        except RequestRefused as refused:
            self._channel.close(refused.reason, str(refused))
            return False
        return self._channel.send(reply, "offsets", began_s)

    def _copies(self, count: int, began_s: float) -> bool:
        """Answer a Copies request once fulfilled; the barrier still waits for what was appended."""
        if self._appends.was_refused:
            raise RequestRefused(
                "barrier-failed", "a set sent earlier on this connection was not kept"
            )
        copies = self._partitions.copies
        if count <= copies.members_max and (waiting := copies.lacking(self._appends.ends, count)):
            self._channel.hold(
                lambda done: self._partitions.when_copied(waiting, count, done),
                lambda: self._channel.send(self._handlers.copies(count), "offsets", began_s),
            )
            return False
        return self._channel.send(self._handlers.copies(count), "offsets", began_s)

    # --- hanging up ----------------------------------------------------------------------------

    def _append_failed(self, topic: str, error: PartitionError, set_count: int) -> None:
        self._handlers.append_failed(topic, error, set_count)
        # A produce has no response: closing is the only way to answer.
        self._channel.close(error.reason, str(error))

    def _refuse(self, refused: RequestRefused) -> None:
        """Hang up, but not before what was appended earlier is written, and flushed where a flush
        of it is on its way: a client that sees the end of the connection finds those messages."""

        def close() -> bool:
            self._channel.close(refused.reason, str(refused))
            return False

        if self._appends.ends:
            self._partitions.write_now()
            waiting = self._appends.being_flushed()
            if waiting and not self._channel.is_closed:
                self._channel.hold(lambda done: self._partitions.when_flushed(waiting, done), close)
                return
        close()
