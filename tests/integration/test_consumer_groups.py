"""Consumer groups of real processes over a real ZooKeeper and real brokers, killed and frozen.

What must hold: every message is printed (G4), one member per partition at a time (G5),
and what is printed twice lies between the last commit and the death of its first reader.
"""

import itertools
import json
import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import ConsumerTimeout
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from tests.support.clusters import Cluster
from tests.support.members import MemberProcess
from tests.support.original_member import OriginalMember
from tests.support.waiting import wait_until
from tests.support.zookeeper import expire_in_client, expire_on_server, start_zookeeper

pytestmark = pytest.mark.integration

TOPIC = "clicks"
PARTITIONS = [BrokerPartition(broker, number) for broker in (1, 2) for number in (0, 1)]


@pytest.fixture
def brokers(zk_connect: str, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(zk_connect, tmp_path / "brokers", [1, 2]) as made:
        made.write(TOPIC, 10)
        wait_until(lambda: made.partitions(TOPIC) == PARTITIONS, "the topic's registration")
        start_at_the_smallest(made)
        yield made


def start_at_the_smallest(cluster: Cluster) -> None:
    """The console consumer starts at the newest where no offset is stored."""
    for partition in PARTITIONS:
        cluster.registry.put(paths.offset_path("g", TOPIC, partition), b"0")


def owners(cluster: Cluster, group: str = "g") -> dict[str, str]:
    """Partition -> name of the member that owns it."""
    found = {}
    for partition in PARTITIONS:
        stored = cluster.registry.get(paths.owner_path(group, TOPIC, partition))
        if stored is not None and stored.value is not None:
            found[partition.text] = (
                stored.value.decode().removeprefix(f"{group}_").rpartition("-")[0]
            )
    return found


def offsets(cluster: Cluster, group: str = "g") -> dict[str, int]:
    found = {}
    for partition in PARTITIONS:
        stored = cluster.registry.get(paths.offset_path(group, TOPIC, partition))
        if stored is not None and stored.value is not None:
            found[partition.text] = int(stored.value)
    return found


def keys(messages: list[dict[str, object]]) -> list[tuple[str, int]]:
    """(partition, number) of each printed message."""
    found = []
    for message in messages:
        _, source, number, _ = str(message["payload"]).split("|", 3)
        assert source == f"{message['broker']}-{message['partition']}"
        found.append((source, int(number)))
    return found


def assert_in_order(printed: list[tuple[str, int]]) -> None:
    """Within one member and one ownership numbers follow each other; a new ownership may go back
    or, after another member's, forward."""
    last: dict[str, int] = {}
    jumps: Counter[str] = Counter()
    for partition, number in printed:
        if partition in last and number != last[partition] + 1:
            jumps[partition] += 1
        last[partition] = number
    assert all(count <= 3 for count in jumps.values()), jumps


def everything(cluster: Cluster) -> set[tuple[str, int]]:
    return {(name, n) for name, count in cluster.written(TOPIC).items() for n in range(count)}


def member(directory: Path, name: str, cluster: Cluster, **settings: object) -> MemberProcess:
    options = ("--topic", TOPIC, "--group", "g", "--autocommit-interval-ms", "200")
    settings = {"autooffset.reset": "smallest", **settings}
    return MemberProcess(directory, name, cluster.zk_connect, *options, **settings)


def test_two_members_share_and_the_killed_ones_partitions_move(
    brokers: Cluster, tmp_path: Path
) -> None:
    with member(tmp_path, "a", brokers) as a, member(tmp_path, "b", brokers) as b:
        wait_until(
            lambda: sorted(Counter(owners(brokers).values()).items()) == [("a", 2), ("b", 2)],
            lambda: f"two partitions each: {owners(brokers)}\n{a.log()}",
            60,
        )
        brokers.write(TOPIC, 500)
        wait_until(lambda: len(b.messages()) > 20, "b at work")
        b.kill()
        committed_by_b = offsets(brokers)
        brokers.write(TOPIC, 100)
        wait_until(lambda: set(owners(brokers).values()) == {"a"}, "a owns all", 30)
        wait_until(
            lambda: set(keys(a.messages()) + keys(b.messages())) == everything(brokers),
            lambda: f"missing {sorted(everything(brokers) - set(keys(a.messages())))[:5]}",
            60,
        )
        assert a.stop() == 0
    assert_in_order(keys(a.messages()))
    assert_in_order(keys(b.messages()))
    # What both printed is what b had printed since its last commit, or had been handed then.
    repeated = set(keys(a.messages())) & set(keys(b.messages()))
    for message in b.messages():
        [key] = keys([message])
        if key in repeated:
            assert message["next_offset"] > committed_by_b.get(key[0], 0)
    ends = {partition.text: end for partition, end in brokers.ends(TOPIC).items()}
    assert offsets(brokers) == ends  # a's clean stop committed everything


def test_a_frozen_member_loses_its_partitions_and_its_commits(
    brokers: Cluster, tmp_path: Path
) -> None:
    """Z3: SIGSTOP beyond the session, SIGCONT, again and again."""
    seen: dict[str, list[int]] = defaultdict(list)
    stop = threading.Event()

    def watch_offsets() -> None:
        while not stop.wait(0.02):
            for name, offset in offsets(brokers).items():
                if not seen[name] or seen[name][-1] != offset:
                    seen[name].append(offset)

    watcher = threading.Thread(target=watch_offsets)
    watcher.start()
    try:
        with member(tmp_path, "a", brokers) as a, member(tmp_path, "b", brokers) as b:
            wait_until(lambda: Counter(owners(brokers).values()) == {"a": 2, "b": 2}, "sharing", 60)
            for _ in range(2):
                brokers.write(TOPIC, 200)
                b.pause()
                wait_until(lambda: set(owners(brokers).values()) == {"a"}, "a owns all", 30)
                brokers.write(TOPIC, 200)
                wait_until(
                    lambda: set(keys(a.messages()) + keys(b.messages())) == everything(brokers),
                    "everything printed while b is frozen",
                    60,
                )
                b.resume()
                wait_until(
                    lambda: Counter(owners(brokers).values()) == {"a": 2, "b": 2},
                    "b is back",
                    60,
                )
            brokers.write(TOPIC, 50)
            wait_until(
                lambda: set(keys(a.messages()) + keys(b.messages())) == everything(brokers),
                "everything printed",
                60,
            )
            assert a.stop() == 0
            assert b.stop() == 0
    finally:
        stop.set()
        watcher.join()
    for name, history in seen.items():
        assert history == sorted(history), f"the offset of {name} went back: {history}"
    ends = {partition.text: end for partition, end in brokers.ends(TOPIC).items()}
    assert offsets(brokers) == ends


def test_zookeeper_away_for_longer_than_the_session(tmp_path: Path) -> None:
    """Z2: delivery pauses while the session may be gone, and goes on by itself."""
    with start_zookeeper(tmp_path / "zk") as server:
        connect = f"{server.host}:{server.port}"
        with Cluster(connect, tmp_path / "brokers", [1, 2]) as brokers:
            brokers.write(TOPIC, 10)
            wait_until(lambda: brokers.partitions(TOPIC) == PARTITIONS, "registration")
            start_at_the_smallest(brokers)
            with member(tmp_path, "a", brokers) as a, member(tmp_path, "b", brokers) as b:
                wait_until(
                    lambda: Counter(owners(brokers).values()) == {"a": 2, "b": 2}, "sharing", 60
                )
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    threading.Event().wait(4)  # the fault's duration: twice the session timeout
                    printed = len(a.messages()) + len(b.messages())
                    brokers.write(TOPIC, 100)
                    threading.Event().wait(1)
                    assert len(a.messages()) + len(b.messages()) == printed, "no session, no word"
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                wait_until(
                    lambda: Counter(owners(brokers).values()) == {"a": 2, "b": 2}, "both back", 60
                )
                wait_until(
                    lambda: set(keys(a.messages()) + keys(b.messages())) == everything(brokers),
                    "everything printed",
                    60,
                )


def test_a_killed_broker_comes_back_and_nothing_is_missing(
    brokers: Cluster, tmp_path: Path
) -> None:
    with member(tmp_path, "a", brokers) as a:
        wait_until(lambda: len(owners(brokers)) == 4, "all owned", 60)
        brokers.write(TOPIC, 100)
        brokers.brokers[1].kill()
        brokers.write(TOPIC, 50, partitions=PARTITIONS[2:])
        wait_until(
            lambda: (
                {key for key in everything(brokers) if key[0].startswith("2-")}
                <= set(keys(a.messages()))
            ),
            "the living broker's messages",
            30,
        )
        brokers.start(1)
        brokers.write(TOPIC, 50)
        wait_until(lambda: set(keys(a.messages())) == everything(brokers), "everything printed", 60)
        assert a.stop() == 0
    assert len(a.messages()) == len(set(keys(a.messages()))), (
        "nothing twice: no other member took part"
    )


# --- connectors in this process, to lay hands on their sessions -----------------------------------


def connector(zk_connect: str, name: str, **settings: object) -> ConsumerConnector:
    settings = {
        "group_id": "g",
        "consumer_id": name,
        "zk_connect": zk_connect,
        "zk_session_timeout_ms": 4000,
        "zk_connection_timeout_ms": 20_000,
        "consumer_timeout_ms": 500,
        "zk_sync_time_ms": 500,
        **settings,
    }
    return ConsumerConnector(ConsumerConfig(**settings))


def registry_of(made: ConsumerConnector) -> ZooKeeperRegistry:
    found = made._registry
    assert isinstance(found, ZooKeeperRegistry)
    return found


@pytest.mark.parametrize("expire", [expire_on_server, expire_in_client])
def test_an_expired_session_is_joined_again_without_a_gap(
    brokers: Cluster, zk_connect: str, expire: object
) -> None:
    assert callable(expire)
    with connector(zk_connect, "a") as made:
        [stream] = made.create_message_streams({TOPIC: 1})[TOPIC]
        numbers: dict[TopicPartition, list[int]] = defaultdict(list)

        def read() -> None:
            try:
                for message in stream:
                    name = TopicPartition(message.topic, message.broker_id, message.partition)
                    numbers[name].append(int(message.payload.split(b"|", 3)[2]))
            except ConsumerTimeout:
                pass

        read()
        old = registry_of(made).session_id()
        expire(registry_of(made))
        wait_until(
            lambda: (
                registry_of(made).session_id() not in (None, old)
                and made.is_settled
                and len(made.owned()) == 4
            ),
            "all owned in the new session",
        )
        brokers.write(TOPIC, 20)
        wait_until(
            lambda: read() or all(found[-1] == 29 for found in numbers.values()),
            "the new messages",
            40,
        )
    for found in numbers.values():
        # One repetition at most, from the last commit on; never a gap.
        assert sorted(set(found)) == list(range(30))
        assert sum(b != a + 1 for a, b in itertools.pairwise(found)) <= 1


def test_twenty_members_joining_and_leaving_converge(brokers: Cluster, zk_connect: str) -> None:
    """Z5, with a bound on what it costs ZooKeeper."""
    rng = random.Random(5)
    made: dict[str, ConsumerConnector] = {}
    lock = threading.Lock()

    def join(name: str) -> None:
        member = connector(zk_connect, name)
        member.create_message_streams({TOPIC: 1})
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
        thread.join(60)
    try:
        for name in sorted(made)[:-6]:
            made.pop(name).shutdown()
        wait_until(
            lambda: (
                all(member.is_settled for member in made.values())
                and set(owners(brokers)) == {partition.text for partition in PARTITIONS}
                and set(owners(brokers).values()) == set(sorted(made)[:4])
            ),
            lambda: f"one owner each: {owners(brokers)} of {sorted(made)}",
            60,
        )
        attempts = [member.stats.rebalances for member in made.values()]
        assert max(attempts) < 400, attempts
    finally:
        for member in made.values():
            member.shutdown()
    assert brokers.registry.children(paths.consumer_ids_path("g")) == []
    assert owners(brokers) == {}


def test_the_znodes_of_a_member_are_the_originals(brokers: Cluster, zk_connect: str) -> None:
    with connector(zk_connect, "w") as made:
        made.create_message_streams({TOPIC: 2})
        stored = brokers.registry.get(paths.consumer_id_path("g", "g_w"))
        assert stored is not None
        assert stored.value == b'{ "clicks": 2 }'
        values = [
            found.value
            for partition in PARTITIONS
            if (found := brokers.registry.get(paths.owner_path("g", TOPIC, partition))) is not None
        ]
        assert values == [b"g_w-0", b"g_w-0", b"g_w-1", b"g_w-1"]


@pytest.mark.parametrize("subscription", ['{ "clicks": 1 }', "*1*cl.*s", "!1!views.*"])
def test_a_member_of_the_originals_making_shares_the_group(
    brokers: Cluster, zk_connect: str, subscription: str
) -> None:
    """It joins, takes its range of ours, commits its way, leaves, and ours goes on where it was."""
    with connector(zk_connect, "ours") as made:
        [stream] = made.create_message_streams({TOPIC: 1})[TOPIC]
        assert len(made.owned()) == 4
        name = "g_host-1315436360737-1a2b3c4d"  # sorts before g_ours
        with OriginalMember(zk_connect, "g", name, subscription) as original:
            original.rebalance()
            assert original.owned[TOPIC] == ["1-0", "1-1"]
            wait_until(
                lambda: (
                    {(found.broker_id, found.partition) for found in made.owned()}
                    == {(2, 0), (2, 1)}
                ),
                lambda: f"ours keeps the other half: {made.owned()}",
            )
            stored = {
                one: brokers.registry.get(paths.owner_path("g", TOPIC, one)) for one in PARTITIONS
            }
            assert [found and found.value for found in stored.values()] == [
                f"{name}-0".encode(),
                f"{name}-0".encode(),
                b"g_ours-0",
                b"g_ours-0",
            ]
            original.commit(TOPIC, "1-0", 7 * 210)
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


def test_json_lines_are_json(brokers: Cluster, tmp_path: Path) -> None:
    with member(tmp_path, "a", brokers) as a:
        wait_until(lambda: len(a.messages()) == 40, "all printed", 60)
    line = json.loads(a.output.read_text().splitlines()[0])
    assert set(line) == {"topic", "broker", "partition", "next_offset", "payload"}
