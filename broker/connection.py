"""One client's socket: reads bytes into frames, has them handled one at a time, sends the answers.

Requests of a connection are handled strictly in order. While a response has not left, or a request
waits for the disk, nothing more of this connection is looked at or read: that is its flow control.

Message sets are appended as views of the receive buffer, so the buffer must not change before the
logs have written them: `Host.turn` counts the writes, and a buffer lent in the present turn makes
the host write first.
"""

import errno
import functools
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from kafka2011.broker.buffers import POOL_BUFFER_BYTES, BufferBudget, BufferPool
from kafka2011.broker.handlers import RUN_BYTES_MAX, Pause, Reply, RequestHandlers, RequestRefused
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.errors import LogError
from kafka2011.broker.log.log import Log
from kafka2011.broker.metrics import BrokerMetrics
from kafka2011.broker.polling import READABLE, WRITABLE, Poller
from kafka2011.broker.sending import Progress, SegmentEndsEarly, Sender, WarmUp
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES
from kafka2011.protocol.requests import FETCH, MULTI_PRODUCE, OFFSETS, PRODUCE, produce_runs
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

# A remainder up to this size is copied aside and its buffer given back.
TAIL_BYTES_MAX = 16 * 1024
# After this many responses in a row another connection gets the loop.
REPLIES_PER_TURN = 128
REQUEST_ID_BYTES = 2


# Ends of a connection that are the storage's fault.
BROKEN_READS = frozenset({"cannot-read", "segment-ends-early"})


def _end_of_sending(error: OSError) -> str:
    """The reason to close after a send that failed: the client went away, or the file is broken."""
    if isinstance(error, SegmentEndsEarly):
        return "segment-ends-early"
    return "cannot-read" if error.errno == errno.EIO else "reset"


Ready = TypeVar("Ready", bound=Callable[..., Any])


def contained(entry_point: Ready) -> Ready:
    """An entry point from the loop: a bug of ours costs the connection it was met on, no more."""

    @functools.wraps(entry_point)
    def call(self: "Connection", *arguments: Any) -> Any:
        try:
            return entry_point(self, *arguments)
        except Exception:
            _log.exception("internal_error", client=self.address)
            self.close("internal-error")
            return False

    return cast(Ready, call)


class Host(Protocol):
    """What a connection needs of the server."""

    loop: Any  # uvloop or asyncio: time, call_soon
    poller: Poller
    handlers: RequestHandlers
    metrics: BrokerMetrics
    pool: BufferPool
    budget: BufferBudget
    clock: Clock
    turn: int
    request_bytes_max: int
    message_bytes_max: int
    read_deadline_s: float
    send_deadline_s: float

    def write_turn(self) -> None: ...
    def produced(self, count: int, began_s: float) -> None: ...
    def give_back_after_turn(self, buffer: memoryview) -> None: ...
    def request_flush(self, log: Log) -> None: ...
    def warm_up(self, job: WarmUp, done: Callable[[WarmUp], None]) -> None: ...
    def connection_closed(self, connection: "Connection", reason: str, detail: str) -> None: ...


class Connection:
    """Reading, paused (waits for the disk, or for memory), sending, or closed."""

    def __init__(self, sock: socket.socket, address: str, host: Host) -> None:
        self.address = address
        self.is_closed = False
        self.deadline_s: float | None = None  # by the loop's clock; the host's sweep looks at it
        self.deadline_reason = ""
        # Session: what the barrier must know.
        self.unflushed: dict[Log, int] = {}
        self.refused = False
        self.last_log: Log | None = None

        self._socket = sock
        self._fd = sock.fileno()
        self._host = host
        self._sender = Sender(sock, host.metrics)
        self._buffer: memoryview | None = None
        self._start = self._end = 0  # what of the buffer is not handled yet
        self._tail = b""
        self._lent_turn = -1
        self._is_reading = False
        self._is_sending = False
        self._close_after_send = False
        self._barrier: Barrier | None = None
        self._then: Callable[[], Reply] | None = None
        self._request_kind = ""
        self._request_began_s = 0.0

    def start(self) -> None:
        self._read_on()

    # --- reading -------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._host.poller.watch(self._fd, READABLE, self.on_readable)

    def _read_no_more(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._host.poller.forget(self._fd)

    @property
    def is_waiting(self) -> bool:
        """Whether something must happen before more of this connection is read."""
        return not self._is_reading

    @contained
    def on_readable(self) -> bool:
        """Take what the socket has, once. Returns whether there was something."""
        if self.is_closed:
            return False
        host = self._host
        if self._lent_turn == host.turn:
            host.write_turn()
            if self.is_closed:
                return False
        buffer = self._receive_buffer()
        if buffer is None:
            return False
        try:
            count = self._socket.recv_into(buffer[self._end :])
        except (BlockingIOError, InterruptedError):
            self._settle_buffer(False)
            return False
        except OSError as error:
            self.close("reset", str(error))
            return False
        if count == 0:
            self.close("cut-request" if self._end > self._start else "end")
            return False
        self._end += count
        host.metrics.bytes_read += count
        self._handle_frames()
        return True

    def _receive_buffer(self) -> memoryview | None:
        """A buffer with room behind `_end`; None when there is no memory for it now."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = self._host.pool.take()
            self._start, self._end = 0, len(self._tail)
            buffer[: self._end] = self._tail
            self._tail = b""
        elif self._start:
            rest = self._end - self._start
            buffer[:rest] = buffer[self._start : self._end]
            self._start, self._end = 0, rest
        if self._end == len(buffer):
            return self._grown(buffer)
        return buffer

    def _grown(self, buffer: memoryview) -> memoryview | None:
        """A larger buffer for a frame that does not fit: four times the size, or the frame's.

        Pages that nothing was read into cost nothing, so memory follows what arrives.
        """
        (size,) = FRAME_SIZE.unpack_from(buffer)
        capacity = min(FRAME_SIZE_BYTES + size, 4 * len(buffer))
        if not self._host.budget.take(self, capacity, self._on_room):
            self._host.metrics.buffer_waits += 1
            self._read_no_more()
            self.deadline_s = None
            return None
        bigger = memoryview(bytearray(capacity))
        bigger[: self._end] = buffer[: self._end]
        self._host.give_back_after_turn(buffer)
        self._buffer = bigger
        return bigger

    def _on_room(self) -> None:
        if not self.is_closed and self._barrier is None and not self._is_sending:
            self._start_deadline(self._host.read_deadline_s, "read-deadline")
            self._read_on()

    def _settle_buffer(self, moved_on: bool) -> None:
        """Nothing more can be handled: keep the remainder, give back what is not needed.

        `moved_on` says that the remainder belongs to a request that has just begun.
        """
        buffer = self._buffer
        if buffer is None:
            return
        rest = self._end - self._start
        if rest == 0:
            self.deadline_s = None
        elif moved_on or self.deadline_s is None:
            self._start_deadline(self._host.read_deadline_s, "read-deadline")
        if rest <= TAIL_BYTES_MAX:
            self._tail = bytes(buffer[self._start : self._end])
            self._buffer = None
            self._start = self._end = 0
            self._host.give_back_after_turn(buffer)
            self._host.budget.give_back(self)

    def _start_deadline(self, seconds: float, reason: str) -> None:
        self.deadline_s = self._host.loop.time() + seconds
        self.deadline_reason = reason

    # --- handling ------------------------------------------------------------------------------

    def _handle_frames(self) -> None:
        """Handle every whole request in the buffer, as far as this connection may go on."""
        buffer = self._buffer
        if buffer is None:
            return
        host = self._host
        self._lent_turn = host.turn
        handlers = host.handlers
        size_max = host.request_bytes_max
        now_ms = host.clock()
        began_s = time.perf_counter()
        first = position = self._start
        end = self._end
        produced = replies = 0
        outcome: Reply | Pause | None
        try:
            while True:
                if handlers.takes_runs(self) and end - position <= RUN_BYTES_MAX:
                    position, runs = produce_runs(
                        buffer, position, end, size_max, host.message_bytes_max
                    )
                    waits: Pause | None = None
                    for route, start, stop, message_count, request_count in runs:
                        produced += request_count
                        pause = handlers.produce_run(
                            route, buffer[start:stop], message_count, self, now_ms
                        )
                        if pause is not None:
                            waits = pause if waits is None else waits.joined(pause)
                    if waits is not None:
                        self._start = position
                        self._pause(waits)
                        return
                if end - position < FRAME_SIZE_BYTES:
                    break
                (size,) = FRAME_SIZE.unpack_from(buffer, position)
                if not REQUEST_ID_BYTES <= size <= size_max:
                    raise RequestRefused("frame-size", f"a frame of {size} bytes")
                body_start = position + FRAME_SIZE_BYTES
                if body_start + size > end:
                    break
                position = body_start + size
                body = buffer[body_start:position]
                request_id = body[0] << 8 | body[1]
                if request_id == PRODUCE:
                    produced += 1
                    outcome = handlers.produce(body, self, now_ms)
                elif request_id == MULTI_PRODUCE:
                    produced += 1
                    outcome = handlers.multi_produce(body, self, now_ms)
                else:
                    self._request_kind = "offsets" if request_id == OFFSETS else "fetch"
                    self._request_began_s = time.perf_counter()
                    if request_id == FETCH and (reply := handlers.fetch(body)) is not None:
                        outcome = reply
                    else:
                        outcome = handlers.handle(body, self)
                if outcome is None:
                    continue
                self._start = position
                if isinstance(outcome, Pause):
                    self._pause(outcome)
                    return
                if not self._send(outcome):
                    return
                replies += 1
                if replies >= REPLIES_PER_TURN:
                    self._read_no_more()
                    host.loop.call_soon(self._go_on)
                    return
        except RequestRefused as refused:
            self._refuse(refused)
            return
        finally:
            if produced:
                host.produced(produced, began_s)
        self._start = position
        self._settle_buffer(position > first)

    def _refuse(self, refused: RequestRefused) -> None:
        """Hang up, but not before what was appended earlier is written, and flushed where a flush
        of it is on its way: whoever sees the end of the connection finds those messages."""
        if self.unflushed:
            self._host.write_turn()
            waiting = [
                (log, end)
                for log, end in self.unflushed.items()
                if log.flushing and log.high_watermark < end <= log.written_end
            ]
            if waiting and not self.is_closed:

                def refuse_again() -> Reply:
                    raise refused

                self._pause(Pause(flushed=waiting, then=refuse_again))
                return
        self.close(refused.reason, str(refused))

    @contained
    def _go_on(self) -> None:
        """What held this connection up is over: the next request, then the socket again."""
        if self.is_closed or self._is_sending or self._barrier is not None:
            return
        self.deadline_s = None
        self._read_on()
        self._handle_frames()

    # --- waiting for the disk ------------------------------------------------------------------

    def _pause(self, pause: Pause) -> None:
        self._read_no_more()
        self.deadline_s = None
        self._then = pause.then
        barrier = self._barrier = Barrier(self._on_barrier)
        for log, end in pause.flushed:
            log.when_flushed(end, barrier)
        for log, end in pause.written:
            log.when_written(end, barrier)
        for log, _ in pause.flushed:
            self._host.request_flush(log)
        if not self.is_closed:
            barrier.seal()

    def _on_barrier(self, reached: bool) -> None:
        if not reached:
            self.close("barrier-failed", "a set sent on this connection is not known to be durable")
            return
        self._host.loop.call_soon(self._after_barrier)

    @contained
    def _after_barrier(self) -> None:
        if self.is_closed:
            return
        self._barrier = None
        then, self._then = self._then, None
        if then is not None:
            try:
                reply = then()
            except RequestRefused as refused:
                self.close(refused.reason, str(refused))
                return
            if not self._send(reply):
                return
        self._go_on()

    def append_failed(self, error: LogError) -> None:
        """A set of this connection was not kept: there is no way to say so but to hang up."""
        self.refused = True
        self.close(error.reason, str(error))

    # --- sending -------------------------------------------------------------------------------

    def _send(self, reply: Reply) -> bool:
        """Send a response; True when it left whole and the connection may go on."""
        self._sender.put(reply)
        self._close_after_send = reply.close_after
        try:
            progress = self._sender.send()
        except OSError as error:
            self.close(_end_of_sending(error), str(error))
            return False
        if progress is Progress.ALL_SENT:
            return self._sent()
        self._is_sending = True
        self._read_no_more()
        self._start_deadline(self._host.send_deadline_s, "send-deadline")
        self._send_on(progress)
        return False

    def _send_on(self, progress: Progress) -> None:
        """A response has not left whole: wait for the socket, or for the disk."""
        if progress is Progress.SOCKET_FULL:
            self._host.poller.watch(self._fd, WRITABLE, self._on_writable)
            return
        self._host.poller.forget(self._fd)
        self.deadline_s = None
        try:
            self._host.warm_up(self._sender.next_warm_up(), self._on_warm)
        except OSError as error:
            self.close("cannot-read", str(error))

    @contained
    def _on_warm(self, warm_up: WarmUp) -> None:
        warm_up.finish()
        if self.is_closed:
            return
        if warm_up.error is not None:
            self.close("cannot-read", str(warm_up.error))
            return
        self._start_deadline(self._host.send_deadline_s, "send-deadline")
        self._on_writable()

    @contained
    def _on_writable(self) -> None:
        before = self._sender.progress_bytes
        try:
            progress = self._sender.send()
        except OSError as error:
            self.close(_end_of_sending(error), str(error))
            return
        if progress is Progress.ALL_SENT:
            self._is_sending = False
            self._host.poller.forget(self._fd)
            if self._sent():
                self._go_on()
            return
        if self._sender.progress_bytes > before:
            self._start_deadline(self._host.send_deadline_s, "send-deadline")
        self._send_on(progress)

    def _sent(self) -> bool:
        elapsed_s = time.perf_counter() - self._request_began_s
        self._host.metrics.request_s[self._request_kind].observe(elapsed_s)
        if self._close_after_send:
            self.close("nonsense-size", "a fetch with a negative size was answered")
            return False
        return True

    # --- ending --------------------------------------------------------------------------------

    def close(self, reason: str, detail: str = "") -> None:
        """Hang up and let go of everything. `reason` is a metric's label. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self.deadline_s = None
        self._read_no_more()
        if self._is_sending:
            self._is_sending = False
            self._host.poller.forget(self._fd)
        if self._barrier is not None:
            self._barrier.cancel()
            self._barrier = None
        self._then = None
        self._sender.drop()
        if self._buffer is not None:
            self._host.give_back_after_turn(self._buffer)
            self._buffer = None
        self._host.budget.give_back(self)
        self._socket.close()
        self._host.connection_closed(self, reason, detail)


assert TAIL_BYTES_MAX < POOL_BUFFER_BYTES
