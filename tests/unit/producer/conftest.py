from collections.abc import Iterator

import pytest

from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker


@pytest.fixture
def server() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as running:
        yield running


@pytest.fixture
def other() -> Iterator[ScriptedBroker]:
    """A second broker."""
    with ScriptedBroker() as running:
        yield running


@pytest.fixture
def gone() -> ScriptedBroker:
    """A broker that has ended: its address refuses connections."""
    with ScriptedBroker() as ended:
        return ended


@pytest.fixture
def registry() -> Iterator[InMemoryRegistry]:
    found = InMemoryRegistry(InMemoryZooKeeper())
    found.start()
    yield found
    found.close()
