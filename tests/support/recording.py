"""A broker's stand-in for unit tests of producers: a listening socket that records frames.

It answers Offsets requests with offset 0, as a broker's barrier does, unless told otherwise, and it
can close connections or stop answering on demand. It stores nothing and checks nothing.
"""

import socket
import threading
from types import TracebackType
from typing import Self

from kafka2011.protocol.requests import (
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    Request,
    decode_request,
)
from tests.support.waiting import wait_until

ANSWER = bytes.fromhex("0000000e 0000 00000001 0000000000000000")


class RecordingServer:
    """Listens on a free loopback port until closed. `frames` are whole, in order of arrival."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._lock = threading.Lock()
        self.frames: list[bytes] = []
        self.connection_count = 0
        self.answers = True
        self.answer = ANSWER
        self.close_at_barrier = 0  # so many of the next barriers close the connection instead
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_closing = False
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def broker_list(self) -> str:
        return f"0:127.0.0.1:{self.address[1]}"

    def requests(self) -> list[Request]:
        with self._lock:
            return [decode_request(frame[4:]) for frame in self.frames]

    def produce_frames(self, count: int) -> list[bytes]:
        """Wait for `count` produce frames and return all that arrived, Offsets left out."""

        def look() -> list[bytes]:
            with self._lock:
                found = [frame for frame in self.frames if frame[4:6] in (b"\0\0", b"\0\3")]
            return found if len(found) >= count else []

        return wait_until(look, lambda: f"{count} produce requests; there are {self.frames!r}")

    def parts(self) -> list[ProduceRequest]:
        """Every produced part that has arrived, in order."""
        found: list[ProduceRequest] = []
        for request in self.requests():
            if isinstance(request, ProduceRequest):
                found.append(request)
            elif isinstance(request, MultiProduceRequest):
                found += request.parts
        return found

    def barrier_count(self) -> int:
        return sum(isinstance(request, OffsetsRequest) for request in self.requests())

    def drop_connections(self) -> None:
        """Close every connection from this side."""
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the producer closed it first
        wait_until(lambda: not self._open, "connections to close")

    def close(self) -> None:
        self._is_closing = True
        # Shut down first: closing alone does not wake the acceptor.
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        self._acceptor.join()
        self.drop_connections()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._is_closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connection_count += 1
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        buffer = b""
        try:
            while chunk := connection.recv(65536):
                buffer += chunk
                while len(buffer) >= 4:
                    end = 4 + int.from_bytes(buffer[:4], "big")
                    if len(buffer) < end:
                        break
                    frame, buffer = buffer[:end], buffer[end:]
                    with self._lock:
                        self.frames.append(frame)
                    if frame[4:6] == b"\0\4":
                        if self.close_at_barrier:
                            self.close_at_barrier -= 1
                            return
                        if self.answers:
                            connection.sendall(self.answer)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.remove(connection)
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
