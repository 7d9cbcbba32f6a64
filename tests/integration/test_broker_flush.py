"""Flush, visibility and the barrier (docs/guarantees.md, docs/protocol.md), by a real process."""

import threading
from pathlib import Path

import pytest

from tests.support.brokers import RunningBroker, start_broker
from tests.support.raw_requests import (
    EMPTY,
    OUT_OF_RANGE,
    answer,
    entry,
    fetch,
    multi_produce,
    offsets,
    offsets_answer,
    produce,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

V = entry(b"hello")
NEVER = {"log_flush_interval": 10**6, "log_default_flush_scheduler_interval_ms": 10**6}
SLOW_MS = 2000  # long enough for others to be answered meanwhile on any machine
SLOW_DISK = {"KAFKA2011_FAILPOINTS": f"before_flush=sleep:{SLOW_MS}"}


def latest(broker: RunningBroker, topic: bytes, partition: int = 0) -> bytes:
    """The latest offset, asked on a connection that never produced."""
    with broker.connect() as other:
        return other.ask(offsets(topic, -1, 1, partition))


def test_visibility_of_0_7_by_count(tmp_path: Path) -> None:
    """What the original did when it was recorded, with the timer out of the way."""
    with (
        start_broker(
            tmp_path, log_flush_interval=500, log_default_flush_scheduler_interval_ms=10**6
        ) as broker,
        broker.connect() as client,
    ):
        client.send(produce(b"t", V))
        assert client.ask(fetch(b"t")) == EMPTY
        assert client.ask(fetch(b"t", 15)) == OUT_OF_RANGE
        assert latest(broker, b"t") == offsets_answer(0)
        client.send(produce(b"t", V * 498))
        assert client.ask(fetch(b"t")) == EMPTY
        assert latest(broker, b"t") == offsets_answer(0)
        client.send(produce(b"t", V))
        assert client.ask(fetch(b"t")) == answer((V * 500)[:10_000])
        assert latest(broker, b"t") == offsets_answer(7500)


def test_inner_messages_count_for_the_flush_interval(tmp_path: Path) -> None:
    from tests.vectors import vector

    with (
        start_broker(
            tmp_path, log_flush_interval=10, log_default_flush_scheduler_interval_ms=10**6
        ) as broker,
        broker.connect() as client,
    ):
        client.send(produce(b"t", vector("S6")))  # ten messages in one wrapper
        assert client.ask(fetch(b"t")) == answer(vector("S6"))


def test_visibility_of_0_7_by_time(tmp_path: Path) -> None:
    """The scheduler keeps 0.7's 3000 ms when only the interval is set."""
    with (
        start_broker(tmp_path, log_default_flush_interval_ms=300) as broker,
        broker.connect() as client,
    ):
        client.send(produce(b"t", V))
        assert client.ask(fetch(b"t")) == EMPTY
        wait_until(lambda: client.ask(fetch(b"t")) == answer(V), "visible by the timer")


def test_interval_of_one_topic(tmp_path: Path) -> None:
    with (
        start_broker(
            tmp_path,
            log_default_flush_scheduler_interval_ms=50,
            log_default_flush_interval_ms=10**6,
            topic_flush_intervals_ms="fast:60",
        ) as broker,
        broker.connect() as client,
    ):
        client.send(produce(b"slow", V) + produce(b"fast", V))
        wait_until(lambda: client.ask(fetch(b"fast")) == answer(V), "the fast topic visible")
        assert client.ask(fetch(b"slow")) == EMPTY


def test_group_commit_shows_everything_soon(tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker, broker.connect() as client:
        client.send(produce(b"t", V))
        wait_until(lambda: client.ask(fetch(b"t")) == answer(V), "visible")


def test_at_interval_one_a_pipelined_fetch_sees_the_produce_before_it(tmp_path: Path) -> None:
    with start_broker(tmp_path, log_flush_interval=1) as broker, broker.connect() as client:
        for count in range(1, 101):
            client.send(produce(b"t", V) + fetch(b"t"))
            assert client.response() == answer(V * count)


def test_interval_reached_holds_only_the_connection_that_reached_it(tmp_path: Path) -> None:
    with (
        start_broker(tmp_path, log_flush_interval=1, environment=SLOW_DISK) as broker,
        broker.connect() as client,
        broker.connect() as other,
    ):
        client.send(produce(b"t", V))
        wait_until(lambda: (broker.log_dir / "t-0").exists(), "the produce arrived")
        for _ in range(3):
            assert other.ask(fetch(b"t")) == EMPTY, "it waited for another's flush"
        assert client.ask(fetch(b"t")) == answer(V), "its own request overtook its flush"


# --- the barrier ---------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, NEVER, {"log_flush_interval": 1}])
def test_barrier_answers_when_all_of_this_connection_is_durable(
    tmp_path: Path, settings: dict[str, int]
) -> None:
    with (
        start_broker(tmp_path, num_partitions=3, environment=SLOW_DISK, **settings) as broker,
        broker.connect() as client,
    ):
        client.send(produce(b"a", V) + produce(b"a", V, 2) + produce(b"b", V * 2, -1))
        client.send(multi_produce((b"c", 0, V), (b"c", 1, V * 3)))
        assert client.ask(offsets(b"a", -1, 1)) == offsets_answer(15)
        # Everything is visible to others at the moment of the answer.
        assert latest(broker, b"a", 2) == offsets_answer(15)
        assert latest(broker, b"c", 0) == offsets_answer(15)
        assert latest(broker, b"c", 1) == offsets_answer(45)
        ends = [latest(broker, b"b", partition) for partition in range(3)]
        assert sorted(ends) == sorted([offsets_answer(0), offsets_answer(0), offsets_answer(30)])


def test_barrier_for_a_topic_that_does_not_exist_is_as_good(tmp_path: Path) -> None:
    with (
        start_broker(tmp_path, environment=SLOW_DISK, **NEVER) as broker,
        broker.connect() as client,
    ):
        client.send(produce(b"t", V))
        assert client.ask(offsets(b"elsewhere", -1, 1)) == offsets_answer(0)
        assert latest(broker, b"t") == offsets_answer(15)


def test_only_latest_is_a_barrier(tmp_path: Path) -> None:
    with start_broker(tmp_path, environment=SLOW_DISK) as broker, broker.connect() as client:
        client.send(produce(b"t", V))
        assert client.ask(offsets(b"t", -2, 1)) == offsets_answer(0)
        assert client.ask(fetch(b"t")) == EMPTY, "it waited for the flush"


def test_a_connection_that_never_produced_never_waits(tmp_path: Path) -> None:
    with (
        start_broker(tmp_path, environment=SLOW_DISK) as broker,
        broker.connect() as client,
        broker.connect() as other,
    ):
        client.send(produce(b"t", V))
        wait_until(lambda: (broker.log_dir / "t-0").exists(), "the produce arrived")
        assert other.ask(offsets(b"t", -1, 1)) == offsets_answer(0), "it waited for the flush"


def test_requests_behind_a_barrier_wait_their_turn(tmp_path: Path) -> None:
    with start_broker(tmp_path, environment=SLOW_DISK) as broker, broker.connect() as client:
        client.send(produce(b"t", V) + offsets(b"t", -1, 1) + fetch(b"t") + produce(b"t", V))
        client.send(offsets(b"t", -1, 1) + fetch(b"t", 15))
        assert client.response() == offsets_answer(15)
        assert client.response() == answer(V)
        assert client.response() == offsets_answer(30)
        assert client.response() == answer(V)


def test_barrier_closes_when_a_set_was_dropped_for_its_size(tmp_path: Path) -> None:
    with start_broker(tmp_path, max_message_size=100) as broker, broker.connect() as client:
        client.send(produce(b"t", V) + produce(b"t", entry(bytes(101))))
        wait_until(lambda: client.ask(fetch(b"t")) == answer(V), "the connection stays usable")
        client.send(offsets(b"t", -1, 1))
        assert client.is_closed_by_broker()


def test_two_barriers_at_once_and_many_producers(tmp_path: Path) -> None:
    with start_broker(tmp_path, num_partitions=4) as broker:
        problems: list[str] = []

        def work(number: int) -> None:
            with broker.connect() as client:
                for count in range(1, 51):
                    partition = number % 4
                    client.send(produce(b"t%d" % number, V * 7, partition))
                    found = client.ask(offsets(b"t%d" % number, -1, 1, partition))
                    if found != offsets_answer(105 * count):
                        problems.append(f"{number}: {found.hex()} after {count}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems
