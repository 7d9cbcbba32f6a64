"""A broker of a few lines for tests of what talks to brokers: keeps sets in memory, breaks on wish.

`refused`: topics at whose produce requests it hangs up. `is_silent`: it takes produce requests and
answers nothing. `holds_back`: as the original between two flushes, it shows of a log only what was
there at the last `flush`, and says so at once. `on_offsets` is called before each Offsets answer.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.framing import FrameReader
from kafka2011.protocol.requests import (
    FetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    decode_request,
)
from kafka2011.protocol.responses import (
    encode_fetch_header,
    encode_multifetch_header,
    encode_offsets_response,
)

OFFSET_OUT_OF_RANGE = 1


class FakeBroker:
    """Listens at `address` from construction on."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.logs: dict[tuple[str, int], bytearray] = {}
        self.starts: dict[tuple[str, int], int] = {}  # of logs whose beginning was retired
        self.refused: set[str] = set()
        self.is_silent = False
        self.holds_back = False
        self.on_offsets: Callable[[], object] = lambda: None
        self._flushed: dict[tuple[str, int], int] = {}  # bytes
        self.connection_count = 0
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def log(self, topic: str, partition: int = 0) -> bytes:
        return bytes(self.logs.get((topic, partition), b""))

    def flush(self) -> None:
        """With `holds_back`: show all that is there."""
        self._flushed = {key: len(log) for key, log in self.logs.items()}

    def _shown(self, key: tuple[str, int]) -> bytearray:
        log = self.logs.get(key, bytearray())
        return log[: self._flushed.get(key, 0)] if self.holds_back else log

    def hang_up(self) -> None:
        """End all connections."""
        for connection in tuple(self._connections):  # not those that come meanwhile
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connection_count += 1
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader(100_000_000)
        with connection, contextlib.suppress(OSError, KafkaError):
            while data := connection.recv(1 << 20):
                reader.receive_data(data)
                while isinstance(frame := reader.next_frame(), memoryview):
                    answer = self._answer(frame)
                    if answer is None:
                        return
                    if answer and not self.is_silent:
                        connection.sendall(answer)

    def _answer(self, frame: memoryview) -> bytes | None:
        """What to send back (maybe nothing); None to hang up."""
        request = decode_request(bytes(frame))
        if isinstance(request, ProduceRequest | MultiProduceRequest):
            parts = [request] if isinstance(request, ProduceRequest) else request.parts
            for part in parts:
                if part.topic in self.refused:
                    return None
                self.logs.setdefault((part.topic, part.partition), bytearray())
                self.logs[part.topic, part.partition] += part.message_set
            return b""
        if isinstance(request, OffsetsRequest):
            self.on_offsets()
            key = (request.topic, request.partition)
            start = self.starts.get(key, 0)
            end = start + len(self._shown(key))
            return encode_offsets_response([end if request.time == -1 else start])
        if isinstance(request, FetchRequest):
            return self._fetched(request)
        sets = [self._fetched(part) for part in request.parts]
        return encode_multifetch_header([len(one) - 6 for one in sets]) + b"".join(sets)

    def _fetched(self, part: FetchRequest) -> bytes:
        key = (part.topic, part.partition)
        start, log = self.starts.get(key, 0), self._shown(key)
        if not start <= part.offset <= start + len(log):
            return encode_fetch_header(OFFSET_OUT_OF_RANGE, 0)
        data = bytes(log[part.offset - start :][: part.size_max])
        return encode_fetch_header(0, len(data)) + data
