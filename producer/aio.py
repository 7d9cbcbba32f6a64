"""The producer for asyncio: a thin wrapper with awaitable calls.

    async with AioProducer(broker_list="0:127.0.0.1:9092") as producer:
        await producer.send("greetings", b"hello")
        await producer.flush()            # the barrier, as Producer.flush

One thread of its own makes the calls, in order, so that neither an unavailable broker nor ZooKeeper
blocks the event loop. The wrapper stays usable after a cancelled await; the cancelled call may
still be made.
"""

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, Unpack, overload

from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.errors import NotDurable, ProducerClosed
from kafka2011.producer.keywords import AnyBytes, BytesLike, Message, ProducerArguments
from kafka2011.producer.producer import FLUSH_TIMEOUT_MS, Part, Producer
from kafka2011.producer.stats import ProducerStats
from kafka2011.runtime.keywords import check_keywords

_Job = tuple[Callable[[], Any], asyncio.Future[Any] | None]  # None: no caller awaits it
_Outcome = tuple[asyncio.Future[Any] | None, Any, BaseException | None]


class AioProducer(Generic[Message]):
    """A producer for asyncio, with the arguments of `Producer` and `pending_max`: how many calls
    may be queued for the thread; further ones wait, so that a slow broker slows its callers."""

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        pending_max: int = 1000,
        serializer: Callable[[Message], bytes] | str | None = None,
        **arguments: Unpack[ProducerArguments],
    ) -> None:
        own = ("config", "pending_max", "serializer", *ProducerArguments.__annotations__)
        check_keywords("AioProducer", arguments, own)
        self._new: Callable[[], Producer[Message]] = lambda: Producer(
            config, serializer=serializer, **arguments
        )
        self._room = asyncio.Semaphore(pending_max)
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        self._loss_is_told = False
        self._starting = asyncio.Lock()
        self._producer: Producer[Message] | None = None

    async def start(self) -> None:
        """Make the producer, connecting to ZooKeeper if it is used. Raises as `Producer` does.

        After a failed or cancelled start it may be called again.
        """
        async with self._starting:  # a concurrent call finds it started
            if self._is_closed:
                raise ProducerClosed("the producer was closed")
            if self._producer is None:
                await self._make()

    async def _make(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A new queue: the thread of a failed start may still be working through the old one.
        jobs = self._jobs = deque()
        threading.Thread(target=self._run, args=(jobs,), name="aio-producer", daemon=True).start()
        made: list[Producer[Message]] = []
        try:
            await self._run_in_thread(lambda: made.append(self._new()))
        except BaseException:

            def close_made() -> None:  # a cancelled call may still make it
                for one in made:
                    one.close(0)

            jobs.append((close_made, None))
            self._end()
            raise
        (self._producer,) = made

    @overload
    async def send(
        self: "AioProducer[BytesLike]",
        topic: str,
        payload: BytesLike | list[AnyBytes],
        key: Any = None,
    ) -> None: ...

    @overload
    async def send(self, topic: str, payload: Message | list[Message], key: Any = None) -> None: ...

    async def send(self, topic: str, payload: Any, key: Any = None) -> None:
        """Send as `Producer.send` does, with the same errors."""
        producer = self._open()
        await self._run_in_thread(lambda: producer.send(topic, payload, key))

    async def send_parts(self, parts: Sequence[Part[Message]]) -> None:
        """As `Producer.send_parts`."""
        producer = self._open()
        await self._run_in_thread(lambda: producer.send_parts(parts))

    async def flush(self, timeout_ms: int = FLUSH_TIMEOUT_MS) -> None:
        """Return when everything sent before is durable; raises NotDurable as `Producer.flush`."""
        producer = self._open()
        await self._run_in_thread(lambda: producer.flush(timeout_ms))

    async def close(self, timeout_ms: int = FLUSH_TIMEOUT_MS) -> None:
        """Flush and close, after all earlier calls. Idempotent: a cancelled close still runs to its
        end, and a later call waits for that.

        Raises NotDurable as `Producer.close`, unless an earlier call has.
        """
        self._is_closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(timeout_ms))
            # Retrieves the error, since no call does if all are cancelled.
            self._closing.add_done_callback(lambda done: done.cancelled() or done.exception())
        elif self._loss_is_told:
            return
        try:
            await asyncio.shield(self._closing)
        except NotDurable:
            self._loss_is_told = True
            raise

    async def _close(self, timeout_ms: int) -> None:
        async with self._starting:  # a start under way makes a producer that must be closed, too
            producer = self._producer
        if producer is None:
            return
        close = functools.partial(producer.close, timeout_ms)
        try:
            await self._run_in_thread(close)
        except asyncio.CancelledError:  # the loop ends, perhaps before there was room
            with self._wake:
                self._jobs.append((close, None))
            raise
        finally:
            self._end()

    @property
    def stats(self) -> ProducerStats:
        return self._open().stats

    def _open(self) -> Producer[Message]:
        if self._producer is None or self._is_closed:
            raise ProducerClosed("the producer was closed, or never started")
        return self._producer

    async def _run_in_thread(self, call: Callable[[], Any]) -> Any:
        """Run `call` on the thread and return its result; its room is freed, cancelled or not."""
        assert self._loop is not None
        await self._room.acquire()
        future: asyncio.Future[Any] = self._loop.create_future()
        with self._wake:
            self._jobs.append((call, future))
            self._wake.notify()
        return await asyncio.shield(future)

    def _end(self) -> None:
        """End the thread after the queued jobs."""
        with self._wake:
            self._jobs.append((_END, None))
            self._wake.notify()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self, jobs: deque[_Job]) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: jobs)
                taken = list(jobs)
                jobs.clear()
            outcomes: list[_Outcome] = []
            for call, future in taken:
                if call is _END:
                    self._report(outcomes)
                    return
                try:
                    outcomes.append((future, call(), None))
                except StopIteration as error:  # of the user's serializer; no future takes it
                    raised = RuntimeError(f"the call raised {error!r}")
                    raised.__cause__ = error
                    outcomes.append((future, None, raised))
                except BaseException as error:
                    outcomes.append((future, None, error))
            self._report(outcomes)

    def _report(self, outcomes: list[_Outcome]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle, outcomes)
        except RuntimeError:
            pass  # the loop is closed: no caller awaits a result

    def _settle(self, outcomes: list[_Outcome]) -> None:
        for future, result, error in outcomes:
            if future is None:
                continue
            self._room.release()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
                future.exception()  # a cancelled caller does not retrieve it

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; an error of the block is not hidden by a failed flush."""
        try:
            await self.close()
        except NotDurable as not_durable:
            if error is None:
                raise
            error.add_note(str(not_durable))


def _END() -> None:  # a mark, compared and never called
    raise AssertionError
