"""One client's socket: bytes into frames for a session, the session's responses out.

Requests of a connection are handled strictly in order. While a response is not sent, or a request
waits for the disk, nothing more of this connection is handled or read: that is its flow control.

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

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.network.buffers import POOL_BUFFER_BYTES, BufferBudget, BufferPool
from kafka2011.broker.network.poller import READABLE, WRITABLE, Poller
from kafka2011.broker.network.sender import Progress, Reply, SegmentEndsEarly, Sender, WarmUp
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

# A remainder up to this size is copied aside and its buffer given back.
TAIL_BYTES_MAX = 16 * 1024
# After this many responses in a row another connection gets the loop.
REPLIES_PER_TURN = 128

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


class Wait(Protocol):
    """Something that calls back once it is over."""

    def cancel(self) -> None: ...


# Starts a wait; what it is given is called with whether the connection may go on.
BeginWait = Callable[[Callable[[bool], None]], Wait]


class Channel(Protocol):
    """What a session has of its connection."""

    @property
    def is_closed(self) -> bool: ...

    def send(self, reply: Reply, kind: str, began_s: float) -> bool:
        """Send a response to a request of the metric's `kind`; whether the session may go on."""

    def hold(self, begin: BeginWait, then: Callable[[], bool] | None = None) -> None:
        """Handle nothing more until the wait is over, then `then`, which returns whether to go on.
        A wait that fails closes the connection; a connection that is closed cancels its wait."""

    def close(self, reason: str, detail: str = "") -> None:
        """Hang up. `reason` is a metric's label. Idempotent."""


class Session(Protocol):
    """A protocol's side of one connection."""

    produced_count: int  # produce requests handled; the connection sets it back to 0

    def take(self, buffer: memoryview, start: int, end: int) -> int:
        """Handle the whole requests from `start` on, and stop where the channel was held, a `send`
        returned False or it was closed. Returns where the first request begins that is left."""


class Host(Protocol):
    """What a connection needs of the server."""

    loop: Any  # uvloop or asyncio: time, call_soon
    poller: Poller
    metrics: BrokerMetrics
    pool: BufferPool
    budget: BufferBudget
    turn: int
    read_deadline_s: float
    send_deadline_s: float

    def write_turn(self) -> None: ...
    def produced(self, count: int, began_s: float) -> None: ...
    def give_back_after_turn(self, buffer: memoryview) -> None: ...
    def session_for(self, channel: Channel) -> Session: ...
    def warm_up(self, job: WarmUp, done: Callable[[WarmUp], None]) -> None: ...
    def connection_closed(self, connection: "Connection", reason: str, detail: str) -> None: ...


class Connection:
    """Reading, held (waits for the disk, or for memory), sending, or closed."""

    def __init__(self, sock: socket.socket, address: str, host: Host) -> None:
        self.address = address
        self.is_closed = False
        self.deadline_s: float | None = None  # by the loop's clock; the host's sweep checks it
        self.deadline_reason = ""

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
        self._is_held = False
        self._wait: Wait | None = None
        self._then: Callable[[], bool] | None = None
        self._replies_in_turn = 0
        self._session: Session | None = host.session_for(self)
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
        self._handle_requests()
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
        if not self.is_closed and not self._is_held and not self._is_sending:
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

    def _handle_requests(self) -> None:
        """Have the session handle what is in the buffer, as far as this connection may go on."""
        buffer, session = self._buffer, self._session
        if buffer is None or session is None:
            return
        host = self._host
        self._lent_turn = host.turn
        self._replies_in_turn = 0
        began_s = time.perf_counter()
        first = self._start
        try:
            self._start = session.take(buffer, first, self._end)
        finally:
            if session.produced_count:
                host.produced(session.produced_count, began_s)
                session.produced_count = 0
        if self._is_reading:
            self._settle_buffer(self._start > first)

    @contained
    def _go_on(self) -> None:
        """What held this connection up is over: the next request, then the socket again."""
        if self.is_closed or self._is_sending or self._is_held:
            return
        self.deadline_s = None
        self._read_on()
        self._handle_requests()

    # --- waiting -------------------------------------------------------------------------------

    def hold(self, begin: BeginWait, then: Callable[[], bool] | None = None) -> None:
        self._read_no_more()
        self.deadline_s = None
        self._is_held = True
        self._then = then
        wait = begin(self._on_wait_over)
        if self.is_closed:  # by a write that the wait began with
            wait.cancel()
        else:
            self._wait = wait

    def _on_wait_over(self, may_go_on: bool) -> None:
        if self.is_closed:
            return
        if not may_go_on:
            self.close("barrier-failed", "a set sent on this connection is not known to be durable")
            return
        self._host.loop.call_soon(self._after_wait)

    @contained
    def _after_wait(self) -> None:
        if self.is_closed:
            return
        self._is_held = False
        self._wait = None
        then, self._then = self._then, None
        if then is None or then():
            self._go_on()

    # --- sending -------------------------------------------------------------------------------

    def send(self, reply: Reply, kind: str, began_s: float) -> bool:
        """Send a response; True when it is sent whole and the connection may go on."""
        self._request_kind = kind
        self._request_began_s = began_s
        self._sender.put(reply)
        self._close_after_send = reply.close_after
        try:
            progress = self._sender.send()
        except OSError as error:
            self.close(_end_of_sending(error), str(error))
            return False
        if progress is Progress.ALL_SENT:
            if not self._sent():
                return False
            self._replies_in_turn += 1
            if self._replies_in_turn < REPLIES_PER_TURN:
                return True
            self._read_no_more()
            self._host.loop.call_soon(self._go_on)
            return False
        self._is_sending = True
        self._read_no_more()
        self._start_deadline(self._host.send_deadline_s, "send-deadline")
        self._send_on(progress)
        return False

    def _send_on(self, progress: Progress) -> None:
        """A response is not sent whole: wait for the socket, or for the disk."""
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
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
        self._then = None
        self._session = None  # which refers to this connection
        self._sender.drop()
        if self._buffer is not None:
            self._host.give_back_after_turn(self._buffer)
            self._buffer = None
        self._host.budget.give_back(self)
        self._socket.close()
        self._host.connection_closed(self, reason, detail)


assert TAIL_BYTES_MAX < POOL_BUFFER_BYTES
