"""A broker's stand-in for unit tests of consumers: logs in memory, real sockets, faults on demand.

It answers Fetch, MultiFetch and Offsets as the reference says, keeps every request frame, and can
hang up, stay silent, damage what it sends, or answer a partition with an error.
"""

import contextlib
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Self

from kafka2011.protocol import message_set
from kafka2011.protocol.requests import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    OffsetsRequest,
    decode_request,
)
from kafka2011.protocol.responses import (
    encode_fetch_header,
    encode_multifetch_header,
    encode_offsets_response,
)

Partition = tuple[str, int]


class MemoryBroker:
    """`logs[topic, partition]` is the log from offset `starts[...]` on; all of it is visible."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.host, self.port = self._listener.getsockname()[:2]
        self.lock = threading.Lock()
        self.logs: dict[Partition, bytearray] = defaultdict(bytearray)
        self.starts: dict[Partition, int] = defaultdict(int)
        self.errors: dict[Partition, int] = {}
        self.damage: Callable[[FetchRequest, bytes], bytes] = lambda _, data: data
        self.frames: list[bytes] = []
        self.conversations: list[list[bytes]] = []  # request frames per connection
        self.hang_ups = 0  # so many of the next requests are answered by closing
        self.raw_answers: list[bytes] = []  # sent instead of the next answers
        self.silent = False
        self.fetch_bytes_max = 1 << 30
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def append(self, topic: str, partition: int, payloads: list[bytes], codec: int = 0) -> int:
        """Append messages; returns the end of the log."""
        with self.lock:
            log = self.logs[topic, partition]
            log += message_set.encode_compressed(payloads, codec)
            return self.starts[topic, partition] + len(log)

    def end(self, topic: str, partition: int) -> int:
        with self.lock:
            return self.starts[topic, partition] + len(self.logs[topic, partition])

    def retire(self, topic: str, partition: int, start: int) -> None:
        """Retention: the log now starts at `start`."""
        with self.lock:
            del self.logs[topic, partition][: start - self.starts[topic, partition]]
            self.starts[topic, partition] = start

    def hang_up(self) -> None:
        """Close every connection."""
        with self.lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        self.hang_up()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- serving ---------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            conversation: list[bytes] = []
            with self.lock:
                self._open.add(connection)
                self.conversations.append(conversation)
            thread = threading.Thread(
                target=self._serve, args=(connection, conversation), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, conversation: list[bytes]) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while header := stream.read(4):
                    frame = header + stream.read(struct.unpack(">i", header)[0])
                    with self.lock:
                        self.frames.append(frame)
                        conversation.append(frame)
                        if self.hang_ups:
                            self.hang_ups -= 1
                            return
                        if self.silent:
                            continue
                        answer = self._answer(frame)
                    connection.sendall(answer)
        except OSError:
            pass
        finally:
            with self.lock:
                self._open.discard(connection)

    def _answer(self, frame: bytes) -> bytes:
        if self.raw_answers:
            return self.raw_answers.pop(0)
        request = decode_request(frame[4:])
        if isinstance(request, FetchRequest):
            return self._part(request)
        if isinstance(request, MultiFetchRequest):
            parts = [self._part(part) for part in request.parts]
            return encode_multifetch_header([len(part) - 6 for part in parts]) + b"".join(parts)
        assert isinstance(request, OffsetsRequest)
        key = request.topic, request.partition
        start = self.starts[key]
        end = start + len(self.logs[key])
        known = {LATEST: [end, start], EARLIEST: [start]}.get(request.time, [])
        return encode_offsets_response(known[: max(1, request.count_max)])

    def _part(self, request: FetchRequest) -> bytes:
        key = request.topic, request.partition
        if key in self.errors:
            return encode_fetch_header(self.errors[key], 0)
        start, log = self.starts[key], self.logs[key]
        position = request.offset - start
        if not 0 <= position <= len(log):
            return encode_fetch_header(1, 0)
        size = min(request.size_max, self.fetch_bytes_max)
        data = self.damage(request, bytes(log[position : position + size]))
        return encode_fetch_header(0, len(data)) + data
