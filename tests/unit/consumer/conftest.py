"""What the consumer's tests share."""

from collections.abc import Iterator

import pytest

from tests.support.memory_deployment import Deployment


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    made = Deployment()
    yield made
    made.close()
