"""A fetcher's rounds, one after another on the test's own thread, against a broker in memory."""

from typing import Any

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import PartitionStuck
from kafka2011.consumer.groups.chunk_queues import DAMAGE_ATTEMPTS, ChunkQueue, OwnedPartition
from kafka2011.consumer.groups.fetcher import BrokerFetcher
from kafka2011.consumer.simple import FetchedSet
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.protocol.errors import OffsetOutOfRange, WrongPartition
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import FetchRequest, MultiFetchRequest
from tests.support.scripted_server import ScriptedBroker
from tests.unit.consumer.conftest import Pauses

CHUNKS_MAX = 10


def run_to_pause(
    broker: ScriptedBroker, partitions: list[OwnedPartition], pause_count: int, **settings: object
) -> Pauses:
    """Carry out rounds up to the end of so many pauses, and count the fetches up to each."""
    pauses = Pauses(pause_count)
    config = ConsumerConfig(group_id="g", fetch_wait_ms=0, **settings)  # type: ignore[arg-type]
    fetcher = BrokerFetcher(1, lambda: broker.address, config, ConsumerStats(), pauses)
    pauses.stop = fetcher.loop.stop
    pauses.count_now = lambda: len(requested_parts(broker))
    for owned in partitions:
        fetcher.add(owned)
    fetcher.loop.run()
    return pauses


def partition_of(
    queue: ChunkQueue, at: int | None = 0, topic: str = "t", number: int = 0
) -> OwnedPartition:
    return OwnedPartition(TopicPartition(topic, 1, number), "g_c-0", queue, at, 1000)


def partitions_of(queue: ChunkQueue, count: int, topic: str = "t") -> list[OwnedPartition]:
    return [partition_of(queue, 0, topic, number) for number in range(count)]


def requested_parts(broker: ScriptedBroker) -> list[list[tuple[str, int]]]:
    """Of each fetch, in order."""
    return [
        [(part.topic, part.partition) for part in request.parts]
        for request in broker.requests()
        if isinstance(request, MultiFetchRequest)
    ]


def taken(queue: ChunkQueue) -> Any:
    """The only item of a queue with room for one, which is free again afterwards."""
    found = queue.take(0)
    assert [queue.reserve(), queue.reserve()] == [True, False]
    return found.item


@pytest.mark.parametrize(("partitions", "requests"), [(10, 1), (11, 2), (16, 2), (25, 3)])
def test_each_partition_is_asked_before_an_idle_pause_and_few_twice(
    broker: ScriptedBroker, partitions: int, requests: int
) -> None:
    pauses = run_to_pause(broker, partitions_of(ChunkQueue(CHUNKS_MAX), partitions), 6)
    assert pauses.counts == [requests * number for number in range(1, 7)]
    assert not any(pauses.were_set)
    asked = requested_parts(broker)
    for start in range(0, len(asked), requests):
        of_one_pause = {part for parts in asked[start : start + requests] for part in parts}
        assert len(of_one_pause) == partitions


@pytest.mark.parametrize(
    ("others", "counts"), [(2, [1, 2, 3, 4]), (0, [0, 0, 0, 0])], ids=["another stream", "no other"]
)
def test_a_stream_without_room_does_not_keep_an_idle_fetcher_busy(
    broker: ScriptedBroker, others: int, counts: list[int]
) -> None:
    full = ChunkQueue(CHUNKS_MAX)
    assert all(full.reserve() for _ in range(CHUNKS_MAX))
    owned = partitions_of(full, 5, "full") + partitions_of(ChunkQueue(CHUNKS_MAX), others)
    pauses = run_to_pause(broker, owned, 4)
    assert pauses.counts == counts
    assert not any(pauses.were_set)
    assert {topic for parts in requested_parts(broker) for topic, _ in parts} <= {"t"}
    assert all(len(parts) == others for parts in requested_parts(broker))
    assert not pauses.is_set()
    full.give_back()
    assert pauses.is_set(), "room ends the pause"


@pytest.mark.parametrize(("partitions", "waits"), [(CHUNKS_MAX - 1, True), (CHUNKS_MAX, False)])
def test_a_fetch_that_keeps_the_last_room_does_not_wait_at_the_broker(
    broker: ScriptedBroker, partitions: int, waits: bool
) -> None:
    """The other brokers of the stream would have no room for as long as this one has no data."""
    fetcher = BrokerFetcher(
        1, lambda: broker.address, ConsumerConfig(group_id="g"), ConsumerStats(), Pauses(1)
    )
    for owned in partitions_of(ChunkQueue(CHUNKS_MAX), partitions):
        fetcher.add(owned)
    plan = fetcher.plan()
    assert len(plan.reads) == partitions
    assert (plan.wait_s is None) is waits
    fetcher.abandoned()


def test_a_quiet_fetcher_waits_for_more_partitions_than_there_is_room_for_and_loses_nothing(
    broker: ScriptedBroker,
) -> None:
    queue = ChunkQueue(CHUNKS_MAX)
    config = ConsumerConfig(group_id="g")
    fetcher = BrokerFetcher(1, lambda: broker.address, config, ConsumerStats(), Pauses(99))
    for owned in partitions_of(queue, 25):
        fetcher.add(owned)
    for _ in range(4):  # all are asked, and none has anything
        fetcher.loop.round()
    plan = fetcher.plan()
    assert (len(plan.reads), plan.wait_s) == (25, None), "it does not wait for all of them"
    assert queue.has_room()
    sets = {number: encode([b"%d" % number]) for number in range(25)}
    for number in sets:
        broker.append("t", number, [b"%d" % number])
    found: dict[int, list[bytes]] = {}
    for _ in range(20):
        fetcher.loop.round()
        while not queue.is_empty:
            item = queue.take(0).item
            found.setdefault(item.partition, []).append(bytes(item.data))
    assert found == {number: [data] for number, data in sets.items()}
    fetcher.loop.client().close()


@pytest.mark.parametrize("stored", [None, 700])
def test_a_partition_without_a_start_offset_is_reported_with_room_for_one_chunk(
    broker: ScriptedBroker, stored: int | None
) -> None:
    broker.logs["t", 0] = bytearray()
    queue = ChunkQueue(1)
    run_to_pause(broker, [partition_of(queue, stored)], 1, autooffset_reset="earliest")
    stuck = taken(queue)
    assert isinstance(stuck, PartitionStuck)
    assert "autooffset.reset=earliest is neither smallest nor largest" in stuck.cause


def test_damage_is_fetched_again_before_the_partition_is_stuck(broker: ScriptedBroker) -> None:
    broker.logs["t", 0] = bytearray(b"\0\0\0\1" + bytes(40))
    queue = ChunkQueue(1)
    run_to_pause(broker, [partition_of(queue)], 1)
    assert len(requested_parts(broker)) == DAMAGE_ATTEMPTS
    assert isinstance(taken(queue), PartitionStuck)


@pytest.mark.parametrize("code", [OffsetOutOfRange.code, WrongPartition.code])
def test_a_partition_that_fails_again_keeps_no_room_and_waits(
    broker: ScriptedBroker, code: int
) -> None:
    """Out of range at the log's very start: the broker is starting, or its disk failed."""
    broker.errors["t", 0] = code
    queue = ChunkQueue(1)
    owned = partition_of(queue)
    owned.has_raised = True
    run_to_pause(broker, [owned], 2)
    assert len(requested_parts(broker)) == 1
    assert owned.retry_at_s > 0
    assert queue.reserve(), "the room is free again"


@pytest.mark.parametrize("stored", [None, 0], ids=["start offset", "chunk"])
def test_what_comes_after_a_seek_is_dropped(broker: ScriptedBroker, stored: int | None) -> None:
    broker.append("t", 0, [b"a", b"b"])
    queue = ChunkQueue(1)
    owned = partition_of(queue, stored)

    def seek_during_the_first_fetch(request: FetchRequest, data: bytes) -> bytes:
        if request.offset == 0:
            owned.move_to(11)
        return data

    broker.on_offsets = lambda: owned.move_to(11)
    broker.damage = seek_during_the_first_fetch
    run_to_pause(broker, [owned], 2)
    assert taken(queue).payloads() == [b"b"]


def test_a_bug_is_tried_again_and_keeps_no_room(
    monkeypatch: pytest.MonkeyPatch, broker: ScriptedBroker
) -> None:
    """It must not end the thread, after which the broker's partitions would stand still."""
    broker.append("t", 0, [b"x"])
    bugs = [ZeroDivisionError("one"), ZeroDivisionError("two")]
    valid_bytes = FetchedSet.valid_bytes

    def failing(answer: FetchedSet) -> int:
        if bugs:
            raise bugs.pop()
        return valid_bytes(answer)

    queue = ChunkQueue(1)
    monkeypatch.setattr(FetchedSet, "valid_bytes", failing)
    run_to_pause(broker, [partition_of(queue)], 1)
    assert bugs == []
    assert taken(queue).payloads() == [b"x"]
