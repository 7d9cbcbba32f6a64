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
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.consumer.groups.delivery import Grant
from kafka2011.consumer.stream import MessageStream


class _Batch(NamedTuple):
    """Messages that wait to be delivered under a grant, in order."""

    messages: deque[ConsumedMessage]
    grant: Grant


@dataclass(slots=True)
class _Asked:
    """A request to the thread: the result is `rest`, if that can be delivered, or what follows.

    `outcome` is the thread's answer, the result or the error; the future may be of a loop that
    ends before it has it.
    """

    rest: _Batch
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    outcome: tuple[_Batch | None, Exception | None] | None = None


class AioStream:
    """An asynchronous iterator over `stream`, for one task; it ends when the connector shuts down.

    A cancelled await loses nothing: the next one gets what it waited for. Raises as MessageStream's
    iteration does, and can be iterated on after that.
    """

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._asks: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: _Asked | None = None
        self._lock = threading.Lock()  # of its loop, future and outcome
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
        loop, asked = asyncio.get_running_loop(), self._pending
        if asked is None:
            asked = self._pending = _Asked(self._batch, loop, loop.create_future())
            self._asks.put(asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="aio-stream", daemon=True)
                self._thread.start()
        elif asked.loop is not loop:  # that one ended after an await was cancelled
            with self._lock:
                asked.loop, asked.future = loop, loop.create_future()
                if asked.outcome is not None:
                    _settle(asked.future, *asked.outcome)
        try:
            found: _Batch | None = await asyncio.shield(asked.future)
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
            asked = self._asks.get()
            rest = asked.rest
            found: _Batch | None = None
            error: Exception | None = None
            try:
                if rest.messages and self._stream.await_grant(rest.grant):
                    found = rest
                elif (taken := self._stream.take()) is not None:
                    found = _Batch(deque(taken[0]), taken[1])
            except Exception as raised:
                error = raised
            with self._lock:
                asked.outcome = found, error
                loop, future = asked.loop, asked.future
            try:
                loop.call_soon_threadsafe(_settle, future, found, error)
            except RuntimeError:
                pass  # the loop is closed, and no task waits: the next loop finds the outcome
            if found is None and error is None:
                return


def _settle(future: asyncio.Future[Any], found: _Batch | None, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)
