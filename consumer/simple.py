"""The simple consumer: fetch, multifetch and offsets of one broker over one connection.

Every answer is bounded by what was asked for, so a broker that announces more is out of step and
the connection is closed. A request that fails on the way is repeated once on a new connection, as
in 0.7; none of them changes anything on the broker.
"""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from kafka2011.consumer.errors import BrokerUnavailable, ConsumerClosed
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import KafkaError, RemoteProtocolError, error_for_code
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES, check_frame_size
from kafka2011.protocol.requests import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    OffsetsRequest,
    encode_request,
)
from kafka2011.protocol.responses import (
    FETCH_HEADER_BYTES,
    decode_fetch_response,
    decode_multifetch_response,
    decode_offsets_response,
)
from kafka2011.runtime.keywords import checks_keywords

__all__ = ["EARLIEST", "LATEST", "FetchedSet", "SimpleConsumer"]

ERROR_BYTES = 2
OFFSETS_HEADER_BYTES = 6
OFFSET_BYTES = 8
RECEIVE_BYTES_MAX = 1 << 22  # asked of the kernel at once; what a peer announces is not allocated


class FetchedSet(NamedTuple):
    """One part of a fetch: either `error`, or `data` from `offset` on with a possibly cut tail."""

    topic: str
    partition: int
    offset: int
    data: memoryview
    error: KafkaError | None = None

    def check(self) -> Self:
        """Itself. Raises the broker's answer to this part, such as OffsetOutOfRange."""
        if self.error is not None:
            raise self.error
        return self

    def valid_bytes(self) -> int:
        """Length of the complete entries; 0 when the set is empty.

        Raises MessageLargerThanFetchSize or InvalidMessage, see `message_set.split`.
        """
        return message_set.split(self.check().data) if self.data or self.error else 0

    def messages(self) -> list[tuple[bytes, int]]:
        """(payload, next offset) of each message, wrappers opened; see `message_set.messages`.

        All are in memory at once; `pieces` has them a few MiB at a time.
        """
        return message_set.messages(self.check().data, self.offset)

    def pieces(self) -> Iterator[list[tuple[bytes, int]]]:
        """The same in lists of bounded memory, however much the wrappers unpack to; for sets that
        anybody may have sent. The same errors, after the lists before the damage."""
        rest = self.data[: self.valid_bytes()]
        offset = self.offset
        while rest:
            found, end = message_set.take_messages(rest, offset)
            yield found
            found = []  # not two lists at once
            rest = rest[end:]
            offset += end


class SimpleConsumer:
    """A connection to one broker, opened at the first request. For one thread at a time, except
    `close`.

    `socket_timeout_ms` bounds connecting and each silence of the broker. `buffer_bytes` is
    SO_RCVBUF, 0 leaves it to the system.

    Every request raises:
      BrokerUnavailable: not reached, or the connection broke twice.
      RemoteProtocolError: the answer cannot be understood; the next request connects anew.
      ConsumerClosed: `close` was called.
    """

    @checks_keywords
    def __init__(
        self, host: str, port: int, socket_timeout_ms: int = 30_000, buffer_bytes: int = 0
    ) -> None:
        self.host = host
        self.port = port
        self._timeout_ms = socket_timeout_ms
        self._buffer_bytes = buffer_bytes
        self._socket: socket.socket | None = None
        self._closed = False

    # --- requests --------------------------------------------------------------------------------

    def fetch(self, topic: str, partition: int, offset: int, size_max: int) -> FetchedSet:
        """At most `size_max` bytes of the log from byte `offset` on; an empty set at its end.

        Raises also the broker's error: OffsetOutOfRange, WrongPartition, UnknownBrokerError.
        """
        request = FetchRequest(topic, partition, offset, size_max)
        code, data = decode_fetch_response(
            self._exchange(encode_request(request), ERROR_BYTES + size_max)
        )
        return _fetched(request, code, data).check()

    def multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]:
        """Several fetches in one request; one answer for each, each with an error of its own."""
        bound = ERROR_BYTES + sum(FETCH_HEADER_BYTES + part.size_max for part in parts)
        body = self._exchange(encode_request(MultiFetchRequest(parts)), bound)
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

        A broker hangs up on a partition that it can never have: BrokerUnavailable.
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

    def _one_offset(self, topic: str, partition: int, time_ms: int) -> int:
        offsets = self.get_offsets_before(topic, partition, time_ms, 1)
        if not offsets:
            raise RemoteProtocolError(f"no offset of {topic}-{partition} for time {time_ms}")
        return offsets[0]

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
        """Send a request and return the body of its answer; once more after a broken connection."""
        for attempt in (1, 2):
            if self._closed:
                raise ConsumerClosed(f"the consumer of {self.host}:{self.port} is closed")
            try:
                connection = self._connection()
                connection.sendall(frame)
                return self._receive_frame(connection, body_bytes_max)
            except RemoteProtocolError:
                self._disconnect()
                raise
            except OSError as error:
                self._disconnect()
                if self._closed:
                    raise ConsumerClosed(f"{self.host}:{self.port} was closed") from None
                if attempt == 2:
                    raise BrokerUnavailable(
                        f"broker at {self.host}:{self.port}: {error or type(error).__name__}"
                    ) from error
        raise AssertionError("unreachable")

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
        """Fill `view`, with as few system calls as the kernel allows: each of them gives up the
        interpreter's lock, and taking it back is what costs."""
        position = 0
        while position < len(view):
            try:
                count = connection.recv_into(view[position:], 0, socket.MSG_WAITALL)
            except BlockingIOError:  # SO_RCVTIMEO passed
                raise TimeoutError(f"silent for {self._timeout_ms} ms") from None
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            position += count

    def _connection(self) -> socket.socket:
        if self._socket is None:
            deadline = time.monotonic() + self._timeout_ms / 1000
            self._socket = self._connect(deadline)
            if self._closed:  # meanwhile, on another thread
                raise ConnectionAbortedError("closed")
        return self._socket

    def _connect(self, deadline: float) -> socket.socket:
        failure: OSError | None = None
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # an empty label, or one above 63 characters
            raise OSError(f"{self.host!r} is no host: {error}") from None
        for family, kind, protocol, _, address in found:
            connection = socket.socket(family, kind, protocol)
            try:
                if self._buffer_bytes:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                connection.connect(address)
                # Blocking with kernel timeouts: only so does MSG_WAITALL work.
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
        if connection is not None:
            connection.close()


def _fetched(part: FetchRequest, code: int, data: memoryview) -> FetchedSet:
    error = None
    if code:
        error = error_for_code(code, f"fetch of {part.topic}-{part.partition} at {part.offset}")
    return FetchedSet(part.topic, part.partition, part.offset, data, error)
