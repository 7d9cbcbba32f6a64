"""A message stream for asyncio.

    [stream] = consumer.create_message_streams({"page-view": 1})["page-view"]
    async for message in AioStream(stream):
        await work(message.payload)

A thread of its own waits for the stream, and hands over what one chunk holds at a time, so that a
message costs little. A chunk counts as processed when the message behind its last one is asked for:
after a crash all of its messages come again, and none is lost.
"""

import asyncio
import queue
import threading
from collections.abc import Iterator
from typing import Any, Self

from consumer.chunk import ConsumedMessage
from consumer.stream import MessageStream

_Asked = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]


class AioStream:
    """An asynchronous iterator over `stream`, for one task; it ends when the connector shuts down.

    A cancelled await loses nothing: the next one gets what that one waited for. Raises as
    MessageStream's iteration does, and goes on after that.
    """

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._asks: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: asyncio.Future[list[ConsumedMessage] | None] | None = None
        self._ready: Iterator[ConsumedMessage] = iter(())
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedMessage:
        message = next(self._ready, None)
        if message is not None:
            return message
        found = await self._next_batch()
        if found is None:
            raise StopAsyncIteration
        self._ready = iter(found)
        return next(self._ready)

    async def _next_batch(self) -> list[ConsumedMessage] | None:
        if self._has_ended:
            return None
        if self._pending is None:
            loop = asyncio.get_running_loop()
            self._pending = loop.create_future()
            self._asks.put((loop, self._pending))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="aio-stream", daemon=True)
                self._thread.start()
        try:
            found = await asyncio.shield(self._pending)
        except asyncio.CancelledError:
            raise  # what comes is for the next call, also when it has come just now
        except BaseException:
            self._pending = None
            raise
        self._pending = None
        self._has_ended = found is None
        return found

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        batches = self._stream.batches()
        found: list[ConsumedMessage] | None = []
        while found is not None:
            loop, future = self._asks.get()
            error: Exception | None = None
            try:
                found = next(batches, None)
            except Exception as raised:
                error = raised
                batches = self._stream.batches()  # an iterator that raised has ended
            try:
                loop.call_soon_threadsafe(_settle, future, found, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


def _settle(
    future: asyncio.Future[Any], found: list[ConsumedMessage] | None, error: Exception | None
) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)
