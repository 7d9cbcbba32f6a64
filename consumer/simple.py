"""The simple consumer: fetch, multifetch and offsets of one broker over one connection.

Every answer is bounded by what was asked for, so a broker that announces more is out of step and
the connection is closed. A request that fails on the way is repeated once on a new connection, as
in 0.7; no request changes anything on the broker.

Unlike 0.7: a fetch can wait at the broker for data. The original hangs up on that request, so the
first on each connection waits for nothing: if it ends a connection that was just made, the broker
does not know it, and is polled for as long as the next connection lasts.
"""

import functools
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from kafka2011.consumer.errors import BrokerUnavailable, ConsumerClosed
from kafka2011.consumer.fetched_set import FetchedSet
from kafka2011.protocol.errors import RemoteProtocolError, error_for_code
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES, check_frame_size
from kafka2011.protocol.lineage import Lineage
from kafka2011.protocol.requests import (
    EARLIEST,
    LATEST,
    WAIT_MS_MAX,
    FetchRequest,
    LineageRequest,
    MultiFetchRequest,
    OffsetsRequest,
    WaitingFetchRequest,
    encode_request,
)
from kafka2011.protocol.responses import (
    FETCH_HEADER_BYTES,
    decode_fetch_response,
    decode_lineage_response,
    decode_multifetch_response,
    decode_offsets_response,
)
from kafka2011.runtime.keywords import checks_keywords
from kafka2011.runtime.os_errors import reason_of

__all__ = ["EARLIEST", "LATEST", "FetchedSet", "SimpleConsumer"]

ERROR_BYTES = 2
OFFSETS_HEADER_BYTES = 6
OFFSET_BYTES = 8
ONE_OFFSET_BYTES = OFFSETS_HEADER_BYTES + OFFSET_BYTES
QUESTIONS_AT_ONCE = 256  # about 20 KB: fits the buffers of a broker that reads one at a time
LINEAGE_BYTES_MAX = 1 << 24  # 12 bytes per epoch
# Ends a wait at the broker, as any request would; the broker answers it at once, with nothing.
_END_OF_WAIT = encode_request(WaitingFetchRequest((), 0))
# Pause between two fetches from a broker that cannot wait.
POLL_PAUSE_S_MIN = 0.01
POLL_PAUSE_S_MAX = 0.1
_HUNG_UP = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)

Result = TypeVar("Result")

RECEIVE_BYTES_MAX = 1 << 22  # received at once; a larger answer takes memory only as it arrives


class SimpleConsumer:
    """A connection to one broker, opened at the first request. For one thread at a time, except
    `close`.

    `socket_timeout_ms` (1 to 2**31 - 1) bounds connecting and each silence of the broker.
    `buffer_bytes` (0 to 2**31 - 1) is SO_RCVBUF, 0 leaves it to the system. Other numbers raise
    ValueError.

    Every request raises:
      BrokerUnavailable: not reached, or the connection broke twice.
      RemoteProtocolError: the answer cannot be understood; the next request connects anew.
      ConsumerClosed: `close` was called.
    """

    @checks_keywords
    def __init__(
        self, host: str, port: int, socket_timeout_ms: int = 30_000, buffer_bytes: int = 0
    ) -> None:
        for name, number, least in (
            ("socket_timeout_ms", socket_timeout_ms, 1),  # to the kernel, 0 means no limit
            ("buffer_bytes", buffer_bytes, 0),
        ):
            if not least <= number < 1 << 31:
                raise ValueError(f"{name} is {least} to {(1 << 31) - 1}, not {number}")
        self.host = host
        self.port = port
        self._timeout_ms = socket_timeout_ms
        self._buffer_bytes = buffer_bytes
        self._socket: socket.socket | None = None
        self._closed = False
        # How many were made: everything received while this is the same came on one connection.
        self.connections = 0
        # Whether this connection's broker knows WaitingFetch; None: not tried yet.
        self._can_wait: bool | None = None
        # Guards these: a wait is under way; a request whose answer is yet to be read has ended it;
        # the end is wanted of one whose request is still being sent. No call blocks while the lock
        # is held, since callers of `end_wait` hold locks of all readers.
        self._wait_lock = threading.Lock()
        self._is_waiting = self._is_wait_ended = self._is_end_wanted = False

    # --- requests --------------------------------------------------------------------------------

    def fetch(
        self, topic: str, partition: int, offset: int, size_max: int, *, wait_ms: int = 0
    ) -> FetchedSet:
        """At most `size_max` bytes of the log from byte `offset` on; an empty set at its end, after
        waiting up to `wait_ms` for data (see `multifetch`).

        Also raises the broker's error: OffsetOutOfRange, WrongPartition, UnknownBrokerError.
        """
        request = FetchRequest(topic, partition, offset, size_max)
        if wait_ms:
            return self.multifetch([request], wait_ms=wait_ms)[0].check()
        code, data = decode_fetch_response(
            self._exchange(encode_request(request), ERROR_BYTES + size_max)
        )
        return _fetched(request, code, data).check()

    def multifetch(self, parts: Sequence[FetchRequest], *, wait_ms: int = 0) -> list[FetchedSet]:
        """Several fetches in one request; an answer for each, which may be an error.

        With `wait_ms` the answer comes as soon as one part has data or an error, and is empty after
        that time. An original broker, which cannot wait, is polled, with pauses that grow from 10
        to 100 ms.
        """
        deadline_s = time.monotonic() + wait_ms / 1000
        pause_s = 0.0
        while True:
            asked_s = time.monotonic()
            left_ms = int(1000 * (deadline_s - asked_s))
            found = self.waiting_fetch(parts, left_ms) if left_ms > 0 else None
            if found is None:
                found = self._multifetch(parts)
            now_s = time.monotonic()
            if now_s >= deadline_s or any(answer.data or answer.error for answer in found):
                return found
            # A broker that cannot wait, or not now, is not asked without a pause.
            time.sleep(max(0.0, min(pause_s - (now_s - asked_s), deadline_s - now_s)))
            pause_s = min(max(POLL_PAUSE_S_MIN, 2 * pause_s), POLL_PAUSE_S_MAX)

    def waiting_fetch(
        self,
        parts: Sequence[FetchRequest],
        wait_ms: int,
        is_ended: Callable[[], bool] = lambda: False,
    ) -> list[FetchedSet] | None:
        """One multifetch that waits at the broker for up to `wait_ms`, for less if the broker or
        the socket timeout does not allow that, and not at all as the first of a connection. None:
        this broker does not know the request; fetch without it.

        `end_wait` ends the wait from another thread; if `is_ended` at its beginning, it is skipped.
        """
        if self._can_wait is False:
            return None
        for _ in range(2):
            was_connected = self._socket is not None
            try:
                body = self._once(
                    lambda connection: self._ask_and_wait(connection, parts, wait_ms, is_ended)
                )
            except _HUNG_UP:
                if was_connected:
                    continue  # it may have been broken before: try a new one
                break
            except OSError as error:
                raise self._unavailable(error) from error
            self._can_wait = True
            return self._fetched_parts(parts, body)
        try:
            self._once(lambda _: None)
        except OSError as error:
            raise self._unavailable(error) from error
        self._can_wait = False
        return None

    def end_wait(self) -> None:
        """Make a `waiting_fetch` of another thread return now, with what there is.

        It never blocks: if the connection takes nothing more, the wait ends at its own time.
        """
        with self._wait_lock:
            self._is_end_wanted = True
            connection = self._socket
            if not self._is_waiting or self._is_wait_ended or connection is None:
                return
            try:
                sent_bytes = connection.send(_END_OF_WAIT, socket.MSG_DONTWAIT)
                self._is_wait_ended = True
                if sent_bytes < len(_END_OF_WAIT):
                    connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # full, or broken: then the thread that waits meets the same error

    def _ask_and_wait(
        self,
        connection: socket.socket,
        parts: Sequence[FetchRequest],
        wait_ms: int,
        is_ended: Callable[[], bool],
    ) -> memoryview:
        wait_ms = min(wait_ms, WAIT_MS_MAX, self._timeout_ms // 2)
        with self._wait_lock:
            self._is_end_wanted = False
            if not self._can_wait or is_ended():
                wait_ms = 0
        connection.sendall(encode_request(WaitingFetchRequest(parts, wait_ms)))
        with self._wait_lock:
            self._is_waiting = wait_ms > 0
            self._is_wait_ended = self._is_waiting and self._is_end_wanted
            is_to_be_ended = self._is_wait_ended
        try:
            if is_to_be_ended:
                connection.sendall(_END_OF_WAIT)
            body = self._receive_frame(connection, _multifetch_bytes_max(parts))
        finally:
            with self._wait_lock:
                self._is_waiting, was_ended, self._is_wait_ended = False, self._is_wait_ended, False
        if was_ended:
            self._receive_frame(connection, ERROR_BYTES)
        return body

    def _multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]:
        frame = encode_request(MultiFetchRequest(parts))
        return self._fetched_parts(parts, self._exchange(frame, _multifetch_bytes_max(parts)))

    def _fetched_parts(self, parts: Sequence[FetchRequest], body: memoryview) -> list[FetchedSet]:
        try:
            answers = decode_multifetch_response(body, len(parts))
        except RemoteProtocolError:
            self._disconnect()
            raise
        return [
            _fetched(part, code, data) for part, (code, data) in zip(parts, answers, strict=True)
        ]

    def get_offsets_before(
        self, topic: str, partition: int, time_ms: int, count_max: int = 1
    ) -> list[int]:
        """At most `count_max` offsets, descending: segment starts last written at or before
        `time_ms` (ms since the epoch), or LATEST (high watermark first) or EARLIEST.

        For a partition that it can never have, a broker hangs up: BrokerUnavailable.
        """
        request = OffsetsRequest(topic, partition, time_ms, count_max)
        bound = OFFSETS_HEADER_BYTES + OFFSET_BYTES * max(1, count_max)
        return decode_offsets_response(self._exchange(encode_request(request), bound))

    def earliest(self, topic: str, partition: int) -> int:
        """Where the log starts."""
        return self._one_offset(topic, partition, EARLIEST)

    def latest(self, topic: str, partition: int) -> int:
        """The high watermark: where the next message that becomes visible will start."""
        return self._one_offset(topic, partition, LATEST)

    def latest_of(self, partitions: Sequence[tuple[str, int]]) -> list[int | None]:
        """`latest` of many, sent at once and answered in order; None where the broker refuses one.

        Raises at the first timeout: asked one by one, each would cost another.
        """
        found: list[int | None] = []
        for start in range(0, len(partitions), QUESTIONS_AT_ONCE):
            some = partitions[start : start + QUESTIONS_AT_ONCE]
            try:
                found += self._once(functools.partial(self._ask_latest, some))
            except TimeoutError as error:
                raise self._unavailable(error) from error
            except OSError:  # broken, or the broker hung up on one that it can never have
                found += [self._latest_or_refused(*name) for name in some]
        return found

    def _ask_latest(
        self, partitions: Sequence[tuple[str, int]], connection: socket.socket
    ) -> list[int]:
        requests = [OffsetsRequest(*name, LATEST, 1) for name in partitions]
        connection.sendall(b"".join(map(encode_request, requests)))
        return [
            _first_offset(request, self._receive_frame(connection, ONE_OFFSET_BYTES))
            for request in requests
        ]

    def _latest_or_refused(self, topic: str, partition: int) -> int | None:
        try:
            return self.latest(topic, partition)
        except BrokerUnavailable:
            try:
                self._once(lambda _: None)  # only connects
            except OSError as error:
                raise self._unavailable(error) from error
            return None

    def lineage(self, topic: str, partition: int) -> Lineage:
        """Which epochs of a replica set wrote which bytes: (epoch, start offset), ascending; empty
        for a broker that is no replica set. An original broker hangs up: BrokerUnavailable.

        It holds for what is received on the same connection, see `connections`.
        """
        frame = encode_request(LineageRequest(topic, partition))
        return decode_lineage_response(self._exchange(frame, LINEAGE_BYTES_MAX))

    def _one_offset(self, topic: str, partition: int, time_ms: int) -> int:
        request = OffsetsRequest(topic, partition, time_ms, 1)
        return _first_offset(request, self._exchange(encode_request(request), ONE_OFFSET_BYTES))

    # --- the connection --------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection for good; a request under way on another thread raises."""
        self._closed = True
        connection = self._socket
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was not connected any more
            self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _exchange(self, frame: bytes, body_bytes_max: int) -> memoryview:
        """Send a request and return the body of its answer; retry once on a new connection."""

        def ask(connection: socket.socket) -> memoryview:
            connection.sendall(frame)
            return self._receive_frame(connection, body_bytes_max)

        try:
            return self._once(ask)
        except OSError:
            pass
        try:
            return self._once(ask)
        except OSError as error:
            raise self._unavailable(error) from error

    def _once(self, ask: Callable[[socket.socket], Result]) -> Result:
        """The result of `ask` with the connection, which is closed if that fails. Raises OSError,
        RemoteProtocolError, ConsumerClosed."""
        if self._closed:
            raise ConsumerClosed(f"the consumer of {self.host}:{self.port} is closed")
        try:
            return ask(self._connection())
        except RemoteProtocolError:
            self._disconnect()
            raise
        except OSError:
            self._disconnect()
            if self._closed:
                raise ConsumerClosed(f"{self.host}:{self.port} was closed") from None
            raise

    def _unavailable(self, error: OSError) -> BrokerUnavailable:
        return BrokerUnavailable(f"broker at {self.host}:{self.port}: {reason_of(error)}")

    def _receive_frame(self, connection: socket.socket, body_bytes_max: int) -> memoryview:
        header = bytearray(FRAME_SIZE_BYTES)
        self._receive_into(connection, memoryview(header))
        (size,) = FRAME_SIZE.unpack(header)
        check_frame_size(size, body_bytes_max)
        if size <= RECEIVE_BYTES_MAX:
            body = memoryview(bytearray(size))
            self._receive_into(connection, body)
            return body
        pieces = bytearray()  # memory grows with what arrives, not with what is announced
        while len(pieces) < size:
            piece = memoryview(bytearray(min(RECEIVE_BYTES_MAX, size - len(pieces))))
            self._receive_into(connection, piece)
            pieces += piece
        return memoryview(pieces)

    def _receive_into(self, connection: socket.socket, view: memoryview) -> None:
        """Fill `view`, with as few system calls as the kernel allows: each of them releases the
        interpreter's lock, and getting it back is what costs."""
        position = 0
        while position < len(view):
            try:
                count = connection.recv_into(view[position:], 0, socket.MSG_WAITALL)
            except BlockingIOError:  # SO_RCVTIMEO passed
                raise TimeoutError(f"no answer within {self._timeout_ms} ms") from None
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            position += count

    def _connection(self) -> socket.socket:
        if self._socket is None:
            deadline = time.monotonic() + self._timeout_ms / 1000
            self._socket = self._connect(deadline)
            self.connections += 1
            if self._closed:  # by another thread meanwhile
                raise ConnectionAbortedError("closed")
        return self._socket

    def _connect(self, deadline: float) -> socket.socket:
        failure: OSError | None = None
        if not 0 < self.port < 1 << 16:  # getaddrinfo would take the lower 16 bits
            raise OSError(f"a port is 1 to 65535, not {self.port}")
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # an empty label, or one above 63 characters
            raise OSError(f"{self.host!r} is not a valid host: {error}") from None
        for family, kind, protocol, _, address in found:
            connection = socket.socket(family, kind, protocol)
            try:
                if self._buffer_bytes:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                connection.connect(address)
                # Blocking with kernel timeouts: MSG_WAITALL works only so.
                connection.settimeout(None)
                seconds, rest_ms = divmod(self._timeout_ms, 1000)
                timeout = struct.pack("ll", seconds, rest_ms * 1000)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
                return connection
            except OSError as error:
                connection.close()
                failure = error
        raise failure or OSError(f"{self.host} has no address")

    def _disconnect(self) -> None:
        connection, self._socket = self._socket, None
        self._can_wait = None
        if connection is not None:
            connection.close()


def _multifetch_bytes_max(parts: Sequence[FetchRequest]) -> int:
    return ERROR_BYTES + sum(FETCH_HEADER_BYTES + part.size_max for part in parts)


def _fetched(part: FetchRequest, code: int, data: memoryview) -> FetchedSet:
    error = None
    if code:
        error = error_for_code(code, f"fetch of {part.topic}-{part.partition} at {part.offset}")
    return FetchedSet(part.topic, part.partition, part.offset, data, error)


def _first_offset(request: OffsetsRequest, body: memoryview) -> int:
    offsets = decode_offsets_response(body)
    if not offsets:
        raise RemoteProtocolError(
            f"no offset of {request.topic}-{request.partition} for time {request.time}"
        )
    return offsets[0]
