import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka2011.consumer.aio import AioStream
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import ConsumerTimeout, PartitionStuck
from kafka2011.consumer.groups.connector import ConsumerConnector
from tests.support.memory_deployment import Deployment, one_stream
from tests.support.waiting import wait_until


def test_messages_in_order_until_the_connector_shuts_down(deployment: Deployment) -> None:
    broker = deployment.broker_of_t()
    for start in range(0, 300, 3):
        broker.append("t", 0, [b"%d" % number for number in range(start, start + 3)])

    async def work() -> list[bytes]:
        connector = await asyncio.to_thread(deployment.connector)
        found = []
        async for message in AioStream(one_stream(connector)):
            found.append(message.payload)
            if len(found) == 300:
                await asyncio.to_thread(connector.shutdown)
        return found

    assert asyncio.run(work()) == [b"%d" % number for number in range(300)]


def test_a_cancelled_await_loses_nothing_and_holds_nothing_up(deployment: Deployment) -> None:
    broker = deployment.broker_of_t()

    async def work() -> list[bytes]:
        connector = await asyncio.to_thread(deployment.connector)
        stream = AioStream(one_stream(connector))
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        broker.append("t", 0, [b"one"])
        # Cancelled in the very turn in which the message has come.
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert stream._pending is not None
        stream._pending.add_done_callback(lambda _: waiting.cancel())
        with pytest.raises(asyncio.CancelledError):
            await waiting
        found = [(await anext(stream)).payload]
        broker.append("t", 0, [b"two"])
        found.append((await anext(stream)).payload)
        await asyncio.to_thread(connector.shutdown)
        return found

    assert asyncio.run(work()) == [b"one", b"two"]


NAME = TopicPartition("t", 0, 0)


@contextmanager
def three_in_a_chunk(
    deployment: Deployment, **settings: object
) -> Iterator[tuple[ConsumerConnector, AioStream]]:
    """A stream whose first chunk is a, b and c, 11 bytes each with their headers."""
    deployment.broker_of_t([b"a", b"b", b"c"])
    with deployment.connector(**settings) as connector:
        yield connector, AioStream(one_stream(connector))


def processed(connector: ConsumerConnector) -> list[int | None]:
    """What the timer would commit."""
    return [owned.processed_offset() for owned in connector._assignment.owned()]


async def payloads(stream: AioStream, count: int) -> list[bytes]:
    return [(await anext(stream)).payload for _ in range(count)]


def test_a_message_is_processed_when_the_next_is_asked_for(deployment: Deployment) -> None:
    async def work(connector: ConsumerConnector, stream: AioStream) -> None:
        for count, mark in ((0, 0), (1, 11), (2, 22)):
            assert await payloads(stream, 1) == [b"abc"[count : count + 1]]
            assert processed(connector) == [mark]
            assert connector.positions() == {NAME: mark + 11}
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert processed(connector) == [33]
        waiting.cancel()

    with three_in_a_chunk(deployment) as made:
        asyncio.run(work(*made))


def test_stopping_inside_a_chunk_commits_what_was_handed_out(deployment: Deployment) -> None:
    with three_in_a_chunk(deployment) as (_, stream):
        assert asyncio.run(payloads(stream, 1)) == [b"a"]
    assert deployment.stored("t", 0, 0) == b"11"


def test_a_commit_inside_a_chunk_stores_what_was_handed_out(deployment: Deployment) -> None:
    with three_in_a_chunk(deployment, autocommit_enable=False) as (connector, stream):
        assert asyncio.run(payloads(stream, 2)) == [b"a", b"b"]
        connector.commit_offsets()
        assert deployment.stored("t", 0, 0) == b"22"


def test_what_came_for_a_cancelled_await_is_not_committed(deployment: Deployment) -> None:
    async def work(stream: AioStream) -> None:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert stream._pending is not None
        stream._pending.add_done_callback(lambda _: waiting.cancel())
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with three_in_a_chunk(deployment) as (_, stream):
        asyncio.run(work(stream))
    assert deployment.stored("t", 0, 0) in (None, b"0")


def test_a_seek_drops_the_rest_of_the_chunk(deployment: Deployment) -> None:
    async def work(connector: ConsumerConnector, stream: AioStream) -> None:
        assert await payloads(stream, 1) == [b"a"]
        assert connector.seek(NAME, 22)
        assert await payloads(stream, 1) == [b"c"]
        assert connector.seek(NAME, 0)
        assert await payloads(stream, 3) == [b"a", b"b", b"c"]

    with three_in_a_chunk(deployment) as made:
        asyncio.run(work(*made))


def test_the_rest_of_a_chunk_is_dropped_when_the_partition_is_released(
    deployment: Deployment,
) -> None:
    async def work(connector: ConsumerConnector, stream: AioStream) -> list[bytes]:
        found = await payloads(stream, 1)
        connector._assignment.halt([NAME])
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        connector._assignment.start(NAME, f"{connector.consumer_id}-0", 22)
        return [*found, (await waiting).payload]

    with three_in_a_chunk(deployment) as made:
        assert asyncio.run(work(*made)) == [b"a", b"c"]


def test_the_rest_of_a_chunk_waits_while_the_session_may_be_gone(deployment: Deployment) -> None:
    async def work(connector: ConsumerConnector, stream: AioStream) -> list[bytes]:
        found = await payloads(stream, 1)
        registry = deployment.registry_of(connector)
        registry.suspend()
        await asyncio.to_thread(
            wait_until, lambda: not connector._assignment.owned()[0].grant.open, "the suspension"
        )
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()
        registry.resume()
        return found + await payloads(stream, 2)

    with three_in_a_chunk(deployment) as made:
        assert asyncio.run(work(*made)) == [b"a", b"b", b"c"]


def test_errors_come_through_and_it_goes_on(deployment: Deployment) -> None:
    broker = deployment.broker_of_t()

    async def work() -> bytes:
        connector = await asyncio.to_thread(lambda: deployment.connector(consumer_timeout_ms=30))
        stream = AioStream(one_stream(connector))
        with pytest.raises(ConsumerTimeout):
            await anext(stream)
        broker.append("t", 0, [b"late"])
        while True:
            try:
                return (await anext(stream)).payload
            except ConsumerTimeout:
                pass

    assert asyncio.run(work()) == b"late"


def test_a_stuck_partition_is_told(deployment: Deployment) -> None:
    deployment.broker(0)
    deployment.topic("t", {0: 1})

    async def work() -> None:
        connector = await asyncio.to_thread(lambda: deployment.connector(autooffset_reset="raise"))
        with pytest.raises(PartitionStuck):
            await anext(AioStream(one_stream(connector)))

    asyncio.run(work())
