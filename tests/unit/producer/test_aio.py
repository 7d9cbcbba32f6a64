import asyncio
import threading
from typing import Any

import pytest

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.producer import NotDurable, Part, Producer, ProducerClosed
from kafka2011.producer.aio import AioProducer
from kafka2011.protocol.errors import MessageSizeTooLarge
from kafka2011.protocol.message_set import payloads
from kafka2011.runtime.config import ConfigError
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until


def new_producer(server: ScriptedBroker, **settings: Any) -> AioProducer:
    return AioProducer(broker_list=server.broker_list, connect_timeout_ms=300, **settings)


def sent(server: ScriptedBroker) -> list[bytes]:
    return [one for part in server.parts() for one in payloads(bytes(part.message_set))]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_sends_keep_their_order_and_flush_is_behind_them(server: ScriptedBroker, kind: str) -> None:
    async def work() -> None:
        async with new_producer(server, producer_type=kind) as producer:
            for number in range(50):
                await producer.send("a", b"%d" % number)
            together = [producer.send("a", b"%d" % number) for number in range(50, 500)]
            await asyncio.gather(*together)
            await producer.send_parts([Part("a", [b"500"])])
            await producer.flush()
            assert sent(server) == [b"%d" % number for number in range(501)]
            assert producer.stats.messages == 501

    asyncio.run(work())


def test_errors_reach_the_caller_and_the_producer_goes_on(server: ScriptedBroker) -> None:
    async def work() -> None:
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

    asyncio.run(work())


def test_calls_wait_when_the_thread_is_behind_and_a_cancelled_one_gives_its_room_back(
    server: ScriptedBroker,
) -> None:
    go, waits = threading.Event(), threading.Event()

    def slow(message: bytes) -> bytes:
        waits.set()
        go.wait(30)
        return message

    async def work() -> None:
        async with new_producer(server, pending_max=3, serializer=slow) as producer:
            tasks = [asyncio.ensure_future(producer.send("a", b"%d" % n)) for n in range(10)]
            await asyncio.to_thread(waits.wait, 30)
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

    asyncio.run(work())


def test_close_says_what_was_not_delivered_and_hides_no_other_error() -> None:
    with ScriptedBroker() as gone:
        broker_list = gone.broker_list

    async def work() -> None:
        async with AioProducer(
            broker_list=broker_list, producer_type="async", connect_timeout_ms=10
        ) as producer:
            await producer.send("a", b"x")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        asyncio.run(work())
    assert "not known to be durable" in caught.value.__notes__[0]


def test_a_start_that_failed_can_be_made_again(
    server: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def made(*given: Any, **settings: Any) -> Producer:
        tries.append(1)
        if len(tries) <= 2:
            raise CoordinationUnavailable("a test says so")
        return Producer(*given, **settings)

    monkeypatch.setattr("kafka2011.producer.aio.Producer", made)

    async def work() -> None:
        producer = new_producer(server, pending_max=3)
        for _ in range(2):
            with pytest.raises(CoordinationUnavailable):
                await producer.start()
        await asyncio.gather(producer.start(), producer.start())
        assert len(tries) == 3
        await producer.send("a", b"x")
        await producer.flush()
        assert producer._room._value == 3
        await producer.close()
        with pytest.raises(ProducerClosed):
            await producer.start()

    asyncio.run(asyncio.wait_for(work(), 30))
    assert sent(server) == [b"x"]


def test_a_cancelled_start_can_be_made_again_while_the_first_one_is_still_busy(
    server: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, waits = threading.Event(), threading.Event()
    everything: list[Producer] = []

    def made(*given: Any, **settings: Any) -> Producer:
        if not everything:
            waits.set()
            go.wait(30)
        everything.append(Producer(*given, **settings))
        return everything[-1]

    monkeypatch.setattr("kafka2011.producer.aio.Producer", made)

    async def work() -> None:
        producer = new_producer(server)
        first = asyncio.ensure_future(producer.start())
        await asyncio.to_thread(waits.wait, 30)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(producer.start())
        await asyncio.sleep(0)
        go.set()
        await second
        await producer.send("a", b"x")
        await producer.close()

    asyncio.run(asyncio.wait_for(work(), 30))
    assert sent(server) == [b"x"]
    wait_until(lambda: all(one._is_closed for one in everything), "both to be closed")
    assert len(everything) == 2


def test_settings_that_cannot_be_used_are_told_at_the_start() -> None:
    async def work() -> None:
        async with AioProducer():
            raise AssertionError

    with pytest.raises(ConfigError):
        asyncio.run(work())
