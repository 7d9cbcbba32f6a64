"""The replica set of the demo in containers: what the engine and the command in a container say."""

import json
from typing import Any, cast

from kafka2011.services.containers.engine import ComposeProject, ContainerState, EngineError
from kafka2011.services.containers.replicas import LOOK_INTERVAL_S, ContainerSet
from kafka2011.services.embedded.lost_leader import SetNow

ROLES = {"a": "away", "b": "leader", "c": "in sync"}
SERVICES = ("broker-1", "broker-1-b", "broker-1-c")


class Project:
    """Records what is done; `answer` is what the command in the container prints."""

    name = "demo"

    def __init__(self) -> None:
        self.answer = ""
        self.done: list[tuple[str, ...]] = []

    def say(self, leader: str | None, **roles: str) -> None:
        members = [{"name": name, "role": role} for name, role in roles.items()]
        self.answer = json.dumps([{"broker": 1, "leader": leader, "members": members}])

    def execute(self, service: str, *words: str, **_: Any) -> str:
        if not self.answer:
            raise EngineError(f"no container of {service}")
        return self.answer

    def states(self) -> dict[str, ContainerState]:
        return {"broker-1": ContainerState("broker-1", "id-1", "running", 0, "healthy", "1")}

    def docker(self, *words: str, **_: Any) -> str:
        self.done.append(words)
        return ""

    def compose(self, *words: str, **_: Any) -> str:
        self.done.append(words)
        return ""


class Bench:
    def __init__(self) -> None:
        self.project, self.now_s = Project(), 0.0
        self.set = ContainerSet(cast(ComposeProject, self.project), clock=lambda: self.now_s)

    def look(self) -> SetNow | None:
        self.now_s += LOOK_INTERVAL_S
        return self.set.look()


def test_members_are_named_as_their_services() -> None:
    bench = Bench()
    assert bench.look() is None, "nothing answers"
    bench.project.answer = "Traceback"
    assert bench.look() is None
    bench.project.say("b", **ROLES)
    assert bench.look() == SetNow(SERVICES, frozenset(SERVICES[1:]), "broker-1-b")
    assert bench.set.look() is None, "each look starts a program"
    for leader in (None, "5f3a"):  # a directory that is gone has no name
        bench.project.say(leader, **ROLES)
        found = bench.look()
        assert found is not None
        assert (found.leader, found.is_whole) == ("", False)


def test_a_member_loses_its_container_and_its_volume_and_comes_back_alone() -> None:
    bench = Bench()
    bench.set.kill("broker-1")
    assert bench.set.wipe("broker-1") == "volume demo_broker-1"
    bench.set.start("broker-1")
    assert bench.project.done == [
        ("rm", "--force", "--volumes", "id-1"),
        ("volume", "rm", "demo_broker-1"),
        ("up", "--detach", "--no-recreate", "--no-deps", "broker-1"),
    ]
