"""The bookkeeping of one copy: random histories against a target that is a byte string."""

import math
import random

import pytest

from kafka2011.consumer.broker_loop import Backoff
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol import message_set
from kafka2011.protocol.message_set import check_entries, encode
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy, choose_batch, choose_target
from kafka2011.services.mirror_maker.set_cutting import RefusedEntry

NAME = TopicPartition("t", 1, 0)
BYTES_MAX = 100
# What may happen to a copy, and how often.
ACTIONS = {
    "fetch": 40,
    "fetch, to be answered late": 5,
    "late answer": 5,
    "send": 20,
    "barrier": 15,
    "connection breaks": 5,
    "pause or resume": 2,
    "commit": 3,
}


def copy_of(thread: str = "thread") -> PartitionCopy:
    found = PartitionCopy(NAME, thread, 0, BYTES_MAX, 50, Backoff(0.1, 1.0))
    found.target = BrokerPartition(11, 0)
    return found


def chunk_of(source: bytes, offset: int, size: int) -> Chunk:
    """The answer to a fetch, of a source that holds `source`."""
    data = source[offset : offset + size]
    return Chunk(*NAME, offset, data, offset + len(data))


def fetch(copy: PartitionCopy, source: bytes, size: int) -> None:
    chunk = chunk_of(source, copy.fetch_offset, size)
    if chunk.data:
        assert copy.fetched(copy.epoch, chunk, 1)
    else:
        copy.found_end(copy.epoch, 1)


@pytest.mark.parametrize("seed", range(60))
def test_the_target_has_all_that_is_confirmed_in_order(seed: int) -> None:
    rng = random.Random(seed)
    source = rng.randbytes(rng.randint(1, 400))
    copy = copy_of()
    durable, in_socket = b"", b""  # what the target stored, and what may be lost on the way
    late: list[tuple[int, int, Chunk]] = []  # answers; epoch and rewinds when they were asked for
    committed = step = 0
    while committed < len(source):
        step += 1
        assert step < 20_000, "it goes on"
        is_healthy = step > 10_000
        now_s = step * 0.05
        before = copy.confirmed_offset
        (action,) = rng.choices(list(ACTIONS), list(ACTIONS.values()))
        if action == "fetch" and copy.wants_fetch(now_s):
            fetch(copy, source, rng.randint(1, 50))
        elif action == "fetch, to be answered late" and copy.fetch_offset < len(source):
            late.append((copy.epoch, copy.rewinds, chunk_of(source, copy.fetch_offset, 5)))
        elif action == "late answer" and late:
            epoch, rewinds, chunk = late.pop()
            is_fresh = rewinds == copy.rewinds
            if chunk.offset == copy.fetch_offset or not is_fresh:
                assert copy.fetched(epoch, chunk, 1) == is_fresh
        elif action == "send" and copy.is_ready(now_s):
            sent = copy.take()
            assert sent is not None
            assert sent.offset == copy.confirmed_offset + len(in_socket), "in order, no gap"
            in_socket += bytes(sent.data)
        elif action == "barrier" and in_socket:
            durable = durable[: copy.confirmed_offset] + in_socket
            in_socket = b""
            copy.confirm(copy.sent_offset, now_s)
        elif action == "connection breaks" and not is_healthy:
            # The target stored some of it, or all, or nothing.
            durable = durable[: copy.confirmed_offset] + in_socket[: rng.randint(0, len(in_socket))]
            in_socket = b""
            copy.rewind(now_s, "broke", is_blamed=rng.random() < 0.5)
        elif action == "pause or resume":
            copy.is_paused = not (copy.is_paused or is_healthy)
        elif action == "commit":
            committed = copy.confirmed_offset
        assert before <= copy.confirmed_offset <= copy.sent_offset <= copy.fetch_offset
        assert durable[: copy.confirmed_offset] == source[: copy.confirmed_offset]
        is_full = copy.fetch_offset - copy.confirmed_offset >= BYTES_MAX  # waiting or sent
        assert copy.wants_fetch(math.inf) == (not copy.is_paused and not is_full)
    assert durable == source


def test_blame_pauses_longer_each_time_until_a_barrier_stands() -> None:
    copy = copy_of()
    pauses = []
    for _ in range(6):
        copy.rewind(10.0, "refused", is_blamed=True)
        pauses.append(round(copy.next_event_s() - 10.0, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert (copy.wants_fetch(10.5), copy.state) == (False, "waiting")
    fetch(copy, b"abc", 3)
    copy.take()
    copy.confirm(3, 11.5)
    assert (copy.is_suspect, copy.state) == (False, "copying")


def test_closing_lets_what_was_sent_be_confirmed_and_removal_does_not() -> None:
    copy = copy_of()
    for _ in range(3):
        fetch(copy, bytes(90), 30)
    copy.take()
    copy.take()
    copy.begin_closing()
    assert (copy.take(), copy.unconfirmed_bytes) == (None, 60)
    assert not copy.fetched(copy.epoch, chunk_of(bytes(90), 60, 30), 1)
    copy.confirm(30, 0)
    assert (copy.confirmed_offset, copy.unconfirmed_bytes) == (30, 30)
    copy.remove()
    copy.confirm(60, 0)
    assert copy.confirmed_offset == 30


@pytest.mark.parametrize("seed", range(40))
def test_what_is_refused_is_cut_down_to_the_entries_at_fault(seed: int) -> None:
    rng = random.Random(seed)
    entries = [encode([rng.randbytes(rng.randint(0, 30))]) for _ in range(rng.randint(1, 120))]
    bad = {one for one in entries if rng.random() < rng.choice([0, 0.02, 0.3])}
    together_max = rng.choice([3, 1000])
    source = b"".join(entries)
    copy = PartitionCopy(NAME, "thread", 0, 10**6, 1000, Backoff(0.1, 1.0))
    copy.target = BrokerPartition(11, 0)
    stored: list[bytes] = []
    refusals = now_s = 0
    while copy.confirmed_offset < len(source):
        now_s += 10
        if copy.fetch_offset < len(source):
            data = memoryview(source)[copy.fetch_offset :]
            whole = Chunk(*NAME, copy.fetch_offset, data, len(source))
            assert copy.fetched(copy.epoch, whole, check_entries(data).entry_count)
        sent = copy.take()
        assert sent is not None
        found = [
            bytes(sent.data[one.offset : one.next_offset]) for one in message_set.entries(sent.data)
        ]
        if len(found) <= together_max and not bad & set(found):
            stored += found
            copy.confirm(copy.sent_offset, now_s)
            continue
        refusals += 1
        alone = copy.rewind(now_s, "hung up", is_blamed=True, is_refusal=True)
        assert (alone is not None) == (copy.is_suspect and len(found) == 1 and refusals > 1)
        if alone is not None:
            assert alone.data in bad
            assert copy.leave_out(RefusedEntry(alone.offset, len(alone.data), "bad"))
    assert stored == [one for one in entries if one not in bad]
    assert refusals <= 8 * (copy.left_out_entries + len(entries) // together_max + 2)


def ready(thread: str, *, is_suspect: bool = False, confirmed_at_s: float = 0.0) -> PartitionCopy:
    copy = copy_of(thread)  # which tells it from the others
    fetch(copy, bytes(10), 10)
    copy.is_suspect = is_suspect
    copy.confirmed_at_s = confirmed_at_s
    return copy


def test_a_suspect_travels_alone_and_takes_turns() -> None:
    trusted = [ready("1"), ready("2")]
    late = ready("3", is_suspect=True, confirmed_at_s=5)
    early = ready("4", is_suspect=True, confirmed_at_s=1)
    for copies, after_alone, batch in (
        ([*trusted, late, early], False, [early]),
        ([*trusted, late, early], True, trusted),
        ([late, early], True, [early]),
        (trusted, False, trusted),
        ([], False, []),
    ):
        assert choose_batch(copies, 9.0, after_alone=after_alone) == batch


def partitions(brokers: list[int], count: int) -> list[BrokerPartition]:
    return [BrokerPartition(broker, number) for broker in brokers for number in range(count)]


@pytest.mark.parametrize("sources", [partitions([1, 2], 2), partitions([1, 2, 3], 4)])
@pytest.mark.parametrize("targets", [partitions([11, 12], 2), partitions([11], 3)])
@pytest.mark.parametrize("seed", range(5))
def test_targets_are_spread_evenly_in_whatever_order_they_are_chosen(
    sources: list[BrokerPartition], targets: list[BrokerPartition], seed: int
) -> None:
    chosen: list[BrokerPartition] = []
    for source in random.Random(seed).sample(sources, len(sources)):
        chosen.append(choose_target(source, sources, targets, chosen))
    loads = [chosen.count(target) for target in targets]
    assert max(loads) - min(loads) <= 1


def test_members_that_choose_at_once_choose_different_targets() -> None:
    sources, targets = partitions([1, 2], 2), partitions([11, 12], 2)
    chosen = [choose_target(source, sources, targets, []) for source in sources]
    assert set(chosen) == set(targets)
    assert {chosen[0].broker_id, chosen[2].broker_id} == {11, 12}, "two brokers, two brokers"
