"""The range assignment: the reference's formula, sorted as the original sorts (9.3, pitfall 33)."""

import uuid

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.assignment import assign, assignment_of, make_consumer_id, thread_id
from kafka2011.coordination.paths import BrokerPartition


def partitions(*texts: str) -> list[BrokerPartition]:
    return [BrokerPartition(*map(int, text.split("-"))) for text in texts]


def shares(count: int, threads: int) -> list[int]:
    assigned = assign(
        [BrokerPartition(0, n) for n in range(count)], [f"c-{n}" for n in range(threads)]
    )
    return [sum(owner == f"c-{n}" for owner in assigned.values()) for n in range(threads)]


def test_shares_of_the_reference() -> None:
    assert shares(5, 2) == [3, 2]
    assert shares(2, 3) == [1, 1, 0]
    assert shares(6, 3) == [2, 2, 2]
    assert shares(0, 2) == [0, 0]
    assert assign(partitions("0-0"), []) == {}


def test_partitions_are_sorted_as_strings() -> None:
    given = partitions("2-0", "10-0", "0-2", "0-10")
    assert list(assign(given, ["c-0"])) == partitions("0-10", "0-2", "10-0", "2-0")
    assigned = assign(given, ["c-0", "c-1"])
    assert [name for name, owner in assigned.items() if owner == "c-0"] == partitions("0-10", "0-2")


def test_threads_are_sorted_as_strings() -> None:
    threads = [f"g_h-1-aa-{n}" for n in (0, 1, 2, 10)]
    assigned = assign([BrokerPartition(0, n) for n in range(4)], threads)
    assert [owner.rpartition("-")[2] for owner in assigned.values()] == ["0", "1", "10", "2"]


def test_threads_are_sorted_as_java_sorts_strings() -> None:
    # U+FF5E is one UTF-16 unit above every surrogate; U+1F600 starts with a surrogate (D83D).
    assigned = assign([BrokerPartition(0, 0)], ["\uff5e-0", "\U0001f600-0"])
    assert list(assigned.values()) == ["\U0001f600-0"]


def test_members_with_different_topics() -> None:
    members = {"a": {"x": 2, "y": 1}, "b": {"x": 1}, "c": {"z": 1}}
    topics = {"x": partitions("0-0", "0-1", "1-0", "1-1"), "y": partitions("0-0"), "z": []}
    mine = assignment_of("a", members, topics)
    assert mine == {
        TopicPartition("x", 0, 0): "a-0",
        TopicPartition("x", 0, 1): "a-0",
        TopicPartition("x", 1, 0): "a-1",
        TopicPartition("y", 0, 0): "a-0",
    }
    assert assignment_of("b", members, topics) == {TopicPartition("x", 1, 1): "b-0"}
    assert assignment_of("c", members, topics) == {}
    assert assignment_of("stranger", members, topics) == {}


def test_a_member_whose_id_begins_with_mine_keeps_its_own() -> None:
    members = {"a": {"x": 1}, "a-0": {"x": 1}}
    topics = {"x": partitions("0-0", "0-1")}
    both = [*assignment_of("a", members, topics), *assignment_of("a-0", members, topics)]
    assert sorted(both) == [TopicPartition("x", 0, 0), TopicPartition("x", 0, 1)]


def test_consumer_ids() -> None:
    made = make_consumer_id(
        "g1",
        "worker7",
        clock=lambda: 1315436360737,
        random_uuid=lambda: uuid.UUID(int=(0x1A2B3C4D5E6F4071 << 64) | 1),
    )
    assert made == "g1_worker7-1315436360737-1a2b3c4d"
    dropped_zeros = make_consumer_id(
        "g", "h", clock=lambda: 1, random_uuid=lambda: uuid.UUID(int=0x00ABCDEF01234567 << 64)
    )
    assert dropped_zeros == "g_h-1-abcdef01"
    assert make_consumer_id("g", "h", "fixed") == "g_fixed"
    assert thread_id("g_fixed", 10) == "g_fixed-10"
