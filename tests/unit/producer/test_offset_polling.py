"""`flush.method=offsets`: polling brokers that show what was sent only after their own flush."""

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka2011.producer import BrokerUnavailable, NotDurable, Producer, offset_polling
from kafka2011.producer.offset_polling import is_visible
from kafka2011.producer.requests import SetPart
from kafka2011.protocol.message_set import encode
from tests.support.raw_requests import offsets_answer
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.producer.support import sync_producer

X = encode([b"x"])


@pytest.fixture
def original(server: ScriptedBroker) -> ScriptedBroker:
    """Answers Offsets at once, and shows what was sent only after its own flush."""
    server.holds_back = True
    return server


def polling_producer(broker: ScriptedBroker, **settings: Any) -> Producer:
    return sync_producer(broker, **{"flush_method": "offsets", "sleep": lambda _: None, **settings})


def flush_at(broker: ScriptedBroker, number: int) -> None:
    """Let the broker flush before it answers the n-th Offsets request from now on."""
    requests = itertools.count(1)

    def look() -> None:
        if next(requests) == number:
            broker.flush()

    broker.on_offsets = look


def test_an_original_broker_answers_the_barrier_too_early_and_polling_waits(original) -> None:
    with polling_producer(original, flush_method="barrier") as producer:
        producer.send_set("t", X, partition=0)
        producer.flush()  # why the setting exists
    with polling_producer(original) as producer:
        producer.send_set("t", X, partition=0)
        with pytest.raises(NotDurable, match="did not show") as caught:
            producer.flush(timeout_ms=50)
    assert [(lost.topic, lost.sends) for lost in caught.value.unconfirmed] == [("t", 1)]


def test_an_answer_without_an_offset_is_no_base(original) -> None:
    original.offsets_answer = offsets_answer()
    with polling_producer(original) as producer:
        with pytest.raises(BrokerUnavailable, match="without an offset"):
            producer.send_set("t", X, partition=0)
        original.offsets_answer = None
    assert original.log("t") == b""


def test_flush_returns_when_the_broker_shows_all_partitions(original) -> None:
    flush_at(original, 9)  # two bases, then some rounds of two
    with polling_producer(original) as producer:
        producer.send_sets([SetPart("a", 0, X), SetPart("b", 3, encode([b"yy"]))], broker_id=0)
        producer.send_set("a", encode([b"z"]), broker_id=0, partition=0)
        producer.flush()
        assert original.barrier_count() == 10
        producer.flush()  # nothing new: asks nothing
        assert original.barrier_count() == 10
        producer.send_set("a", encode([b"again"]), broker_id=0, partition=0)
        flush_at(original, 1)
        producer.flush()


def test_what_stood_unflushed_before_is_not_taken_for_ours(original) -> None:
    """Another producer's bytes, as many as ours, become visible with ours, not instead of them."""
    original.logs["t", 0] = bytearray(encode([b"theirs"]))
    with polling_producer(original) as producer:
        producer.send_set("t", encode([b"ours00"]), broker_id=0, partition=0)
        with pytest.raises(NotDurable):
            producer.flush(timeout_ms=30)
        producer.send_set("t", encode([b"ours00"]), broker_id=0, partition=0)
        flush_at(original, 3)
        producer.flush()


def send_and_break(producer: Producer, broker: ScriptedBroker) -> None:
    """Send a set, which arrives, on a connection that breaks before it is flushed."""
    producer.send_set("t", X, partition=0)
    wait_until(lambda: len(broker.log("t")) == len(X), "the first set arrives")
    broker.hang_up()
    with pytest.raises(NotDurable):
        producer.flush(timeout_ms=30)


def test_bytes_of_a_broken_connection_do_not_count_for_later_ones(original) -> None:
    with polling_producer(original) as producer:
        send_and_break(producer, original)
        producer.send_set("t", X, partition=0)
        wait_until(lambda: len(original.log("t")) == 2 * len(X), "the second set arrives")
        original.flush()
        producer.send_set("t", X, partition=0)
        with pytest.raises(NotDurable):
            producer.flush(timeout_ms=30)  # the first two are flushed, the last one is not
        producer.send_set("t", X, partition=0)
        flush_at(original, 3)
        producer.flush()
        flush_at(original, 2)  # the doubt is over: it may come before the first look
        producer.send_set("t", X, partition=0)
        producer.flush()


def test_what_a_broken_connection_lost_is_waited_for_once(original, monkeypatch) -> None:
    """A broker that flushes each set, and has not received the first one."""
    with polling_producer(original) as producer:
        send_and_break(producer, original)
        original.logs["t", 0].clear()
        original.holds_back = False
        producer.send_set("t", X, partition=0)
        with pytest.raises(NotDurable, match="did not show"):
            producer.flush(timeout_ms=30)
        monkeypatch.setattr(offset_polling, "SETTLED_NS", 0)  # the original flushed meanwhile
        producer.send_set("t", X, partition=0)
        producer.flush()


def test_a_partition_that_the_broker_chose_is_never_known(server) -> None:
    with polling_producer(server) as producer:
        producer.send("t", b"x")
        producer.send_set("t", X, broker_id=0, partition=0)
        with pytest.raises(NotDurable, match="chose the partition") as caught:
            producer.flush()
        (lost,) = caught.value.unconfirmed
        assert (lost.topic, lost.sends, lost.set_bytes) == ("t", 1, len(X))
        producer.flush()  # reported once


def test_the_asynchronous_producer_polls_too(server) -> None:
    with polling_producer(server, producer_type="async", batch_size=20) as producer:
        for _ in range(50):
            producer.send("t", b"x")
        with pytest.raises(NotDurable, match="chose the partition") as caught:
            producer.flush()
        assert sum(lost.set_bytes for lost in caught.value.unconfirmed) == 50 * len(X)


def test_a_dropped_message_is_not_durable(server) -> None:
    """0.7.2 drops a message above its limit without a word and keeps the connection."""
    with polling_producer(server) as producer:
        producer.send_set("t", X, broker_id=0, partition=0)
        producer.flush()
        server.logs["t", 0].clear()
        producer.send_set("t", X, broker_id=0, partition=0)
        with pytest.raises(NotDurable):
            producer.flush(timeout_ms=30)


def test_a_broker_that_hangs_up_before_the_send_took_nothing(server) -> None:
    server.on_offsets = server.hang_up
    with polling_producer(server) as producer:
        with pytest.raises(BrokerUnavailable, match="no high watermark of the partition"):
            producer.send_set("t", X, broker_id=0, partition=0)
        assert server.logs == {}
        server.on_offsets = lambda: None
        producer.send_set("t", X, broker_id=0, partition=0)
        producer.flush()


SIZES = st.integers(1, 3)
OF_OTHERS = st.lists(st.tuples(st.sampled_from(["theirs", "flush"]), SIZES), max_size=6)
OF_ALL = st.lists(st.tuples(st.sampled_from(["ours", "theirs", "flush"]), SIZES), max_size=6)


@given(before=OF_OTHERS, during=OF_ALL, after=OF_OTHERS)
@example(
    before=[("theirs", 1)],
    during=[("ours", 1), ("theirs", 1), ("flush", 1), ("ours", 1), ("ours", 1)],
    after=[],
)
def test_what_is_called_visible_was_flushed(before, during, after) -> None:
    """Any interleaving of ours, theirs and flushes, as long as their bytes do not look like ours:
    the one case that no answer tells apart is theirs, as many as are missing of ours."""
    end = shown = own = their_unflushed = 0
    ours: list[tuple[int, int]] = []  # start, end

    def play(steps: Any) -> None:
        nonlocal end, shown, own, their_unflushed
        for kind, size in steps:
            if kind == "flush":
                shown = end
                continue
            end += size
            if kind == "ours":
                own += size
                ours.append((end - size, end))
            else:
                their_unflushed += size

    play(before)
    base = shown
    their_unflushed = end - shown
    play(during)
    first = shown
    for step in [("flush", 0), *after]:
        if own and is_visible(base, own, first, shown) and shown < ours[-1][1]:
            # Only when their bytes make up exactly for those of ours that are missing.
            missing = sum(max(0, own_to - max(own_from, shown)) for own_from, own_to in ours)
            assert shown == base + own
            assert their_unflushed >= missing > 0
        play([step])
    if own and end == base + own:  # the only writer: it must be noticed, too
        assert is_visible(base, own, first, end)
