"""Starts real broker processes for tests, and talks to them in raw bytes.

`start_broker` runs `kafka2011 broker` on a free port of loopback and returns when it answers.
`RawClient` is a plain socket with whole requests in hexadecimal or bytes: no client of ours
stands between a test and the broker.
"""

import re
import socket
import struct
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests import ROOT
from tests.support.commands import KAFKA2011, RunningProcess
from tests.support.waiting import wait_until

START_TIMEOUT_S = 30


class RunningBroker(RunningProcess):
    """One broker process with its logs in `log_dir`; its addresses are known once it serves."""

    def __init__(
        self,
        words: list[str],
        log_dir: Path,
        log_path: Path,
        variables: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.log_dir = log_dir
        self.host = "127.0.0.1"
        self.port = 0
        self.metrics_port = 0
        super().__init__(words, log_path, variables=variables, cwd=cwd)

    @property
    def quarantine_dir(self) -> Path:
        return self.log_dir.parent / f"{self.log_dir.name}-quarantine"

    @property
    def broker_list(self) -> str:
        return f"0:{self.host}:{self.port}"

    def wait_serving(self, timeout_s: float = START_TIMEOUT_S) -> None:
        def port_of(event: str) -> int:
            match = re.search(rf"event={event}\b.*?address=[^ \n]*:(\d+)", self.log())
            return int(match[1]) if match else 0

        def serving() -> int:
            if not self.is_running:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log()}")
            return port_of("serving")

        self.port = wait_until(serving, lambda: f"broker serving:\n{self.log()}", timeout_s)
        self.metrics_port = port_of("metrics")

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name with labels."""
        with urllib.request.urlopen(
            f"http://{self.host}:{self.metrics_port}/metrics", timeout=10
        ) as page:
            lines = page.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def connect(self, timeout_s: float = 10) -> "RawClient":
        return RawClient(self.host, self.port, timeout_s)


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
    words = [*KAFKA2011, "broker"]
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
    broker = RunningBroker(
        [*(prefix or []), *broker_command(tmp_path, broker_id, zk_connect, port, **properties)],
        Path(str(properties.get("log_dir", tmp_path / f"broker-{broker_id}"))),
        tmp_path / f"broker-{broker_id}.{time.monotonic_ns()}.log",
        environment,
    )
    if wait:
        try:
            broker.wait_serving()
        except BaseException:
            broker.kill()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
