"""The real registry keeps the same contract as the double, and lives through ZooKeeper's faults."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.registry import Registry, SessionEvent
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from tests.support.registry_contract import RegistryContract
from tests.support.waiting import wait_until
from tests.support.zookeeper import expire_in_client, expire_on_server, start_zookeeper

pytestmark = pytest.mark.integration


class ZooKeeperWorld:
    def __init__(self, connect: str) -> None:
        self._connect = connect
        self.made: list[ZooKeeperRegistry] = []

    def registry(self) -> ZooKeeperRegistry:
        made = ZooKeeperRegistry(self._connect, session_timeout_ms=20_000)
        made.start(20_000)
        self.made.append(made)
        return made

    def expire(self, registry: Registry) -> None:
        assert isinstance(registry, ZooKeeperRegistry)
        expire_on_server(registry)

    def expire_only_in_client(self, registry: Registry) -> None:
        assert isinstance(registry, ZooKeeperRegistry)
        expire_in_client(registry)


@pytest.fixture
def world(zk_connect: str) -> Iterator[ZooKeeperWorld]:
    made = ZooKeeperWorld(zk_connect)
    yield made
    for registry in made.made:
        registry.close()


class TestZooKeeperRegistry(RegistryContract):
    pass


def test_nobody_there_is_said_and_may_be_tried_again() -> None:
    registry = ZooKeeperRegistry("127.0.0.1:1")
    with pytest.raises(CoordinationUnavailable, match=r"127\.0\.0\.1:1"):
        registry.start(300)
    with pytest.raises(CoordinationUnavailable):
        registry.start(300)
    registry.close()


@pytest.mark.parametrize("connect", ["", "/chroot", "host:1,,host:2", "a b:1"])
def test_a_bad_connect_string_is_refused(connect: str) -> None:
    with pytest.raises(ValueError, match=r"zk\.connect"):
        ZooKeeperRegistry(connect)


def test_frozen_server_ends_the_lease_and_fails_calls_until_it_is_back(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path) as server:
        registry = ZooKeeperRegistry(
            f"{server.host}:{server.port}", session_timeout_ms=2000, operation_timeout_ms=1000
        )
        registry.start(20_000)
        events: list[SessionEvent] = []
        registry.add_session_listener(events.append)
        registry.create_ephemeral("/mine", b"1")
        seen: list[list[str]] = []
        registry.watch_children("/watched", seen.append)
        wait_until(lambda: registry.lease_remaining_ms() > 1000, "a lease")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: registry.lease_remaining_ms() == 0, "the end of the lease")
            with pytest.raises(CoordinationUnavailable):
                registry.get("/mine")
            wait_until(lambda: SessionEvent.SUSPENDED in events, lambda: str(events))
        finally:
            os.kill(server.pid, signal.SIGCONT)
        wait_until(lambda: registry.lease_remaining_ms() > 1000, "a lease again")
        registry.create("/watched/a")
        wait_until(lambda: seen and seen[-1] == ["a"], lambda: str(seen))
        # Whether the session outlived the freeze is the server's to say; both ends are told.
        if registry.get("/mine") is None:
            wait_until(lambda: SessionEvent.RECREATED in events, lambda: str(events))
        else:
            wait_until(lambda: SessionEvent.CONNECTED in events, lambda: str(events))
        registry.close()


def test_restarted_server_keeps_sessions_and_watches(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path) as first:
        connect, port = f"{first.host}:{first.port}", first.port
        # ZooKeeper accepts connections before it has loaded its data, and may leave one of then
        # without an answer. kazoo waits for that for the session's time over the number of
        # addresses: with one, the session would end meanwhile.
        registry = ZooKeeperRegistry(f"{connect},{connect}", session_timeout_ms=60_000)
        registry.start(20_000)
        session = registry.session_id()
        assert session is not None
        registry.create_ephemeral("/mine", b"1")
        seen: list[list[str]] = []
        registry.watch_children("/watched", seen.append)
        wait_until(lambda: seen, "the first call")
        first.kill()
    with start_zookeeper(tmp_path, client_port=port):
        wait_until(
            lambda: registry.session_id() == session,
            lambda: f"session {session:x} again: {registry.session_id()}",
        )
        assert registry.get("/mine") == (b"1", 0, True)
        registry.create("/watched/a")
        wait_until(lambda: seen[-1] == ["a"], lambda: str(seen))
        registry.close()
