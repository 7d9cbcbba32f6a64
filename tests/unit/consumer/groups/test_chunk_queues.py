"""Queues and grants: bounded, and nothing fetched under a revoked grant ever comes out."""

import threading

import pytest

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.errors import ConsumerTimeout
from kafka2011.consumer.groups.chunk_queues import ChunkQueue, OwnedPartition
from tests.support.waiting import wait_until

NAME = TopicPartition("t", 1, 0)


def owned_at(queue: ChunkQueue, offset: int = 0) -> OwnedPartition:
    return OwnedPartition(NAME, "g_c-0", queue, offset, 100)


def chunk(offset: int, next_offset: int) -> Chunk:
    return Chunk(*NAME, offset, b"", next_offset)


def test_room_counts_what_is_on_its_way() -> None:
    queue = ChunkQueue(2)
    owned = owned_at(queue)
    room = threading.Event()
    assert queue.reserve()
    assert queue.reserve()
    assert not queue.reserve()
    assert queue.put(owned, owned.grant, chunk(0, 10))
    assert not queue.reserve()
    queue.wake_when_room(room)
    assert not room.is_set()
    taken = queue.take(0)
    assert taken is not None
    assert taken.item == chunk(0, 10)
    assert room.is_set()
    assert queue.reserve()
    queue.give_back()
    queue.give_back()
    at_once = threading.Event()
    queue.wake_when_room(at_once)
    assert at_once.is_set()
    assert queue.reserve()


def test_what_was_asked_for_before_a_seek_is_dropped_and_moves_nothing() -> None:
    queue = ChunkQueue(5)
    owned = owned_at(queue)
    old = owned.grant
    assert queue.reserve()
    owned.move_to(50)
    assert not queue.put(owned, old, chunk(0, 10))
    assert owned.fetch_offset == 50
    assert owned.delivered_offset() == owned.processed_offset() == 50
    assert queue.reserve()
    assert queue.put(owned, owned.grant, chunk(50, 60))
    assert owned.fetch_offset == 60
    taken = queue.take(0)
    assert taken is not None
    assert taken.item == chunk(50, 60)


def test_queued_chunks_of_a_revoked_grant_do_not_come_out() -> None:
    queue = ChunkQueue(5)
    owned = owned_at(queue)
    for start in (0, 10):
        queue.reserve()
        queue.put(owned, owned.grant, chunk(start, start + 10))
    owned.grant.revoke()
    with pytest.raises(ConsumerTimeout):
        queue.take(0)


def test_rereading_changes_nothing_after_the_grant_was_replaced() -> None:
    queue = ChunkQueue(5)
    owned = owned_at(queue)
    old = owned.grant
    owned.move_to(50)
    assert owned.reread_from(10, old) is None
    assert owned.fetch_offset == 50
    fresh = owned.reread_from(40, owned.grant)
    assert fresh is owned.grant
    assert owned.fetch_offset == 40


def test_a_suspended_grant_keeps_everything_where_it_is() -> None:
    queue = ChunkQueue(5)
    owned = owned_at(queue)
    queue.reserve()
    queue.put(owned, owned.grant, chunk(0, 10))
    owned.grant.suspend()
    with pytest.raises(ConsumerTimeout):
        queue.take(20)
    owned.move_to(50)
    assert not owned.grant.open, "a seek does not end the suspension"
    queue.reserve()
    queue.put(owned, owned.grant, chunk(50, 60))
    owned.grant.resume()
    taken = queue.take(0)
    assert taken is not None
    assert taken.item == chunk(50, 60)


@pytest.mark.parametrize("end", ["resume", "revoke", "close"])
def test_waiting_for_a_grant_ends_with_its_suspension(end: str) -> None:
    queue = ChunkQueue(5)
    owned = owned_at(queue)
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


def test_a_closed_queue_ends_every_take_and_takes_nothing() -> None:
    queue = ChunkQueue(5)
    owned = owned_at(queue)
    queue.reserve()
    queue.close()
    assert not queue.put(owned, owned.grant, chunk(0, 10))
    assert queue.take(-1) is None
    assert queue.take(-1) is None


def test_being_put_aside_is_raised_once_until_something_goes_well() -> None:
    owned = owned_at(ChunkQueue(1))
    assert owned.put_aside()
    first = owned.retry_at_s
    assert not owned.put_aside()
    assert owned.retry_at_s > first
    owned.went_well()
    assert owned.put_aside()


def test_a_partition_that_was_stuck_for_days_is_still_put_aside() -> None:
    """2.0**1024 is an OverflowError, which would have failed its broker's other partitions too."""
    owned = owned_at(ChunkQueue(1))
    owned.failure_count = 2000
    assert owned.put_aside()
