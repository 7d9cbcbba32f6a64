"""The in-memory registry keeps the contract, and its faults do what they say."""

from collections.abc import Iterator

import pytest

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.registry import Registry, SessionEvent
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.registry_contract import RegistryContract


class InMemoryWorld:
    def __init__(self) -> None:
        self.zookeeper = InMemoryZooKeeper()
        self.made: list[InMemoryRegistry] = []

    def registry(self) -> InMemoryRegistry:
        made = self.zookeeper.client()
        made.start()
        self.made.append(made)
        return made

    def expire(self, registry: Registry) -> None:
        assert isinstance(registry, InMemoryRegistry)
        registry.expire()

    def expire_only_in_client(self, registry: Registry) -> None:
        assert isinstance(registry, InMemoryRegistry)
        registry.expire(server_keeps_nodes=True)


@pytest.fixture
def world() -> Iterator[InMemoryWorld]:
    made = InMemoryWorld()
    yield made
    for registry in made.made:
        registry.close()


class TestInMemoryRegistry(RegistryContract):
    pass


def test_lost_reply_has_its_effect_and_a_failed_request_has_none(world: InMemoryWorld) -> None:
    one = world.registry()
    one.lose_next_reply()
    with pytest.raises(CoordinationUnavailable):
        one.create_ephemeral("/x", b"1")
    assert one.get("/x") == (b"1", 0, True)
    one.create_ephemeral("/x", b"1")
    one.fail_next()
    with pytest.raises(CoordinationUnavailable):
        one.create("/y")
    assert not one.exists("/y")
    assert world.zookeeper.operation_count == 5


def test_notifications_by_hand_wait_and_merge(world: InMemoryWorld) -> None:
    one = world.registry()
    late = world.zookeeper.client(deliver="by hand")
    late.start()
    seen: list[list[str]] = []
    late.watch_children("/w", seen.append)
    one.create("/w/a")
    one.create("/w/b")
    assert seen == []
    while late.deliver_next():
        pass
    assert seen == [["a", "b"]]


def test_suspended_registry_fails_and_comes_back_to_its_session(world: InMemoryWorld) -> None:
    one, two = world.registry(), world.registry()
    events: list[SessionEvent] = []
    one.add_session_listener(events.append)
    one.create_ephemeral("/x", b"1")
    one.suspend()
    assert one.lease_remaining_ms() == 0
    with pytest.raises(CoordinationUnavailable):
        one.get("/x")
    assert two.exists("/x")
    one.resume()
    assert one.get("/x") == (b"1", 0, True)
    one.suspend()
    one.end_session_on_server()
    assert not two.exists("/x")
    one.resume()
    suspended, connected = SessionEvent.SUSPENDED, SessionEvent.CONNECTED
    expired, recreated = SessionEvent.EXPIRED, SessionEvent.RECREATED
    assert events == [suspended, connected, suspended, expired, recreated]
