"""Real ZooKeeper servers and what is done to their clients' sessions."""

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import _SESSION_EXPIRED

from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.services.zookeeper import launch
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.commands import held_port
from tests.support.waiting import DEADLINE_S, wait_until

TAKE_ATTEMPTS = 10
TAKE_S = 20.0


@contextlib.contextmanager
def start_zookeeper(
    data_dir: Path, inside: tuple[str, ...] = (), address: str = "", **settings: object
) -> Iterator[ZooKeeperServer]:
    """A server of one's own, on a held port unless `client_port` says otherwise. `inside`: the
    words before a command that run it on another host (`namespaces`), whose `address` it has."""
    usual = {"client_port": held_port(), "data_dir": data_dir, "start_timeout_ms": 300_000}
    config = ZooKeeperConfig(**{**usual, **settings})
    java_home = os.environ.get("JAVA_HOME", "")
    if inside:
        config = replace(config, bind_address="0.0.0.0")  # here nothing has the other's address
        java = launch.find_java(java_home)
        java_home = str(data_dir.with_name("java"))
        shim = Path(java_home) / "bin" / "java"
        shim.parent.mkdir(parents=True)
        shim.write_text(f'#!/bin/sh\nexec {shlex.join([*inside, str(java)])} "$@"\n')
        shim.chmod(0o755)
    with ZooKeeperServer(config, java_home) as server:
        server.host = address or server.host
        server.start()
        yield server


@contextlib.contextmanager
def registry_at(zk_connect: str) -> Iterator[ZooKeeperRegistry]:
    """A registry there, as long as a busy machine takes to connect."""
    with contextlib.closing(ZooKeeperRegistry(zk_connect)) as registry:
        registry.start(round(DEADLINE_S * 1000))
        yield registry


def end_session(registry: ZooKeeperRegistry, path: str) -> None:
    """End the session that owns the ephemeral node, as the server does when its time is over.

    For a process that was killed: its session can be long then, and does not expire by itself on a
    busy machine. (One that is frozen, and goes on within its session's time, trusts it that long.)
    Does nothing where there is no such node.
    """
    stat = registry._session.client.exists(path)
    if stat is None:
        return
    client_id = stat.ephemeralOwner, _password(stat.ephemeralOwner)
    twin = KazooClient(hosts=registry._session.connect_text, timeout=20, client_id=client_id)
    twin.start(timeout=DEADLINE_S)
    twin.stop()
    twin.close()
    assert registry._session.client.exists(path) is None, f"{path} has outlived its session"


def _password(session: int) -> bytes:
    """The server's own function of a session's id: 16 bytes of java.util.Random."""
    mask = (1 << 48) - 1
    state = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & mask
    found = b""
    while len(found) < 16:
        state = (state * 0x5DEECE66D + 0xB) & mask
        found += (state >> 16).to_bytes(4, "little")
    return found


def expire_in_client(registry: ZooKeeperRegistry) -> None:
    """kazoo's own test expiry: the client drops its session, the server keeps it (and the
    ephemeral nodes) until its timeout."""
    client = registry._session.client
    client._call(_SESSION_EXPIRED, client.handler.async_result())


def expire_on_server(registry: ZooKeeperRegistry) -> None:
    """A true expiry: a second client takes the same session id and password and closes it."""
    client = registry._session.client
    session = client.client_id

    def is_over() -> bool:
        # Not by `client_id`, which is None while there is no connection.
        return bool(client._session_id != session[0])

    for _ in range(TAKE_ATTEMPTS):
        twin = KazooClient(hosts=registry._session.connect_text, timeout=5, client_id=session)
        try:
            twin.start(timeout=DEADLINE_S)
            twin.stop()  # silently without effect where the client had taken its session back
            wait_until(is_over, "the session's end", TAKE_S)
            return
        except (AssertionError, KazooException, KazooTimeoutError):
            # The client, thrown out, had taken its session back before the twin closed it.
            if is_over():
                return
        finally:
            twin.stop()  # without effect where it was stopped; else its thread may still connect
            twin._connection.connection_stopped.wait(DEADLINE_S)
            twin.close()
    raise AssertionError(f"the session was not to be had {TAKE_ATTEMPTS} times")
