"""Replicas of broker 1 in one process, each a broker on a thread, with ZooKeeper in memory."""

import threading
from pathlib import Path

import pytest
import uvloop

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.process import Broker
from kafka2011.broker.replica.set_node import SetNode
from kafka2011.broker.replication.set_state import SetState
from kafka2011.coordination import cluster
from tests.support.brokers import RawClient
from tests.support.commands import held_port
from tests.support.logs import broker_config
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
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

    def begin(self) -> None:
        """The set is made, and all of it are in sync."""
        self.node.create(STATE)
        for name in NAMES:
            self.start(name)
        self.wait_in_sync()

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
