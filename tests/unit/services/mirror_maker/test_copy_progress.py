"""The bookkeeping of one copy: random histories against a target that is a byte string."""

import random

import pytest

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.services.mirror_maker.copy_progress import (
    Backoff,
    PartitionCopy,
    choose_batch,
    choose_target,
)

NAME = TopicPartition("t", 1, 0)


def copy_of(
    start: int | None = 0, name: TopicPartition = NAME, bytes_max: int = 100
) -> PartitionCopy:
    found = PartitionCopy(name, "thread", start, bytes_max, 50, Backoff(0.1, 1.0))
    found.target = BrokerPartition(11, 0)
    return found


def fetch(copy: PartitionCopy, source: bytes, size: int) -> bool:
    """One answer of a source that holds `source`."""
    offset = copy.fetch_offset
    data = source[offset : offset + size]
    if not data:
        copy.found_end(copy.epoch, 1)
        return False
    return copy.fetched(copy.epoch, Chunk(*NAME, offset, data, offset + len(data)), 1)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_the_target_has_all_that_is_confirmed_in_order(seed: int) -> None:
    rng = random.Random(seed)
    source = bytes(rng.randrange(256) for _ in range(rng.randint(1, 400)))
    copy = copy_of()
    durable, in_socket = b"", b""  # what the target stored, and what may be lost on the way
    now_s, committed, last_confirmed = 0.0, 0, 0
    stale: list[tuple[int, Chunk]] = []

    def overlay(stored: bytes, sent: bytes, at: int) -> bytes:
        """The target as seen by a reader that starts at `at` again after a failure."""
        return stored[:at] + sent

    steps = 0
    while committed < len(source):
        steps += 1
        assert steps < 20_000, "it goes on"
        healthy = steps > 10_000
        now_s += 0.05
        choice = rng.random()
        if choice < 0.4 and copy.wants_fetch(now_s):
            fetch(copy, source, rng.randint(1, 50))
        elif choice < 0.45:
            offset = copy.fetch_offset
            data = source[offset : offset + 5]
            if data:
                stale.append((copy.epoch, Chunk(*NAME, offset, data, offset + len(data))))
        elif choice < 0.5 and stale:
            epoch, chunk = stale.pop()
            if chunk.offset == copy.fetch_offset or epoch != copy.epoch:
                assert copy.fetched(epoch, chunk, 1) == (epoch == copy.epoch)
        elif choice < 0.7 and copy.is_ready(now_s):
            chunk = copy.take()
            assert chunk is not None
            assert chunk.offset == copy.confirmed_offset + len(in_socket), "in order, no gap"
            in_socket += bytes(chunk.data)
        elif choice < 0.85 and in_socket:
            durable = overlay(durable, in_socket, copy.confirmed_offset)
            in_socket = b""
            copy.confirm(copy.sent_offset, now_s)
        elif choice < 0.9 and not healthy:
            # The connection broke: the target stored some of it, or all, or nothing.
            kept = in_socket[: rng.randint(0, len(in_socket))]
            durable = overlay(durable, kept, copy.confirmed_offset)
            in_socket = b""
            copy.rewind(now_s, "broke", is_blamed=rng.random() < 0.5)
        elif choice < 0.92:
            copy.is_paused = not copy.is_paused
        elif choice < 0.95:
            committed = copy.confirmed_offset
        assert copy.confirmed_offset <= copy.sent_offset <= copy.fetch_offset
        assert copy.confirmed_offset >= last_confirmed
        last_confirmed = copy.confirmed_offset
        assert durable[: copy.confirmed_offset] == source[: copy.confirmed_offset]
        if healthy:
            copy.is_paused = False
    assert durable == source


def test_no_more_is_fetched_than_may_be_held() -> None:
    copy = copy_of(bytes_max=100)
    source = bytes(1000)
    while copy.wants_fetch(0):
        fetch(copy, source, 40)
    assert copy.fetch_offset == 120  # the last fetch began below the limit
    copy.take()
    assert not copy.wants_fetch(0), "sent is still held"
    copy.confirm(copy.sent_offset, 0)
    assert copy.wants_fetch(0)


def test_what_was_fetched_before_a_rewind_is_not_taken_after_it() -> None:
    copy = copy_of()
    epoch = copy.epoch
    copy.rewind(0, "broke", is_blamed=False)
    assert not copy.fetched(epoch, Chunk(*NAME, 0, b"abc", 3), 1)
    assert copy.fetch_offset == 0


def test_blame_pauses_longer_each_time_until_a_barrier_stands() -> None:
    copy = copy_of()
    pauses = []
    for _ in range(6):
        copy.rewind(10.0, "refused", is_blamed=True)
        pauses.append(round(copy.next_event_s() - 10.0, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert not copy.wants_fetch(10.5)
    assert copy.state == "waiting"
    fetch(copy, b"abc", 3)
    copy.take()
    copy.confirm(3, 11.5)
    assert (copy.is_suspect, copy.state) == (False, "copying")


def test_closing_lets_what_was_sent_be_confirmed_and_sends_no_more() -> None:
    copy = copy_of()
    source = bytes(100)
    fetch(copy, source, 30)
    fetch(copy, source, 30)
    copy.take()
    copy.begin_closing()
    assert copy.take() is None
    assert copy.unconfirmed_bytes == 30
    copy.confirm(30, 0)
    assert (copy.confirmed_offset, copy.unconfirmed_bytes) == (30, 0)


def test_nothing_changes_a_removed_copy() -> None:
    copy = copy_of()
    fetch(copy, bytes(10), 10)
    copy.take()
    copy.remove()
    copy.confirm(10, 0)
    assert copy.confirmed_offset == 0


def ready(number: int, *, suspect: bool = False, confirmed_at_s: float = 0.0) -> PartitionCopy:
    copy = copy_of()
    copy.thread = str(number)
    fetch(copy, bytes(10), 10)
    copy.is_suspect = suspect
    copy.confirmed_at_s = confirmed_at_s
    return copy


def test_a_suspect_travels_alone_and_takes_turns() -> None:
    trusted = [ready(1), ready(2)]
    suspects = [ready(3, suspect=True, confirmed_at_s=5), ready(4, suspect=True, confirmed_at_s=1)]
    everyone = [*trusted, *suspects]
    assert choose_batch(everyone, 9.0, after_alone=False) == [suspects[1]]
    assert choose_batch(everyone, 9.0, after_alone=True) == trusted
    assert choose_batch(suspects, 9.0, after_alone=True) == [suspects[1]]
    assert choose_batch(trusted, 9.0, after_alone=False) == trusted
    assert choose_batch([], 9.0, after_alone=False) == []


def partitions(brokers: list[int], count: int) -> list[BrokerPartition]:
    return [BrokerPartition(broker, number) for broker in brokers for number in range(count)]


@pytest.mark.parametrize("sources", [partitions([1, 2], 2), partitions([1, 2, 3], 4)])
@pytest.mark.parametrize("targets", [partitions([11, 12], 2), partitions([11], 3)])
@pytest.mark.parametrize("seed", range(5))
def test_targets_are_spread_evenly_in_whatever_order_they_are_chosen(
    sources: list[BrokerPartition], targets: list[BrokerPartition], seed: int
) -> None:
    order = sources.copy()
    random.Random(seed).shuffle(order)
    chosen: list[BrokerPartition] = []
    for source in order:
        chosen.append(choose_target(source, sources, targets, chosen))
    loads = [chosen.count(target) for target in targets]
    assert max(loads) - min(loads) <= 1


def test_members_that_choose_at_once_choose_different_targets() -> None:
    sources, targets = partitions([1, 2], 2), partitions([11, 12], 2)
    chosen = {choose_target(source, sources, targets, []) for source in sources}
    assert chosen == set(targets)
    first_two = [choose_target(source, sources, targets, []) for source in (sources[0], sources[2])]
    assert {target.broker_id for target in first_two} == {11, 12}, "two brokers, two brokers"
