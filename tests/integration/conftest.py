"""The real ZooKeeper of the integration tests: one server a run, one chroot a test.

`zookeeper` is the server itself (session scope: a test that stops or freezes a ZooKeeper starts its
own with `start_zookeeper`). `zk_connect` is a connect string whose chroot no other test uses.
"""

import uuid
from collections.abc import Iterator

import pytest

from services.zookeeper.server import ZooKeeperServer
from tests.support.zookeeper import start_zookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server; `.host` and `.port` say where."""
    with start_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zk_connect(zookeeper: ZooKeeperServer) -> str:
    """`host:port/chroot` with a chroot of this test's own, made by whoever connects first."""
    return f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:12]}"
