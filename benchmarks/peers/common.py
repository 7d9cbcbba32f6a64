"""What the peers' files share: the conversation that an experiment has with a running peer, its
process on a free port, and counting what raw sockets receive.

A message is 200 bytes: MARK, the time at which it was due (monotonic, ns), filling. So any peer's
deliveries can be counted, and their times read, by looking for MARK in the bytes that come.
"""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MESSAGE_BYTES = 200
MARK = b"#kafka2011#:"
_TIME = struct.Struct(">Q")
FILLING = b"x" * (MESSAGE_BYTES - len(MARK) - _TIME.size)
WINDOW = 5_000  # messages without an answer at most
START_TIMEOUT_S = 60
RECEIVE_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20
DURABLE, ASYNCHRONOUS = "durable", "asynchronous"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def message(due_ns: int = 0) -> bytes:
    return MARK + _TIME.pack(due_ns) + FILLING


PAYLOAD = message()


class Missing(Exception):
    """The peer is not installed; the text says what is missing."""


class Sender(Protocol):
    """One producer's connection to one topic, stream or queue. Raises RuntimeError, OSError."""

    def send(self, payloads: list[bytes]) -> None:
        """One request or transaction of these; waits while WINDOW messages have no answer."""

    def settle(self) -> None:
        """Wait until all that was sent is stored as the setting promises."""

    def close(self) -> None: ...


class Receiver(Protocol):
    """One consumer of everything in one topic, from its first message."""

    def receive(self) -> int:
        """Wait for some messages; returns how many came."""

    def close(self) -> None: ...


class LiveReceiver(Protocol):
    """One consumer that waits for what comes, as an application would."""

    def due_times_ns(self) -> list[int]:
        """Wait for some messages; returns when each was due."""

    def close(self) -> None: ...


class Peer(Protocol):
    """A running server."""

    process_id: int

    def sender(self, topic: str) -> Sender: ...

    def receiver(self, topic: str) -> Receiver:
        """Of everything that is stored."""
        ...

    def live_receiver(self, topic: str) -> LiveReceiver: ...


Serve = Callable[[Path], AbstractContextManager[Peer]]


@dataclass(frozen=True)
class Contestant:
    """A peer with one setting. `serve` raises Missing where it is not installed."""

    name: str
    setting: str  # DURABLE or ASYNCHRONOUS
    promise: str  # what an answer means
    version_command: list[str]
    serve: Serve

    @property
    def title(self) -> str:
        return f"{self.name}, {self.setting}"


# --- processes ------------------------------------------------------------------------------------


def find(program: str, package: str, *places: str, by: str = "Debian:") -> str:
    """The program's path. Raises Missing."""
    found = shutil.which(program)
    for place in places:
        if found is None and Path(place).exists():
            found = place
    if found is None:
        raise Missing(f"{program} is not installed ({by} {package})")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(port: int) -> socket.socket:
    """A connection that does not wait for ever. Raises OSError."""
    connection = socket.create_connection(("127.0.0.1", port), RECEIVE_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


@contextmanager
def running(
    command: list[str], port: int, directory: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once it takes connections; ended afterwards. Raises RuntimeError."""
    with open(directory / "output.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=directory, env=environment, start_new_session=True
        )
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            if process.poll() is not None or time.monotonic() > deadline_s:
                text = (directory / "output.log").read_text(errors="replace")
                raise RuntimeError(f"{command[0]} did not start: {text[-500:]}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


@dataclass(frozen=True)
class Use:
    """What a server and its children have used of the machine since they were started."""

    cpu_s: float
    peak_mib: float


def use_of(process_id: int) -> Use:
    """Of the process and all below it that live."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    cpu_ticks, peak_kib, todo = 0, 0, [process_id]
    while todo:
        one = todo.pop()
        todo += children.get(one, [])
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            cpu_ticks += int(fields[11]) + int(fields[12])
            for line in Path(f"/proc/{one}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peak_kib += int(line.split()[1])
    return Use(cpu_ticks / TICKS_PER_S, peak_kib / 1024)


# --- raw sockets ----------------------------------------------------------------------------------


class Marks:
    """Finds a mark in pieces of a stream of bytes, also where it lies across two pieces."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._carry = b""

    def count(self, piece: bytes) -> int:
        data = self._carry + piece
        # What could be the beginning of a mark; never a whole one, which was counted.
        self._carry = data[max(0, len(data) - len(self._mark) + 1) :]
        return data.count(self._mark)


class DueTimes:
    """Reads the times of messages in pieces of a stream of bytes."""

    def __init__(self) -> None:
        self._carry = b""

    def of(self, piece: bytes) -> list[int]:
        data = self._carry + piece
        found = []
        at = data.find(MARK)
        while at >= 0 and at + len(MARK) + _TIME.size <= len(data):
            found.append(_TIME.unpack_from(data, at + len(MARK))[0])
            at = data.find(MARK, at + MESSAGE_BYTES)
        self._carry = data[at if at >= 0 else max(0, len(data) - len(MARK) + 1) :]
        return found


def due_time_ns(payload: bytes) -> int:
    return int(_TIME.unpack_from(payload, len(MARK))[0])


class RawReceiver:
    """A consumer that counts in what `read` returns, the next bytes from the peer."""

    def __init__(self, connection: socket.socket, read: Callable[[], bytes]) -> None:
        self._connection = connection
        self._read = read
        self._marks = Marks(MARK)
        self._due_times = DueTimes()

    def receive(self) -> int:
        return self._marks.count(self._read())

    def due_times_ns(self) -> list[int]:
        return self._due_times.of(self._read())

    def close(self) -> None:
        self._connection.close()


def next_bytes(connection: socket.socket) -> bytes:
    """What has come, waited for. Raises RuntimeError at the end of the stream."""
    data = connection.recv(1 << 20)
    if not data:
        raise RuntimeError("the peer closed the connection")
    return data


class RawSender:
    """A producer whose requests `encode` makes and whose answers are counted by a mark, so many a
    message (`per_message`) or else one a request."""

    def __init__(
        self,
        connection: socket.socket,
        encode: Callable[[list[bytes]], bytes],
        answer: bytes,
        *,
        per_message: bool = True,
    ) -> None:
        self._connection = connection
        self._encode = encode
        self._marks = Marks(answer)
        self._per_message = per_message
        self._sent = self._answered = 0
        self._last: tuple[list[bytes], bytes] = ([], b"")

    def send(self, payloads: list[bytes]) -> None:
        if payloads is not self._last[0]:  # the same list again: encoded before, to its advantage
            self._last = payloads, self._encode(payloads)
        self._connection.sendall(self._last[1])
        self._sent += len(payloads) if self._per_message else 1
        window = WINDOW if self._per_message else max(1, WINDOW // len(payloads))
        self._wait(self._sent - window)

    def settle(self) -> None:
        self._wait(self._sent)

    def _wait(self, count: int) -> None:
        while self._answered < count:
            self._answered += self._marks.count(next_bytes(self._connection))

    def close(self) -> None:
        self._connection.close()
