import asyncio

import pytest

from consumer.aio import AioStream
from consumer.errors import ConsumerTimeout, PartitionStuck
from tests.support.memory_deployment import Deployment, one_stream


def test_messages_in_order_until_the_connector_shuts_down(deployment: Deployment) -> None:
    broker = deployment.broker(0)
    deployment.topic("t", {0: 1})
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
    broker = deployment.broker(0)
    deployment.topic("t", {0: 1})

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


def test_a_chunk_is_processed_when_the_next_is_asked_for(deployment: Deployment) -> None:
    broker = deployment.broker(0)
    deployment.topic("t", {0: 1})
    end = broker.append("t", 0, [b"a", b"b"])

    async def work() -> None:
        connector = await asyncio.to_thread(deployment.connector)
        stream = AioStream(one_stream(connector))
        assert [(await anext(stream)).payload for _ in range(2)] == [b"a", b"b"]
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        broker.append("t", 0, [b"c"])
        assert (await waiting).payload == b"c"
        connector_of.append(connector)

    connector_of: list = []
    asyncio.run(work())
    (connector,) = connector_of
    # A crash now: the timer would have stored what was processed, the first chunk.
    with connector._offsets_lock:
        marks = [feed.processed_offset() for feed in connector._hub.feeds()]
    assert marks == [end]


def test_errors_come_through_and_it_goes_on(deployment: Deployment) -> None:
    broker = deployment.broker(0)
    deployment.topic("t", {0: 1})

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
