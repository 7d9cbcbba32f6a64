"""What the consumer's tests share."""

from collections.abc import Iterator

import pytest

from tests.support.memory_deployment import Deployment
from tests.support.scripted_server import ScriptedBroker


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    made = Deployment()
    yield made
    made.close()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker that is registered nowhere."""
    with ScriptedBroker() as made:
        yield made
