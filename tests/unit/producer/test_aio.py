import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.producer import NotDurable, Part, Producer, ProducerClosed
from kafka2011.producer.aio import AioProducer
from kafka2011.protocol.errors import MessageSizeTooLarge
from kafka2011.runtime.config import ConfigError
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import DEADLINE_S, wait_until
from tests.unit.producer.support import numbered, sent


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), DEADLINE_S))

    return run


def new_producer(server: ScriptedBroker, **settings: Any) -> AioProducer:
    return AioProducer(broker_list=server.broker_list, connect_timeout_ms=300, **settings)


@pytest.mark.parametrize("kind", ["sync", "async"])
@on_a_loop
async def test_sends_keep_their_order_and_flush_is_behind_them(server, kind) -> None:
    messages = numbered(501)
    async with new_producer(server, producer_type=kind) as producer:
        for message in messages[:50]:
            await producer.send("a", message)
        await asyncio.gather(*[producer.send("a", message) for message in messages[50:500]])
        await producer.send_parts([Part("a", messages[500:])])
        await producer.flush()
        assert sent(server) == messages
        assert producer.stats.messages == 501


@on_a_loop
async def test_errors_reach_the_caller_and_the_producer_goes_on(server) -> None:
    async with new_producer(server, max_message_bytes=10) as producer:
        with pytest.raises(MessageSizeTooLarge):
            await producer.send("a", bytes(11))
        server.close_at_barrier = 1
        await producer.send("a", b"x")
        with pytest.raises(NotDurable):
            await producer.flush()
        await producer.send("a", b"y")
    assert sent(server) == [b"x", b"y"]
    with pytest.raises(ProducerClosed):
        await producer.send("a", b"z")


@on_a_loop
async def test_a_call_that_no_future_takes_the_error_of_holds_up_no_other(server) -> None:
    def first_word(words: list[bytes]) -> bytes:
        return next(iter(words))

    async with new_producer(server, serializer=first_word) as producer:
        calls = [producer.send("a", [words]) for words in ([b"x"], [], [b"y"])]
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
    assert (first, third) == (None, None)
    assert isinstance(second, RuntimeError)
    assert isinstance(second.__cause__, StopIteration)
    assert sent(server) == [b"x", b"y"]


@on_a_loop
async def test_calls_wait_when_the_thread_is_behind_and_a_cancelled_one_gives_its_room_back(
    server,
) -> None:
    go, waits = threading.Event(), threading.Event()

    def slow(message: bytes) -> bytes:
        waits.set()
        go.wait(DEADLINE_S)
        return message

    async with new_producer(server, pending_max=3, serializer=slow) as producer:
        tasks = [asyncio.ensure_future(producer.send("a", message)) for message in numbered(10)]
        await asyncio.to_thread(waits.wait, DEADLINE_S)
        assert producer._room.locked()
        assert len(producer._jobs) <= 3
        for task in tasks[2:6]:  # one that was taken, and three that wait for room
            task.cancel()
        await asyncio.sleep(0)
        go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in results) == 4
        await producer.flush()
        assert not producer._room.locked()
    found = sent(server)
    assert found == sorted(found)
    assert {b"0", b"1", b"6", b"7", b"8", b"9"} <= set(found)


@on_a_loop
async def test_close_says_what_was_not_delivered_and_hides_no_other_error(gone) -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        async with new_producer(gone, producer_type="async") as producer:
            await producer.send("a", b"x")
            raise ValueError("mine")
    assert "not known to be durable" in caught.value.__notes__[0]


class Held:
    """A serializer that waits in the producer's thread until `go`."""

    def __init__(self) -> None:
        self.go, self.waits = threading.Event(), threading.Event()

    def __call__(self, message: bytes) -> bytes:
        self.waits.set()
        self.go.wait(DEADLINE_S)
        return message


async def full(server: ScriptedBroker, held: Held) -> tuple[AioProducer, list[asyncio.Future]]:
    """A producer whose thread is busy with the first of three sends; two wait for room."""
    producer = new_producer(server, pending_max=1, serializer=held)
    await producer.start()
    tasks = [asyncio.ensure_future(producer.send("a", message)) for message in numbered(3)]
    await asyncio.to_thread(held.waits.wait, DEADLINE_S)
    return producer, tasks


@on_a_loop
async def test_a_cancelled_close_closes_after_all_sends_and_the_next_one_waits_for_it(
    server,
) -> None:
    held = Held()
    producer, tasks = await full(server, held)
    first = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(ProducerClosed):
        await producer.send("a", b"late")
    second = asyncio.ensure_future(producer.close())
    held.go.set()
    await asyncio.wait([second, *tasks])
    assert [task.exception() for task in (second, *tasks)] == [None] * 4
    assert sent(server) == numbered(3)
    assert producer._producer is not None
    assert producer._producer._is_closed
    await producer.close()


@on_a_loop
async def test_a_loss_is_said_by_the_close_that_ends_if_the_first_was_cancelled_and_then_not_again(
    gone,
) -> None:
    held = Held()
    producer = new_producer(gone, producer_type="async", serializer=held)
    await producer.start()
    send = asyncio.ensure_future(producer.send("a", b"x"))
    await asyncio.to_thread(held.waits.wait, DEADLINE_S)
    first = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    first.cancel()
    held.go.set()
    for close in (first, producer.close()):
        with pytest.raises((asyncio.CancelledError, NotDurable)) as raised:
            await close
    assert raised.type is NotDurable
    await send
    await producer.close()


class SlowFirst:
    """Makes producers, the first of them once `go` is set."""

    def __init__(self) -> None:
        self.is_waiting = threading.Event()
        self.go = threading.Event()
        self.made: list[Producer] = []

    def __call__(self, *given: Any, **settings: Any) -> Producer:
        if not self.is_waiting.is_set():
            self.is_waiting.set()
            self.go.wait(DEADLINE_S)
        self.made.append(Producer(*given, **settings))
        return self.made[-1]


@on_a_loop
async def test_a_close_during_the_start_closes_what_that_makes(server, monkeypatch) -> None:
    slow = SlowFirst()
    monkeypatch.setattr("kafka2011.producer.aio.Producer", slow)
    producer = new_producer(server)
    starts = [asyncio.ensure_future(producer.start()) for _ in range(2)]
    await asyncio.to_thread(slow.is_waiting.wait, DEADLINE_S)
    close = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    slow.go.set()
    await close
    results = await asyncio.gather(*starts, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), ProducerClosed]
    assert [one._is_closed for one in slow.made] == [True]


def test_a_loop_that_ends_during_a_close_leaves_no_producer_open(server) -> None:
    held = Held()

    async def ends_early() -> AioProducer:
        producer, _ = await full(server, held)
        close = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        close.cancel()
        return producer

    inner = asyncio.run(ends_early())._producer
    held.go.set()
    wait_until(lambda: inner is not None and inner._is_closed, "the thread closes it")


@on_a_loop
async def test_a_start_that_failed_can_be_made_again(server, monkeypatch) -> None:
    tries: list[int] = []

    def made(*given: Any, **settings: Any) -> Producer:
        tries.append(1)
        if len(tries) <= 2:
            raise CoordinationUnavailable("a test says so")
        return Producer(*given, **settings)

    monkeypatch.setattr("kafka2011.producer.aio.Producer", made)
    producer = new_producer(server, pending_max=3)
    for _ in range(2):
        with pytest.raises(CoordinationUnavailable):
            await producer.start()
    await asyncio.gather(producer.start(), producer.start())
    assert len(tries) == 3
    await producer.send("a", b"x")
    await producer.flush()
    assert sent(server) == [b"x"]
    assert producer._room._value == 3
    await producer.close()
    with pytest.raises(ProducerClosed):
        await producer.start()


@on_a_loop
async def test_a_cancelled_start_can_be_made_again_while_the_first_one_is_still_busy(
    server, monkeypatch
) -> None:
    slow = SlowFirst()
    monkeypatch.setattr("kafka2011.producer.aio.Producer", slow)
    producer = new_producer(server)
    first = asyncio.ensure_future(producer.start())
    await asyncio.to_thread(slow.is_waiting.wait, DEADLINE_S)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(producer.start())
    await asyncio.sleep(0)
    slow.go.set()
    await second
    await producer.send("a", b"x")
    await producer.close()
    assert sent(server) == [b"x"]
    wait_until(lambda: [one._is_closed for one in slow.made] == [True, True], "both to be closed")


@on_a_loop
async def test_settings_that_cannot_be_used_are_refused_at_the_start() -> None:
    with pytest.raises(ConfigError):
        await AioProducer().start()
