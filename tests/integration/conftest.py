"""The real ZooKeeper of the integration tests: one server a worker, one chroot a test.

`zookeeper` is the server itself (session scope: a test that stops or freezes a ZooKeeper starts its
own with `start_zookeeper`). `zk_connect` is a connect string whose chroot no other test uses.
`spark` is one session for all tests that need one: a JVM takes long to start.

Under `-n`, a module's tests run on one worker, so that what they share is started once; those with
a Spark session, `test_spark_*.py`, all run on the same one. Long modules come first.
"""

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.zookeeper import start_zookeeper


class ModulesTogether(LoadScopeScheduling):
    """Hands out modules, not tests."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return "spark" if "/test_spark_" in module else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ModulesTogether:
    config.option.loadscopereorder = False  # else those with many tests come first
    return ModulesTogether(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        if "/test_spark_" in item.nodeid:
            return 0
        return 1 if item.get_closest_marker("slow") else 2

    items.sort(key=rank)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server; `.host` and `.port` say where."""
    with start_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zk_connect(zookeeper: ZooKeeperServer) -> str:
    """`host:port/chroot` with a chroot of this test's own; the first client makes it."""
    return f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A SparkSession with two cores, in UTC. Tests take away the views that they make."""
    from kafka2011.services.warehouse.session import start_session

    os.environ["TZ"] = "UTC"
    time.tzset()
    session = start_session("test", "local[2]")
    yield session
    session.stop()
