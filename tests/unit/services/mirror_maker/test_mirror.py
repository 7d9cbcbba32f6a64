"""The whole mirror in one process, between brokers that break on wish and registries in memory."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol.message_set import encode
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.group_member import GroupMember
from kafka2011.services.mirror_maker.mirror import Mirror
from kafka2011.services.mirror_maker.mirror_registry import read_maps
from kafka2011.services.mirror_maker.placement import NotPlaced, Placement
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until


class Side:
    """One cluster: a broker and its ZooKeeper."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker = ScriptedBroker()
        self.zookeeper = InMemoryZooKeeper()
        self.registry = self.zookeeper.client()
        self.registry.start()
        self.registry.create(
            paths.broker_id_path(broker_id), paths.encode_broker(*self.broker.address, 0)
        )

    def announce(self, topic: str, partitions: int = 1) -> None:
        path = paths.topic_broker_path(topic, self.broker_id)
        self.registry.put(path, paths.encode_number(partitions))

    def write(self, topic: str, texts: list[bytes], partition: int = 0) -> None:
        log = self.broker.logs.setdefault((topic, partition), bytearray())
        log += encode(texts)

    def close(self) -> None:
        self.broker.close()
        self.registry.close()


class Running:
    """A mirror and its membership between `source` and `target`."""

    def __init__(self, source: Side, target: Side, **settings: Any) -> None:
        self.registries: list[InMemoryRegistry] = []
        for side in (source, target):
            registry = side.zookeeper.client()
            registry.start()
            self.registries.append(registry)
        self.config = MirrorConfig(
            source_zk_connect="memory:1",
            target_zk_connect="memory:2",
            **{
                "commit_interval_ms": 5,
                "retry_min_ms": 10,
                "retry_max_ms": 100,
                "barrier_timeout_ms": 300,
                "status_interval_ms": 50,
                "handover_timeout_ms": 200,
                **settings,
            },
        )
        self.mirror = Mirror(self.config, *self.registries)
        self.member = GroupMember(self.config, self.registries[0], self.mirror)
        self.member.start()

    def partition(self, topic: str) -> dict[str, Any]:
        found = [p for p in self.mirror.status()["partitions"] if p["topic"] == topic]
        return found[0] if found else {"state": "absent"}

    def close(self) -> None:
        self.member.close()
        self.mirror.close()
        for registry in self.registries:
            registry.close()


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    with contextlib.closing(Side(1)) as source, contextlib.closing(Side(11)) as target:
        yield source, target


@pytest.fixture
def run(sides: tuple[Side, Side]) -> Iterator[Callable[..., Running]]:
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            contextlib.closing(Running(*sides, **settings))
        )


def committed(side: Side, topic: str) -> int | None:
    stored = side.registry.get(paths.offset_path("mirror", topic, BrokerPartition(1, 0)))
    return None if stored is None else int(stored.value or b"")


def prepare(sides: tuple[Side, Side], *topics: str) -> None:
    for topic in topics:
        for side in sides:
            side.announce(topic)


Run = Callable[..., Running]


def test_copies_and_commits_what_is_durable(sides: tuple[Side, Side], run: Run) -> None:
    source, target = sides
    prepare(sides, "t")
    source.write("t", [b"one", b"two"])
    run()
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "committed")
    assert target.broker.log("t") == source.broker.log("t")


def test_a_partition_that_the_target_refuses_does_not_hold_up_its_neighbours(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, target = sides
    prepare(sides, "bad", "good")
    target.broker.refused = {"bad"}
    for number in range(50):
        source.write("bad", [b"%d" % number])
    running = run(fetch_size=1000)
    wait_until(lambda: running.partition("bad")["rewinds"] >= 2, "it is refused")
    for number in range(50):
        source.write("good", [b"x" * 100, b"%d" % number])
        wait_until(
            lambda: committed(source, "good") == len(source.broker.log("good")), "good goes on"
        )
    assert target.broker.log("good") == source.broker.log("good"), "and nothing of it is repeated"
    bad = running.partition("bad")
    assert (bad["state"], bad["copied_offset"], committed(source, "bad")) == ("waiting", 0, 0)
    target.broker.refused = set()
    wait_until(lambda: committed(source, "bad") == len(source.broker.log("bad")), "it recovers")
    assert target.broker.log("bad") == source.broker.log("bad")
    assert running.partition("bad")["state"] == "copying"


def test_without_an_answer_to_the_barrier_nothing_is_committed(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, target = sides
    prepare(sides, "t")
    source.write("t", [b"one"])
    running = run()
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "the first is there")
    first = source.broker.log("t")
    target.broker.is_silent = True
    source.write("t", [b"two"])
    wait_until(lambda: running.partition("t").get("rewinds", 0) >= 2, "barriers time out")
    assert committed(source, "t") == len(first), "no more than what was confirmed"
    target.broker.is_silent = False
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "it recovers")
    # Each attempt arrived at this target, which only did not answer.
    repeats = running.partition("t")["rewinds"]
    second = source.broker.log("t")[len(first) :]
    assert target.broker.log("t") == first + (1 + repeats) * second


def test_retired_messages_are_counted_as_skipped(sides: tuple[Side, Side], run: Run) -> None:
    source, target = sides
    prepare(sides, "t")
    source.write("t", [b"late"])
    source.broker.starts["t", 0] = 500
    source.registry.put(paths.offset_path("mirror", "t", BrokerPartition(1, 0)), b"100")
    running = run()
    end = 500 + len(source.broker.log("t"))
    wait_until(lambda: committed(source, "t") == end, "it goes on at the start of the log")
    assert running.partition("t")["skipped_bytes"] == 400
    assert target.broker.log("t") == source.broker.log("t")


def test_a_log_that_began_anew_is_copied_from_its_start(sides: tuple[Side, Side], run: Run) -> None:
    source, target = sides
    prepare(sides, "t")
    source.write("t", [b"new"])
    source.registry.put(paths.offset_path("mirror", "t", BrokerPartition(1, 0)), b"100000")
    running = run()
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "it starts at 0")
    assert running.partition("t")["skipped_bytes"] == 0
    assert target.broker.log("t") == source.broker.log("t")


def test_a_message_larger_than_fetch_size_is_fetched_with_a_larger_one(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, target = sides
    prepare(sides, "t")
    source.write("t", [b"small", b"L" * 5000, b"small"])
    run(fetch_size=100)
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "all is copied")
    assert target.broker.log("t") == source.broker.log("t")


def test_an_entry_above_the_largest_fetch_size_refuses_its_partition_only(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, _ = sides
    prepare(sides, "big", "t")
    source.write("big", [b"L" * 5000])
    source.write("t", [b"small"])
    running = run(fetch_size=100, fetch_size_max=1000)
    wait_until(lambda: running.partition("big")["state"] == "refused", "it stands still")
    assert "fetch.size.max=1000" in running.partition("big")["trouble"]
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "the other goes on")


def test_starting_at_the_largest_offset_copies_only_what_comes(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, target = sides
    prepare(sides, "t")
    source.write("t", [b"old"])
    running = run(autooffset_reset="largest")
    old = len(source.broker.log("t"))
    wait_until(lambda: running.partition("t").get("copied_offset") == old, "it knows the end")
    source.write("t", [b"new"])
    wait_until(lambda: target.broker.log("t") == encode([b"new"]), "the new one is copied")


def test_an_expired_session_stops_copying_until_it_owns_again(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, target = sides
    prepare(sides, "t")
    running = run()
    wait_until(lambda: running.partition("t")["state"] == "copying", "it owns")
    registry = running.registries[0]
    # Somebody else takes the partition in the moment in which the session ends.
    registry.suspend()
    registry.expire()
    owner = paths.owner_path("mirror", "t", BrokerPartition(1, 0))
    source.registry.create(owner, b"mirror_other-0")
    registry.resume()
    wait_until(lambda: running.member.rebalances >= 1, "it has noticed")
    source.write("t", [b"not ours"])
    wait_until(lambda: running.partition("t")["state"] == "absent", "it does not copy")
    assert target.broker.log("t") == b""
    source.registry.delete(owner)
    wait_until(lambda: target.broker.log("t") == source.broker.log("t"), "it owns again")


def test_what_is_paused_before_it_is_owned_starts_paused(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, _ = sides
    running = run()
    running.mirror.set_paused("t", "1-0", True)
    prepare(sides, "t")
    source.write("t", [b"one"])
    wait_until(lambda: running.partition("t")["state"] == "paused", "paused from the start")
    running.mirror.set_paused("t", "", False)
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "it goes on")


# --- placement -----------------------------------------------------------------------------------


class Targets:
    """Makes topics as target brokers would, except on those that are `slow`."""

    def __init__(self, registry: InMemoryRegistry) -> None:
        self.registry = registry
        self.slow: set[int] = set()
        self.now_s = 0.0
        for broker_id in (11, 12):
            value = paths.encode_broker("host", broker_id, 0)
            registry.create(paths.broker_id_path(broker_id), value)

    def make_topic(self, topic: str, address: tuple[str, int]) -> None:
        if address[1] not in self.slow:
            self.registry.put(paths.topic_broker_path(topic, address[1]), b"2")


@pytest.fixture
def registries() -> Iterator[tuple[InMemoryRegistry, InMemoryRegistry]]:
    source, target = InMemoryZooKeeper().client(), InMemoryZooKeeper().client()
    with contextlib.closing(source), contextlib.closing(target):
        source.start()
        target.start()
        for broker_id in (1, 2):
            source.put(paths.topic_broker_path("t", broker_id), b"2")
        yield source, target


def test_a_new_topic_is_made_on_all_target_brokers_before_anything_is_mapped(
    registries: tuple[InMemoryRegistry, InMemoryRegistry],
) -> None:
    source, target = registries
    targets = Targets(target)
    placement = Placement(source, target, "g", targets.make_topic)
    with pytest.raises(NotPlaced, match="do not announce"):
        placement.target_of(TopicPartition("t", 1, 0))
    places = {
        placement.target_of(TopicPartition("t", broker_id, partition)).text
        for broker_id in (1, 2)
        for partition in (0, 1)
    }
    assert places == {"11-0", "11-1", "12-0", "12-1"}
    again = Placement(source, target, "g", targets.make_topic)
    assert {again.target_of(TopicPartition("t", 1, 0)) for _ in range(3)} == {
        placement.target_of(TopicPartition("t", 1, 0))
    }


def test_a_target_broker_that_never_announces_is_not_waited_for_for_ever(
    registries: tuple[InMemoryRegistry, InMemoryRegistry],
) -> None:
    source, target = registries
    targets = Targets(target)
    targets.slow = {12}
    placement = Placement(source, target, "g", targets.make_topic, lambda: targets.now_s)
    with pytest.raises(NotPlaced):
        placement.target_of(TopicPartition("t", 1, 0))
    for _ in range(3):
        targets.now_s += 1
        with pytest.raises(NotPlaced, match=r"\[12\]"):
            placement.target_of(TopicPartition("t", 1, 0))
    targets.now_s += 10
    assert placement.target_of(TopicPartition("t", 1, 0)).broker_id == 11


def test_garbage_in_the_map_is_replaced(
    registries: tuple[InMemoryRegistry, InMemoryRegistry],
) -> None:
    source, target = registries
    targets = Targets(target)
    targets.make_topic("t", ("host", 11))
    targets.make_topic("t", ("host", 12))
    path = paths.mirror_map_path("g", "t", BrokerPartition(1, 0))
    source.create(path, b"nonsense")
    chosen = Placement(source, target, "g", targets.make_topic).target_of(TopicPartition("t", 1, 0))
    stored = source.get(path)
    assert stored is not None
    assert stored.value == chosen.text.encode()


def test_messages_are_counted_and_the_map_leads_to_their_copies(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, target = sides
    prepare(sides, "t")
    target.broker.logs["t", 0] = bytearray(encode([b"of somebody else"]))
    before = len(target.broker.log("t"))
    source.write("t", [b"one", b"two", b"three"])
    running = run(map_interval_ms=0)
    size = len(source.broker.log("t"))
    wait_until(lambda: running.partition("t").get("copied_messages") == 3, "three are counted")

    def mapped() -> list[tuple[int, bool]]:
        return [
            (row.target_offset, row.is_exact)
            for row in read_maps(target.registry, "mirror", "t", "1-0", size - 15)
        ]

    wait_until(lambda: mapped() == [(before + size - 15, True)], "the map is stored")
    assert [row.source_offset for row in read_maps(target.registry, "mirror", "t", None, None)] == [
        size
    ]


def test_a_pause_outlives_the_process_and_holds_for_all_members(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, _ = sides
    prepare(sides, "t", "other")
    source.registry.create("/kafka2011/mirrors/mirror/paused/1-0:t")
    source.write("t", [b"one"])
    source.write("other", [b"one"])
    running = run()
    wait_until(lambda: committed(source, "other") == len(source.broker.log("other")), "one goes")
    assert running.partition("t")["state"] == "paused"
    running.mirror.set_paused("other", "", True)
    assert source.registry.children("/kafka2011/mirrors/mirror/paused") == ["1-0:t", "all:other"]
    running.mirror.set_paused("t", "", False)  # the topic, with its partitions
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "it goes on")
    assert running.partition("other")["state"] == "paused"
    source.registry.delete("/kafka2011/mirrors/mirror/paused/all:other")  # by another member
    wait_until(lambda: running.partition("other")["state"] == "copying", "it is told")


def test_scattering_goes_to_any_live_broker(sides: tuple[Side, Side], run: Run) -> None:
    source, target = sides
    prepare(sides, "t")
    with contextlib.closing(Side(12)) as dead:
        target.registry.create_ephemeral(
            paths.broker_id_path(12), paths.encode_broker(*dead.broker.address, 1)
        )
    source.write("t", [b"one", b"two"])
    running = run(scatter=True)
    wait_until(lambda: committed(source, "t") == len(source.broker.log("t")), "committed")
    assert target.broker.logs["t", -1] == source.broker.log("t")
    assert running.partition("t")["target"] == "11--1"


def test_damage_at_the_source_holds_up_its_partition_only(
    sides: tuple[Side, Side], run: Run
) -> None:
    source, target = sides
    prepare(sides, "bad", "good")
    source.write("bad", [b"one"])
    good_bytes = len(source.broker.log("bad"))
    source.write("bad", [b"two"])
    source.broker.logs["bad", 0][-1] ^= 1
    source.write("good", [b"one"])
    running = run()
    wait_until(lambda: committed(source, "bad") == good_bytes, "what is good is copied")
    wait_until(lambda: committed(source, "good") == len(source.broker.log("good")), "and good")
    wait_until(lambda: "CRC" in (running.partition("bad")["trouble"] or ""), "it says why")
    assert len(target.broker.log("bad")) == good_bytes
