"""What the peers' files share: the shape of an answer, processes on free ports, counting."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PAYLOAD = b"x" * 200
BATCH = 50
SECONDS = 2.0
WINDOW = 5_000  # messages without an answer at most
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Rates:
    """Messages a second, durable as the peer's configuration says, and read again."""

    produce: float
    consume: float


class Missing(Exception):
    """The peer is not installed; the text says what is missing."""


def find(program: str, package: str, *places: str) -> str:
    """The program's path. Raises Missing."""
    found = shutil.which(program)
    for place in places:
        if found is None and Path(place).exists():
            found = place
    if found is None:
        raise Missing(f"{program} is not installed (Debian: {package})")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


class Counter:
    """Counts how often `mark` stands in what a socket receives."""

    def __init__(self, connection: socket.socket, mark: bytes) -> None:
        self._connection = connection
        self._mark = mark
        self._carry = b""
        self.count = 0

    def receive(self) -> None:
        """Wait for some bytes. Raises RuntimeError at the end of the stream."""
        data = self._connection.recv(1 << 20)
        if not data:
            raise RuntimeError("the peer closed the connection")
        data = self._carry + data
        self.count += data.count(self._mark)
        # What could be the beginning of a mark; never a whole one, which was counted.
        self._carry = data[len(data) - len(self._mark) + 1 :]

    def wait(self, count: int) -> None:
        while self.count < count:
            self.receive()


def send_for_a_while(
    connection: socket.socket, batch: bytes, answers: Counter, answers_per_batch: int
) -> tuple[int, float]:
    """Send batches with at most `WINDOW` messages unanswered, then wait for every answer.
    Returns messages sent and seconds."""
    batches_open_max = max(1, WINDOW // BATCH)
    sent = 0
    began_s = time.perf_counter()
    while time.perf_counter() < began_s + SECONDS:
        connection.sendall(batch)
        sent += 1
        answers.wait((sent - batches_open_max) * answers_per_batch)
    answers.wait(sent * answers_per_batch)
    return sent * BATCH, time.perf_counter() - began_s
