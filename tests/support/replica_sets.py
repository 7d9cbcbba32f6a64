"""A replica set of real broker processes, and a load on it whose history can be judged.

Sets are named and sent once each; the readers follow the address that ZooKeeper shows. What the
history is judged by (tests/faults/checker.py, and the parsing here) shares no code with the
product.
"""

import functools
import itertools
import os
import shutil
import signal
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from kafka2011.broker.replica.set_node import SetNode
from kafka2011.broker.replication.set_state import SetState
from kafka2011.coordination import cluster
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.commands import held_port, run
from tests.support.raw_requests import OUT_OF_RANGE, entry, fetch, produce
from tests.support.waiting import wait_until

BROKER_ID = 1
TOPIC = b"t"
FETCH_BYTES = 1_000_000
SESSION_MS = 2000
_NUMBERS = itertools.count()  # of producers


class ReplicaSet:
    """Members `a`, `b`, `c`, each with a directory of its own."""

    def __init__(self, path: Path, zk_connect: str, names: str = "abc", **settings: object) -> None:
        self.path = path
        self.zk_connect = zk_connect
        self.names = names
        self.history: list[dict[str, Any]] = []
        self.brokers: dict[str, RunningBroker] = {}
        self._ports = {name: (held_port(), held_port()) for name in names}
        self._settings = settings
        self.registry = ZooKeeperRegistry(zk_connect, session_timeout_ms=20_000)
        self.registry.start(20_000)
        self.node = SetNode(self.registry, BROKER_ID)

    def start(self, name: str) -> None:
        client, replica = self._ports[name]
        self.brokers[name] = start_broker(
            self.path / name,
            BROKER_ID,
            self.zk_connect,
            port=client,
            replica_name=name,
            replica_port=replica,
            replica_registration_gap_ms=200,
            zk_sessiontimeout_ms=SESSION_MS,
            **self._settings,
        )

    def start_all(self) -> None:
        for name in self.names:
            (self.path / name).mkdir(parents=True, exist_ok=True)
            self.start(name)

    def log_dir(self, name: str) -> Path:
        return self.brokers[name].log_dir

    def kill(self, name: str) -> None:
        self.brokers[name].kill()

    def wipe(self, name: str) -> None:
        shutil.rmtree(self.log_dir(name))

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.brokers[name].pid, number)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.registry.close()

    # --- what is so ----------------------------------------------------------------------------

    @property
    def state(self) -> SetState:
        return self.node.read().state

    def name_of(self, directory: str | None) -> str | None:
        return next((n for n, entered in self.state.members if entered == directory), None)

    @property
    def leader(self) -> str | None:
        """The member whose address clients are shown."""
        address = cluster.live_brokers(self.registry).get(BROKER_ID)
        ports = {ports[0]: name for name, ports in self._ports.items()}
        return ports.get(address.port) if address is not None else None

    def wait_for_leader(self, *others_than: str) -> str:
        def found() -> str | None:
            leader = self.leader
            return leader if leader not in others_than else None

        leader = wait_until(found, lambda: f"a leader: {self.describe()}")
        assert leader is not None
        return leader

    def wait_in_sync(self, names: str | None = None) -> None:
        wanted = sorted(names or self.names)

        def is_so() -> bool:
            state = self.state
            found = [name for name, directory in state.members if directory in state.isr]
            return sorted(found) == wanted and len(state.isr) == len(wanted)

        wait_until(is_so, lambda: f"{wanted} in sync: {self.describe()}")

    def describe(self) -> str:
        logs = [
            f"--- {name}\n{broker.log_path.read_text()[-3000:]}"
            for name, broker in self.brokers.items()
        ]
        return "\n".join([str(self.state), *logs])

    def segments(self, name: str) -> dict[str, bytes]:
        """Every segment by its path below the data directory."""
        root = self.log_dir(name)
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.kafka")}

    def wait_equal(self) -> None:
        """All members have the same segments, byte for byte."""

        def is_so() -> bool:
            first, *others = (self.segments(name) for name in self.names)
            return all(other == first for other in others)

        wait_until(is_so, lambda: f"equal segments: {self._sizes()} {self.describe()}")

    def _sizes(self) -> dict[str, dict[str, int]]:
        return {
            name: {path: len(data) for path, data in self.segments(name).items()}
            for name in self.names
        }

    def connect(self) -> RawClient:
        """To the address that is shown. Raises OSError when there is none, or it refuses."""
        address = cluster.live_brokers(self.registry).get(BROKER_ID)
        if address is None:
            raise ConnectionRefusedError("no address is shown")
        return RawClient(address.host, address.port)


class Loadable(Protocol):
    """A replica set, whatever its processes are."""

    def connect(self) -> RawClient:
        """To the address that is shown. Raises OSError when there is none, or it refuses."""

    def describe(self) -> str: ...


class Load:
    """Producers that ask for a barrier behind every few sets, and a reader at the end of the log.
    `history` is the checker's, to which several loads of one set may add."""

    def __init__(
        self, replicas: Loadable, history: list[dict[str, Any]], producers: int = 2
    ) -> None:
        self._replicas = replicas
        self.history = history
        self.problems: list[str] = []
        self.durable = 0
        self.shown_end = 0
        self._is_over = threading.Event()
        targets: list[Callable[[], None]] = [self._read]
        targets += [functools.partial(self._produce, next(_NUMBERS)) for _ in range(producers)]
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()

    def fault(self, kind: str) -> None:
        self.history.append({"f": "fault", "kind": kind})

    def wait_for_more(self, count: int = 50) -> None:
        before = self.durable
        wait_until(
            lambda: self.problems or self.durable >= before + count,
            lambda: f"{count} sets confirmed: {self._replicas.describe()}",
        )

    def produce_unconfirmed(self, count: int, size_bytes: int) -> None:
        """Send sets on a connection of its own, without a barrier."""
        connection = f"{next(_NUMBERS)}.0"
        with self._replicas.connect() as client:
            for sequence in range(count):
                self._send(client, f"{connection}.{sequence}", b"x" * size_bytes)

    def _send(self, client: RawClient, name: str, filling: bytes) -> None:
        payload = name.encode() + b":" + filling
        event = {"f": "send", "id": name, "partition": 0, "crc": zlib.crc32(payload)}
        self.history.append(event)
        client.send(produce(TOPIC, entry(payload)))

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        assert not self.problems, self.problems

    def _produce(self, number: int) -> None:
        connection = 0
        while not self._is_over.is_set():
            connection += 1
            try:
                with self._replicas.connect() as client:
                    client.socket.settimeout(5)
                    self._produce_on(client, f"{number}.{connection}")
            except OSError:
                self._is_over.wait(0.05)

    def _produce_on(self, client: RawClient, connection: str) -> None:
        sequence = 0
        while not self._is_over.is_set():
            names = []
            for _ in range(5):
                name = f"{connection}.{sequence}"
                sequence += 1
                self._send(client, name, b"x" * (sequence * 37 % 300))
                names.append(name)
            if client.latest(TOPIC) is None:
                raise ConnectionResetError
            self.history += [{"f": "durable", "id": name} for name in names]
            self.durable += len(names)

    def _read(self) -> None:
        """As a 0.7 consumer at the end of the log does, across leaders: the end never falls, and
        what was the end is never out of range."""
        while not self._is_over.is_set():
            try:
                with self._replicas.connect() as client:
                    client.socket.settimeout(5)
                    while not self._is_over.is_set():
                        self._look(client)
            except OSError:
                self._is_over.wait(0.05)

    def _look(self, client: RawClient) -> None:
        answer = client.ask(fetch(TOPIC, self.shown_end, 0, 100))
        if not answer:
            raise ConnectionResetError
        if answer == OUT_OF_RANGE:
            self.problems.append(f"error 1 at {self.shown_end}, which was shown as the end")
            self._is_over.set()
            return
        end = client.latest(TOPIC)
        if end is None:
            raise ConnectionResetError
        if end < self.shown_end:
            self.problems.append(f"the end fell from {self.shown_end} to {end}")
            self._is_over.set()
        self.shown_end = max(self.shown_end, end)


def read_all(client: RawClient) -> Iterator[dict[str, Any]]:
    """The whole log as the checker's final events."""
    offset = 0
    while True:
        answer = client.ask(fetch(TOPIC, offset, 0, FETCH_BYTES))
        assert answer[4:6] == b"\0\0", answer[:6].hex()
        data = answer[6:]
        at = 0
        while at + 4 <= len(data):
            (length,) = struct.unpack_from(">i", data, at)
            if at + 4 + length > len(data):
                break
            payload = data[at + 10 : at + 4 + length]
            yield {
                "f": "final",
                "id": payload.partition(b":")[0].decode(),
                "partition": 0,
                "offset": offset + at,
                "next_offset": offset + at + 4 + length,
                "crc": zlib.crc32(payload),
            }
            at += 4 + length
        if not at:
            break
        offset += at
    yield {"f": "end", "partition": 0, "offset": client.latest(TOPIC)}


def create_set(zk_connect: str, names: str, min_insync: int) -> None:
    words = [word for name in names for word in ("--member", name)]
    run(
        *("replicas", "create", BROKER_ID, *words),
        *("--min-insync", min_insync, "--zookeeper", zk_connect),
    )
