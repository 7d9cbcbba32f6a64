"""What clients of 0.7 see of a log whose watermark lags behind its flushed end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka2011.broker.log.log import Log
from tests.support.in_process_broker import InProcessBroker, in_process_broker
from tests.support.raw_requests import (
    EMPTY,
    OUT_OF_RANGE,
    answer,
    entry,
    fetch,
    offsets,
    offsets_answer,
    produce,
)
from tests.support.waiting import wait_until
from tests.unit.broker.data_directory import some

E = entry(b"hello")
LATEST = offsets(b"t", -1, 1)


class Lagging:
    """A broker with three messages, one of them confirmed, as a replica's leader has it."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        with broker.connect() as client:
            client.send(produce(b"t", E) + LATEST)
            assert client.response() == offsets_answer(len(E))
        self.log: Log = some(broker.broker.logs.get("t", 0))
        self.on_loop(lambda: setattr(self.log.ends, "is_confirmed_by_flush", False))
        with broker.connect() as client:
            client.send(produce(b"t", E + E))
        wait_until(lambda: self.log.flushed_end == 3 * len(E), "three messages are flushed")

    def on_loop(self, work: Callable[[], object]) -> None:
        self.broker.broker.server.loop.call_soon_threadsafe(work)

    def confirm(self, messages: int) -> None:
        self.on_loop(lambda: self.log.ends.move_watermark(messages * len(E)))


@pytest.fixture
def lagging(tmp_path: Path) -> Iterator[Lagging]:
    with in_process_broker(tmp_path, "uvloop") as broker:
        yield Lagging(broker)


def test_a_fetch_gets_what_is_confirmed_and_a_latest_offset_no_more(lagging: Lagging) -> None:
    with lagging.broker.connect() as client:
        assert client.ask(fetch(b"t", 0)) == answer(E)
        assert client.ask(fetch(b"t", len(E))) == EMPTY
        assert client.ask(fetch(b"t", 2 * len(E))) == OUT_OF_RANGE
        assert client.ask(LATEST) == offsets_answer(len(E))


def test_up_to_the_floor_a_fetch_is_empty_and_the_latest_offset_waits(lagging: Lagging) -> None:
    lagging.on_loop(lambda: lagging.log.lead_from(2 * len(E)))
    with lagging.broker.connect() as client, lagging.broker.connect() as other:
        assert client.ask(fetch(b"t", 2 * len(E))) == EMPTY
        assert client.ask(fetch(b"t", 3 * len(E))) == OUT_OF_RANGE
        other.send(LATEST)
        wait_until(lambda: lagging.log.has_flush_waiters, "the latest offset is waited for")
        lagging.confirm(2)
        assert other.response() == offsets_answer(2 * len(E))
        assert client.ask(fetch(b"t", len(E))) == answer(E)


def test_a_barrier_waits_for_the_watermark(lagging: Lagging) -> None:
    with lagging.broker.connect() as client:
        client.send(produce(b"t", E) + LATEST)
        wait_until(lambda: lagging.log.flushed_end == 4 * len(E), "the message is flushed")
        lagging.confirm(3)
        with lagging.broker.connect() as other:
            assert other.ask(LATEST) == offsets_answer(3 * len(E)), "and the barrier waits"
        lagging.confirm(4)
        assert client.response() == offsets_answer(4 * len(E))


def test_a_leadership_that_ends_closes_what_waits(lagging: Lagging) -> None:
    with lagging.broker.connect() as client:
        client.send(produce(b"t", E) + LATEST)
        wait_until(lambda: lagging.log.has_flush_waiters, "the barrier waits")
        wait_until(lambda: lagging.log.flushed_end == 4 * len(E), "the message is flushed")
        lagging.on_loop(lagging.log.stop_leading)
        assert client.is_closed_by_broker()
