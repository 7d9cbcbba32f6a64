from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka2011.producer import BrokerUnavailable, NotDurable, Producer
from kafka2011.producer.offset_polling import is_visible
from kafka2011.producer.requests import SetPart
from kafka2011.protocol.message_set import encode
from tests.support.scripted_server import ScriptedBroker


@pytest.fixture
def original() -> Iterator[ScriptedBroker]:
    """Answers Offsets at once, and shows what was sent only after its own flush."""
    with ScriptedBroker() as running:
        running.holds_back = True
        yield running


def new_producer(broker: ScriptedBroker, **settings: Any) -> Producer:
    return Producer(
        **{
            "broker_list": f"0:127.0.0.1:{broker.address[1]}",
            "flush_method": "offsets",
            "connect_timeout_ms": 300,
            "sleep": lambda _: None,
            **settings,
        }
    )


class FlushesAt:
    """Has the broker flush before it answers the n-th Offsets request."""

    def __init__(self, broker: ScriptedBroker, number: int) -> None:
        self.count = 0
        self._broker = broker
        self._number = number
        broker.on_offsets = self._look

    def _look(self) -> None:
        self.count += 1
        if self.count == self._number:
            self._broker.flush()


def test_the_barrier_is_fooled_by_an_original_broker_and_polling_is_not(
    original: ScriptedBroker,
) -> None:
    with new_producer(original, flush_method="barrier") as producer:
        producer.send_set("t", encode([b"x"]), partition=0)
        producer.flush()  # why the setting exists
    with new_producer(original) as producer:
        producer.send_set("t", encode([b"x"]), partition=0)
        with pytest.raises(NotDurable, match="did not show") as caught:
            producer.flush(timeout_ms=50)
    assert [(p.topic, p.sends) for p in caught.value.unconfirmed] == [("t", 1)]


def test_flush_returns_when_the_broker_shows_all_partitions(original: ScriptedBroker) -> None:
    flushes = FlushesAt(original, 9)  # two bases, then some rounds of two
    with new_producer(original) as producer:
        producer.send_sets(
            [SetPart("a", 0, encode([b"x"])), SetPart("b", 3, encode([b"yy"]))], broker_id=0
        )
        producer.send_set("a", encode([b"z"]), broker_id=0, partition=0)
        producer.flush()
        assert flushes.count == 10
        producer.flush()  # nothing new: asks nothing
        assert flushes.count == 10
        producer.send_set("a", encode([b"again"]), broker_id=0, partition=0)
        FlushesAt(original, 1)
        producer.flush()


def test_what_stood_unflushed_before_is_not_taken_for_ours(original: ScriptedBroker) -> None:
    """Another producer's bytes, as many as ours, become visible with ours, not instead of them."""
    original.logs["t", 0] = bytearray(encode([b"theirs"]))
    with new_producer(original) as producer:
        producer.send_set("t", encode([b"ours00"]), broker_id=0, partition=0)
        with pytest.raises(NotDurable):
            producer.flush(timeout_ms=30)
        producer.send_set("t", encode([b"ours00"]), broker_id=0, partition=0)
        FlushesAt(original, 3)
        producer.flush()


def test_a_partition_that_the_broker_chose_is_never_known(original: ScriptedBroker) -> None:
    original.holds_back = False
    producer = new_producer(original)
    producer.send("t", b"x")
    producer.send_set("t", encode([b"x"]), broker_id=0, partition=0)
    with pytest.raises(NotDurable, match="chose the partition") as caught:
        producer.flush()
    assert [(p.topic, p.sends, p.set_bytes) for p in caught.value.unconfirmed] == [
        ("t", 1, len(encode([b"x"])))
    ]
    producer.flush()  # told once
    producer.close()


def test_a_dropped_message_is_not_durable(original: ScriptedBroker) -> None:
    """0.7.2 drops a message above its limit without a word and keeps the connection."""
    original.holds_back = False
    with new_producer(original) as producer:
        producer.send_set("t", encode([b"x"]), broker_id=0, partition=0)
        producer.flush()
        original.logs["t", 0].clear()
        producer.send_set("t", encode([b"x"]), broker_id=0, partition=0)
        with pytest.raises(NotDurable):
            producer.flush(timeout_ms=30)


def test_a_broker_that_hangs_up_before_the_send_took_nothing(original: ScriptedBroker) -> None:
    original.on_offsets = original.hang_up
    with new_producer(original) as producer:
        with pytest.raises(BrokerUnavailable, match="no high watermark of the partition"):
            producer.send_set("t", encode([b"x"]), broker_id=0, partition=0)
        assert original.logs == {}
        original.on_offsets = lambda: None
        original.holds_back = False
        producer.send_set("t", encode([b"x"]), broker_id=0, partition=0)
        producer.flush()


def test_the_asynchronous_producer_polls_too(original: ScriptedBroker) -> None:
    original.holds_back = False
    with new_producer(original, producer_type="async", queue_time_ms=0) as producer:
        for _ in range(50):
            producer.send("t", b"x")
        with pytest.raises(NotDurable, match="chose the partition"):
            producer.flush()


sizes = st.integers(1, 3)


@given(
    st.lists(st.tuples(st.sampled_from(["theirs", "flush"]), sizes), max_size=6),
    st.lists(st.tuples(st.sampled_from(["ours", "theirs", "flush"]), sizes), max_size=6),
    st.lists(st.tuples(st.sampled_from(["theirs", "flush"]), sizes), max_size=6),
)
@example(
    before=[("theirs", 1)],
    during=[("ours", 1), ("theirs", 1), ("flush", 1), ("ours", 1), ("ours", 1)],
    after=[],
)
def test_what_is_called_visible_was_flushed(before: Any, during: Any, after: Any) -> None:
    """Any interleaving of ours, theirs and flushes, as long as their bytes do not look like ours:
    the one case that no answer tells apart is theirs, as many as are missing of ours."""
    end = shown = base = 0
    own = own_end = their_unflushed = 0
    ours: list[tuple[int, int]] = []  # start, end

    def play(steps: Any) -> None:
        nonlocal end, shown, own, own_end, their_unflushed
        for kind, size in steps:
            if kind == "flush":
                shown = end
            else:
                end += size
                if kind == "ours":
                    own += size
                    own_end = end
                    ours.append((end - size, end))
                else:
                    their_unflushed += size

    play(before)
    base = shown
    their_unflushed = end - shown
    play(during)
    first = shown
    for step in [("flush", 0), *after]:
        if own and is_visible(base, own, first, shown) and shown < own_end:
            # Only when their bytes make up exactly for those of ours that are missing.
            missing = sum(
                own_to - max(own_from, shown) for own_from, own_to in ours if own_to > shown
            )
            assert shown == base + own
            assert their_unflushed >= missing > 0
        play([step])
    if own and end == base + own:  # nobody else wrote: it must be noticed, too
        assert is_visible(base, own, first, end)
