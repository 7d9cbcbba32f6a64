"""deploy/docker/replicated.yml: one broker of it, as three containers with a volume each."""

import json
from collections.abc import Iterator

import docker
import pytest

from kafka2011.services.containers.engine import EngineError
from tests.docker.stack import Stack, made_of, project_name, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]

FILES = {"COMPOSE_FILE": "docker-compose.yml:deploy/docker/replicated.yml"}
MEMBERS = {"a": "broker-1", "b": "broker-1-b", "c": "broker-1-c"}
ZOOKEEPER = ("--zookeeper", "zookeeper-live:2181")
COUNT = 200


class OneSet:
    """ZooKeeper and the three replicas of broker 1, in a Compose project of their own."""

    def __init__(self, client: docker.DockerClient) -> None:
        self.stack = Stack(client, project_name("replicated"), FILES)

    def up(self) -> None:
        """Starts what is missing."""
        self.stack.project.compose("up", "--detach", *MEMBERS.values())

    def down(self) -> None:
        self.stack.down()

    def run(self, member: str, *words: str, text: str | None = None) -> str:
        """`kafka2011 WORDS` in the container of a member. Raises EngineError."""
        command = ("kafka2011", *words, *ZOOKEEPER)
        return self.stack.project.execute(MEMBERS[member], *command, stdin=text, timeout_s=300)

    def leader(self, member: str) -> str:
        """The name of the one that leads, once all are in sync; "" before. `member` is asked."""
        try:
            (found,) = json.loads(self.run(member, "replicas", "show", "--json"))
        except (EngineError, ValueError):
            return ""
        return str(found["leader"] or "") if found["whole"] else ""

    def wait_for_leader(self, member: str) -> str:
        found = wait_until(lambda: self.leader(member), self.stack.diagnosis)
        return str(found)

    def answers(self, member: str) -> bool:
        """Whether the set is registered as a broker that answers, which is some seconds after one
        leads; the topic is there then. `member` is asked."""
        try:
            return "orders" in self.run(member, "topics", "create", "orders")
        except EngineError:
            return False

    def lose(self, member: str) -> None:
        """The container and its disk."""
        self.stack.project.docker("rm", "-f", "-v", self.stack.container(MEMBERS[member]).id)
        self.stack.project.docker("volume", "rm", f"{self.stack.name}_{MEMBERS[member]}")

    def sums(self, member: str) -> str:
        """Of every segment."""
        script = "cd /data/logs && find . -name '*.kafka' | sort | xargs sha256sum"
        return self.stack.project.execute(MEMBERS[member], "sh", "-c", script)


@pytest.fixture
def replicas(engine: docker.DockerClient, images: None) -> Iterator[OneSet]:
    made = OneSet(engine)
    try:
        made.up()
        yield made
    finally:
        made.down()
        left = [thing.name for thing in made_of(engine, made.stack.name)]
        assert not left, f"left behind: {left}"


def test_a_leader_is_removed_with_its_disk_and_nothing_is_lost(replicas: OneSet) -> None:
    """S24, in containers."""
    leader = replicas.wait_for_leader("a")
    other = next(name for name in MEMBERS if name != leader)

    def produce(first: int) -> list[str]:
        lines = [f"order {number}" for number in range(first, first + COUNT)]
        text = "".join(f"{line}\n" for line in lines)
        replicas.run(other, "console-producer", "--topic", "orders", text=text)
        return lines

    wait_until(lambda: replicas.answers(other), replicas.stack.diagnosis)
    sent = produce(0)
    replicas.lose(leader)
    wait_until(lambda: replicas.answers(other), replicas.stack.diagnosis)
    sent += produce(COUNT)
    replicas.up()
    replicas.wait_for_leader(other)
    words = ("--topic", "orders", "--from-beginning", "--max-messages", str(len(sent)))
    wait = ("--consumer-timeout-ms", "120000")
    found = replicas.run(leader, "console-consumer", *words, *wait).splitlines()
    assert sorted(found) == sorted(sent)
    assert len({replicas.sums(name) for name in MEMBERS}) == 1
