import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from kafka2011.consumer.aio import AioStream
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import ConsumerTimeout, PartitionStuck
from kafka2011.consumer.groups.connector import ConsumerConnector
from tests.support.memory_deployment import Deployment, numbered, one_stream
from tests.support.waiting import DEADLINE_S, wait_until

NAME = TopicPartition("t", 0, 0)
ABC = [b"a", b"b", b"c"]  # one chunk, 11 bytes each with their headers
Result = TypeVar("Result")


def run(
    deployment: Deployment,
    work: Callable[[ConsumerConnector, AioStream], Awaitable[Result]],
    **settings: object,
) -> Result:
    """What `work` returns, given a member and its stream of topic t; then the member stops."""

    async def main(connector: ConsumerConnector) -> Result:
        return await work(connector, AioStream(one_stream(connector)))

    with deployment.connector(**settings) as connector:
        return asyncio.run(main(connector))


async def payloads(stream: AioStream, count: int) -> list[bytes]:
    return [(await anext(stream)).payload for _ in range(count)]


async def ask(stream: AioStream) -> asyncio.Future[object]:
    """An await of the next message that has begun."""
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    return waiting


async def cancel_as_it_comes(stream: AioStream) -> None:
    """An await that is cancelled in the very turn in which its message has come."""
    waiting = await ask(stream)
    assert stream._pending is not None
    stream._pending.future.add_done_callback(lambda _: waiting.cancel())
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_messages_in_order_until_the_connector_shuts_down(deployment: Deployment) -> None:
    broker = deployment.broker_of_t()
    for start in range(0, 300, 3):
        broker.append("t", 0, numbered(start, start + 3))

    async def work(connector: ConsumerConnector, stream: AioStream) -> list[bytes]:
        found = []
        async for message in stream:
            found.append(message.payload)
            if len(found) == 300:
                await asyncio.to_thread(connector.shutdown)
        return found

    assert run(deployment, work) == numbered(0, 300)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_an_ended_event_loop_waited_for_comes_in_the_next(
    deployment: Deployment, is_there: bool
) -> None:
    broker = deployment.broker_of_t(ABC[:1])

    async def cancelled(stream: AioStream) -> None:
        if is_there:
            await cancel_as_it_comes(stream)
            return
        waiting = await ask(stream)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with deployment.connector() as connector:
        stream = AioStream(one_stream(connector))
        if not is_there:
            assert asyncio.run(payloads(stream, 1)) == ABC[:1]
        asyncio.run(cancelled(stream))
        broker.append("t", 0, ABC[1:])
        expected = ABC if is_there else ABC[1:]
        assert (
            asyncio.run(asyncio.wait_for(payloads(stream, len(expected)), DEADLINE_S)) == expected
        )


def test_a_cancelled_await_loses_nothing_and_holds_nothing_up(deployment: Deployment) -> None:
    broker = deployment.broker_of_t()

    async def work(_: ConsumerConnector, stream: AioStream) -> list[bytes]:
        for _ in range(3):
            waiting = await ask(stream)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        broker.append("t", 0, [b"one"])
        await cancel_as_it_comes(stream)
        found = await payloads(stream, 1)
        broker.append("t", 0, [b"two"])
        return found + await payloads(stream, 1)

    assert run(deployment, work) == [b"one", b"two"]


def test_a_message_is_processed_when_the_next_is_asked_for(deployment: Deployment) -> None:
    async def work(connector: ConsumerConnector, stream: AioStream) -> None:
        for payload, mark in ((b"a", 0), (b"b", 11), (b"c", 22)):
            assert await payloads(stream, 1) == [payload]
            [owned] = connector._assignment.owned()
            assert owned.processed_offset() == mark, "what the timer would commit"
            assert connector.positions() == {NAME: mark + 11}
        waiting = await ask(stream)
        assert owned.processed_offset() == 33
        waiting.cancel()

    deployment.broker_of_t(ABC)
    run(deployment, work)


def test_what_was_handed_out_of_a_chunk_is_committed_by_a_stop_and_by_a_call(
    deployment: Deployment,
) -> None:
    async def one(_: ConsumerConnector, stream: AioStream) -> list[bytes]:
        return await payloads(stream, 1)

    async def one_committed(connector: ConsumerConnector, stream: AioStream) -> list[bytes]:
        found = await payloads(stream, 1)
        connector.commit_offsets()
        return found

    deployment.broker_of_t(ABC)
    assert run(deployment, one) == [b"a"]
    assert deployment.stored("t", 0, 0) == b"11"
    assert run(deployment, one_committed, autocommit_enable=False) == [b"b"]
    assert deployment.stored("t", 0, 0) == b"22"


def test_what_came_for_a_cancelled_await_is_not_committed(deployment: Deployment) -> None:
    deployment.broker_of_t(ABC)
    run(deployment, lambda _, stream: cancel_as_it_comes(stream))
    assert deployment.stored("t", 0, 0) in (None, b"0")


def test_a_seek_or_a_release_drops_the_rest_of_the_chunk(deployment: Deployment) -> None:
    async def work(connector: ConsumerConnector, stream: AioStream) -> None:
        assert await payloads(stream, 1) == [b"a"]
        assert connector.seek(NAME, 22)
        assert await payloads(stream, 1) == [b"c"]
        assert connector.seek(NAME, 0)
        assert await payloads(stream, 1) == [b"a"]
        connector._assignment.halt([NAME])
        waiting = await ask(stream)
        connector._assignment.start(NAME, f"{connector.consumer_id}-0", 22)
        assert (await waiting).payload == b"c"

    deployment.broker_of_t(ABC)
    run(deployment, work)


def test_the_rest_of_a_chunk_waits_while_the_session_may_be_gone(deployment: Deployment) -> None:
    async def work(connector: ConsumerConnector, stream: AioStream) -> list[bytes]:
        found = await payloads(stream, 1)
        registry = deployment.registry_of(connector)
        [owned] = connector._assignment.owned()
        registry.suspend()
        await asyncio.to_thread(wait_until, lambda: not owned.grant.open, "the suspension")
        waiting = await ask(stream)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()
        registry.resume()
        return found + await payloads(stream, 2)

    deployment.broker_of_t(ABC)
    assert run(deployment, work) == ABC


def test_errors_come_through_and_it_goes_on(deployment: Deployment) -> None:
    broker = deployment.broker_of_t()

    async def work(_: ConsumerConnector, stream: AioStream) -> list[bytes]:
        with pytest.raises(ConsumerTimeout):
            await anext(stream)
        broker.append("t", 0, [b"late"])
        while True:
            try:
                return await payloads(stream, 1)
            except ConsumerTimeout:
                pass

    assert run(deployment, work, consumer_timeout_ms=30) == [b"late"]
    with pytest.raises(PartitionStuck):
        run(deployment, lambda _, stream: anext(stream), group_id="r", autooffset_reset="raise")
