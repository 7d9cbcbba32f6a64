"""One TCP connection to one broker: sends frames and waits until they are durable.

A produce request has no response, so a `send` that succeeds means only that the kernel has the
bytes. `barrier` sends an Offsets request behind them on the same connection; this project's broker
answers it when all of them are on its disk (docs/protocol.md). When a connection breaks, nothing
sent since its last barrier is known to be durable: it goes to `lost`, which the owner takes.

Not thread-safe: the owner serialises calls.
"""

import os
import random
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from kafka2011.producer.errors import BrokerUnavailable, BrokerUnreachable, Link, Unconfirmed
from kafka2011.producer.offsets_answer import newest, read_answer
from kafka2011.protocol.errors import RemoteProtocolError
from kafka2011.protocol.requests import (
    LATEST,
    CopiesRequest,
    OffsetsRequest,
    Request,
    encode_request,
)
from kafka2011.runtime.os_errors import reason_of

# After this long without a send the next one first checks whether the peer has closed: the kernel
# accepts a write to a connection that the peer has closed, and the bytes are lost.
IDLE_CHECK_NS = 50_000_000
# STREAM_SENDS sends less than STREAM_GAP_NS apart on average make a stream: the kernel may then
# gather small segments until the broker has acknowledged the one before (RFC 896).
STREAM_SENDS = 64
STREAM_GAP_NS = 20_000
STREAM_SET_BYTES_MAX = 4096  # of the last of these sends
# Copying a larger tail behind its frame costs more than a second system call: above this malloc
# maps and unmaps the copy's pages at each send.
COPIED_BYTES_MAX = 64 * 1024
CONNECT_RETRY_FIRST_MS = 1  # then ten times that, as 0.7 does
CONNECT_RETRY_MAX_MS = 60_000
# 0.7 starts the clock of planned reconnects up to this long in the past, so that producers started
# together do not reconnect together.
RECONNECT_JITTER_MAX_MS = 30_000
ALL = -1  # request.required.acks: all in-sync replicas
NONE = 0
_NEVER = 2**63 - 1

Sleep = Callable[[float], object]


# Descriptor, time of the last send (monotonic ns), longest gap before the peer is looked at (ns),
# time by which the loan ends (monotonic ns), and number of sends.
Loan = tuple[int, int, int, int, int]


class Borrower(Protocol):
    """What writes frames to a connection's socket while it is lent."""

    def settle(self) -> tuple[str, int, int, int]:
        """End the loan; returns topic, sends and bytes of sets in it, and the time of the last."""


class BrokerConnection:
    """Connects to `address` at the first send; `name` is host:port for errors.

    `reconnect_sends` and `reconnect_ms` (None: never) make `is_reconnect_due` true.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        connect_timeout_ms: int = 5000,
        socket_timeout_ms: int = 30000,
        send_buffer_bytes: int = 102400,
        reconnect_sends: int = 30000,
        reconnect_ms: int | None = None,
        required_acks: int = ALL,
        keeps_order: bool = False,
        sleep: Sleep = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`required_acks` is what a barrier waits for: ALL, NONE, or that many replicas.

        With `keeps_order` nothing is sent over a new connection while `lost` names something: it
        might be stored in front of what is sent again.
        """
        self.address = address
        self.name = f"{address[0]}:{address[1]}"
        self._connect_timeout_ms = connect_timeout_ms
        self._socket_timeout_ms = socket_timeout_ms
        self._send_buffer_bytes = send_buffer_bytes
        self._reconnect_sends = reconnect_sends
        self._reconnect_ms = reconnect_ms
        self._acks = required_acks
        self._knows_copies = True
        self._keeps_order = keeps_order
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._socket: socket.socket | None = None
        self._sends_left = reconnect_sends
        self._reconnect_at_ns = 0
        self._last_send_ns = 0
        self._counted_at_ns = 0  # when the last STREAM_SENDS were counted
        self._is_stream = False
        self._borrower: Borrower | None = None
        self._is_writing = False  # a frame, of which a part may be sent
        self._pending: dict[str, list[int]] = {}  # topic -> sends, bytes since the last barrier
        self._barrier_requested = False
        self._covered: dict[str, list[int]] = {}  # what was pending at the barrier's request
        self._is_reading = False  # an answer
        self.lost: list[Unconfirmed] = []
        self.lost_reason = ""
        self.has_timed_out = False  # at the last loss: the broker was silent, but did not hang up
        self.connect_count = 0

    # --- sending -----------------------------------------------------------------------------

    def send(
        self,
        frame: bytes,
        topic: str,
        set_bytes: int,
        more: Sequence[tuple[str, int]] = (),
        tail: bytes = b"",
    ) -> None:
        """Send one produce frame, connecting first when there is no connection.

        `tail` is the end of the frame: a large one is sent from where it is.
        `topic` and `set_bytes` (and `more` of them for the other parts of a MultiProduce) are what
        a NotDurable would name. Raises BrokerUnreachable when no connection could be made and no
        bytes were sent, else BrokerUnavailable: the frame may have arrived, and is in `lost`.
        Raises RuntimeError within another send, as a signal handler may be: nothing was sent.
        """
        if self._is_writing:
            self._refuse_within_a_send()
        if self._borrower is not None:
            self._take_back()
        now_ns = time.monotonic_ns()
        sock = self._socket
        if sock is None:
            sock = self.connect()
            now_ns = time.monotonic_ns()
        elif now_ns - self._last_send_ns > IDLE_CHECK_NS and self._is_closed_by_peer(sock):
            self._break("the broker closed the connection")
            sock = self.connect()
            now_ns = time.monotonic_ns()
        self._last_send_ns = now_ns
        # Recorded before the bytes are sent: a failed send may have arrived.
        self._note(topic, 1, set_bytes)
        for other_topic, other_bytes in more:
            self._note(other_topic, 1, other_bytes)
        self._sends_left -= 1
        self._is_writing = True
        try:
            if not self._sends_left % STREAM_SENDS:
                self._look_for_stream(sock, now_ns, set_bytes)
            if len(tail) <= COPIED_BYTES_MAX:
                sock.sendall(frame + tail)
            else:
                sock.sendall(frame, socket.MSG_MORE)
                sock.sendall(tail)
        except OSError as error:
            self._send_failed(error)
        except BaseException as error:  # of a signal's handler, such as KeyboardInterrupt
            self._break(f"a send was interrupted by {error!r}")
            raise
        finally:
            self._is_writing = False

    @staticmethod
    def _refuse_within_a_send() -> NoReturn:
        raise RuntimeError(
            "called by a signal handler or a finaliser within a send of the same thread: its frame "
            "is not complete, so nothing was sent; hand the message to another thread"
        )

    def _send_failed(self, error: OSError) -> NoReturn:
        reason = reason_of(error)
        if isinstance(error, BlockingIOError):  # SO_SNDTIMEO
            reason = f"the broker took nothing for {self._socket_timeout_ms} ms"
        self._break(f"send failed: {reason}", error)
        raise BrokerUnavailable(f"{self.name}: send failed: {reason}") from error

    def _note(self, topic: str, sends: int, set_bytes: int) -> None:
        pending = self._pending.setdefault(topic, [0, 0])
        pending[0] += sends
        pending[1] += set_bytes

    def _look_for_stream(self, sock: socket.socket, now_ns: int, set_bytes: int) -> None:
        """Let the kernel gather segments only while small sends follow one another closely: a send
        that stands alone leaves at once."""
        elapsed_ns = now_ns - self._counted_at_ns
        is_stream = elapsed_ns < STREAM_SENDS * STREAM_GAP_NS and set_bytes <= STREAM_SET_BYTES_MAX
        self._counted_at_ns = now_ns
        if is_stream != self._is_stream:
            self._gather(sock, is_stream)

    def _gather(self, sock: socket.socket, is_stream: bool) -> None:
        """Let the kernel gather segments, or not; switching it off sends what was gathered."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not is_stream)
        self._is_stream = is_stream

    # --- lending -----------------------------------------------------------------------------

    def lend(self, borrower: Borrower) -> Loan | None:
        """Let `borrower`, which has just sent, write its next frames to the socket itself until its
        `settle` is called. Returns None when it should go on with `send`."""
        sock = self._socket
        # The send after the last of a loan is the one that looks for a stream.
        sends_max = (self._sends_left - 1) % STREAM_SENDS
        if sock is None or self._sends_left <= 0 or not sends_max:
            return None
        self._borrower = borrower
        return (sock.fileno(), self._last_send_ns, IDLE_CHECK_NS, self._reconnect_at_ns, sends_max)

    def send_rest(self, rest: bytes, error_number: int) -> None:
        """Complete the frame of a borrower whose send was short, or failed with that `errno`.
        Raises as `send`."""
        self._take_back()
        assert self._socket is not None
        self._is_writing = True
        try:
            if error_number:
                raise OSError(error_number, os.strerror(error_number))
            self._socket.sendall(rest)
        except OSError as error:
            self._send_failed(error)
        except BaseException as error:  # of a signal's handler, such as KeyboardInterrupt
            self._break(f"a send was interrupted by {error!r}")
            raise
        finally:
            self._is_writing = False

    def _take_back(self) -> None:
        borrower, self._borrower = self._borrower, None
        if borrower is not None:
            topic, sends, set_bytes, self._last_send_ns = borrower.settle()
            self._sends_left -= sends
            if sends:
                self._note(topic, sends, set_bytes)

    # --- connecting --------------------------------------------------------------------------

    def connect(self) -> socket.socket:
        """Connect now, trying for `connect_timeout_ms`. Raises BrokerUnreachable, also where the
        broker cannot give the acknowledgements that are asked for, and BrokerUnavailable for the
        sake of the order."""
        if self._keeps_order and self.lost:
            raise BrokerUnavailable(f"{self.name}: {self.lost_reason}")
        sock = self._connect()
        if self._acks > 0 and self._knows_copies and not self._asks_for_copies(sock):
            sock = self._connect()
        return sock

    def _asks_for_copies(self, sock: socket.socket) -> bool:
        """Whether the broker knows CopiesRequest, tried when there is nothing to wait for.

        An original broker hangs up: then the barrier of `-1` is used for 1; it waits for no less.
        """
        try:
            sock.sendall(encode_request(CopiesRequest(self._acks)))
            self._answer(sock, time.monotonic_ns() + self._socket_timeout_ms * 1_000_000)
        except RemoteProtocolError as error:
            self._break("more replicas were requested than exist")
            raise BrokerUnreachable(
                f"{self.name}: request.required.acks={self._acks} is more than it has replicas"
            ) from error
        except OSError as error:
            self._break(reason_of(error))
            if self._acks > 1 or not isinstance(error, ConnectionError):
                raise BrokerUnreachable(
                    f"{self.name}: request.required.acks={self._acks} was not answered: "
                    f"{reason_of(error)}; a broker of 0.7 does not know it: use -1"
                ) from error
            self._knows_copies = False
            return False
        return True

    def _connect(self) -> socket.socket:
        assert self._socket is None
        deadline_ns = time.monotonic_ns() + self._connect_timeout_ms * 1_000_000
        wait_ms = CONNECT_RETRY_FIRST_MS
        while True:
            left_s = (deadline_ns - time.monotonic_ns()) / 1e9
            try:
                sock = socket.create_connection(self.address, timeout=max(left_s, 0.001))
                break
            except UnicodeError as error:  # an empty label, or one above 63 characters
                raise BrokerUnreachable(f"{self.name}: is not a host: {error}") from error
            except OSError as error:
                left_ms = (deadline_ns - time.monotonic_ns()) / 1e6
                if wait_ms > left_ms:
                    raise BrokerUnreachable(
                        f"{self.name}: cannot connect: {reason_of(error)}"
                    ) from error
            self._sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 10, CONNECT_RETRY_MAX_MS)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # the peer is gone already
            sock.close()
            raise BrokerUnreachable(f"{self.name}: cannot connect: {reason_of(error)}") from error
        # A blocking socket with kernel timeouts: Python's own timeout would poll before each send.
        sock.settimeout(None)
        seconds, ms = divmod(self._socket_timeout_ms, 1000)
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", seconds, ms * 1000)
        )
        self._socket = sock
        self.connect_count += 1
        self._sends_left = self._reconnect_sends
        self._barrier_requested = self._is_stream = False
        self._reconnect_at_ns = _NEVER
        if self._reconnect_ms is not None:
            jitter_ms = self._rng.uniform(0, min(RECONNECT_JITTER_MAX_MS, self._reconnect_ms))
            first_ms = self._reconnect_ms - (jitter_ms if self.connect_count == 1 else 0)
            self._reconnect_at_ns = time.monotonic_ns() + int(first_ms * 1e6)
        return sock

    @staticmethod
    def _is_closed_by_peer(sock: socket.socket) -> bool:
        # A broker sends nothing on a connection that only produces, so readable means closed.
        poller = select.poll()
        poller.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poller.poll(0))

    def is_reconnect_due(self, now_ns: int = 0) -> bool:
        """Whether the planned reconnect is due: make a barrier, then `disconnect`.

        The time is the later of the last send and `now_ns` (monotonic).
        """
        self._take_back()
        return self._socket is not None and (
            self._sends_left <= 0
            or self._last_send_ns >= self._reconnect_at_ns
            or now_ns >= self._reconnect_at_ns
        )

    @property
    def link(self) -> Link:
        """The connection over which the last send went."""
        return Link(self.name, self.connect_count)

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    # --- the barrier -------------------------------------------------------------------------

    def request_barrier(self, deadline_ns: int | None = None) -> None:
        """Send the barrier's request without waiting for its response, if anything is pending.

        A broker that reads nothing is waited for until `deadline_ns` (monotonic; None: for the
        socket's timeout). A failure is reported by `await_barrier`, as any broken connection.
        Raises RuntimeError as `send`.
        """
        if self._is_writing:
            self._refuse_within_a_send()
        self._take_back()
        sock = self._socket
        if sock is None or not self._pending or self._barrier_requested:
            return  # `await_barrier` asks again for what was sent since
        request: Request
        if self._acks == NONE:
            self._pending.clear()
            return
        if self._acks == ALL or not self._knows_copies:
            request = OffsetsRequest(next(reversed(self._pending)), 0, LATEST, 1)
        else:
            request = CopiesRequest(self._acks)
        self._is_writing = True
        try:
            if deadline_ns is not None:
                _await_writable(sock, deadline_ns)
            sock.sendall(encode_request(request))
            if self._is_stream:
                self._gather(sock, False)
            self._covered, self._pending = self._pending, {}
            self._barrier_requested = True
        except OSError as error:
            self._break(f"sending the barrier's request failed: {reason_of(error)}")
        except BaseException as error:  # of a signal's handler, such as KeyboardInterrupt
            self._break(f"a flush was interrupted by {error!r}")
            raise
        finally:
            self._is_writing = False

    def await_barrier(self, deadline_ns: int) -> bool:
        """Wait for the response until `deadline_ns` (monotonic); True: all sends are durable.

        False: the connection is closed now and the sends are in `lost`. Raises RuntimeError within
        another wait of the same thread, as a signal handler may be.
        """
        while self._socket is not None and self._barrier_requested:
            try:
                self._answer(self._socket, deadline_ns)
            except (OSError, RemoteProtocolError) as error:
                self._break(reason_of(error), error)
                return False
            self._barrier_requested = False
            self._covered = {}
            self.request_barrier(deadline_ns)  # for what a signal's handler sent meanwhile
        return not self.lost

    def _answer(self, sock: socket.socket, deadline_ns: int) -> Sequence[int]:
        """The next answer. An exception of a signal's handler ends the connection: the answer would
        be taken for that of the next request. Raises as `read_answer`."""
        if self._is_reading:
            raise RuntimeError(
                "called by a signal handler within a flush of the same thread, which awaits an "
                "answer: flush in another thread"
            )
        self._is_reading = True
        try:
            return read_answer(sock, deadline_ns)
        except (OSError, RemoteProtocolError):
            raise
        except BaseException as error:
            self._break(f"the wait for an answer was interrupted by {error!r}")
            raise
        finally:
            self._is_reading = False

    def barrier(self, timeout_ms: int) -> bool:
        """`request_barrier`, then `await_barrier`."""
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        self.request_barrier(deadline_ns)
        return self.await_barrier(deadline_ns)

    def end_of(self, topic: str, partition: int, timeout_ms: int) -> int:
        """The partition's high watermark after all earlier sends. Nothing may be pending.

        Raises BrokerUnavailable; the connection is closed then.
        """
        self._take_back()
        sock = self._socket
        try:
            if sock is None:
                sock = self.connect()
            sock.sendall(encode_request(OffsetsRequest(topic, partition, LATEST, 1)))
            if self._is_stream:
                self._gather(sock, False)
            return newest(self._answer(sock, time.monotonic_ns() + timeout_ms * 1_000_000))
        except (OSError, RemoteProtocolError) as error:
            self._break(reason_of(error), error)
            raise BrokerUnavailable(
                f"{self.name}: no high watermark of {topic}-{partition}: {reason_of(error)}"
            ) from error

    # --- endings -----------------------------------------------------------------------------

    def take_lost(self) -> list[Unconfirmed]:
        """Sends of broken connections, not known to be durable, since the last call."""
        taken, self.lost = self.lost, []
        return taken

    def disconnect(self) -> None:
        """Close the connection; pending sends become `lost`. The next send connects again."""
        self._break("closed before a barrier")

    def _break(self, reason: str, error: Exception | None = None) -> None:
        self._take_back()
        self.has_timed_out = isinstance(error, TimeoutError)
        for topic, (sends, set_bytes) in self._covered.items():
            self._note(topic, sends, set_bytes)
        self._covered = {}
        if self._pending:
            self.lost += [
                Unconfirmed(self.name, topic, sends, set_bytes, self.connect_count)
                for topic, (sends, set_bytes) in self._pending.items()
            ]
            self.lost_reason = reason
            self._pending.clear()
        self._barrier_requested = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _await_writable(sock: socket.socket, deadline_ns: int) -> None:
    """Wait until the socket takes a small request. Raises TimeoutError."""
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    if not poller.poll(max(0, deadline_ns - time.monotonic_ns()) // 1_000_000):
        raise TimeoutError("the broker took nothing before the deadline")
