"""Flush, visibility and the barrier (docs/guarantees.md, docs/protocol.md), by a real process."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import RawClient, RunningBroker, start_broker
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
from tests.vectors import vector

pytestmark = pytest.mark.integration

V = entry(b"hello")
NO_TIMER = {"log_default_flush_scheduler_interval_ms": 10**6}
MODES: dict[str, dict[str, int]] = {
    "group commit": {},
    "never": {"log_flush_interval": 10**6, **NO_TIMER},
    "interval 1": {"log_flush_interval": 1},
}
SLOW_MS = 500  # an answer before the flush comes earlier


@pytest.fixture(scope="module", params=MODES)
def slow(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """A broker whose flushes take SLOW_MS, in each mode that a test asks for."""
    environment = {"KAFKA2011_FAILPOINTS": f"before_flush=sleep:{SLOW_MS}"}
    directory = tmp_path_factory.mktemp("slow")
    settings = MODES[request.param]
    with start_broker(directory, num_partitions=3, environment=environment, **settings) as running:
        yield running


@pytest.fixture
def client(slow: RunningBroker) -> Iterator[RawClient]:
    with slow.connect() as connected:
        yield connected


@pytest.fixture(params=["group commit", "interval 1"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RunningBroker, Path]]:
    """A broker whose flushes wait as long as the file exists."""
    file = tmp_path / "held"
    file.touch()
    environment = {"KAFKA2011_FAILPOINTS": f"before_flush=hold:{file}"}
    settings = MODES[request.param]
    with start_broker(tmp_path, environment=environment, **settings) as running:
        yield running, file


def in_mode(*modes: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("slow", modes, indirect=True)


def sees(client: RawClient, topic: bytes, data: bytes) -> None:
    wait_until(lambda: client.ask(fetch(topic)) == answer(data), f"{topic!r} visible")


# --- visibility ----------------------------------------------------------------------------------


def test_visibility_of_0_7_by_count(tmp_path: Path) -> None:
    """What the original did when it was recorded, with the timer out of the way. The last set is a
    wrapper: its ten inner messages count."""
    with (
        start_broker(tmp_path, log_flush_interval=500, **NO_TIMER) as broker,
        broker.connect() as client,
    ):
        client.send(produce(b"t", V))
        assert client.ask(fetch(b"t")) == EMPTY
        assert client.ask(fetch(b"t", 15)) == OUT_OF_RANGE
        assert broker.latest(b"t") == 0
        client.send(produce(b"t", V * 489))
        assert client.ask(fetch(b"t")) == EMPTY
        assert broker.latest(b"t") == 0
        client.send(produce(b"t", vector("S6")))
        assert client.ask(fetch(b"t")) == answer(V * 490 + vector("S6"))
        assert broker.latest(b"t") == 490 * len(V) + len(vector("S6"))


def test_visibility_of_0_7_by_time(tmp_path: Path) -> None:
    """The scheduler keeps 0.7's 3000 ms when only the interval is set."""
    with (
        start_broker(tmp_path, log_default_flush_interval_ms=300) as broker,
        broker.connect() as client,
    ):
        # In one piece, so that no timer comes between the two.
        assert client.ask(produce(b"t", V) + fetch(b"t")) == EMPTY
        sees(client, b"t", V)


def test_interval_of_one_topic(tmp_path: Path) -> None:
    settings = {
        "log_default_flush_scheduler_interval_ms": 50,
        "log_default_flush_interval_ms": 10**6,
        "topic_flush_intervals_ms": "fast:60",
    }
    with start_broker(tmp_path, **settings) as broker, broker.connect() as client:
        client.send(produce(b"slow", V) + produce(b"fast", V))
        sees(client, b"fast", V)
        assert client.ask(fetch(b"slow")) == EMPTY


def test_at_interval_one_a_pipelined_fetch_sees_the_produce_before_it(tmp_path: Path) -> None:
    with start_broker(tmp_path, log_flush_interval=1) as broker, broker.connect() as client:
        for count in range(1, 101):
            client.send(produce(b"t", V) + fetch(b"t"))
            assert client.response() == answer(V * count)


def test_a_flush_holds_no_connection_that_does_not_need_it(
    held: tuple[RunningBroker, Path], request: pytest.FixtureRequest
) -> None:
    """At interval 1 the connection that reached it waits; otherwise only a barrier does, which a
    question for the earliest offset, or of a connection that never produced, is not."""
    broker, file = held
    with broker.connect() as client, broker.connect() as other:
        client.send(produce(b"t", V))
        wait_until(lambda: (broker.log_dir / "t-0").exists(), "the produce arrived")
        assert other.latest(b"t") == 0, "it waited for another's flush"
        assert other.ask(fetch(b"t")) == EMPTY, "it waited for another's flush"
        if request.node.callspec.params["held"] == "group commit":
            assert client.ask(offsets(b"t", -2, 1)) == offsets_answer(0)
            assert client.ask(fetch(b"t")) == EMPTY, "it waited for the flush"
        client.send(fetch(b"t") + offsets(b"t", -1, 1) + fetch(b"t"))
        file.unlink()
        if request.node.callspec.params["held"] == "interval 1":
            assert client.response() == answer(V), "its own request overtook its flush"
        else:
            client.response()
        assert [client.response() for _ in range(2)] == [offsets_answer(15), answer(V)]


# --- the barrier ---------------------------------------------------------------------------------


def test_barrier_answers_when_all_of_this_connection_is_durable(
    slow: RunningBroker, client: RawClient
) -> None:
    client.send(produce(b"a", V) + produce(b"a", V, 2) + produce(b"b", V * 2, -1))
    client.send(multi_produce((b"c", 0, V), (b"c", 1, V * 3)))
    assert client.latest(b"a") == 15
    # Everything is visible to others at the moment of the answer.
    assert [slow.latest(*log) for log in ((b"a", 2), (b"c", 0), (b"c", 1))] == [15, 15, 45]
    assert sorted(slow.latest(b"b", partition) or 0 for partition in range(3)) == [0, 0, 30]


@in_mode("never")
def test_barrier_for_a_topic_that_does_not_exist_is_as_good(
    slow: RunningBroker, client: RawClient
) -> None:
    client.send(produce(b"covered", V))
    assert client.latest(b"elsewhere") == 0
    assert slow.latest(b"covered") == 15


@in_mode("group commit")
def test_requests_behind_a_barrier_wait_their_turn(client: RawClient) -> None:
    one_more = produce(b"turn", V) + offsets(b"turn", -1, 1)
    client.send(one_more + fetch(b"turn") + one_more + fetch(b"turn", 15))
    responses = [client.response() for _ in range(4)]
    assert responses == [offsets_answer(15), answer(V), offsets_answer(30), answer(V)]


def test_barrier_closes_when_a_set_was_dropped_for_its_size(tmp_path: Path) -> None:
    with start_broker(tmp_path, max_message_size=100) as broker, broker.connect() as client:
        client.send(produce(b"t", V) + produce(b"t", entry(bytes(101))))
        sees(client, b"t", V)  # the connection stays usable
        client.send(offsets(b"t", -1, 1))
        assert client.is_closed_by_broker()


def test_two_barriers_at_once_and_many_producers(tmp_path: Path) -> None:
    found: dict[int, list[int | None]] = {number: [] for number in range(8)}

    def work(number: int) -> None:
        with broker.connect() as client:
            for _ in range(50):
                client.send(produce(b"t%d" % number, V * 7, number % 4))
                found[number].append(client.latest(b"t%d" % number, number % 4))

    with start_broker(tmp_path, num_partitions=4) as broker:
        threads = [threading.Thread(target=work, args=(number,)) for number in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert list(found.values()) == [[105 * count for count in range(1, 51)]] * 8
