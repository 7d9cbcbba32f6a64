"""What a user can hook into the asynchronous producer: 0.7's callback handler and event handler."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from producer.batching import SetPart


class Event(NamedTuple):
    """One message in a queue: already serialised and placed."""

    topic: str
    partition: int
    payload: bytes


class ProducerCallbacks:
    """Override what you need; every method may be called from a sender's thread.

    An exception from `before_enqueue` reaches the caller of `send`; one from the others is logged
    and the messages go on as they were.
    """

    def before_enqueue(self, event: Event) -> Event:
        """May replace the event."""
        return event

    def after_enqueue(self, event: Event, accepted: bool) -> None:
        """`accepted` is False for an event that was dropped because the queue was full."""

    def after_dequeuing(self, events: Sequence[Event]) -> Sequence[Event]:
        """Events that a sender took from its queue; returns those to go on with."""
        return events

    def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
        """One batch; returns what is sent instead."""
        return events

    def last_batch_before_close(self) -> Sequence[Event]:
        """Events to send after the last of the queue, once per broker."""
        return ()

    def close(self) -> None:
        """The producer is closed; nothing is called after this."""


# Replaces grouping and encoding: the events of one batch to the parts of one request.
EventHandler = Callable[[Sequence[Event]], Sequence[SetPart]]
