"""Replicas in one process, with real sockets and files: they find each other, confirm together,
and hand over. What kills do is in tests/integration/test_replication.py."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.process import Broker, CannotStart
from kafka2011.broker.replica.set_node import SetNode
from kafka2011.broker.replication.set_state import SetState
from kafka2011.coordination import cluster
from tests.faults import checker
from tests.support.brokers import RawClient
from tests.support.commands import held_port
from tests.support.in_process_broker import in_process_broker
from tests.support.logs import broker_config
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.raw_requests import entry, fetch, produce
from tests.support.replica_sets import Load, read_all
from tests.support.waiting import DEADLINE_S, wait_until

BROKER_ID = 1
NAMES = ("a", "b", "c")
STATE = SetState(
    0, None, frozenset(), frozenset(), 2, tuple((name, "") for name in NAMES), first="a"
)


class Member:
    """A broker on a thread."""

    def __init__(self, path: Path, name: str, registry: InMemoryRegistry) -> None:
        self.log_dir = path / name
        self.stop_asked = threading.Event()
        config = broker_config(
            self.log_dir,
            brokerid=BROKER_ID,
            port=held_port(),
            enable_zookeeper="true",
            zk_connect="memory:1",
            replica_name=name,
            replica_registration_gap_ms=50,
            log_file_size=2000,
        )
        self.broker = Broker(config, uvloop.new_event_loop(), FileLayer(), self.stop_asked)
        self.broker.start()
        self._registry = registry
        self._thread = threading.Thread(target=self.broker.serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.stop_asked.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.broker.close()

    @property
    def segments(self) -> dict[str, bytes]:
        found = self.log_dir.rglob("*.kafka")
        return {str(path.relative_to(self.log_dir)): path.read_bytes() for path in found}


class Members:
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.zookeeper = InMemoryZooKeeper()
        self.registry = self.zookeeper.client()
        self.registry.start()
        self.node = SetNode(self.registry, BROKER_ID)
        self.running: dict[str, Member] = {}
        self._path = path
        self._made: list[InMemoryRegistry] = []

        def registry(*_: object, **__: object) -> InMemoryRegistry:
            self._made.append(self.zookeeper.client())
            return self._made[-1]

        monkeypatch.setattr("kafka2011.broker.process.ZooKeeperRegistry", registry)

    def start(self, name: str) -> None:
        self.running[name] = Member(self._path, name, self.registry)

    def stop(self, name: str) -> None:
        self.running.pop(name).stop()

    @property
    def in_sync(self) -> list[str]:
        state = self.node.read().state
        return sorted(name for name, directory in state.members if directory in state.isr)

    def wait_in_sync(self) -> None:
        wait_until(
            lambda: self.in_sync == sorted(self.running) and self.address,
            lambda: str(self.node.read()),
        )

    @property
    def address(self) -> tuple[str, int] | None:
        return cluster.live_brokers(self.registry).get(BROKER_ID)

    def connect(self) -> RawClient:
        address = self.address
        if address is None:
            raise ConnectionRefusedError("no address is shown")
        return RawClient(*address)

    def describe(self) -> str:
        return str(self.node.read())

    @property
    def leader(self) -> str:
        state = self.node.read().state
        return next(name for name, directory in state.members if directory == state.leader)


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    made = Members(tmp_path, monkeypatch)
    yield made
    for name in list(made.running):
        made.stop(name)


def test_no_set_of_that_id(members: Members) -> None:
    with pytest.raises(CannotStart, match="broker 1 is no replica set: kafka2011 replicas create"):
        members.start("a")


def test_replicas_confirm_together_hand_over_and_copy_to_an_empty_directory(
    members: Members,
) -> None:
    members.node.create(STATE)
    for name in NAMES:
        members.start(name)
    members.wait_in_sync()
    ends = []
    for _ in range(2):
        with members.connect() as client:
            for number in range(100):
                client.send(produce(b"t", entry(b"%d" % number + b"x" * 100)))
            ends.append(client.latest(b"t"))
        name = members.leader
        log_dir = members.running[name].log_dir
        members.stop(name)
        members.wait_in_sync()
        if len(ends) > 1:
            shutil.rmtree(log_dir)
        members.start(name)
        members.wait_in_sync()
    assert ends[1] == 2 * (ends[0] or 0)
    with members.connect() as client:
        assert client.latest(b"t") == ends[1]
        first = client.ask(fetch(b"t", 0))
        assert b"x" * 100 in first
    segments = [member.segments for member in members.running.values()]
    assert len(segments[0]) > 3
    assert segments[1] == segments[0] == segments[2]
    assert sum(len(data) for data in segments[0].values()) == ends[1]


def test_a_broker_that_was_alone_begins_a_set(members: Members, tmp_path: Path) -> None:
    with in_process_broker(tmp_path) as alone, alone.connect() as client:
        client.send(produce(b"t", entry(b"of before") * 100))
        end = client.latest(b"t")
    (tmp_path / "logs").rename(tmp_path / "a")
    members.node.create(STATE)
    for name in NAMES:
        members.start(name)
    members.wait_in_sync()
    with members.connect() as client:
        assert client.latest(b"t") == end
        assert client.ask(fetch(b"t", 0)).startswith(b"of before", 16)
    members.stop("a")
    (tmp_path / "a").rename(tmp_path / "logs")
    with pytest.raises(CannotStart, match="replica"), in_process_broker(tmp_path):
        pass


def test_a_handover_under_load_loses_nothing(members: Members) -> None:
    members.node.create(STATE)
    for name in NAMES:
        members.start(name)
    members.wait_in_sync()
    load = Load(members, [])
    for _ in range(2):
        load.wait_for_more()
        name = members.leader
        members.stop(name)
        members.wait_in_sync()
        load.wait_for_more()
        members.start(name)
        members.wait_in_sync()
    load.stop()
    with members.connect() as client:
        verdict = checker.check([*load.history, *read_all(client)])
    assert verdict.is_good, verdict


def test_a_name_that_is_no_member(members: Members) -> None:
    members.node.create(STATE)
    with pytest.raises(CannotStart, match=r"replica\.name=d is no member of the set: a, b, c"):
        members.start("d")
