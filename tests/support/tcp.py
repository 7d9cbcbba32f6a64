"""Small TCP servers on loopback for tests: what a client sent is kept, and maybe sent back."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class TcpTarget:
    """Accepts connections; `received[i]` is what the i-th one sent so far.

    `echo` sends everything back, and ends when the client does. `reads=False` accepts and never
    reads. `greeting` is sent first.
    """

    def __init__(
        self, *, echo: bool = False, reads: bool = True, greeting: bytes = b"", port: int = 0
    ) -> None:
        self._echo = echo
        self._reads = reads
        self._greeting = greeting
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        self.received: list[bytearray] = []
        self.ended: list[str] = []  # per ended connection: "end" or the error's name
        self.connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def everything(self) -> bytes:
        return b"".join(bytes(one) for one in self.received)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for connection in self.connections:
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

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            kept = bytearray()
            self.connections.append(connection)
            self.received.append(kept)
            thread = threading.Thread(target=self._serve, args=(connection, kept), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, kept: bytearray) -> None:
        try:
            if self._greeting:
                connection.sendall(self._greeting)
            if not self._reads:
                return
            while piece := connection.recv(65536):
                kept += piece
                if self._echo:
                    connection.sendall(piece)
            self.ended.append("end")
            if self._echo:
                connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.ended.append(type(error).__name__)


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
