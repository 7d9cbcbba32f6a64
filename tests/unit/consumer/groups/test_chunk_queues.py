"""Queues and grants: bounded, and nothing fetched under a revoked grant ever comes out."""

import threading

import pytest

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.errors import ConsumerTimeout
from kafka2011.consumer.groups.chunk_queues import DAMAGE_ATTEMPTS, ChunkQueue, OwnedPartition
from kafka2011.consumer.groups.delivery import Grant
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.consumer.stream import MessageStream
from kafka2011.protocol.message_set import encode
from tests.support.waiting import wait_until

NAME = TopicPartition("t", 1, 0)


@pytest.fixture
def queue() -> ChunkQueue:
    return ChunkQueue(2)


@pytest.fixture
def owned(queue: ChunkQueue) -> OwnedPartition:
    return OwnedPartition(NAME, "g_c-0", queue, 0, 100)


def put(owned: OwnedPartition, start: int, grant: Grant | None = None) -> bool:
    """Puts the chunk of ten bytes from `start`, fetched under `grant` (default: the present one);
    False when it was dropped."""
    assert owned.queue.reserve()
    chunk = Chunk(*NAME, start, b"", start + 10)
    return owned.queue.put(owned, grant or owned.grant, chunk)


def taken(queue: ChunkQueue) -> int | None:
    """The offset of the next chunk; None when nothing may come out now."""
    try:
        return queue.take(0).item.offset
    except ConsumerTimeout:
        return None


class Sleeper:
    """What waits for room."""

    is_awake = False

    def wake(self) -> None:
        self.is_awake = True


def test_room_counts_what_is_on_its_way(queue: ChunkQueue, owned: OwnedPartition) -> None:
    assert [queue.reserve() for _ in range(3)] == [True, True, False]
    queue.give_back()
    assert put(owned, 0)
    assert not queue.reserve()
    room, at_once = Sleeper(), Sleeper()
    queue.wake_when_room(room)
    assert not room.is_awake
    assert taken(queue) == 0
    assert room.is_awake
    assert queue.reserve()
    queue.give_back()
    queue.give_back()
    queue.wake_when_room(at_once)
    assert at_once.is_awake
    assert queue.reserve()


def test_what_was_asked_for_before_a_seek_is_dropped_and_moves_nothing(
    queue: ChunkQueue, owned: OwnedPartition
) -> None:
    old = owned.grant
    owned.move_to(50)
    assert not put(owned, 0, old)
    assert owned.reread_from(10, old) is None
    assert owned.fetch_offset == owned.delivered_offset() == owned.processed_offset() == 50
    assert put(owned, 50)
    assert owned.fetch_offset == 60
    assert taken(queue) == 50
    assert owned.reread_from(40, owned.grant) is owned.grant
    assert owned.fetch_offset == 40


def test_queued_chunks_of_a_revoked_grant_do_not_come_out(
    queue: ChunkQueue, owned: OwnedPartition
) -> None:
    assert put(owned, 0)
    assert put(owned, 10)
    owned.grant.revoke()
    assert taken(queue) is None


def test_a_suspended_grant_keeps_everything_where_it_is(
    queue: ChunkQueue, owned: OwnedPartition
) -> None:
    put(owned, 0)
    owned.grant.suspend()
    assert taken(queue) is None
    owned.move_to(50)
    assert not owned.grant.open, "a seek does not end the suspension"
    put(owned, 50)
    owned.grant.resume()
    assert taken(queue) == 50


def test_what_was_fetched_before_a_reset_comes_out_and_moves_nothing(
    queue: ChunkQueue, owned: OwnedPartition
) -> None:
    old = owned.grant
    put(owned, 0)
    assert owned.reset(old, 50)
    assert not owned.reset(old, 70), "of a read that was planned before"
    assert put(owned, 50)
    assert taken(queue) == 0
    old.last = old.done = Chunk(*NAME, 0, b"", 10)
    assert owned.delivered_offset() == owned.processed_offset() == 50
    assert owned.reread_from(5, old) is old, "nothing of it can be fetched again"
    assert owned.fetch_offset == 60
    assert taken(queue) == 50


@pytest.mark.parametrize("resets", [1, 2])
def test_a_suspension_and_a_release_reach_what_was_fetched_before_resets(
    queue: ChunkQueue, owned: OwnedPartition, resets: int
) -> None:
    assert put(owned, 0)
    for number in range(resets):
        owned.suspend()
        assert owned.reset(owned.grant, 50 + number)
        assert taken(queue) is None
        owned.resume()
    assert put(owned, 60)
    assert taken(queue) == 0
    owned.revoke()
    assert taken(queue) is None


def test_a_seek_drops_what_was_fetched_before_a_reset(
    queue: ChunkQueue, owned: OwnedPartition
) -> None:
    assert put(owned, 0)
    assert owned.reset(owned.grant, 50)
    owned.move_to(20)
    assert put(owned, 20)
    assert taken(queue) == 20


def test_what_stands_before_damage_is_delivered_after_a_reset_and_the_partition_is_not_stuck(
    queue: ChunkQueue, owned: OwnedPartition
) -> None:
    data = bytearray(encode([b"good", b"bad"]))
    data[-1] ^= 1
    bad_offset = len(encode([b"good"]))
    for start in (0, bad_offset):
        assert queue.reserve()
        chunk = Chunk(*NAME, start, memoryview(data)[start:], len(data))
        assert queue.put(owned, owned.grant, chunk)
    owned.damage_count = DAMAGE_ATTEMPTS
    assert owned.reset(owned.grant, 500)
    stream = MessageStream(queue, 0, ConsumerStats())
    assert next(stream).payload == b"good"
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert owned.fetch_offset == 500
    assert owned.retry_at_s == 0


def test_resets_keep_no_grants_that_nothing_was_fetched_under(owned: OwnedPartition) -> None:
    assert put(owned, 0)
    for target in range(100, 0, -1):
        assert owned.reset(owned.grant, target)
    assert len(owned.earlier) == 1
    owned.grant.last = Chunk(*NAME, 1, b"", 10)  # so what came before it was delivered
    assert owned.reset(owned.grant, 50)
    assert len(owned.earlier) == 1


@pytest.mark.parametrize("end", ["resume", "revoke", "close"])
def test_waiting_for_a_grant_ends_with_its_suspension(
    queue: ChunkQueue, owned: OwnedPartition, end: str
) -> None:
    owned.grant.suspend()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(queue.await_grant(owned.grant)))
    thread.start()
    assert answers == []
    if end == "close":
        queue.close()
    else:
        with queue.lock:
            getattr(owned.grant, end)()
            queue.lock.notify_all()
    wait_until(lambda: answers, "an answer")
    thread.join()
    assert answers == [end == "resume"]


def test_a_closed_queue_ends_every_take_and_takes_nothing(
    queue: ChunkQueue, owned: OwnedPartition
) -> None:
    queue.close()
    assert not put(owned, 0)
    assert [queue.take(-1) for _ in range(2)] == [None, None]


def test_being_put_aside_is_raised_once_until_something_goes_well(owned: OwnedPartition) -> None:
    assert owned.put_aside()
    first = owned.retry_at_s
    assert not owned.put_aside()
    assert owned.retry_at_s > first
    owned.went_well()
    assert owned.put_aside()
    owned.reset(owned.grant, 50)
    assert owned.put_aside(), "it is another place"


def test_a_partition_that_was_stuck_for_days_is_still_put_aside(owned: OwnedPartition) -> None:
    """2.0**1024 is an OverflowError, which would have failed its broker's other partitions too."""
    owned.failure_count = 2000
    assert owned.put_aside()
