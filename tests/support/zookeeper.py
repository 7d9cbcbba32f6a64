"""Real ZooKeeper servers and what is done to their clients' sessions."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import _SESSION_EXPIRED

from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.commands import held_port

TAKE_ATTEMPTS = 10


@contextlib.contextmanager
def start_zookeeper(data_dir: Path, **settings: object) -> Iterator[ZooKeeperServer]:
    """A server of one's own, on a held port unless `client_port` says otherwise."""
    config = ZooKeeperConfig(**{"client_port": held_port(), "data_dir": data_dir, **settings})
    with ZooKeeperServer(config, os.environ.get("JAVA_HOME", "")) as server:
        server.start()
        yield server


def expire_in_client(registry: ZooKeeperRegistry) -> None:
    """kazoo's own test expiry: the client drops its session, the server keeps it (and the
    ephemeral nodes) until its timeout."""
    client = registry._client
    client._call(_SESSION_EXPIRED, client.handler.async_result())


def expire_on_server(registry: ZooKeeperRegistry) -> None:
    """A true expiry: a second client takes the same session id and password and closes it."""
    client = registry._client
    session = client.client_id
    for _ in range(TAKE_ATTEMPTS):
        twin = KazooClient(hosts=registry._connect_text, timeout=5, client_id=session)
        try:
            twin.start(timeout=20)
            twin.stop()
            return
        except (KazooException, KazooTimeoutError):
            # The client, thrown out, had taken its session back before the twin closed it.
            if client.client_id != session:
                return
        finally:
            twin.close()
    raise AssertionError(f"the session was not to be had {TAKE_ATTEMPTS} times")
