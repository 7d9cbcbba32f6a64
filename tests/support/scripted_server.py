"""Servers on loopback for tests: plain TCP that keeps what it received, and a broker in memory.

`ScriptedBroker` answers every request of 0.7 from logs in memory, keeps the request frames, and
fails as its attributes say. A test that needs the real thing starts it (`tests.support.brokers`).
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Self

from kafka2011.protocol import message_set, responses
from kafka2011.protocol import requests as wire
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.lineage import Lineage, begun
from tests.support.commands import held_port
from tests.support.raw_requests import OUT_OF_RANGE, answer, frame, offsets_answer
from tests.support.waiting import wait_until

Partition = tuple[str, int]
WAITING_FETCH = struct.pack(">h", wire.WAITING_FETCH)


class ScriptedServer:
    """Listens from construction on; a thread per connection runs `serve`. Closed, its port refuses
    connections, and is no other process's: another server may be given it."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port or held_port()))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.host, self.port = self.address
        self.connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def connection_count(self) -> int:
        """Connections accepted so far."""
        return len(self.connections)

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def hang_up(self) -> None:
        """End all connections."""
        for connection in tuple(self.connections):  # not those accepted meanwhile
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the acceptor
        self._listener.close()
        self._threads[0].join(60)
        self.hang_up()
        for thread in self._threads[1:]:
            thread.join(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.serve(connection)


class TcpTarget(ScriptedServer):
    """Plain TCP: `received[i]` is what the i-th connection sent so far.

    `echo` sends everything back, and ends when the client does. `reads=False` accepts and never
    reads. `greeting` is sent first.
    """

    def __init__(
        self, *, echo: bool = False, reads: bool = True, greeting: bytes = b"", port: int = 0
    ) -> None:
        self._echo = echo
        self._reads = reads
        self._greeting = greeting
        self.received: list[bytearray] = []
        self.ended: list[str] = []  # per ended connection: "end" or the error's name
        self._closing = threading.Event()
        super().__init__(port)

    @property
    def everything(self) -> bytes:
        return b"".join(bytes(one) for one in self.received)

    def goes_on(self) -> None:
        """From now on it echoes."""
        self._echo = True

    def close(self) -> None:
        self._closing.set()
        super().close()

    def serve(self, connection: socket.socket) -> None:
        kept = bytearray()
        self.received.append(kept)
        try:
            if self._greeting:
                connection.sendall(self._greeting)
            if not self._reads:
                self._closing.wait()
                return
            while piece := connection.recv(65536):
                kept += piece
                if self._echo:
                    connection.sendall(piece)
            self.ended.append("end")
            if self._echo:
                connection.shutdown(socket.SHUT_WR)
            self._closing.wait()
        except OSError as error:
            self.ended.append(type(error).__name__)


class ScriptedBroker(ScriptedServer):
    """`logs[topic, partition]` is the log from offset `starts[topic, partition]` on.

    Faults, each an attribute to set:

    - `is_silent`: requests are taken and not answered
    - `hang_ups`: so many of the next requests are answered by closing the connection;
      `close_at_barrier`: so many of the next Offsets requests
    - `refused`: topics at whose produce requests it closes the connection; `endless`: at whose
      Offsets requests
    - `unpacked_bytes_max`: as this project's broker, it closes the connection at a produce request
      whose compressed sets unpack to more, or not at all; None: it takes everything
    - `raw_answers`: sent instead of the next answers; `offsets_answer`: to all Offsets requests
    - `errors`: error codes of partitions; `damage` changes a partition's bytes as they are sent
    - `holds_back`: as 0.7 between two flushes, only what was there at the last `flush` is visible
    - `can_wait`: unlike 0.7, it knows WaitingFetch; until then it hangs up on it
    - `written_ms`: when the log's only segment was last written, for Offsets requests by time
    - `on_offsets` is called before each Offsets request is answered
    - `lineages`: of the partitions of a replica set; `lead_anew` ends all connections
    """

    def __init__(self, port: int = 0) -> None:
        self.lock = threading.RLock()
        self.logs: dict[Partition, bytearray] = defaultdict(bytearray)
        self.starts: dict[Partition, int] = defaultdict(int)
        self.frames: list[bytes] = []  # requests with their size, in order of arrival
        self.conversations: list[list[bytes]] = []  # the same per connection
        self.is_silent = False
        self.hang_ups = 0
        self.close_at_barrier = 0
        self.refused: set[str] = set()
        self.endless: set[str] = set()
        self.unpacked_bytes_max: int | None = None
        self.refusals = 0  # requests that it closed the connection at, for that
        self.raw_answers: list[bytes] = []
        self.offsets_answer: bytes | None = None
        self.errors: dict[Partition, int] = {}
        self.damage: Callable[[wire.FetchRequest, bytes], bytes] = lambda _, data: data
        self.holds_back = False
        self.can_wait = False
        self.replicas = 1  # 0: it does not know the request Copies
        self.written_ms: dict[Partition, float] = defaultdict(lambda: inf)
        self.on_offsets: Callable[[], object] = lambda: None
        self.lineages: dict[Partition, Lineage] = defaultdict(tuple)
        self._leadership = 0
        self._flushed: dict[Partition, int] = {}  # bytes
        super().__init__(port)

    @property
    def broker_list(self) -> str:
        return f"0:{self.host}:{self.port}"

    # --- the logs --------------------------------------------------------------------------------

    def append(self, topic: str, partition: int, payloads: list[bytes], codec: int = 0) -> int:
        """Append messages; returns the end of the log."""
        with self.lock:
            self.logs[topic, partition] += message_set.encode_compressed(payloads, codec)
            return self.end(topic, partition)

    def log(self, topic: str, partition: int = 0) -> bytes:
        with self.lock:
            return bytes(self.logs.get((topic, partition), b""))

    def end(self, topic: str, partition: int) -> int:
        return self.starts.get((topic, partition), 0) + len(self.log(topic, partition))

    def retire(self, topic: str, partition: int, start: int) -> None:
        """Retention: the log now starts at `start`."""
        with self.lock:
            del self.logs[topic, partition][: start - self.starts[topic, partition]]
            self.starts[topic, partition] = start

    def lead_anew(self, topic: str, epoch: int, end: int) -> None:
        """Another leader begins `epoch`, whose log of the topic ends at `end`."""
        with self.lock:
            del self.logs[topic, 0][end - self.starts[topic, 0] :]
            self.lineages[topic, 0] = begun(self.lineages[topic, 0], epoch, end)
            self._leadership += 1

    def flush(self) -> None:
        """With `holds_back`: make all that is there visible."""
        with self.lock:
            self._flushed = {key: len(log) for key, log in self.logs.items()}

    # --- what arrived ----------------------------------------------------------------------------

    def requests(self) -> list[wire.Request]:
        with self.lock:
            return [wire.decode_request(frame[4:]) for frame in self.frames]

    def produce_frames(self, count: int) -> list[bytes]:
        """Wait for `count` produce frames; returns all that arrived."""

        def arrived() -> list[bytes]:
            with self.lock:
                found = [frame for frame in self.frames if frame[4:6] in (b"\0\0", b"\0\3")]
            return found if len(found) >= count else []

        return wait_until(arrived, lambda: f"{count} produce requests; there are {self.frames!r}")

    def parts(self) -> list[wire.ProduceRequest]:
        """Every produced part that has arrived, in order."""
        return [part for request in self.requests() for part in _produced(request)]

    def barrier_count(self) -> int:
        return sum(isinstance(request, wire.OffsetsRequest) for request in self.requests())

    # --- serving ---------------------------------------------------------------------------------

    def serve(self, connection: socket.socket) -> None:
        conversation: list[bytes] = []
        self.conversations.append(conversation)
        leadership = self._leadership
        with connection.makefile("rb") as stream, contextlib.suppress(KafkaError):
            while header := stream.read(4):
                received = header + stream.read(struct.unpack(">i", header)[0])
                if received[4:6] == b"\0\4":
                    self.on_offsets()
                with self.lock:
                    if self._leadership != leadership:
                        return
                    self.frames.append(received)
                    conversation.append(received)
                    response = self._answer(received)
                if response is None:
                    return
                if received[4:6] == WAITING_FETCH:
                    response = self._after_wait(connection, received, response)
                if not self.is_silent:
                    connection.sendall(response)

    def _answer(self, received: bytes) -> bytes | None:
        """The response (b"" for none); None to close the connection."""
        if self.hang_ups:
            self.hang_ups -= 1
            return None
        if self.raw_answers:
            return self.raw_answers.pop(0)
        match wire.decode_request(received[4:]):
            case wire.OffsetsRequest() as request:
                return self._offsets(request)
            case wire.FetchRequest() as request:
                return self._fetch(request)
            case wire.MultiFetchRequest() as request:
                return frame(b"\0\0" + b"".join(map(self._fetch, request.parts)))
            case wire.WaitingFetchRequest() as request:
                if not self.can_wait:
                    return None
                return frame(b"\0\0" + b"".join(map(self._fetch, request.parts)))
            case wire.CopiesRequest(count):
                if not self.replicas:
                    return None
                return responses.encode_copies_response(count <= self.replicas)
            case wire.LineageRequest(topic, partition):
                return responses.encode_lineage_response(self.lineages[topic, partition])
            case request:
                for part in _produced(request):
                    if part.topic in self.refused or not self._unpacks(part.message_set):
                        return None
                    self.logs[part.topic, part.partition] += part.message_set
                return b""

    def _after_wait(self, connection: socket.socket, received: bytes, response: bytes) -> bytes:
        """The response once it is not empty, at the deadline, or when the client sends."""
        request = wire.decode_request(received[4:])
        assert isinstance(request, wire.WaitingFetchRequest)
        empty = frame(b"\0\0" + answer(b"") * len(request.parts))
        deadline_s = time.monotonic() + request.wait_ms / 1000
        while request.parts and response == empty and time.monotonic() < deadline_s:
            if select.select([connection], [], [], 0.001)[0]:
                break
            with self.lock:
                response = frame(b"\0\0" + b"".join(map(self._fetch, request.parts)))
        return response

    def _unpacks(self, data: bytes | memoryview) -> bool:
        if self.unpacked_bytes_max is None:
            return True
        try:
            budget = message_set.DecompressionBudget(self.unpacked_bytes_max)
            message_set.scan(data, 2**31, budget=budget)
        except KafkaError:
            self.refusals += 1
            return False
        return True

    def _offsets(self, request: wire.OffsetsRequest) -> bytes | None:
        if self.close_at_barrier:
            self.close_at_barrier -= 1
            return None
        if request.topic in self.endless:
            return None
        if self.offsets_answer is not None:
            return self.offsets_answer
        key = request.topic, request.partition
        start = self.starts.get(key, 0)
        end = start + len(self._visible(key))
        older = [start] if self.written_ms[key] <= request.time else []
        known = {wire.LATEST: [end, start], wire.EARLIEST: [start]}.get(request.time, older)
        return offsets_answer(*known[: max(1, request.count_max)])

    def _fetch(self, request: wire.FetchRequest) -> bytes:
        key = request.topic, request.partition
        if key in self.errors:
            return answer(b"", self.errors[key])
        if key not in self.logs:  # as 0.7, at whatever offset
            return answer(b"")
        log = self._visible(key)
        position = request.offset - self.starts.get(key, 0)
        if not 0 <= position <= len(log):
            return OUT_OF_RANGE
        return answer(self.damage(request, bytes(log[position : position + request.size_max])))

    def _visible(self, key: Partition) -> bytearray:
        log = self.logs.get(key, bytearray())
        return log[: self._flushed.get(key, 0)] if self.holds_back else log


def _produced(request: wire.Request) -> list[wire.ProduceRequest]:
    match request:
        case wire.ProduceRequest():
            return [request]
        case wire.MultiProduceRequest():
            return list(request.parts)
    return []


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes; AssertionError when the connection ends before."""
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, f"ended after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


def receive_all(connection: socket.socket) -> bytes:
    """Read to the end."""
    data = bytearray()
    while piece := connection.recv(65536):
        data += piece
    return bytes(data)
