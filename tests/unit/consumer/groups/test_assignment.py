"""The range assignment: the formula of 0.7.2, with ids sorted as 0.7.2 sorts them."""

import uuid

import pytest

from kafka2011.consumer.groups.assignment import assign, assignment_of, make_consumer_id, thread_id
from kafka2011.coordination.paths import BrokerPartition


def partitions(*texts: str) -> list[BrokerPartition]:
    return [BrokerPartition(*map(int, text.split("-"))) for text in texts]


@pytest.mark.parametrize(
    ("count", "threads", "shares"),
    [(5, 2, [3, 2]), (2, 3, [1, 1, 0]), (6, 3, [2, 2, 2]), (0, 2, [0, 0]), (3, 0, [])],
)
def test_shares_are_those_of_0_7(count: int, threads: int, shares: list[int]) -> None:
    names = [f"c-{number}" for number in range(threads)]
    owners = [*assign([BrokerPartition(0, number) for number in range(count)], names).values()]
    assert [owners.count(name) for name in names] == shares
    assert len(owners) == sum(shares)


def test_partitions_are_sorted_as_strings() -> None:
    assigned = assign(partitions("2-0", "10-0", "0-2", "0-10"), ["c-0", "c-1"])
    expected = zip(partitions("0-10", "0-2", "10-0", "2-0"), [0, 0, 1, 1], strict=True)
    assert [*assigned.items()] == [(name, f"c-{owner}") for name, owner in expected]


def test_threads_are_sorted_as_java_sorts_strings() -> None:
    threads = [f"g_h-1-aa-{n}" for n in (0, 1, 2, 10)]
    assigned = assign([BrokerPartition(0, n) for n in range(4)], threads)
    assert [owner.rpartition("-")[2] for owner in assigned.values()] == ["0", "1", "10", "2"]
    # U+FF5E is one UTF-16 unit above every surrogate; U+1F600 starts with a surrogate (D83D).
    assigned = assign([BrokerPartition(0, 0)], ["\uff5e-0", "\U0001f600-0"])
    assert list(assigned.values()) == ["\U0001f600-0"]


def test_members_with_different_topics_and_ids_that_begin_alike() -> None:
    members = {"a": {"w": 1, "x": 2}, "a-0": {"w": 1}, "b": {"x": 1}, "c": {"z": 1}}
    topics = {
        "w": partitions("0-0", "0-1"),
        "x": partitions("0-0", "0-1", "1-0", "1-1"),
        "z": [],
    }
    expected = {
        "a": {("w", 0, 0): "a-0"} | {("x", 0, 0): "a-0", ("x", 0, 1): "a-0", ("x", 1, 0): "a-1"},
        "a-0": {("w", 0, 1): "a-0-0"},
        "b": {("x", 1, 1): "b-0"},
        "c": {},
        "stranger": {},
    }
    assert {member: assignment_of(member, members, topics) for member in expected} == expected


@pytest.mark.parametrize(
    ("high_half", "digits"),
    [(0x1A2B3C4D5E6F4071, "1a2b3c4d"), (0x00ABCDEF01234567, "abcdef01")],
    ids=["as they are", "leading zeros dropped"],
)
def test_consumer_ids(high_half: int, digits: str) -> None:
    made = make_consumer_id(
        "g1",
        "worker7",
        clock=lambda: 1315436360737,
        random_uuid=lambda: uuid.UUID(int=(high_half << 64) | 1),
    )
    assert made == f"g1_worker7-1315436360737-{digits}"
    assert make_consumer_id("g", "h", "fixed") == "g_fixed"
    assert thread_id("g_fixed", 10) == "g_fixed-10"
