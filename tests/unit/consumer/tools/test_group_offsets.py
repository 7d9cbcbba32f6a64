"""An operator's hand on stored offsets: the export form of 0.7, and moves planned first."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.counting.partition_counts import PartitionCounts
from kafka2011.consumer.tools import group_offsets
from kafka2011.consumer.tools.cluster_state import PartitionEnds
from kafka2011.consumer.tools.group_offsets import EARLIEST, LATEST, GroupOffset, Target
from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.paths import BrokerAddress, BrokerPartition
from kafka2011.coordination.registry import Stored
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper

NAME = TopicPartition("t", 0, 0)
SECOND = TopicPartition("t", 0, 1)
HOME = BrokerAddress("127.0.0.1", 9092)
NODE = "/consumers/g/offsets/t/0-0"
offsets = st.integers(0, 2**63 - 1)
names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)
partitions = st.builds(TopicPartition, names, st.integers(0, 9999), st.integers(0, 99))


@pytest.fixture
def registry() -> InMemoryRegistry:
    made = InMemoryZooKeeper().client()
    made.start()
    return made


def put(registry: InMemoryRegistry, text: bytes, partition: int = 0) -> None:
    registry.put(paths.offset_path("g", "t", BrokerPartition(0, partition)), text)


# --- the export file ------------------------------------------------------------------------------


def test_the_lines_are_those_of_0_7() -> None:
    exported = GroupOffset("g1", TopicPartition("clicks", 0, 3), 286894308)
    assert group_offsets.export_lines([exported]) == ["/consumers/g1/offsets/clicks/0-3:286894308"]


@given(
    st.lists(st.tuples(names, partitions, offsets), unique_by=lambda row: row[:2]),
    st.sampled_from(["", "\r\n"]),
)
def test_what_is_exported_is_imported(
    rows: list[tuple[str, TopicPartition, int]], line_end: str
) -> None:
    exported = [GroupOffset(*row) for row in rows]
    lines = [line + line_end for line in group_offsets.export_lines(exported)]
    assert group_offsets.parse_export(lines) == exported


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_text_is_offsets_or_a_bad_export(lines: list[str]) -> None:
    with contextlib.suppress(group_offsets.BadExport):
        assert len(group_offsets.parse_export(lines)) <= len(lines)


def test_reading_stops_at_an_empty_line_as_the_original_does() -> None:
    expected = [GroupOffset("g", NAME, 5)]
    assert group_offsets.parse_export([f"{NODE}:5", "", "garbage"]) == expected


@pytest.mark.parametrize(
    "line",
    [
        "/consumers/g/offsets/t/0-0",
        "/consumers/g/offsets/t/0-0:-1",
        "/consumers/g/offsets/t/0-0:9223372036854775808",
        "/consumers/g/owners/t/0-0:1",
        "/consumers/g/offsets/t/0:1",
        "/brokers/ids/0:1",
        "/consumers/g/offsets/../0-0:1",
        "/consumers/./offsets/t/0-0:1",
        "/consumers/g/offsets/t/0-0:1 ",
    ],
)
def test_what_is_not_an_offsets_line_is_named(line: str) -> None:
    with pytest.raises(group_offsets.BadExport, match="line 2"):
        group_offsets.parse_export(["/consumers/g/offsets/t/0-9:5", line])


def test_a_partition_named_twice_is_refused() -> None:
    reason = "line 2 names t/0-0 of group g as line 1"
    with pytest.raises(group_offsets.BadExport, match=reason):
        group_offsets.parse_export([f"{NODE}:1", f"{NODE}:2"])


# --- what is stored -------------------------------------------------------------------------------


def test_garbage_is_shown_as_no_offset_and_can_be_replaced(registry: InMemoryRegistry) -> None:
    put(registry, b"nonsense")
    registry.put("/consumers/g/offsets/t/not-a-partition", b"5")
    registry.put("/consumers/g/offsets/other/0-0", b"7")
    [found] = group_offsets.stored_offsets(registry, "g", ["t"])
    assert (found.name, found.offset) == (NAME, None)
    assert group_offsets.export_lines([found]) == []
    assert [one.offset for one in group_offsets.stored_offsets(registry, "g")] == [7, None]
    changes = group_offsets.plan_import(registry, [GroupOffset("g", NAME, 11)])
    assert group_offsets.apply(registry, changes) == []
    assert group_offsets.read_offset(registry, "g", NAME).offset == 11


@pytest.mark.parametrize("before", [b"5", None], ids=["changed", "appeared"])
def test_a_node_that_changed_since_the_plan_is_left_alone(
    registry: InMemoryRegistry, before: bytes | None
) -> None:
    if before:
        put(registry, before)
    put(registry, b"5", partition=1)
    wanted = [GroupOffset("g", NAME, 0), GroupOffset("g", SECOND, 0)]
    changes = group_offsets.plan_import(registry, wanted)
    put(registry, b"6")  # a member commits
    assert group_offsets.apply(registry, changes) == [changes[0]]
    assert [one.offset for one in group_offsets.stored_offsets(registry, "g")] == [6, 0]


@pytest.mark.parametrize("offset", [9, 5], ids=["moved", "as it was"])
def test_what_shows_of_which_log_the_old_offset_was_goes_with_it(
    registry: InMemoryRegistry, offset: int
) -> None:
    """A set that was made anew begins at epoch 1. By the epochs of the old one a mirror took it for
    a deposed leader for ever, unless its log began at 0."""
    partition = BrokerPartition(0, 0)
    evidence = (
        paths.tail_path("g", "t", partition),
        paths.mirror_lineage_path("g", "t", partition),
    )
    put(registry, b"5")
    for path in evidence:
        registry.put(path, b"[[7, 0]]")
    changes = group_offsets.plan_import(registry, [GroupOffset("g", NAME, offset)])
    assert group_offsets.apply(registry, changes) == []
    assert [registry.get(path) for path in evidence] == [None, None]


@pytest.mark.parametrize("offset", [9, 0], ids=["forward", "to the start"])
def test_a_group_that_counts_does_so_anew_from_an_offset_that_was_set(
    registry: InMemoryRegistry, offset: int
) -> None:
    """By what it had counted of a log that was lost since, the new one was read again up to there,
    and its messages were missing."""
    counts = PartitionCounts.begun(0, 10_000, 0)
    counts.add(5, {(0, "s"): 3}, 0)
    path = paths.counts_path("g", "t", BrokerPartition(0, 0))
    put(registry, b"5")
    registry.put(path, counts.encode())
    changes = group_offsets.plan_import(registry, [GroupOffset("g", NAME, offset)])
    assert group_offsets.apply(registry, changes) == []
    node = registry.get(path)
    found = None if node is None else PartitionCounts.decode(node.value)
    assert found is not None
    assert (found.start, found.end, found.cells, found.window_ms) == (offset, offset, {}, 10_000)
    assert found.since_ms > 0
    assert [change.note for change in changes] == ["counting begins anew"]


def counted(registry: InMemoryRegistry, end: int) -> str:
    """The path of what group g has counted of its partition, up to `end`."""
    counts = PartitionCounts.begun(0, 10_000, 0)
    counts.add(end, {(0, "s"): 3}, 0)
    path = paths.counts_path("g", "t", BrokerPartition(0, 0))
    registry.put(path, counts.encode())
    return path


@pytest.mark.parametrize("end", [5, 9], ids=["up to it", "further, as a crash leaves it"])
def test_an_offset_that_does_not_move_is_not_written_and_its_counts_stay(
    registry: InMemoryRegistry, end: int
) -> None:
    """An import of what was exported a moment before threw the counts of the group away."""
    put(registry, b"5")
    path = counted(registry, end)
    before = [registry.get(one) for one in (NODE, path)]
    changes = group_offsets.plan_import(registry, [GroupOffset("g", NAME, 5)])
    assert group_offsets.apply(registry, changes) == []
    assert [registry.get(one) for one in (NODE, path)] == before
    assert [change.note for change in changes] == ["not moved"]


def test_a_move_that_was_stopped_half_way_is_completed_with_its_counts_by_the_next(
    registry: InMemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(registry, b"5")
    path = counted(registry, 5)
    wanted = [GroupOffset("g", NAME, 9)]
    changes = group_offsets.plan_import(registry, wanted)
    store = registry.put

    def stops(to: str, *words: object) -> int:
        if to in stopped:
            raise CoordinationUnavailable("no answer")
        return store(to, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(registry, "put", stops)
    for place in (path, NODE):
        stopped = {place}
        with pytest.raises(group_offsets.StoppedHalfWay):
            group_offsets.apply(registry, changes)
    stopped = set()
    assert group_offsets.apply(registry, group_offsets.plan_import(registry, wanted)) == []
    node = registry.get(path)
    found = None if node is None else PartitionCounts.decode(node.value)
    assert found is not None
    assert (found.start, found.end, found.cells) == (9, 9, {})


def test_the_counts_of_a_node_that_changed_since_the_plan_stay(registry: InMemoryRegistry) -> None:
    put(registry, b"5")
    changes = group_offsets.plan_import(registry, [GroupOffset("g", NAME, 0)])
    put(registry, b"6")  # a member commits
    path = counted(registry, 6)
    before = registry.get(path)
    assert group_offsets.apply(registry, changes) == changes
    assert registry.get(path) == before


def test_counts_that_a_member_writes_meanwhile_leave_the_offset_set_and_said_to_be(
    registry: InMemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = paths.counts_path("g", "t", BrokerPartition(0, 0))
    put(registry, b"5")
    registry.put(path, PartitionCounts.begun(0, 10_000, 0).encode())
    changes = group_offsets.plan_import(registry, [GroupOffset("g", NAME, 40)])
    left = [1]
    really_get = registry.get

    def get(asked: str) -> Stored | None:
        found = really_get(asked)
        if asked == path and left and left.pop():
            registry.put(path, PartitionCounts.begun(3, 10_000, 0).encode())
        return found

    monkeypatch.setattr(registry, "get", get)
    assert group_offsets.apply(registry, changes) == []
    node = really_get(path)
    found = None if node is None else PartitionCounts.decode(node.value)
    assert found is not None
    assert found.start == 40


# --- moving ---------------------------------------------------------------------------------------


def planned(
    target: Target, ends: list[PartitionEnds], before: int | None
) -> list[group_offsets.Change]:
    """The changes of t/0-0, which was at `before`, and of t/0-1, which has no offset."""
    return group_offsets.plan_reset(
        {NAME: GroupOffset("g", NAME, before), SECOND: GroupOffset("g", SECOND, None)},
        ends,
        target,
        offset_of_time=lambda _, time_ms: {1000: 60}.get(time_ms, 40),
        is_entry=lambda _, offset: offset % 10 == 0,
    )


@pytest.mark.parametrize("before", [50, None])
@pytest.mark.parametrize(
    ("target", "after", "note"),
    [
        (Target(end=EARLIEST), 40, ""),
        (Target(end=LATEST), 90, ""),
        (Target(time_ms=1000), 60, ""),
        (Target(time_ms=1), 40, ""),
        (Target(offset=70), 70, ""),
        (Target(offset=40), 40, ""),
        (Target(offset=90), 90, ""),
        (Target(offset=71), None, "no message begins at 71"),
        (Target(offset=91), None, "the log goes from 40 to 90"),
        (Target(offset=0), None, "the log goes from 40 to 90"),
    ],
)
def test_where_each_target_leads(
    target: Target, after: int | None, note: str, before: int | None
) -> None:
    [change, _] = planned(target, [PartitionEnds(NAME, HOME, 40, 90)], before)
    assert (change.after, change.note) == (after, note)


def test_a_partition_whose_broker_is_away_is_not_moved() -> None:
    away = PartitionEnds(NAME, None, None, None, "broker not registered")
    changes = planned(Target(end=LATEST), [away, PartitionEnds(SECOND, HOME, 0, 9)], 5)
    assert [(change.after, change.note, change.is_needed) for change in changes] == [
        (None, "broker not registered", False),
        (9, "", True),
    ]
