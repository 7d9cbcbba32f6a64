"""A message stream for asyncio.

    [stream] = consumer.create_message_streams({"page-view": 1})["page-view"]
    async for message in AioStream(stream):
        await work(message.payload)

A separate thread waits for the stream, and passes on one chunk's messages at a time, so that a
message costs little. A message counts as delivered and as processed as in MessageStream: what waits
here is not committed, and is dropped when its grant is revoked.
"""

import asyncio
import queue
import threading
from collections import deque
from typing import Any, NamedTuple, Self

from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.consumer.groups.delivery import Grant
from kafka2011.consumer.stream import MessageStream


class _Batch(NamedTuple):
    """Messages that wait to be delivered under a grant, in order."""

    messages: deque[ConsumedMessage]
    grant: Grant


class _Asked(NamedTuple):
    """A request to the thread: the result is `rest`, if that can be delivered, or what follows."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    rest: _Batch


class AioStream:
    """An asynchronous iterator over `stream`, for one task; it ends when the connector shuts down.

    A cancelled await loses nothing: the next one gets what it waited for. Raises as MessageStream's
    iteration does, and can be iterated on after that.
    """

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._asks: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: asyncio.Future[_Batch | None] | None = None
        self._batch = _Batch(deque(), Grant())
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedMessage:
        messages, grant = self._batch
        grant.done = grant.last  # the application has finished with it
        while not (messages and grant.open):
            found = await self._next_batch()
            if found is None:
                raise StopAsyncIteration
            messages, grant = self._batch = found
        grant.last = message = messages.popleft()
        return message

    async def _next_batch(self) -> _Batch | None:
        if self._has_ended:
            return None
        if self._pending is None:
            loop = asyncio.get_running_loop()
            self._pending = loop.create_future()
            self._asks.put(_Asked(loop, self._pending, self._batch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="aio-stream", daemon=True)
                self._thread.start()
        try:
            found = await asyncio.shield(self._pending)
        except asyncio.CancelledError:
            raise  # the result is for the next call, even if it is here already
        except BaseException:
            self._pending = None
            raise
        self._pending = None
        self._has_ended = found is None
        return found

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            loop, future, rest = self._asks.get()
            found: _Batch | None = None
            error: Exception | None = None
            try:
                if rest.messages and self._stream.await_grant(rest.grant):
                    found = rest
                elif (taken := self._stream.take()) is not None:
                    found = _Batch(deque(taken[0]), taken[1])
            except Exception as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, future, found, error)
            except RuntimeError:
                return  # the loop is closed, and no task waits
            if found is None and error is None:
                return


def _settle(future: asyncio.Future[Any], found: _Batch | None, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)
