"""Consumer groups of real processes over a real ZooKeeper and real brokers, killed and frozen.

What must hold: every message is printed (G4), one member per partition at a time (G5),
and what is printed twice lies between the last commit and the death of its first reader.
"""

import contextlib
import itertools
import os
import random
import signal
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import ConsumerTimeout
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.clusters import Cluster
from tests.support.commands import hold
from tests.support.members import MemberProcess
from tests.support.original_member import OriginalMember
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.zookeeper import end_session, expire_in_client, expire_on_server, start_zookeeper

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS = [BrokerPartition(broker, number) for broker in (1, 2) for number in (0, 1)]
SHARED = {"a": 2, "b": 2}  # partitions of each member
Key = tuple[str, int]  # partition, number


class Group:
    """A consumer group and the topic that it reads, both of one test; ten messages are there."""

    def __init__(
        self, cluster: Cluster, prefix: str = "clicks", session_timeout_ms: int = 20_000
    ) -> None:
        self.cluster = cluster
        self.session_timeout_ms = session_timeout_ms
        self.name = self.topic = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.write(10)
        wait_until(lambda: cluster.partitions(self.topic) == PARTITIONS, "the topic's registration")
        for partition in PARTITIONS:  # the console consumer starts at the newest without an offset
            cluster.registry.put(paths.offset_path(self.name, self.topic, partition), b"0")

    def write(self, count: int, partitions: list[BrokerPartition] | None = None) -> None:
        """`count` more messages in each partition."""
        self.cluster.write(self.topic, count, partitions=partitions)

    def everything(self) -> set[Key]:
        written = self.cluster.written(self.topic).items()
        return {(name, number) for name, count in written for number in range(count)}

    def ends(self) -> dict[str, int]:
        return {partition.text: end for partition, end in self.cluster.ends(self.topic).items()}

    def owner_values(self) -> dict[str, str]:
        """Partition -> what its owner's node says."""
        return self._values(paths.owner_path)

    def owners(self) -> dict[str, str]:
        """Partition -> name of the member that owns it."""
        return {
            name: value.removeprefix(f"{self.name}_").rpartition("-")[0]
            for name, value in self.owner_values().items()
        }

    def offsets(self) -> dict[str, int]:
        return {name: int(value) for name, value in self._values(paths.offset_path).items()}

    def _values(self, path_of: Callable[[str, str, BrokerPartition], str]) -> dict[str, str]:
        nodes = {
            partition.text: self.cluster.registry.get(path_of(self.name, self.topic, partition))
            for partition in PARTITIONS
        }
        return {name: node.value.decode() for name, node in nodes.items() if node and node.value}

    def end_session(self, name: str) -> None:
        """Of a member that was killed."""
        member = paths.consumer_id_path(self.name, f"{self.name}_{name}")
        end_session(self.cluster.registry, member)

    def member(self, directory: Path, name: str) -> MemberProcess:
        options = ("--topic", self.topic, "--group", self.name, "--autocommit-interval-ms", "200")
        settings = {
            "autooffset.reset": "smallest",
            "zk.sessiontimeout.ms": self.session_timeout_ms,
        }
        return MemberProcess(directory, name, self.cluster.zk_connect, *options, **settings)

    @contextlib.contextmanager
    def two_members(self, directory: Path) -> Iterator[tuple[MemberProcess, MemberProcess]]:
        """Members a and b, once they share the partitions."""
        with self.member(directory, "a") as a, self.member(directory, "b") as b:
            self.wait_until_shared(a)
            yield a, b

    def wait_until_shared(self, a: MemberProcess) -> None:
        wait_until(
            lambda: Counter(self.owners().values()) == SHARED,
            lambda: f"two partitions each: {self.owners()}\n{a.log()}",
        )

    def wait_until_owned_by(self, name: str) -> None:
        wait_until(lambda: set(self.owners().values()) == {name}, f"{name} owns all")

    def wait_until_printed(self, *members: MemberProcess) -> None:
        def missing() -> list[Key]:
            return sorted(self.everything() - {key for one in members for key in keys(one)})

        wait_until(lambda: not missing(), lambda: f"not printed: {missing()[:5]}")

    def connector(self, name: str) -> ConsumerConnector:
        """A member in this process, to lay hands on its session."""
        return ConsumerConnector(
            ConsumerConfig(
                group_id=self.name,
                consumer_id=name,
                zk_connect=self.cluster.zk_connect,
                zk_session_timeout_ms=20_000,
                zk_connection_timeout_ms=120_000,
                consumer_timeout_ms=500,
                zk_sync_time_ms=500,
            )
        )


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    connect = f"{zookeeper.host}:{zookeeper.port}/groups"
    with Cluster(connect, tmp_path_factory.mktemp("brokers"), [1, 2]) as made:
        yield made


@pytest.fixture
def group(cluster: Cluster) -> Group:
    return Group(cluster)


def keys(member: MemberProcess) -> list[Key]:
    """(partition, number) of each message that it printed."""
    found = []
    for message in member.messages():
        _, source, number, _ = str(message["payload"]).split("|", 3)
        assert source == f"{message['broker']}-{message['partition']}"
        found.append((source, int(number)))
    return found


def assert_in_order(printed: Sequence[Key]) -> None:
    """Within one member and one ownership numbers follow each other; a new ownership may go back
    or, after another member's, forward."""
    last: dict[str, int] = {}
    jumps: Counter[str] = Counter()
    for partition, number in printed:
        if partition in last and number != last[partition] + 1:
            jumps[partition] += 1
        last[partition] = number
    assert all(count <= 3 for count in jumps.values()), jumps


def test_two_members_share_and_the_killed_ones_partitions_move(
    group: Group, tmp_path: Path
) -> None:
    with group.two_members(tmp_path) as (a, b):
        group.write(500)
        wait_until(lambda: len(b.messages()) > 20, "b at work")
        b.kill()
        group.end_session("b")
        committed_by_b = group.offsets()
        group.write(100)
        group.wait_until_owned_by("a")
        group.wait_until_printed(a, b)
        assert a.stop() == 0
    assert_in_order(keys(a))
    assert_in_order(keys(b))
    # What both printed is what b had printed since its last commit, or had been handed then.
    repeated = set(keys(a)) & set(keys(b))
    for message, key in zip(b.messages(), keys(b), strict=True):
        assert set(message) == {"topic", "broker", "partition", "next_offset", "payload"}
        if key in repeated:
            assert message["next_offset"] > committed_by_b.get(key[0], 0)
    assert group.offsets() == group.ends()  # a's clean stop committed everything


def test_a_frozen_member_loses_its_partitions_and_its_commits(group: Group, tmp_path: Path) -> None:
    """Z3: SIGSTOP beyond the session, SIGCONT, again and again."""
    group.session_timeout_ms = 4000
    seen: dict[str, list[int]] = defaultdict(list)
    stop = threading.Event()

    def watch_offsets() -> None:
        while not stop.wait(0.02):
            for name, offset in group.offsets().items():
                if not seen[name] or seen[name][-1] != offset:
                    seen[name].append(offset)

    watcher = threading.Thread(target=watch_offsets)
    watcher.start()
    try:
        with group.two_members(tmp_path) as (a, b):
            for _ in range(2):
                group.write(200)
                b.pause()
                group.wait_until_owned_by("a")
                group.write(200)
                group.wait_until_printed(a, b)  # while b is frozen
                b.resume()
                group.wait_until_shared(a)
            group.write(50)
            group.wait_until_printed(a, b)
            assert (a.stop(), b.stop()) == (0, 0)
    finally:
        stop.set()
        watcher.join()
    for name, history in seen.items():
        assert history == sorted(history), f"the offset of {name} went back: {history}"
    assert group.offsets() == group.ends()


def test_zookeeper_away_for_longer_than_the_session(tmp_path: Path) -> None:
    """Z2: delivery pauses while the session may be gone, and goes on by itself."""
    with (
        start_zookeeper(tmp_path / "zk") as server,
        Cluster(f"{server.host}:{server.port}", tmp_path / "brokers", [1, 2]) as cluster,
    ):
        group = Group(cluster, session_timeout_ms=2000)
        with group.two_members(tmp_path) as (a, b):
            group.wait_until_printed(a, b)
            hold(server.pid)
            try:
                threading.Event().wait(4)  # the fault's duration: twice the session timeout
                printed = len(a.messages()) + len(b.messages())
                group.write(100)
                threading.Event().wait(1)
                assert len(a.messages()) + len(b.messages()) == printed, "no session, no word"
            finally:
                os.kill(server.pid, signal.SIGCONT)
            group.wait_until_shared(a)
            group.wait_until_printed(a, b)


def test_a_killed_broker_comes_back_and_nothing_is_missing(group: Group, tmp_path: Path) -> None:
    with group.member(tmp_path, "a") as a:
        wait_until(lambda: len(group.owners()) == 4, "all owned")
        group.write(100)
        group.cluster.brokers[1].kill()
        group.write(50, PARTITIONS[2:])
        living = {key for key in group.everything() if key[0].startswith("2-")}
        wait_until(lambda: living <= set(keys(a)), "the living broker's messages")
        group.cluster.start(1)
        group.write(50)
        group.wait_until_printed(a)
        assert a.stop() == 0
    assert len(keys(a)) == len(set(keys(a))), "nothing twice: no other member took part"


# --- connectors in this process, to lay hands on their sessions -----------------------------------


def registry_of(made: ConsumerConnector) -> ZooKeeperRegistry:
    found = made._registry
    assert isinstance(found, ZooKeeperRegistry)
    return found


@pytest.mark.parametrize("expire", [expire_on_server, expire_in_client])
def test_an_expired_session_is_joined_again_without_a_gap(
    group: Group, expire: Callable[[ZooKeeperRegistry], None]
) -> None:
    numbers: dict[tuple[int, int], list[int]] = defaultdict(list)
    with group.connector("a") as made:
        [stream] = made.create_message_streams({group.topic: 1})[group.topic]

        def read() -> None:
            with contextlib.suppress(ConsumerTimeout):
                for message in stream:
                    number = int(message.payload.split(b"|", 3)[2])
                    numbers[message.broker_id, message.partition].append(number)

        read()
        old = registry_of(made).session_id()
        expire(registry_of(made))
        wait_until(
            lambda: (
                registry_of(made).session_id() not in (None, old)
                and made.is_settled
                and len(made.owned()) == 4
            ),
            lambda: (
                f"all owned in the new session: session {registry_of(made).session_id()} after "
                f"{old}, settled: {made.is_settled}, owned: {made.owned()}"
            ),
        )
        group.write(20)
        wait_until(
            lambda: read() or all(found[-1] == 29 for found in numbers.values()),
            "the new messages",
        )
    for found in numbers.values():
        # One repetition at most, from the last commit on; never a gap.
        assert sorted(set(found)) == list(range(30))
        assert sum(b != a + 1 for a, b in itertools.pairwise(found)) <= 1


def test_twenty_members_joining_and_leaving_converge(group: Group) -> None:
    """Z5, with a bound on what it costs ZooKeeper."""
    rng = random.Random(5)
    made: dict[str, ConsumerConnector] = {}
    lock = threading.Lock()

    def join(name: str) -> None:
        member = group.connector(name)
        member.create_message_streams({group.topic: 1})
        with lock:
            made[name] = member

    threads = []
    for number in range(20):
        thread = threading.Thread(target=join, args=(f"m{number:02}",))
        thread.start()
        threads.append(thread)
        if number % 4 == 3:
            with lock:
                leaver = made.pop(rng.choice(sorted(made)), None) if made else None
            if leaver is not None:
                leaver.shutdown()
    for thread in threads:
        thread.join(DEADLINE_S)
    try:
        for name in sorted(made)[:-6]:
            made.pop(name).shutdown()
        wait_until(
            lambda: (
                all(member.is_settled for member in made.values())
                and sorted(group.owners().values()) == sorted(made)[:4]
            ),
            lambda: f"one owner each: {group.owners()} of {sorted(made)}",
        )
        attempts = [member.stats.rebalances for member in made.values()]
        assert max(attempts) < 400, attempts
    finally:
        for member in made.values():
            member.shutdown()
    assert group.cluster.registry.children(paths.consumer_ids_path(group.name)) == []
    assert group.owners() == {}


@pytest.mark.parametrize(
    ("prefix", "subscription"),
    [("clicks", '{ "TOPIC": 1 }'), ("clicks", "*1*cl.*TOPIC"), ("kept", "!1!clicks.*")],
)
def test_a_member_of_the_originals_making_shares_the_group(
    cluster: Cluster, prefix: str, subscription: str
) -> None:
    """It joins, takes its range of ours, commits its way, leaves, and ours goes on where it was;
    our nodes are as the original writes them."""
    group = Group(cluster, prefix)
    text = subscription.replace("cl.*TOPIC", f"cl.*{group.topic[-8:]}")
    text = text.replace("TOPIC", group.topic)
    with group.connector("ours") as made:
        stream, _ = made.create_message_streams({group.topic: 2})[group.topic]
        node = cluster.registry.get(paths.consumer_id_path(group.name, f"{group.name}_ours"))
        assert node is not None
        assert node.value == f'{{ "{group.topic}": 2 }}'.encode()
        first, second = (f"{group.name}_ours-{number}" for number in (0, 1))
        assert [*group.owner_values().values()] == [first, first, second, second]
        name = f"{group.name}_host-1315436360737-1a2b3c4d"  # sorts before GROUP_ours
        with OriginalMember(cluster.zk_connect, group.name, name, text) as original:
            original.rebalance()
            assert original.owned[group.topic] == ["1-0", "1-1"]
            wait_until(
                lambda: (
                    {(one.broker_id, one.partition) for one in made.owned()} == {(2, 0), (2, 1)}
                ),
                lambda: f"ours keeps the other half: {made.owned()}",
            )
            assert [*group.owner_values().values()] == [f"{name}-0", f"{name}-0", first, second]
            original.commit(group.topic, "1-0", 7 * 210)
        wait_until(lambda: len(made.owned()) == 4, "ours takes over")
        positions = {
            found.partition: at for found, at in made.positions().items() if found.broker_id == 1
        }
        assert positions[0] in (7 * 210, 10 * 210)  # from its commit on, read or not
        numbers = []
        with pytest.raises(ConsumerTimeout):
            for message in stream:
                if (message.broker_id, message.partition) == (1, 0):
                    numbers.append(int(message.payload.split(b"|", 3)[2]))
        assert numbers[-3:] == [7, 8, 9]
