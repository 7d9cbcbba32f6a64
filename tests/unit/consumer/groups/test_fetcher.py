"""A fetcher's rounds, one after another on the test's own thread, against a broker in memory."""

import threading
from collections.abc import Callable

import pytest

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import PartitionStuck
from kafka2011.consumer.groups.chunk_queues import DAMAGE_ATTEMPTS, ChunkQueue, OwnedPartition
from kafka2011.consumer.groups.fetcher import BrokerFetcher
from kafka2011.consumer.simple import FetchedSet, SimpleConsumer
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.protocol.errors import OffsetOutOfRange, WrongPartition
from kafka2011.protocol.requests import MultiFetchRequest, decode_request
from tests.support.scripted_server import ScriptedBroker

CHUNKS_MAX = 10


class Pauses(threading.Event):
    """What the fetcher waits on. Pauses are counted instead of slept, and the
    fetcher is stopped at the last."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.ended_by_ourselves = 0
        self.rounds: list[int] = []  # requests before each pause
        self.request_count: Callable[[], int] = lambda: 0
        self.stop: Callable[[], None] = lambda: None
        self._left = count

    def wait(self, timeout: float | None = None) -> bool:
        was_set = self.is_set()
        self.ended_by_ourselves += was_set
        self.rounds.append(self.request_count() - sum(self.rounds))
        self._left -= 1
        if not self._left:
            self.stop()
        return was_set


def run_to_pause(
    broker: ScriptedBroker, partitions: list[OwnedPartition], pause_count: int, **settings: object
) -> Pauses:
    """Carry out rounds up to the end of so many pauses."""
    pauses = Pauses(pause_count)
    fetcher = BrokerFetcher(
        1,
        lambda: broker.address,
        ConsumerConfig(group_id="g", **settings),  # type: ignore[arg-type]
        ConsumerStats(),
        pauses,
    )
    pauses.stop = fetcher.loop.stop
    pauses.request_count = lambda: len(requested_parts(broker))
    for owned in partitions:
        fetcher.add(owned)
    fetcher.loop.run()
    return pauses


def partitions_of(
    queue: ChunkQueue, topic: str, count: int, at: int | None = 0
) -> list[OwnedPartition]:
    names = [TopicPartition(topic, 1, number) for number in range(count)]
    return [OwnedPartition(name, "g_c-0", queue, at, 1000) for name in names]


def requested_parts(broker: ScriptedBroker) -> list[list[tuple[str, int]]]:
    """Of each fetch, in order."""
    with broker.lock:
        requests = [decode_request(frame[4:]) for frame in broker.frames]
    return [
        [(part.topic, part.partition) for part in request.parts]
        for request in requests
        if isinstance(request, MultiFetchRequest)
    ]


@pytest.mark.parametrize(("partitions", "requests"), [(10, 1), (11, 2), (16, 2), (25, 3)])
def test_each_partition_is_asked_before_an_idle_pause_and_few_twice(
    broker: ScriptedBroker, partitions: int, requests: int
) -> None:
    owned = partitions_of(ChunkQueue(CHUNKS_MAX), "t", partitions)
    pauses = run_to_pause(broker, owned, 6)
    assert pauses.rounds == [requests] * 6
    assert pauses.ended_by_ourselves == 0
    asked = requested_parts(broker)
    for start in range(0, len(asked), requests):
        of_one_pause = {part for parts in asked[start : start + requests] for part in parts}
        assert len(of_one_pause) == partitions


def test_a_stream_without_room_does_not_keep_an_idle_fetcher_busy(broker: ScriptedBroker) -> None:
    full = ChunkQueue(CHUNKS_MAX)
    for _ in range(CHUNKS_MAX):
        assert full.reserve()
    owned = partitions_of(full, "full", 5) + partitions_of(ChunkQueue(CHUNKS_MAX), "t", 2)
    pauses = run_to_pause(broker, owned, 4)
    assert pauses.rounds == [1] * 4
    assert all(len(parts) == 2 for parts in requested_parts(broker))
    assert pauses.ended_by_ourselves == 0
    full.give_back()
    assert pauses.is_set(), "room in the other stream ends the pause"


def test_a_fetcher_that_could_ask_nothing_is_woken_by_room(broker: ScriptedBroker) -> None:
    full = ChunkQueue(1)
    assert full.reserve()
    pauses = run_to_pause(broker, partitions_of(full, "t", 3), 1)
    assert pauses.rounds == [0]
    assert not pauses.is_set()
    full.give_back()
    assert pauses.is_set()


@pytest.mark.parametrize("stored", [None, 700])
def test_a_partition_without_a_start_offset_is_reported_with_room_for_one_chunk(
    broker: ScriptedBroker, stored: int | None
) -> None:
    queue = ChunkQueue(1)
    [owned] = partitions_of(queue, "t", 1, stored)
    run_to_pause(broker, [owned], 1, autooffset_reset="earliest")
    found = queue.take(0)
    assert found is not None
    assert isinstance(found.item, PartitionStuck)
    assert "autooffset.reset=earliest is neither smallest nor largest" in found.item.cause
    assert queue.reserve(), "the room is free again"
    assert not queue.reserve()


def test_damage_is_fetched_again_before_the_partition_is_stuck(broker: ScriptedBroker) -> None:
    broker.logs["t", 0] = bytearray(b"\0\0\0\1" + bytes(40))
    queue = ChunkQueue(1)
    run_to_pause(broker, partitions_of(queue, "t", 1), 1)
    assert len(requested_parts(broker)) == DAMAGE_ATTEMPTS
    found = queue.take(0)
    assert found is not None
    assert isinstance(found.item, PartitionStuck)


@pytest.mark.parametrize("code", [OffsetOutOfRange.code, WrongPartition.code])
def test_a_partition_that_fails_again_keeps_no_room_and_waits(
    broker: ScriptedBroker, code: int
) -> None:
    """Out of range at the log's very start: the broker is starting, or its disk failed."""
    broker.errors["t", 0] = code
    queue = ChunkQueue(1)
    [owned] = partitions_of(queue, "t", 1)
    owned.has_raised = True
    run_to_pause(broker, [owned], 2)
    assert len(requested_parts(broker)) == 1
    assert owned.retry_at_s > 0
    assert queue.reserve(), "the room is free again"


def test_a_start_offset_that_comes_after_a_seek_is_dropped(
    monkeypatch: pytest.MonkeyPatch, broker: ScriptedBroker
) -> None:
    broker.append("t", 0, [b"a", b"b"])
    queue = ChunkQueue(1)
    [owned] = partitions_of(queue, "t", 1, None)
    earliest = SimpleConsumer.earliest

    def seek_meanwhile(client: SimpleConsumer, topic: str, partition: int) -> int:
        owned.move_to(11)
        return earliest(client, topic, partition)

    monkeypatch.setattr(SimpleConsumer, "earliest", seek_meanwhile)
    run_to_pause(broker, [owned], 2)
    found = queue.take(0)
    assert found is not None
    assert isinstance(found.item, Chunk)
    assert found.item.payloads() == [b"b"]


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
    run_to_pause(broker, partitions_of(queue, "t", 1), 1)
    assert bugs == []
    found = queue.take(0)
    assert found is not None
    assert isinstance(found.item, Chunk)
    assert found.item.payloads() == [b"x"]
    assert queue.reserve(), "the room is free again"
    assert not queue.reserve()
