"""A replica set of real broker processes, and a load on it whose history can be judged.

Sets are named and sent once each; the readers follow the address that ZooKeeper shows. What the
history is judged by (tests/faults/checker.py, and the parsing here) shares no code with the
product.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import resource
import shutil
import signal
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kafka2011.broker.replica.set_node import SetNode
from kafka2011.broker.replication.set_state import SetState
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import UncleanRecord
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.commands import held_port, run
from tests.support.raw_requests import OUT_OF_RANGE, entry, fetch, produce
from tests.support.waiting import DEADLINE_S, wait_until

BROKER_ID = 1
TOPIC = b"t"
FETCH_BYTES = 1_000_000
SESSION_MS = 2000
FULL_BYTES = 30_000
QUICK: dict[str, object] = {
    "replica_registration_gap_ms": 200,
    "zk_sessiontimeout_ms": SESSION_MS,
}
_NUMBERS = itertools.count()  # of producers


@dataclass(frozen=True)
class Host:
    """Where a member runs: the words before its command, its address, its own variables, and the
    file system that holds its directory and nothing else, if there is one."""

    inside: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    variables: Mapping[str, str] = field(default_factory=dict)
    disk: Path | None = None


@dataclass(frozen=True)
class Target:
    """The partitions of a topic that a load sends to, each connection of a producer to another one.
    In a history the first of them has the number `first`."""

    topic: bytes = TOPIC
    partitions: int = 1
    first: int = 0
    barriers_max: int | None = None  # of a connection


MAIN = Target()


class ReplicaSet:
    """Members `a`, `b`, `c`, each with a directory of its own."""

    def __init__(
        self,
        path: Path,
        zk_connect: str,
        names: str = "abc",
        hosts: Mapping[str, Host] | None = None,
        **settings: object,
    ) -> None:
        """`hosts`: of each member; on this one's loopback else."""
        self.path = path
        self.hosts = dict(hosts or dict.fromkeys(names, Host()))
        self.zk_connect = zk_connect
        self.names = names
        self.history: list[dict[str, Any]] = []
        self.brokers: dict[str, RunningBroker] = {}
        self._ports = {name: (held_port(), held_port()) for name in names}
        self._settings = settings
        self.registry = ZooKeeperRegistry(zk_connect, session_timeout_ms=20_000)
        self.registry.start(round(DEADLINE_S * 1000))
        self.node = SetNode(self.registry, BROKER_ID)

    def start(self, name: str) -> None:
        host = self.hosts[name]
        more: dict[str, object] = {}
        if host.disk is not None:
            more["log_dir"] = host.disk / f"broker-{BROKER_ID}"
        self.brokers[name] = self._started(name, host, self.path / name, self._ports[name], **more)

    def start_beside(self, name: str, host: str, log_dir: Path) -> RunningBroker:
        """Begin another process of that name, on a member's host; it is not waited for."""
        ports = held_port(), held_port()
        place = self.hosts[host]
        return self._started(name, place, log_dir.parent, ports, wait=False, log_dir=log_dir)

    def _started(
        self,
        name: str,
        host: Host,
        path: Path,
        ports: tuple[int, int],
        *,
        wait: bool = True,
        **more: object,
    ) -> RunningBroker:
        return start_broker(
            path,
            BROKER_ID,
            self.zk_connect,
            port=ports[0],
            prefix=list(host.inside),
            environment=dict(host.variables),
            hostname=host.address,
            replica_name=name,
            replica_port=ports[1],
            wait=wait,
            **{**QUICK, **self._settings, **more},
        )

    def start_all(self) -> None:
        for name in self.names:
            (self.path / name).mkdir(parents=True, exist_ok=True)
            self.start(name)

    def start_in_place_of(self, old: str, new: str) -> None:
        """Start another member, which is to be compared from now on instead of `old`."""
        self.names = self.names.replace(old, new)
        self._ports[new] = (held_port(), held_port())
        self.hosts[new] = self.hosts[old]
        (self.path / new).mkdir()
        self.start(new)

    def log_dir(self, name: str) -> Path:
        return self.brokers[name].log_dir

    def kill(self, name: str) -> None:
        self.brokers[name].kill()

    def wipe(self, name: str) -> None:
        shutil.rmtree(self.log_dir(name))

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.brokers[name].pid, number)

    @contextlib.contextmanager
    def without_room(self, name: str) -> Iterator[None]:
        """No file of this member's grows beyond FULL_BYTES, which is less than a segment has."""
        limits = resource.prlimit(self.brokers[name].pid, resource.RLIMIT_FSIZE)
        full = (FULL_BYTES, limits[1])
        resource.prlimit(self.brokers[name].pid, resource.RLIMIT_FSIZE, full)
        try:
            yield
        finally:
            resource.prlimit(self.brokers[name].pid, resource.RLIMIT_FSIZE, limits)

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

    @property
    def session_ms(self) -> int:
        """A member's, with ZooKeeper."""
        return int({**QUICK, **self._settings}["zk_sessiontimeout_ms"])  # type: ignore[call-overload]

    def wait_for_zookeeper(self) -> None:
        """Until it answers again."""

        def answers() -> bool:
            try:
                return self.state is not None
            except CoordinationUnavailable:
                return False

        wait_until(answers, "ZooKeeper")

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
        try:
            address = cluster.live_brokers(self.registry).get(BROKER_ID)
        except CoordinationUnavailable as error:
            raise ConnectionRefusedError(str(error)) from None
        if address is None:
            raise ConnectionRefusedError("no address is shown")
        return RawClient(address.host, address.port)


class Loadable(Protocol):
    """A replica set, whatever its processes are."""

    def connect(self) -> RawClient:
        """To the address that is shown. Raises OSError when there is none, or it refuses."""

    def describe(self) -> str: ...


class Load:
    """Producers that ask for a barrier behind every few sets, and a reader of all, to the end.
    `history` is the checker's, to which several loads of one set may add."""

    def __init__(
        self,
        replicas: Loadable,
        history: list[dict[str, Any]],
        producers: int = 2,
        *,
        patience_s: float = 5.0,
        pause_s: float = 0.0,
        target: Target = MAIN,
    ) -> None:
        """`patience_s`: for any answer, before a client connects again; `pause_s`: of each client
        between two barriers or looks."""
        self._replicas = replicas
        self.history = history
        self.problems: list[str] = []
        self.durable = 0
        self._target = target
        self._shown_ends: dict[int, int] = {}  # of the partitions with anything confirmed
        self._read_to: dict[int, int] = {}
        self.confirmed_s = time.monotonic()  # when the last barrier was answered
        self.longest_s = 0.0  # between two answers, of all producers together
        self._patience_s = patience_s
        self._pause_s = pause_s
        self._is_over = threading.Event()
        targets: list[Callable[[], None]] = [self._read]
        targets += [functools.partial(self._produce, next(_NUMBERS)) for _ in range(producers)]
        self._reader = str(next(_NUMBERS))
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
                self._send(client, 0, f"{connection}.{sequence}", b"x" * size_bytes)

    def _send(self, client: RawClient, partition: int, name: str, filling: bytes) -> None:
        payload = name.encode() + b":" + filling
        self.history.append(sent(self._target.first + partition, name, payload))
        client.send(produce(self._target.topic, entry(payload), partition))

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
                    client.socket.settimeout(self._patience_s)
                    partition = (connection + number) % self._target.partitions
                    self._produce_on(client, partition, f"{number}.{connection}")
            except OSError:
                self._is_over.wait(0.05)

    def _produce_on(self, client: RawClient, partition: int, connection: str) -> None:
        sequence = 0
        for _ in itertools.islice(itertools.count(), self._target.barriers_max):
            names = []
            for _ in range(5):
                name = f"{connection}.{sequence}"
                sequence += 1
                self._send(client, partition, name, b"x" * (sequence * 37 % 300))
                names.append(name)
            if client.latest(self._target.topic, partition) is None:
                raise ConnectionResetError
            self.confirmed(names)
            self._shown_ends.setdefault(partition, 0)
            self._is_over.wait(self._pause_s)
            if self._is_over.is_set():
                break

    def confirmed(self, names: list[str]) -> None:
        self.history += [{"f": "durable", "id": name} for name in names]
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self.confirmed_s)
        self.confirmed_s = now_s
        self.durable += len(names)

    def _read(self) -> None:
        """As a 0.7 consumer at the end of the log does, across leaders: the end never falls, and
        what was the end is never out of range."""
        while not self._is_over.is_set():
            try:
                with self._replicas.connect() as client:
                    client.socket.settimeout(self._patience_s)
                    while not self._is_over.is_set():
                        for partition in list(self._shown_ends):
                            self._look(client, partition)
                        self._is_over.wait(self._pause_s)
            except OSError:
                self._is_over.wait(0.05)

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self._is_over.set()

    def _look(self, client: RawClient, partition: int) -> None:
        topic, shown_end = self._target.topic, self._shown_ends[partition]
        number = self._target.first + partition
        answer = client.ask(fetch(topic, shown_end, partition, 100))
        if not answer:
            raise ConnectionResetError
        if answer == OUT_OF_RANGE:
            self._problem(f"{number}: error 1 at {shown_end}, which was shown as the end")
            return
        end = client.latest(topic, partition)
        if end is None:
            raise ConnectionResetError
        if end != shown_end:
            self.history.append(
                {"f": "latest", "reader": self._reader, "partition": number, "offset": end}
            )
        if end < shown_end:
            self._problem(f"{number}: the end fell from {shown_end} to {end}")
        self._shown_ends[partition] = shown_end = max(shown_end, end)
        read_to = self._read_to.get(partition, 0)
        if read_to < shown_end:
            answer = client.ask(fetch(topic, read_to, partition, FETCH_BYTES))
            for event in shown(answer, read_to, number):
                self.history.append({"f": "poll", **event})
                self._read_to[partition] = event["next_offset"]


def sent(partition: int, name: str, payload: bytes) -> dict[str, Any]:
    return {"f": "send", "id": name, "partition": partition, "crc": zlib.crc32(payload)}


def shown(answer: bytes, offset: int, partition: int = 0) -> Iterator[dict[str, Any]]:
    """The whole messages of a fetch at `offset`, as the checker's events."""
    assert answer[4:6] in (b"", b"\0\0"), f"{partition}:{offset}: {answer[:6].hex()}"
    data = answer[6:]
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if at + 4 + length > len(data):
            break
        payload = data[at + 10 : at + 4 + length]
        yield {
            "id": payload.partition(b":")[0].decode(),
            "partition": partition,
            "offset": offset + at,
            "next_offset": offset + at + 4 + length,
            "crc": zlib.crc32(payload),
        }
        at += 4 + length


def read_all(client: RawClient, target: Target = MAIN) -> Iterator[dict[str, Any]]:
    """All logs of the target as the checker's final events."""
    for partition in range(target.partitions):
        number, offset = target.first + partition, 0
        request = functools.partial(fetch, target.topic, partition=partition, size=FETCH_BYTES)
        if target.partitions > 1 and not client.latest(target.topic, partition):
            continue  # not reached
        while found := list(shown(client.ask(request(offset)), offset, number)):
            yield from ({"f": "final", **event} for event in found)
            offset = found[-1]["next_offset"]
        yield {
            "f": "end",
            "partition": number,
            "offset": client.latest(target.topic, partition),
        }


def create_set(zk_connect: str, names: str, min_insync: int) -> None:
    words = [word for name in names for word in ("--member", name)]
    run(
        *("replicas", "create", BROKER_ID, *words),
        *("--min-insync", min_insync, "--zookeeper", zk_connect),
    )


def unclean_records(registry: Registry, broker_id: int) -> list[UncleanRecord]:
    """The records below a broker id, by epoch: also those of elections whose member has not taken
    over yet."""
    root = paths.replica_unclean_root(broker_id)
    stored = [registry.get(f"{root}/{name}") for name in registry.children(root)]
    found = [json.loads(node.value) for node in stored if node is not None]
    fields = [name.name for name in dataclasses.fields(UncleanRecord)]
    records = [UncleanRecord(**{name: record[name] for name in fields}) for record in found]
    return sorted(records, key=lambda record: record.epoch)
