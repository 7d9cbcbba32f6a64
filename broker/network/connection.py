"""One client's socket: bytes into frames for a session, the session's responses out.

Requests of a connection are handled strictly in order. While a response is not sent, or a request
waits for the disk, nothing more of this connection is handled or read: that is its flow control.
The bytes in between are in a `ReceiveBuffer`.
"""

import contextlib
import functools
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.core.worker_threads import Job
from kafka2011.broker.network.channel import BeginWait, Channel, CheckJob, Session, Wait
from kafka2011.broker.network.poller import BROKEN, ENDED, READABLE, WRITABLE, Poller
from kafka2011.broker.network.receive_buffer import BufferHost, ReceiveBuffer
from kafka2011.broker.network.sender import (
    CannotReadSegment,
    Progress,
    Reply,
    SegmentEndsEarly,
    Sender,
    WarmUp,
)
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

# After this many responses in a row another connection gets the loop.
REPLIES_PER_TURN = 128

# In a stream of small requests the client's kernel gathers the next ones until the last are
# acknowledged; after a read of less than this, that is left to a timer of up to 40 ms.
QUICK_ACK_BYTES_MAX = 64 * 1024

LAST_READS = 16  # of each connection at a stop or a pause

# Sweeps after which a wait is long: from then on it is noticed when the client leaves.
LONG_WAIT_SWEEPS = 3

# Ends of a connection that are the storage's fault.
BROKEN_READS = frozenset({"cannot-read", "segment-ends-early"})


def _end_of_sending(error: OSError) -> str:
    """The reason to close after a send that failed: the client went away, or the file is broken."""
    if isinstance(error, SegmentEndsEarly):
        return "segment-ends-early"
    return "cannot-read" if isinstance(error, CannotReadSegment) else "reset"


Ready = TypeVar("Ready", bound=Callable[..., Any])


def contained(entry_point: Ready) -> Ready:
    """Wrap an entry point from the loop: a bug of ours costs its own connection, no more."""

    @functools.wraps(entry_point)
    def call(self: "Connection", *arguments: Any) -> Any:
        try:
            return entry_point(self, *arguments)
        except Exception:
            _log.exception("internal_error", client=self.address)
            self.close("internal-error")
            return False

    return cast(Ready, call)


class Host(BufferHost, Protocol):
    """What a connection needs of the server."""

    loop: Any  # uvloop or asyncio: time, call_soon
    poller: Poller
    metrics: BrokerMetrics
    is_paused: bool
    read_deadline_s: float
    send_deadline_s: float

    def produced(self, count: int, began_s: float) -> None: ...
    def session_for(self, channel: Channel) -> Session: ...
    def warm_up(self, job: WarmUp, done: Callable[[WarmUp], None]) -> None: ...
    def check(self, job: Job, done: Callable[[Job], None]) -> None: ...
    def connection_closed(self, connection: "Connection", reason: str, detail: str) -> None: ...


class Connection:
    """One connection: reading, held (waits for the disk, a thread or its turn), waiting for room,
    sending, or closed."""

    def __init__(self, sock: socket.socket, address: str, host: Host) -> None:
        self.address = address
        self.is_closed = False
        self.deadline_s: float | None = None  # by the loop's clock; the host's sweep checks it
        self.deadline_reason = ""

        self._socket = sock
        self._fd = sock.fileno()
        self._host = host
        self._sender = Sender(sock, host.metrics)
        self._received = ReceiveBuffer(host)
        self._is_reading = False
        self._is_sending = False
        self._close_after_send = False
        self._is_held = False
        self._waits_for_client = False  # held, until the client sends something
        self._waits_for_room = False
        self._is_warming = False  # it is sending, and waits for a thread to read
        self._sweeps = 0  # in waits for the disk or for room, since something went on
        self._is_end_watched = False  # in long ones
        self._has_left = False  # so that the deadline is that of its wait
        self._last_reads = 0  # at a pause: how many are left
        self._is_being_checked = False
        self._has_produced = False
        self._has_been_read = False  # since the last `tidy`
        self._wait: Wait | None = None
        self._then: Callable[[], bool] | None = None
        self._replies_in_turn = 0
        self._session: Session | None = host.session_for(self)
        self._request_kind = ""
        self._request_began_s = 0.0

    def start(self) -> None:
        self._read_on()

    # --- reading -------------------------------------------------------------------------------

    def pause(self) -> None:
        """Read what has arrived, and nothing more while the host is paused."""
        self._last_reads = LAST_READS
        self.has_settled()
        self._read_no_more()

    def has_settled(self) -> bool:
        """Whether everything that had arrived at the pause is with the logs. What waits for a disk
        or for others is not; what follows a response that the client does not read may stay."""
        while self._last_reads and not (
            self._is_held or self._is_sending or self._waits_for_room or self.is_closed
        ):
            if self.on_readable():
                self._last_reads -= 1
            elif not self._waits_for_room:
                self._last_reads = 0
        is_idle = self._waits_for_client or self._is_sending
        return is_idle or not (self._is_held or self._last_reads)

    def resume(self) -> None:
        """Read on, unless something else is in the way."""
        is_held = self._is_held and not self._waits_for_client
        if not (is_held or self._is_sending or self._waits_for_room):
            self._read_on()
            self._settle_buffer(False)

    def _read_on(self) -> None:
        if not self._is_reading and not self.is_closed and not self._host.is_paused:
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
    def on_readable(self, _: int = READABLE) -> bool:
        """Read the socket once, and handle it. Returns whether there was something."""
        if self.is_closed:
            return False
        if self._is_held:
            self._end_wait()
            return False
        received = self._received
        buffer = received.with_room()
        if buffer is None:
            if not self.is_closed:
                self._wait_for_room()
            return False
        try:
            count = self._socket.recv_into(buffer[received.end :])
        except (BlockingIOError, InterruptedError):
            self._settle_buffer(False)
            return False
        except OSError as error:
            self.close("reset", str(error))
            return False
        if count == 0:
            self.close("cut-request" if received.end > received.start else "end")
            return False
        received.end += count
        self._has_been_read = True
        self._went_on()
        if self._has_produced and count < QUICK_ACK_BYTES_MAX:
            self._acknowledge()
        self._host.metrics.bytes_read += count
        self._handle_requests()
        return True

    def _acknowledge(self) -> None:
        """Have the kernel acknowledge now what was read."""
        with contextlib.suppress(OSError):  # the client is gone, as the next read finds
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _wait_for_room(self) -> None:
        self._host.metrics.buffer_waits += 1
        self._waits_for_room = True
        self._read_no_more()
        if not self._has_left:
            self.deadline_s = None
        self._received.wait_for_room(self._on_room)

    def _on_room(self) -> None:
        self._waits_for_room = False
        self._unwatch_end()
        if not self.is_closed and not self._is_held and not self._is_sending:
            if not self._has_left:
                self._start_deadline(self._host.read_deadline_s, "read-deadline")
            self._read_on()

    def _settle_buffer(self, moved_on: bool) -> None:
        """Keep the remainder, which cannot be handled yet, for as long as the read deadline allows,
        and give back what is not needed.

        `moved_on` says that the remainder belongs to a request that has just begun.
        """
        received = self._received
        if received.buffer is None:
            return
        if received.start == received.end:
            self.deadline_s = None
        elif moved_on or self.deadline_s is None:
            self._start_deadline(self._host.read_deadline_s, "read-deadline")
        received.settle()

    def tidy(self) -> None:
        """Release memory that has not been needed since the last call: the connection waits or
        sends, or its client is slow."""
        has_been_read, self._has_been_read = self._has_been_read, False
        session = self._session
        if not (has_been_read or session is None or session.keeps_buffer):
            self._received.tidy()

    def _start_deadline(self, seconds: float, reason: str) -> None:
        self.deadline_s = self._host.loop.time() + seconds
        self.deadline_reason = reason

    # --- handling ------------------------------------------------------------------------------

    def _handle_requests(self) -> None:
        """Have the session handle what is in the buffer, as far as this connection may go on."""
        received, session = self._received, self._session
        buffer = received.buffer
        if buffer is None or session is None:
            return
        host = self._host
        received.lent_turn = host.turn
        self._replies_in_turn = 0
        began_s = time.perf_counter()
        first = received.start
        try:
            received.start = session.take(buffer, first, received.end)
        finally:
            if session.produced_count:
                self._has_produced = True
                host.produced(session.produced_count, began_s)
                session.produced_count = 0
        # What a log holds of it is a copy: a wait for the disk needs no buffer.
        if self._is_reading or (received.start == received.end and not self._is_sending):
            self._settle_buffer(received.start > first)

    @contained
    def _go_on(self) -> None:
        """Handle the next requests and read on: what held this connection up is over."""
        if self.is_closed or self._is_sending or self._is_held:
            return
        self.deadline_s = None
        self._read_on()
        self._handle_requests()

    # --- waiting -------------------------------------------------------------------------------

    def hold(
        self,
        begin: BeginWait,
        then: Callable[[], bool] | None = None,
        *,
        until_client_sends: bool = False,
    ) -> None:
        if until_client_sends:
            self._read_on()  # a hold before this one may have stopped it
        else:
            self._read_no_more()
        self.deadline_s = None
        self._went_on()
        self._is_held = True
        self._waits_for_client = until_client_sends
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
        self._wait = None
        self._host.loop.call_soon(self._after_wait)

    def _end_wait(self) -> None:
        """End a wait, unless it is over already: the client sent something, or hung up."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.cancel()
            self._after_wait()

    @contained
    def _after_wait(self) -> None:
        if self.is_closed:
            return
        self._is_held = self._waits_for_client = False
        self._unwatch_end()
        self._went_on()
        self._wait = None
        self._received.lent_turn = self._host.turn
        then, self._then = self._then, None
        if then is None or then():
            self._go_on()

    def check(self, job: CheckJob) -> None:
        self._is_being_checked = True

        def begin(done: Callable[[bool], None]) -> Wait:
            self._host.check(job, lambda _: self._checked(done))
            return job

        self.hold(begin)

    def _checked(self, done: Callable[[bool], None]) -> None:
        self._is_being_checked = False
        if self.is_closed:
            self._received.release()
        else:
            done(True)

    def give_way(self) -> None:
        """Wait for the next turn of the loop; until then nothing may move the buffer."""
        self._read_no_more()
        self._is_held = True
        self._host.loop.call_soon(self._after_wait)

    def look_for_end(self) -> None:
        """Notice a client that leaves during a long wait; called in each sweep.

        The connection is not read meanwhile, and what it waits for may take days: it would count
        for as long. An end behind more bytes than the kernel takes has not arrived yet; keepalive
        finds it in minutes.
        """
        waits_for_disk = self._is_held and not (self._waits_for_client or self._is_being_checked)
        if not (waits_for_disk or self._waits_for_room or self._is_warming):
            return
        self._sweeps += 1
        if self._sweeps >= LONG_WAIT_SWEEPS and not self._is_end_watched:
            self._is_end_watched = True
            self._host.poller.watch(self._fd, ENDED, self._on_left)

    @contained
    def _on_left(self, events: int) -> None:
        """Close the connection of a client that is gone. One that only sends no more may still
        wait for its answer, as in 0.7: it has as long as a client that reads nothing."""
        if events & BROKEN:
            self.close("reset", "while it waited")
        else:
            self._host.poller.watch(self._fd, 0, self._on_left)  # else it is reported again at once
            if not self._has_left:  # else it has begun another wait for room
                self._has_left = True
                self._start_deadline(self._host.send_deadline_s, "left-waiting")

    def _went_on(self) -> None:
        """Start over at the end of a wait: whether the client has left is asked anew."""
        self._sweeps = 0
        if self._has_left:
            self._has_left = False
            self.deadline_s = None

    def _unwatch_end(self) -> None:
        if self._is_end_watched:
            self._is_end_watched = False
            self._host.poller.forget(self._fd)

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
            self.give_way()
            return False
        self._is_sending = True
        self._read_no_more()
        self._start_deadline(self._host.send_deadline_s, "send-deadline")
        self._send_on(progress)
        return False

    def _send_on(self, progress: Progress) -> None:
        """Wait for the socket, or for the disk, to send the rest of a response."""
        if progress is Progress.SOCKET_FULL:
            self._host.poller.watch(self._fd, WRITABLE, self._on_writable)
            return
        self._host.poller.forget(self._fd)
        self.deadline_s = None
        self._went_on()
        self._is_warming = True
        self._host.warm_up(self._sender.next_warm_up(), self._on_warm)

    @contained
    def _on_warm(self, warm_up: WarmUp) -> None:
        warm_up.finish()
        if self.is_closed:
            return
        self._is_warming = False
        self._unwatch_end()
        if warm_up.error is not None:
            self.close("cannot-read", str(warm_up.error))
            return
        self._start_deadline(self._host.send_deadline_s, "send-deadline")
        self._on_writable()

    @contained
    def _on_writable(self, _: int = WRITABLE) -> None:
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
        self._unwatch_end()
        if self._is_sending:
            self._is_sending = False
            self._host.poller.forget(self._fd)
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
        self._then = None
        self._session = None  # which refers to this connection
        self._sender.drop()
        if not self._is_being_checked:  # else a thread still reads the buffer
            self._received.release()
        # First, so that no metric is behind what the client has seen.
        self._host.connection_closed(self, reason, detail)
        self._socket.close()
