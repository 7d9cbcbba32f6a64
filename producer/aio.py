"""The producer for asyncio: a thin wrapper, whose calls are awaited.

    async with AioProducer(broker_list="0:127.0.0.1:9092") as producer:
        await producer.send("greetings", b"hello")
        await producer.flush()            # the barrier, as Producer.flush

One thread of its own makes the calls, in the order in which they were asked for, so that neither a
broker that is away nor ZooKeeper holds the event loop up. An await that is cancelled leaves the
wrapper usable; what it had asked for may still be done, as with any message under way.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.errors import NotDurable, ProducerClosed
from kafka2011.producer.producer import FLUSH_TIMEOUT_MS, Part, Producer, ProducerStats

_Job = tuple[Callable[[], Any], asyncio.Future[Any] | None]  # None: nobody waits for it
_Outcome = tuple[asyncio.Future[Any] | None, Any, BaseException | None]


class AioProducer:
    """Takes what `Producer` takes, and `pending_max`: calls that may wait for the thread (count);
    further ones wait before they are taken, so that a slow broker slows its senders down."""

    def __init__(
        self, config: ProducerConfig | None = None, *, pending_max: int = 1000, **settings: Any
    ) -> None:
        self._config = config
        self._settings = settings
        self._room = asyncio.Semaphore(pending_max)
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._starting = asyncio.Lock()
        self._producer: Producer | None = None

    async def start(self) -> None:
        """Make the producer: connects to ZooKeeper if there is one. Raises as `Producer` does.

        After a failed or cancelled start it may be called again.
        """
        if self._is_closed:
            raise ProducerClosed("the producer was closed")
        async with self._starting:  # whoever comes meanwhile finds it started
            if self._producer is None:
                await self._make()

    async def _make(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Its own: the thread of a start that failed may still be busy with what was left to it.
        jobs = self._jobs = deque()
        threading.Thread(target=self._run, args=(jobs,), name="aio-producer", daemon=True).start()
        made: list[Producer] = []
        try:
            await self._asked(lambda: made.append(Producer(self._config, **self._settings)))
        except BaseException:

            def close_what_was_made() -> None:  # cancelled, it may still be made
                for one in made:
                    one.close(0)

            jobs.append((close_what_was_made, None))
            self._end()
            raise
        (self._producer,) = made

    async def send(self, topic: str, payload: Any, key: Any = None) -> None:
        """As `Producer.send`, and raises what it raises."""
        producer = self._open()
        await self._asked(lambda: producer.send(topic, payload, key))

    async def send_parts(self, parts: Sequence[Part]) -> None:
        """As `Producer.send_parts`."""
        producer = self._open()
        await self._asked(lambda: producer.send_parts(parts))

    async def flush(self, timeout_ms: int = FLUSH_TIMEOUT_MS) -> None:
        """What was sent before is durable on return; raises NotDurable as `Producer.flush`."""
        producer = self._open()
        await self._asked(lambda: producer.flush(timeout_ms))

    async def close(self, timeout_ms: int = FLUSH_TIMEOUT_MS) -> None:
        """Flush and close, behind everything that was asked for before. Idempotent.

        Raises NotDurable as `Producer.close`.
        """
        if self._is_closed or self._producer is None:
            self._is_closed = True
            return
        producer = self._producer
        self._is_closed = True
        try:
            await self._asked(lambda: producer.close(timeout_ms))
        finally:
            self._end()

    @property
    def stats(self) -> ProducerStats:
        return self._open().stats

    def _open(self) -> Producer:
        if self._producer is None or self._is_closed:
            raise ProducerClosed("the producer was closed, or never started")
        return self._producer

    async def _asked(self, call: Callable[[], Any]) -> Any:
        """Have the thread make this call. The room is given back when it has, cancelled or not."""
        assert self._loop is not None
        await self._room.acquire()
        future: asyncio.Future[Any] = self._loop.create_future()
        with self._wake:
            self._jobs.append((call, future))
            self._wake.notify()
        return await asyncio.shield(future)

    def _end(self) -> None:
        """The thread ends behind the jobs that are there."""
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
                    self._tell(outcomes)
                    return
                try:
                    outcomes.append((future, call(), None))
                except BaseException as error:
                    outcomes.append((future, None, error))
            self._tell(outcomes)

    def _tell(self, outcomes: list[_Outcome]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle, outcomes)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

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
                future.exception()  # a cancelled caller does not come for it

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; an error of the block is not hidden by what could not be flushed."""
        try:
            await self.close()
        except NotDurable as not_durable:
            if error is None:
                raise
            error.add_note(str(not_durable))


def _END() -> None:  # a mark, compared and never called
    raise AssertionError
