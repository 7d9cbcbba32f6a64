"""What a user can hook into the asynchronous producer: 0.7's callback handler and event handler.

Both are given to `Producer(callbacks=..., event_handler=...)`, or named in the settings
`callback.handler` and `event.handler`; `made_callbacks` and `made_handler` make them from there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka2011.producer.batching import SetPart


class Event(NamedTuple):
    """One message in a queue: already serialised and placed."""

    topic: str
    partition: int
    payload: bytes
    key: Any = None  # it was placed by this, and is placed anew by it when its broker is gone


class ProducerCallbacks:
    """Override what you need; every method may be called from a sender's thread.

    An exception from `before_enqueue` reaches the caller of `send`; one from the others is logged
    and the messages go on as they were.
    """

    def init(self, properties: Mapping[str, str]) -> None:
        """Called once by a producer that was configured with `callback.handler`, with
        `callback.handler.props`."""

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


def made_callbacks(
    kind: Callable[[], ProducerCallbacks] | None, properties: Mapping[str, str]
) -> ProducerCallbacks | None:
    """The callbacks that `callback.handler` names. TypeError when that is no such class."""
    if kind is None:
        return None
    made = kind()
    if not isinstance(made, ProducerCallbacks):
        raise TypeError(f"callback.handler: {made!r} is no ProducerCallbacks")
    made.init(properties)
    return made


def made_handler(
    kind: Callable[..., Any] | None, properties: Mapping[str, str]
) -> EventHandler | None:
    """The handler that `event.handler` names: the function itself, or an instance of the class,
    whose `init` is called with the properties if it has one. TypeError when it cannot be called."""
    if not isinstance(kind, type):
        return kind
    made = kind()
    if not callable(made):
        raise TypeError(f"event.handler: {made!r} is no function of a batch's events")
    init = getattr(made, "init", None)
    if init is not None:
        init(properties)
    handler: EventHandler = made
    return handler
