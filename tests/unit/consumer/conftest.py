"""What the consumer's tests share."""

import threading
from collections.abc import Callable, Iterator

import pytest

from kafka2011.consumer.simple import SimpleConsumer
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


@pytest.fixture
def client(broker: ScriptedBroker) -> Iterator[SimpleConsumer]:
    with SimpleConsumer(*broker.address, socket_timeout_ms=58_000) as made:
        yield made


class Pauses(threading.Event):
    """What a loop waits on. Waits are noted instead of slept, and the last one calls `stop`."""

    def __init__(self, count: int, stop: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.waited_s: list[float | None] = []
        self.were_set: list[bool] = []
        self.counts: list[int] = []  # what `count_now` was at each wait
        self.count_now: Callable[[], int] = lambda: 0
        self.stop = stop
        self._count = count

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_s.append(timeout)
        self.were_set.append(self.is_set())
        self.counts.append(self.count_now())
        if len(self.waited_s) == self._count:
            self.stop()
        return self.were_set[-1]
