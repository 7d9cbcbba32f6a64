"""The middle of `make demo REPLICAS=3`: what is done when, and what is said."""

import json

import pytest

from kafka2011.coordination import paths
from kafka2011.services.embedded.lost_leader import (
    AFTER_S,
    PATIENCE_S,
    LostLeader,
    SetNow,
    set_now,
)
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper

MEMBERS = ("broker-1-a", "broker-1-b", "broker-1-c")
WHOLE = SetNow(MEMBERS, frozenset(MEMBERS), "broker-1-a")


class Stage:
    """A set that the test changes, and what was done to it."""

    def __init__(self) -> None:
        self.now: SetNow | None = WHOLE
        self.done: list[str] = []
        self.said: list[str] = []
        self.clock_s = 0.0
        self.story = LostLeader(self, self.said.append, clock=lambda: self.clock_s)

    def look(self) -> SetNow | None:
        return self.now

    def kill(self, member: str) -> None:
        self.done.append(f"kill {member}")

    def wipe(self, member: str) -> str:
        self.done.append(f"wipe {member}")
        return "machine-1/broker-1"

    def start(self, member: str) -> None:
        self.done.append(f"start {member}")

    def after(self, seconds: float, now: SetNow | None) -> None:
        self.clock_s += seconds
        self.now = now
        self.story.step()


def test_a_leader_is_killed_wiped_and_started_once_another_leads() -> None:
    stage = Stage()
    stage.after(AFTER_S - 1, WHOLE)
    assert stage.done == []
    stage.after(1, SetNow(MEMBERS, frozenset(MEMBERS[:2]), "broker-1-a"))
    assert stage.done == [], "not while a copy is behind: it would not be the last one's disk only"
    stage.after(1, None)
    stage.after(1, WHOLE)
    assert stage.done == ["kill broker-1-a", "wipe broker-1-a"]
    stage.after(1, WHOLE)
    stage.after(1, SetNow(MEMBERS, frozenset(MEMBERS[1:]), ""))
    assert len(stage.done) == 2
    led = SetNow(MEMBERS, frozenset(MEMBERS[1:]), "broker-1-b")
    stage.after(2.2, led)
    assert stage.done[2:] == ["start broker-1-a"]
    stage.after(1, led)
    assert not stage.story.is_over
    stage.after(1, SetNow(MEMBERS, frozenset(MEMBERS), "broker-1-b"))
    assert stage.story.is_over
    assert stage.said == [
        "broker 1 is 3 replicas: broker-1-a leads, broker-1-b and broker-1-c have all that it has "
        "confirmed",
        "broker-1-a is killed (SIGKILL) and its disk gone: machine-1/broker-1 is deleted",
        "broker-1-b leads, 4.2 s later; broker-1-a starts again, with an empty disk",
        "broker-1-a has copied everything and is in sync again, 2.0 s after its start",
    ]


def test_a_set_that_does_not_come_back_ends_the_story_and_says_so() -> None:
    stage = Stage()
    stage.after(AFTER_S, WHOLE)
    stage.after(PATIENCE_S + 1, SetNow(MEMBERS, frozenset(MEMBERS[1:]), ""))
    assert stage.story.is_over
    assert "not whole again after 60 s" in stage.said[-1]


@pytest.mark.parametrize("port", [9093, 0])
def test_the_set_is_read_from_zookeeper(port: int) -> None:
    registry = InMemoryRegistry(InMemoryZooKeeper())
    registry.start()
    ports = {9091: "broker-1-a", 9092: "broker-1-b", 9093: "broker-1-c"}
    assert set_now(registry, ports) is None
    state = {
        "members": [{"name": name, "directory": f"dir-{name}"} for name in "bca"],
        "isr": ["dir-a", "dir-c", "gone"],
    }
    registry.create(paths.replica_state_path(1), json.dumps(state).encode())
    if port:
        registry.create(paths.broker_id_path(1), paths.encode_broker("127.0.0.1", port, 0))
    found = set_now(registry, ports)
    assert found == SetNow(
        ("broker-1-b", "broker-1-c", "broker-1-a"),
        frozenset({"broker-1-a", "broker-1-c", "gone"}),
        "broker-1-c" if port else "",
    )
