"""Starts real broker processes for tests, and talks to them in raw bytes.

`start_broker` runs `kafka2011 broker` on a free port of loopback and returns when it answers.
`RawClient` is a plain socket with whole requests in hexadecimal or bytes: no client of ours
stands between a test and the broker.
"""

import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests import ROOT
from tests.support import raw_requests
from tests.support.commands import KAFKA2011, RunningProcess, dotted, held_port, set_options
from tests.support.waiting import DEADLINE_S


class RunningBroker(RunningProcess):
    """One broker process with its logs in `log_dir`; its addresses are known once it serves."""

    host = "127.0.0.1"
    port = 0
    metrics_port = 0

    def __init__(
        self,
        words: list[str],
        log_dir: Path,
        log_path: Path,
        variables: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        super().__init__(words, log_path, variables=variables, cwd=cwd)
        self.log_dir = log_dir

    @property
    def quarantine_dir(self) -> Path:
        return self.log_dir.parent / f"{self.log_dir.name}-quarantine"

    @property
    def broker_list(self) -> str:
        return f"0:{self.host}:{self.port}"

    @property
    def metrics_address(self) -> str:
        return f"{self.host}:{self.metrics_port}"

    def wait_serving(self) -> None:
        self.port = port_of(self.wait_for_event("serving"))
        for event in self.events("metrics_served"):
            self.metrics_port = port_of(event)

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name with labels."""
        lines = [line for line in self.get("/metrics").splitlines() if line[:1] not in ("", "#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def connect(self) -> "RawClient":
        return RawClient(self.host, self.port)

    def store(self, topic: bytes, data: bytes, partition: int = 0) -> int | None:
        """Produce `data` on a connection of its own and wait for the barrier: the latest offset;
        None when the broker closed the connection instead."""
        with self.connect() as client:
            try:
                client.send(raw_requests.produce(topic, data, partition))
            except (ConnectionResetError, BrokenPipeError):
                return None
            return client.latest(topic, partition)

    def latest(self, topic: bytes, partition: int = 0) -> int | None:
        """The latest offset, asked on a connection that never produced."""
        with self.connect() as client:
            return client.latest(topic, partition)


def port_of(event: dict[str, str]) -> int:
    return int(event["address"].rpartition(":")[2])


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
        "port": port or held_port(),
        "log.dir": tmp_path / f"broker-{broker_id}",
        "enable.zookeeper": "true" if zk_connect else "false",
        "metrics.port": 0 if metrics else -1,
        **({"zk.connect": zk_connect} if zk_connect else {}),
        **dotted(properties),
    }
    return [*KAFKA2011, "broker", *set_options(settings)]


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

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), DEADLINE_S)
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

    def latest(self, topic: bytes, partition: int = 0) -> int | None:
        """The latest offset, once everything produced on this connection is durable (the
        barrier); None when the broker closed."""
        found = self.ask(raw_requests.offsets(topic, -1, 1, partition))
        return int.from_bytes(found[10:18], "big") if found else None

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
