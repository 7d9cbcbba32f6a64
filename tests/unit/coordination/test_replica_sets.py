"""What outsiders see of a replica set, and the record of an unclean election."""

import json
from dataclasses import replace

import pytest

from kafka2011.coordination import paths, replica_sets
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import UncleanRecord
from tests.support.memory_zookeeper import InMemoryZooKeeper

STATE = {
    "version": 1,
    "epoch": 7,
    "leader": "A",
    "isr": ["A", "B"],
    "eligible": [],
    "min_insync": 2,
    "members": [
        {"name": "a", "directory": "A"},
        {"name": "b", "directory": "B"},
        {"name": "c", "directory": "C"},
    ],
    "wanted": {},
}


def view(live: str, **changes: object) -> replica_sets.SetView:
    value = json.dumps(STATE | changes).encode()
    return replica_sets.decode_view(1, value, frozenset(live))


@pytest.mark.parametrize(
    ("live", "changes", "trouble"),
    [
        ("ABC", {"isr": ["A", "B", "C"]}, ""),
        ("ABC", {}, "broker 1 is under-replicated: c behind"),
        ("AB", {}, "broker 1 is under-replicated: c away"),
        ("ABC", {"isr": ["A"], "eligible": ["B"]},
         "broker 1 is under-replicated: b eligible, c behind; 1 of min_insync 2: "
         "nothing is confirmed"),
        ("BC", {}, "broker 1 has no leader: a down"),
        ("C", {"leader": None}, "broker 1 has no leader: a, b down"),
        ("ABC", {"leader": None}, "broker 1 has no leader"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_should_be(live: str, changes: dict[str, object], trouble: str) -> None:
    assert view(live, **changes).trouble == trouble


def test_sets_that_cannot_be_read_are_left_out() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    assert replica_sets.set_views(registry) == {}
    registry.create(paths.replica_state_path(1), json.dumps(STATE).encode())
    registry.create(paths.replica_live_path(1, "A"), b"{}")
    registry.create(paths.replica_live_path(1, "new"), b'{"version": 1, "name": "c"}')
    registry.create(paths.replica_live_path(1, "odd"), b"garbage")
    registry.create(f"{paths.REPLICAS}/{'9' * 5000}/state", b"{}")
    endless = json.dumps(STATE | {"epoch": float("inf")}).encode()
    bad = (b"garbage", b"{}", b'{"version": 1}', b"[" * 100_000, endless)
    for number, value in enumerate(bad, 2):
        registry.create(paths.replica_state_path(number), value)
    [found] = replica_sets.set_views(registry).values()
    assert [member.role for member in found.members] == ["leader", "away, in sync", "joining"]


def record_of(epoch: int, at_ms: int = 5) -> UncleanRecord:
    return UncleanRecord(epoch, at_ms, "me@here", "b", "B", {"A": "a"}, {"t-0": 70})


def write(registry: Registry, record: UncleanRecord) -> None:
    path = paths.replica_unclean_path(1, record.epoch)
    registry.put(path, replica_sets.encode_unclean(record))


def test_records_are_read_by_epoch_but_for_garbage() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    registry.create(paths.replica_state_path(1), b"state")
    for epoch, at_ms in ((10, 5), (9, 5), (12, -1), (13, 10**18)):
        write(registry, record_of(epoch, at_ms))
    registry.create(paths.replica_unclean_path(1, 11), b"garbage")
    found = replica_sets.unclean_elections(registry, view("A", epoch=13))
    assert found == [record_of(9), record_of(10)]
    ends = {"t" * 250 + f"-{number}": 0 for number in range(5000)}
    with pytest.raises(BadZnode, match="5000 partitions"):
        replica_sets.encode_unclean(replace(record_of(9), ends=ends))


def test_elections_are_those_of_this_set_that_took_place() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    state_path = paths.replica_state_path(1)

    def elections(epoch: int) -> list[int]:
        found = replica_sets.unclean_elections(registry, view("A", epoch=epoch))
        return [record.epoch for record in found]

    registry.create(state_path, b"state")
    assert elections(9) == []
    write(registry, record_of(3))
    write(registry, record_of(8))
    registry.put(state_path, b"later")
    assert [elections(epoch) for epoch in (2, 3, 7, 8)] == [[], [3], [3], [3, 8]]
    registry.delete(state_path)
    assert elections(8) == []
    registry.create(state_path, b"of a set made anew")
    assert elections(8) == []
    write(registry, record_of(3))  # over the one of the set before
    assert elections(8) == [3]
