"""A replica's requests to ZooKeeper, in order, and what waits until there is none."""

import threading
from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from kafka2011.broker.replica.requests import RegistryRequests
from kafka2011.broker.replication.effects import WriteState
from kafka2011.broker.replication.events import LookAgain, Written
from kafka2011.broker.replication.set_state import SetState
from kafka2011.coordination.errors import VersionConflict
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.waiting import DEADLINE_S, wait_until

STATE = SetState(0, None, frozenset(), frozenset(), 1, ())


class Node:
    """The set's node: topics are refused `refusals` times, the first time after `may_go_on`."""

    path = "/set"
    broker_id = 1

    def __init__(self) -> None:
        self.did: list[str] = []
        self.refusals = 2
        self.may_go_on = threading.Event()

    def show_topics(self, version: int, topics: Mapping[str, int]) -> None:
        del version
        (topic,) = topics
        self.did.append(topic)
        assert self.may_go_on.wait(DEADLINE_S)
        if self.refusals:
            self.refusals -= 1
            raise VersionConflict("the state has changed")

    def write(self, version: int, state: SetState) -> int:
        del state
        self.did.append("the state")
        return version + 1


class Work:
    def __init__(self) -> None:
        self.node = Node()
        self.answers: SimpleQueue[Any] = SimpleQueue()
        registry = InMemoryZooKeeper().client()
        registry.start()
        self.requests = RegistryRequests(
            registry,
            self.node,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            "A",
            address=lambda: (b"", {}),
            seen=lambda _: None,
            answer=self._answered,
        )
        self.requests.start()

    def _answered(self, answer: Any) -> None:
        if not isinstance(answer, LookAgain):
            self.answers.put(answer)


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.node.may_go_on.set()
    made.requests.close()


def test_a_state_is_written_before_topics_that_wait_or_are_tried_again(work: Work) -> None:
    """A replica that must leave the in-sync set is in the way of every confirmation."""
    node = work.node
    for topic in ("a", "b", "c"):
        work.requests.show_topics(lambda: 7, {topic: 1})
    wait_until(lambda: node.did == ["a"], "the first topic")
    work.requests.put(WriteState(5, 7, STATE))
    node.may_go_on.set()
    assert work.answers.get(timeout=DEADLINE_S) == Written(5, 8)
    assert node.did[:2] == ["a", "the state"]
    wait_until(lambda: sorted(node.did[2:]) in (["a", "b", "b", "c"], ["a", "a", "b", "c"]), "all")


def test_topics_are_not_tried_any_more_when_nothing_is_shown(work: Work) -> None:
    versions: list[int | None] = [7, None]
    work.node.may_go_on.set()
    work.requests.show_topics(lambda: versions.pop(0), {"a": 1})
    wait_until(lambda: not versions, "asked again")
    work.requests.put(WriteState(5, 7, STATE))
    assert work.answers.get(timeout=DEADLINE_S) == Written(5, 8)
    assert work.node.did == ["a", "the state"]
