"""A group's counts: each message once, whichever member reads it, dies, seeks or commits."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.counting.group_counts import PIECES_MAX, GroupCounts
from kafka2011.consumer.counting.partition_counts import (
    CELLS_MAX,
    CLOCKS_DIFFER_MS,
    FUTURE_MS_MAX,
    PartitionCounts,
)
from kafka2011.consumer.groups.chunk_queues import ChunkQueue, OwnedPartition
from kafka2011.consumer.groups.committed_offsets import run
from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.header import UNREADABLE
from kafka2011.protocol.message_set import encode, entries
from tests.support.memory_deployment import Deployment, one_stream
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.unit.events.samples import page_view

NAME = TopicPartition("t", 0, 0)
NODE = paths.counts_path("g", "t", BrokerPartition(0, 0))
WINDOW_MS = 1_000
NOW_MS = 50_000


class Log:
    """One partition: message n is of window n // 10."""

    def __init__(self, count: int, *, codec: int = 0) -> None:
        self.count = count
        sets = [page_view(number * 100, server=f"s{number % 2}") for number in range(count)]
        parts = [sets[at : at + 5] for at in range(0, count, 5)] if codec else [sets]
        self.data = b"".join(encode(part, codec) for part in parts)
        self.ends = [entry.next_offset for entry in entries(self.data)]

    def chunk(self, start: int, end: int) -> Chunk:
        return Chunk(*NAME, start, memoryview(self.data)[start:end], end)

    def cells(self, start: int = 0, stop: int | None = None) -> dict[tuple[int, str], int]:
        found: dict[tuple[int, str], int] = {}
        for number in range(start, self.count if stop is None else stop):
            cell = (number // 10 * WINDOW_MS, f"s{number % 2}")
            found[cell] = found.get(cell, 0) + 1
        return found


class Group:
    """A registry, and members one after another of the one partition."""

    def __init__(self) -> None:
        self.zookeeper = InMemoryZooKeeper()

    def member(self) -> GroupCounts:
        registry = self.zookeeper.client()
        registry.start()
        made = GroupCounts(registry, "g", FORMS_2011, WINDOW_MS, clock=lambda: NOW_MS)
        made.read(NAME)
        return made

    @property
    def counts(self) -> PartitionCounts:
        found = PartitionCounts.decode(self.zookeeper.value(NODE))
        assert found is not None
        return found


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("seed", range(12))
def test_however_members_read_commit_die_and_seek_each_message_counts_once(
    group: Group, seed: int, codec: int
) -> None:
    rng = random.Random(seed)
    log = Log(200, codec=codec)
    ends = [0, *log.ends]
    member, at, committed = group.member(), 0, 0
    while committed < ends[-1]:
        draw = rng.random()
        if draw < 0.5 and at < ends[-1]:
            end = ends[min(len(ends) - 1, ends.index(at) + rng.randint(1, 30))]
            member.took(log.chunk(at, end), end)
            at = end
        elif draw < 0.75:
            committed = rng.choice([end for end in ends if committed <= end <= at])
            run(member.store(NAME, committed))
            assert group.counts.end >= committed
        elif draw < 0.9:
            member, at = group.member(), committed  # the one before died, or was asked to leave
        else:
            at = rng.choice([end for end in ends if end <= at])
        if draw >= 0.9 and at < committed:
            committed = at  # an application that commits what it went back to
            run(member.store(NAME, committed))
    assert (group.counts.start, group.counts.since_ms) == (0, 0)
    assert group.counts.cells == log.cells()


def test_a_commit_within_a_piece_counts_what_is_done_with_and_no_more(group: Group) -> None:
    log = Log(40)
    member = group.member()
    member.took(log.chunk(0, log.ends[19]), log.ends[19])
    run(member.store(NAME, log.ends[6]))
    assert group.counts.cells == log.cells(0, 7)
    run(member.store(NAME, log.ends[7]))
    assert group.counts.cells == log.cells(0, 8)
    member.took(log.chunk(log.ends[19], log.ends[39]), log.ends[39])
    run(member.store(NAME, log.ends[30]))
    assert group.counts.cells == log.cells(0, 31)
    assert group.counts.again == 0


def test_what_comes_again_is_said_and_not_counted(group: Group) -> None:
    log = Log(40)
    first = group.member()
    first.took(log.chunk(0, log.ends[29]), log.ends[29])
    run(first.store(NAME, log.ends[29]))  # and it dies before the offset is stored
    second = group.member()
    second.took(log.chunk(log.ends[9], log.ends[39]), log.ends[39])
    run(second.store(NAME, log.ends[39]))
    assert group.counts.cells == log.cells()
    assert group.counts.again == 20


def test_counting_begins_anew_behind_what_was_left_out(group: Group) -> None:
    log = Log(40)
    member = group.member()
    member.took(log.chunk(0, log.ends[9]), log.ends[9])
    member.took(log.chunk(log.ends[19], log.ends[29]), log.ends[29])
    run(member.store(NAME, log.ends[29]))
    found = group.counts
    assert (found.start, found.since_ms) == (log.ends[19], NOW_MS + CLOCKS_DIFFER_MS)
    assert found.cells == log.cells(20, 30)
    run(member.store(NAME, log.ends[34]))  # by hand, ahead of what was read
    assert (group.counts.start, group.counts.cells) == (log.ends[34], {})


def test_another_log_at_the_same_offsets_is_not_taken_for_the_old_one(group: Group) -> None:
    log = Log(40)
    member = group.member()
    member.took(log.chunk(0, log.ends[29]), log.ends[29])
    run(member.store(NAME, log.ends[29]))
    member.reset(NAME, 0)
    late = log.chunk(log.ends[29], log.ends[39])  # of the old log, and still on its way
    member.took(late, late.next_offset)
    member.took(log.chunk(0, log.ends[9]), log.ends[9])
    run(member.store(NAME, log.ends[9]))
    assert group.counts.cells == log.cells(0, 10)
    assert group.counts.since_ms == NOW_MS + CLOCKS_DIFFER_MS


@pytest.mark.parametrize("first", [5, 15, 25], ids=["back", "there", "behind"])
def test_counting_goes_on_where_the_application_went_after_a_reset(
    group: Group, first: int
) -> None:
    """By a seek, or past a damaged entry: nothing was counted as long as this member read on."""
    log = Log(40)
    member = group.member()
    owned = OwnedPartition(NAME, "one", ChunkQueue(1), 0, 1_000, member)
    owned.count(owned.grant, log.chunk(0, log.ends[19]), log.ends[19])
    before = owned.grant
    owned.reset(before, log.ends[14])
    owned.move_to(log.ends[first - 1])
    owned.count(before, log.chunk(log.ends[19], log.ends[39]), log.ends[39])
    owned.count(owned.grant, log.chunk(log.ends[first - 1], log.ends[39]), log.ends[39])
    run(member.store(NAME, log.ends[39]))
    assert (group.counts.start, group.counts.end) == (log.ends[first - 1], log.ends[39])
    assert (group.counts.cells, group.counts.again) == (log.cells(first), 0)


def test_counts_that_another_has_written_are_not_added_to(group: Group) -> None:
    log = Log(20)
    first, second = group.member(), group.member()
    for member in (first, second):
        member.took(log.chunk(0, log.ends[9]), log.ends[9])
    run(first.store(NAME, log.ends[9]))
    run(second.store(NAME, log.ends[4]))
    assert group.counts.since_ms > 0, "of the windows before, it is not known"


def test_a_write_whose_reply_was_lost_is_ones_own(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(20)
    member = group.member()
    put = member._registry.put

    def stored_without_a_reply(*given: Any) -> int:
        put(*given)
        monkeypatch.undo()
        raise CoordinationUnavailable("no reply")

    member.took(log.chunk(0, log.ends[9]), log.ends[9])
    monkeypatch.setattr(member._registry, "put", stored_without_a_reply)
    with pytest.raises(CoordinationUnavailable):
        run(member.store(NAME, log.ends[9]))
    member.took(log.chunk(log.ends[9], log.ends[19]), log.ends[19])
    run(member.store(NAME, log.ends[19]))
    assert (group.counts.since_ms, group.counts.cells) == (0, log.cells())


def test_what_is_never_committed_does_not_grow(group: Group) -> None:
    log = Log(100)
    member = group.member()
    for _ in range(PIECES_MAX // 50):
        for at, end in zip([0, *log.ends], log.ends, strict=False):
            member.took(log.chunk(at, end), end)
    assert len(member._partitions[NAME].pieces) <= PIECES_MAX
    run(member.store(NAME, log.ends[-1]))
    assert group.counts.cells == log.cells()


def test_the_oldest_windows_go_and_are_not_spoken_of_any_more() -> None:
    counts = PartitionCounts.begun(0, WINDOW_MS, NOW_MS)
    counts.add(10, {(WINDOW_MS * number, "s"): 1 for number in range(CELLS_MAX + 5)}, 10**9)
    assert len(counts.cells) == CELLS_MAX
    assert counts.since_ms == 5 * WINDOW_MS
    counts.add(20, {(NOW_MS + FUTURE_MS_MAX + 1, "s"): 3}, NOW_MS)
    assert counts.cells[UNREADABLE] == 3, "no such time can be"


GOOD = PartitionCounts(3, 7, 5, 1_000, 2, {(0, "s"): 4})


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("to"),
        lambda found: found.update(to="7"),
        lambda found: found.update(window_ms=0),
        lambda found: found.update(cells=[[0, 1, 2]]),
        lambda found: found.update(cells=[[0, "s"]]),
        lambda found: found.update(cells=3),
    ],
)
def test_a_node_that_is_not_ours_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    assert PartitionCounts.decode(GOOD.encode()) == GOOD
    found = json.loads(GOOD.encode())
    change(found)
    assert PartitionCounts.decode(json.dumps(found).encode()) is None
    assert PartitionCounts.decode(b"\xff") is PartitionCounts.decode(None) is None


# --- through a connector --------------------------------------------------------------------------

COUNTED = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}


def stored(deployment: Deployment) -> PartitionCounts:
    found = PartitionCounts.decode(deployment.zookeeper.value(NODE))
    assert found is not None
    return found


def test_members_count_what_they_commit_by_message_by_batch_and_by_chunk(
    deployment: Deployment,
) -> None:
    broker = deployment.broker_of_t([page_view(100), page_view(200)])
    with deployment.connector(**COUNTED) as first:
        stream = one_stream(first)
        next(stream)
        first.commit_offsets()
        assert stored(deployment).cells == {(0, "frontend-1"): 1}
        next(stream)
    assert stored(deployment).cells == {(0, "frontend-1"): 2}
    broker.append("t", 0, [page_view(1_100), page_view(1_200)])
    with deployment.connector(**COUNTED) as second:
        assert len(next(one_stream(second).batches())) == 2
    end = broker.append("t", 0, [page_view(2_100)], codec=1)
    with deployment.connector(**COUNTED) as third:
        assert next(one_stream(third).chunks()).next_offset == end
    found = stored(deployment)
    assert found.cells == {(at * 1_000, "frontend-1"): n for at, n in enumerate((2, 2, 1))}
    assert (found.end, found.since_ms, found.again) == (end, 0, 0)


def test_counts_in_windows_of_another_width_begin_anew_with_a_warning(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    deployment.broker_of_t([page_view(100 * number) for number in range(3)])
    for width_ms, is_said in ((WINDOW_MS, False), (WINDOW_MS, False), (2 * WINDOW_MS, True)):
        with deployment.connector(**{**COUNTED, "window_ms": width_ms}) as member:
            next(one_stream(member))
        assert ("counts_begin_anew" in caplog.text) == is_said
    assert f"audit.window.ms was {WINDOW_MS}" in caplog.text


def test_a_member_that_dies_has_counted_no_message_that_the_next_one_counts(
    deployment: Deployment,
) -> None:
    deployment.broker_of_t([page_view(number) for number in range(10)])
    first = deployment.connector(**COUNTED, autocommit_interval_ms=10**9)
    stream = one_stream(first)
    for _ in range(6):
        next(stream)
    first.commit_offsets()
    for _ in range(2):
        next(stream)
    first.shutdown(commit=False)
    with deployment.connector(**COUNTED) as second:
        stream = one_stream(second)
        assert [next(stream).next_offset for _ in range(4)]
    assert stored(deployment).cells == {(0, "frontend-1"): 10}


def test_counts_are_stored_before_the_offset(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a member that dies in between leaves nothing that the next one does not count."""
    deployment.broker_of_t([page_view(1)])
    with deployment.connector(**COUNTED) as consumer:
        registry = deployment.registry_of(consumer)
        written: list[str] = []
        put = registry.put

        def noted(path: str, *given: Any) -> int:
            written.append(path)
            return put(path, *given)

        next(one_stream(consumer))
        monkeypatch.setattr(registry, "put", noted)
        consumer.commit_offsets()
        assert written[:2] == [NODE, paths.offset_path("g", "t", BrokerPartition(0, 0))]


def test_an_idle_partition_has_counts_from_the_groups_offset_on(deployment: Deployment) -> None:
    end = deployment.broker_of_t([page_view(1)]).end("t", 0)
    with deployment.connector() as plain:
        next(one_stream(plain))
    with deployment.connector(**COUNTED) as counting:
        one_stream(counting)
    assert (stored(deployment).start, stored(deployment).end) == (end, end)
    assert stored(deployment).since_ms > 0
