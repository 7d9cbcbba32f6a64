"""The real registry keeps the same contract as the double, and lives through ZooKeeper's faults."""

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka2011.coordination.errors import CoordinationUnavailable, RegistryClosed
from kafka2011.coordination.registry import Registry, SessionEvent
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from tests.support.commands import hold
from tests.support.registry_contract import RegistryContract
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import DEADLINE_S, wait_until
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


@pytest.mark.parametrize("connect", ["", "/chroot", "host:1,,host:2", "a b:1", "a..b:1"])
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
        hold(server.pid)
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


def test_leaving_a_server_that_hangs_ends_what_waits_for_its_answers(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path) as server:
        connect = f"{server.host}:{server.port}"
        registry = ZooKeeperRegistry(connect, operation_timeout_ms=600_000)
        registry.start(20_000)
        registry.close_if_silent(DEADLINE_S)
        assert registry.exists("/"), "it answers"
        stop = threading.Event()
        registry.leave_on(stop)
        hold(server.pid)
        try:
            with ThreadPoolExecutor(1) as others:
                waits = others.submit(registry.get, "/any")
                stop.set()
                assert isinstance(waits.exception(DEADLINE_S), CoordinationUnavailable)
            wait_until(lambda: registry.session_id() is None, "closed")
            with pytest.raises(RegistryClosed):
                registry.get("/any")
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_restarted_server_keeps_sessions_and_watches(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path) as first:
        connect, port = f"{first.host}:{first.port}", first.port
        registry = ZooKeeperRegistry(connect, session_timeout_ms=60_000)
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


class Door(ScriptedServer):
    """An address in front of a server. Closed, it accepts connections and says nothing on them, as
    ZooKeeper does before it has loaded its data."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.is_open = True
        self.unanswered = 0
        self._server = server
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), socket.create_connection(self._server) as behind:
            if not self.is_open:
                self.unanswered += 1
                behind.close()
                while connection.recv(1 << 16):
                    pass
                return
            ends = {connection: behind, behind: connection}
            while True:
                for ready in select.select(list(ends), [], [])[0]:
                    if not (data := ready.recv(1 << 16)):
                        return
                    ends[ready].sendall(data)


def test_a_session_outlives_a_connection_that_is_not_answered(tmp_path: Path) -> None:
    with (
        start_zookeeper(tmp_path) as server,
        contextlib.closing(Door((server.host, server.port))) as door,
        contextlib.closing(ZooKeeperRegistry(f"{door.host}:{door.port}", 30_000)) as registry,
    ):
        registry.start(20_000)
        session = registry.session_id()
        registry.create_ephemeral("/mine", b"1")
        door.is_open = False
        door.hang_up()
        # One would be enough, but for the ticks by which the server rounds a session's time up.
        wait_until(lambda: door.unanswered > 1, "connections that are not answered")
        door.is_open = True
        wait_until(registry.session_id, "a session")
        assert registry.session_id() == session
        assert registry.get("/mine") == (b"1", 0, True)
