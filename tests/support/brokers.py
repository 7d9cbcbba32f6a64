"""Starts real broker processes for tests, and talks to them in raw bytes.

`start_broker` runs `kafka2011 broker` on a free port of loopback and returns when it answers.
`RawClient` is a plain socket with whole requests in hexadecimal or bytes: no client of ours
stands between a test and the broker.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType

from tests import ROOT
from tests.support.waiting import wait_until

START_TIMEOUT_S = 30


class RunningBroker:
    """One broker process. `stop` is SIGTERM and waits; `kill` is SIGKILL."""

    def __init__(
        self, process: subprocess.Popen[bytes], log_dir: Path, output: Path, broker_id: int
    ) -> None:
        self.process = process
        self.log_dir = log_dir
        self.output = output
        self.broker_id = broker_id
        self.host = "127.0.0.1"
        self.port = 0
        self.metrics_port = 0

    @property
    def quarantine_dir(self) -> Path:
        return self.log_dir.parent / f"{self.log_dir.name}-quarantine"

    def log_text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_serving(self, timeout_s: float = START_TIMEOUT_S) -> None:
        def serving() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(
                    f"broker ended with {self.process.returncode}:\n{self.log_text()}"
                )
            return "event=serving" in self.log_text()

        wait_until(serving, lambda: f"broker serving:\n{self.log_text()}", timeout_s)
        match = re.search(r"event=serving.*?address=[^ \n]*:(\d+)", self.log_text())
        assert match is not None, self.log_text()
        self.port = int(match[1])
        metrics = re.search(r"event=metrics.*?address=[^ \n]*:(\d+)", self.log_text())
        self.metrics_port = int(metrics[1]) if metrics else 0

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name with labels."""
        with urllib.request.urlopen(
            f"http://{self.host}:{self.metrics_port}/metrics", timeout=10
        ) as page:
            text = page.read().decode()
        found = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connect(self, timeout_s: float = 10) -> "RawClient":
        return RawClient(self.host, self.port, timeout_s)

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> "RunningBroker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()


def broker_command(
    tmp_path: Path,
    broker_id: int = 0,
    zk_connect: str | None = None,
    port: int = 0,
    metrics: bool = True,
    **properties: object,
) -> list[str]:
    """The command line; `properties` have `_` for `.` (`log_flush_interval=1`)."""
    settings = {
        "brokerid": broker_id,
        "port": port,
        "log.dir": tmp_path / f"broker-{broker_id}",
        "enable.zookeeper": "true" if zk_connect else "false",
        "metrics.port": 0 if metrics else -1,
    }
    if zk_connect:
        settings["zk.connect"] = zk_connect
    settings.update({name.replace("_", "."): value for name, value in properties.items()})
    words = [sys.executable, "-m", "kafka2011", "broker"]
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    return words


def start_broker(
    tmp_path: Path,
    broker_id: int = 0,
    zk_connect: str | None = None,
    *,
    port: int = 0,
    environment: dict[str, str] | None = None,
    wait: bool = True,
    prefix: list[str] | None = None,
    **properties: object,
) -> RunningBroker:
    """Start a broker with its logs in `tmp_path/broker-<id>`; started again with the same path it
    finds them. `prefix` goes before the command (`["unshare", ...]`)."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    words = [*(prefix or []), *broker_command(tmp_path, broker_id, zk_connect, port, **properties)]
    output = tmp_path / f"broker-{broker_id}.{time.monotonic_ns()}.log"
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("KAFKA2011_")
    }
    if "KAFKA2011_PURE" in os.environ:
        variables["KAFKA2011_PURE"] = os.environ["KAFKA2011_PURE"]
    variables["PYTHONPATH"] = str(ROOT)
    variables.update(environment or {})
    with output.open("wb") as log:
        process = subprocess.Popen(
            words, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    log_dir = Path(str(properties.get("log_dir", tmp_path / f"broker-{broker_id}")))
    broker = RunningBroker(process, log_dir, output, broker_id)
    if wait:
        try:
            broker.wait_serving()
        except BaseException:
            broker.process.kill()
            broker.process.wait(10)
            raise
    return broker


class RawClient:
    """A socket that sends and expects exact bytes."""

    def __init__(self, host: str, port: int, timeout_s: float = 10) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes | str) -> None:
        """Bytes, or hexadecimal with spaces."""
        self.socket.sendall(bytes.fromhex(data) if isinstance(data, str) else data)

    def receive(self, count: int) -> bytes:
        """Exactly `count` bytes; fewer only when the broker closed."""
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                break
            data += piece
        return data

    def response(self) -> bytes:
        """One whole response, size included; b"" when the broker closed."""
        try:
            header = self.receive(4)
            if len(header) < 4:
                return b""
            return header + self.receive(struct.unpack(">i", header)[0])
        except ConnectionResetError:
            return b""

    def ask(self, request: bytes | str) -> bytes:
        try:
            self.send(request)
        except (ConnectionResetError, BrokenPipeError):
            return b""
        return self.response()

    def is_closed_by_broker(self) -> bool:
        """Waits for the end of the stream; False when bytes come instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
