"""An operator's hand on stored offsets: the export form of 0.7, and moves planned first."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.tools.cluster_state import PartitionEnds
from kafka2011.consumer.tools.group_offsets import (
    EARLIEST,
    LATEST,
    BadExport,
    GroupOffset,
    Target,
    apply,
    export_lines,
    parse_export,
    plan_import,
    plan_reset,
    read_offset,
    stored_offsets,
)
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerAddress, BrokerPartition
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper

NAME = TopicPartition("t", 0, 0)
HOME = BrokerAddress("127.0.0.1", 9092)
offset_numbers = st.integers(0, 2**63 - 1)
names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)


@pytest.fixture
def registry() -> InMemoryRegistry:
    made = InMemoryZooKeeper().client()
    made.start()
    return made


def put(registry: InMemoryRegistry, text: bytes, partition: int = 0) -> None:
    registry.put(paths.offset_path("g", "t", BrokerPartition(0, partition)), text)


# --- the export file ------------------------------------------------------------------------------


def test_the_lines_are_those_of_0_7() -> None:
    assert export_lines([GroupOffset("g1", TopicPartition("clicks", 0, 3), 286894308)]) == [
        "/consumers/g1/offsets/clicks/0-3:286894308"
    ]


@given(
    st.lists(
        st.tuples(
            names, names, st.integers(0, 9999), st.integers(0, 99), st.integers(0, 2**63 - 1)
        ),
        unique_by=lambda one: one[:4],
    )
)
def test_what_is_exported_is_imported(rows: list[tuple[str, str, int, int, int]]) -> None:
    offsets = [GroupOffset(g, TopicPartition(t, b, p), offset) for g, t, b, p, offset in rows]
    assert parse_export(export_lines(offsets)) == offsets
    assert parse_export(f"{line}\r\n" for line in export_lines(offsets)) == offsets


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_text_is_offsets_or_a_bad_export(lines: list[str]) -> None:
    with contextlib.suppress(BadExport):
        assert len(parse_export(lines)) <= len(lines)


def test_reading_stops_at_an_empty_line_as_the_original_does() -> None:
    lines = ["/consumers/g/offsets/t/0-0:5", "", "garbage"]
    assert parse_export(lines) == [GroupOffset("g", NAME, 5)]


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
    with pytest.raises(BadExport, match="line 2"):
        parse_export(["/consumers/g/offsets/t/0-9:5", line])


def test_a_partition_named_twice_is_refused() -> None:
    line = "/consumers/g/offsets/t/0-0:"
    with pytest.raises(BadExport, match="line 2 names t/0-0 of group g as line 1"):
        parse_export([line + "1", line + "2"])


# --- what is stored -------------------------------------------------------------------------------


def test_garbage_is_shown_as_no_offset_and_can_be_replaced(registry: InMemoryRegistry) -> None:
    put(registry, b"nonsense")
    registry.put("/consumers/g/offsets/t/not-a-partition", b"5")
    registry.put("/consumers/g/offsets/other/0-0", b"7")
    [found] = stored_offsets(registry, "g", ["t"])
    assert (found.name, found.offset) == (NAME, None)
    assert export_lines([found]) == []
    assert [one.offset for one in stored_offsets(registry, "g")] == [7, None]
    assert apply(registry, plan_import(registry, [GroupOffset("g", NAME, 11)])) == []
    assert read_offset(registry, "g", NAME).offset == 11


def test_a_node_that_changed_since_the_plan_is_left_alone(registry: InMemoryRegistry) -> None:
    put(registry, b"5")
    put(registry, b"5", partition=1)
    second = NAME._replace(partition=1)
    changes = plan_import(registry, [GroupOffset("g", NAME, 0), GroupOffset("g", second, 0)])
    put(registry, b"6")  # a member commits
    assert apply(registry, changes) == [changes[0]]
    assert [one.offset for one in stored_offsets(registry, "g")] == [6, 0]


def test_a_node_that_appeared_since_the_plan_is_left_alone(registry: InMemoryRegistry) -> None:
    changes = plan_import(registry, [GroupOffset("g", NAME, 0)])
    put(registry, b"6")
    assert apply(registry, changes) == changes


# --- moving ---------------------------------------------------------------------------------------


def planned(target: Target, before: int | None = 50, ends: PartitionEnds | None = None) -> object:
    ends = ends or PartitionEnds(NAME, HOME, 40, 90)
    [change] = plan_reset(
        {NAME: GroupOffset("g", NAME, before)},
        [ends],
        target,
        offset_of_time=lambda _, time_ms: {1000: 60}.get(time_ms, 40),
        is_entry=lambda _, offset: offset % 10 == 0,
    )
    return (change.after, change.note) if change.after is None else change.after


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (Target(end=EARLIEST), 40),
        (Target(end=LATEST), 90),
        (Target(time_ms=1000), 60),
        (Target(time_ms=1), 40),
        (Target(offset=70), 70),
        (Target(offset=40), 40),
        (Target(offset=90), 90),
        (Target(offset=71), (None, "no message begins at 71")),
        (Target(offset=91), (None, "the log goes from 40 to 90")),
        (Target(offset=0), (None, "the log goes from 40 to 90")),
    ],
)
def test_where_each_target_leads(target: Target, after: object) -> None:
    assert planned(target) == after
    assert planned(target, before=None) == after


def test_a_partition_whose_broker_is_away_is_not_moved() -> None:
    away = PartitionEnds(NAME, None, None, None, "broker not registered")
    assert planned(Target(end=LATEST), ends=away) == (None, "broker not registered")
    elsewhere = PartitionEnds(NAME._replace(partition=7), HOME, 0, 9)
    changes = plan_reset(
        {NAME: GroupOffset("g", NAME, 5), elsewhere.name: GroupOffset("g", elsewhere.name, None)},
        [elsewhere],
        Target(end=LATEST),
        offset_of_time=lambda _found, _time: 0,
        is_entry=lambda _found, _offset: True,
    )
    assert [(change.after, change.is_needed) for change in changes] == [(None, False), (9, True)]
