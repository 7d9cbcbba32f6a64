"""The seam between a connection and the protocol on it: what each uses of the other."""

from collections.abc import Callable
from typing import Protocol

from kafka2011.broker.core.worker_threads import Job
from kafka2011.broker.network.sender import Reply


class Wait(Protocol):
    """Something that calls back once it is over."""

    def cancel(self) -> None: ...


class CheckJob(Job, Protocol):
    """A job that reads a connection's buffer."""

    def cancel(self) -> None:
        """Let it end early: its result is not needed any more."""


# Starts a wait, which calls its argument with whether the connection may go on.
BeginWait = Callable[[Callable[[bool], None]], Wait]


class Channel(Protocol):
    """What a session uses of its connection."""

    @property
    def is_closed(self) -> bool: ...

    def send(self, reply: Reply, kind: str, began_s: float) -> bool:
        """Send a response; whether the session may go on. `kind` is the metric's label."""

    def hold(
        self,
        begin: BeginWait,
        then: Callable[[], bool] | None = None,
        *,
        until_client_sends: bool = False,
    ) -> None:
        """Handle nothing more until the wait is over; then call `then`, which returns whether to go
        on. A wait that fails closes the connection; closing the connection cancels its wait.

        `until_client_sends`: anything that the client sends, or its hanging up, also ends the wait.
        Nothing sent before may be left to handle. Such a wait does not end inside `begin`.
        """

    def check(self, job: CheckJob) -> None:
        """Handle nothing more until the job has run beside the loop."""

    def give_way(self) -> None:
        """Handle nothing more until the other connections have had the loop."""

    def close(self, reason: str, detail: str = "") -> None:
        """Hang up. `reason` is a metric's label. Idempotent."""


class Session(Protocol):
    """A protocol's side of one connection."""

    produced_count: int  # produce requests handled; the connection sets it back to 0

    @property
    def keeps_buffer(self) -> bool:
        """Whether unhandled bytes of the buffer are referred to, so that it must stay."""

    def take(self, buffer: memoryview, start: int, end: int) -> int:
        """Handle the whole requests from `start` on; stop when the channel is held or closed, or a
        `send` returns False. Returns where the first request that is left begins."""
