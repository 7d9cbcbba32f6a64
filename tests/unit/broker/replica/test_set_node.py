"""A replica set's nodes: their forms, and that only the version that was read may be changed."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.broker.replica import set_node
from kafka2011.broker.replica.set_node import LiveReplica, NoSuchSet, SetNode
from kafka2011.broker.replication.set_state import SetState
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import BadZnode, NodeExists, VersionConflict
from kafka2011.coordination.paths import BrokerAddress
from kafka2011.coordination.replica_sets import UncleanRecord
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.replica_sets import unclean_records

names = st.text(max_size=8)
some = st.frozensets(names, max_size=3)
states = st.builds(
    SetState,
    epoch=st.integers(0, 2**31 - 1),
    leader=st.none() | names,
    isr=some,
    eligible=some,
    min_insync=st.integers(1, 5),
    members=st.lists(st.tuples(names, names), max_size=4).map(tuple),
    wanted_leader=st.none() | names,
    wanted_min_insync=st.none() | st.integers(1, 5),
    first=st.none() | names,
    moving=st.dictionaries(names, names, max_size=2).map(lambda moves: tuple(moves.items())),
)
STATE = SetState(0, None, frozenset(), frozenset(), 1, (("a", ""), ("b", "")), first="a")
BROKER_ID = 3
ADDRESS = paths.encode_broker("h", 9092, 5)


@given(states)
def test_a_state_is_read_as_it_was_written(state: SetState) -> None:
    assert set_node.decode_state(set_node.encode_state(state)) == state


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epoch", -1), ("epoch", True), ("leader", 5), ("isr", [1]), ("min_insync", 0)),
        *(("members", [{"name": "a"}]), ("wanted", None), ("version", 2)),
        ("wanted", {"moves": {"d": 5}}),
    ],
)
def test_a_state_that_is_none_is_refused(field: str, value: object) -> None:
    stored = json.loads(set_node.encode_state(STATE))
    stored[field] = value
    with pytest.raises(BadZnode):
        set_node.decode_state(json.dumps(stored).encode())
    del stored[field]
    with pytest.raises(BadZnode):
        set_node.decode_state(json.dumps(stored).encode())


@pytest.mark.parametrize("value", [None, b"", b"[]", b"\xff", b"[" * 100_000])
def test_garbage_is_refused(value: bytes | None) -> None:
    with pytest.raises(BadZnode):
        set_node.decode_state(value)
    with pytest.raises(BadZnode):
        set_node.decode_live(value)


@pytest.fixture
def zookeeper() -> InMemoryZooKeeper:
    return InMemoryZooKeeper()


def client_of(zookeeper: InMemoryZooKeeper) -> InMemoryRegistry:
    registry = zookeeper.client()
    registry.start()
    return registry


def test_a_write_needs_the_version_that_was_read(zookeeper: InMemoryZooKeeper) -> None:
    one, two = (SetNode(client_of(zookeeper), BROKER_ID) for _ in range(2))
    with pytest.raises(NoSuchSet, match="broker 3 is no replica set: kafka2011 replicas create 3"):
        one.read()
    one.create(STATE)
    with pytest.raises(NodeExists):
        two.create(STATE)
    assert one.read().state == STATE
    changed = replace(STATE, epoch=1)
    assert one.write(0, changed) == 1
    with pytest.raises(VersionConflict):
        two.write(0, STATE)
    assert two.read() == set_node.Reading(1, changed, {})


def test_an_unclean_election_is_written_with_its_record_or_not_at_all(
    zookeeper: InMemoryZooKeeper,
) -> None:
    registry = client_of(zookeeper)
    node = SetNode(registry, BROKER_ID)
    node.create(STATE)
    changed = replace(STATE, isr=frozenset({"B"}))
    first, second = (UncleanRecord(1, at, "me@here", "b", "B", {}, {"t-0": at}) for at in (5, 6))
    with pytest.raises(VersionConflict):
        node.write_unclean(1, changed, first)
    assert (node.read().state, unclean_records(registry, BROKER_ID)) == (STATE, [])
    node.write_unclean(0, changed, first)
    node.write_unclean(1, changed, second)  # the first one died before it led
    with pytest.raises(VersionConflict):
        node.write_unclean(1, STATE, first)
    assert node.read() == set_node.Reading(2, changed, {})
    assert unclean_records(registry, BROKER_ID) == [second]


def test_the_live_ones_are_read_but_for_garbage(zookeeper: InMemoryZooKeeper) -> None:
    registry = client_of(zookeeper)
    node = SetNode(registry, BROKER_ID)
    node.create(STATE)
    replica = LiveReplica("a", BrokerAddress("h", 7000), 9)
    live = paths.replica_live_path(BROKER_ID, "d1")
    registry.create_ephemeral(live, set_node.encode_live(replica))
    registry.create(paths.replica_live_path(BROKER_ID, "d2"), b"garbage")
    assert node.read().live == {"d1": replica}


def test_starts_are_counted_by_directory_and_never_fall(zookeeper: InMemoryZooKeeper) -> None:
    node = SetNode(client_of(zookeeper), BROKER_ID)
    assert node.starts_of("d") == 0
    for starts in (1, 5, 3):
        node.note_starts("d", starts)
    assert (node.starts_of("d"), node.starts_of("other")) == (5, 0)


def test_what_is_no_number_of_starts_is_named(zookeeper: InMemoryZooKeeper) -> None:
    registry = client_of(zookeeper)
    node = SetNode(registry, BROKER_ID)
    path = paths.replica_starts_path(BROKER_ID, "d")
    registry.create(path, b"")
    for read in (lambda: node.starts_of("d"), lambda: node.note_starts("d", 2)):
        with pytest.raises(BadZnode, match=path):
            read()


def test_an_old_version_neither_shows_nor_hides_the_address(zookeeper: InMemoryZooKeeper) -> None:
    old, new = client_of(zookeeper), client_of(zookeeper)
    first, second = SetNode(old, BROKER_ID), SetNode(new, BROKER_ID)
    first.create(STATE)
    topics = {f"t{number}": 2 for number in range(set_node.CHANGES_MAX + 3)}
    first.show(0, ADDRESS, topics)
    first.show(0, ADDRESS, topics)  # again: it stands
    assert cluster.live_brokers(new) == {BROKER_ID: ("h", 9092)}
    assert len(cluster.partitions_of(new, "t7")) == 2

    second.write(0, replace(STATE, epoch=1))
    for late in (lambda: first.hide(0), lambda: first.show(0, ADDRESS, topics)):
        with pytest.raises(VersionConflict):
            late()
    second.hide(1)
    assert cluster.live_brokers(new) == {}
    assert cluster.partitions_of(new, "t7") == []
    second.hide(1)  # nothing is there

    old.create_ephemeral(paths.broker_id_path(BROKER_ID), b"x-1:stale:1")
    second.show(1, ADDRESS, {"t7": 1})
    assert cluster.live_brokers(old) == {BROKER_ID: ("h", 9092)}
    new.close()
    assert cluster.live_brokers(old) == {}
