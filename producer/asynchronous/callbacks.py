"""User hooks of the asynchronous producer: 0.7's callback handler and event handler.

Both are passed to `Producer(callbacks=..., event_handler=...)`, or named in the settings
`callback.handler` and `event.handler`, from which `new_callbacks` and `new_handler` make them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka2011.producer.requests import SetPart


class Event(NamedTuple):
    """One message in a queue: already serialised and placed."""

    topic: str
    partition: int
    payload: bytes
    key: Any = None  # chose the partition, and chooses again when the broker is gone


class ProducerCallbacks:
    """Override what you need; every method may be called from a sender thread.

    An exception from `before_enqueue` reaches the caller of `send`; one from another method is
    logged, and the messages are sent as they were.
    """

    def init(self, properties: Mapping[str, str]) -> None:
        """Called once by a producer that was configured with `callback.handler`, with
        `callback.handler.props`."""

    def before_enqueue(self, event: Event) -> Event:
        """The event to queue."""
        return event

    def after_enqueue(self, event: Event, accepted: bool) -> None:
        """Called with `accepted` False for an event dropped because the queue was full."""

    def after_dequeuing(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events to send of those that were taken from a queue."""
        return events

    def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events to send in place of one batch."""
        return events

    def last_batch_before_close(self) -> Sequence[Event]:
        """Events to send after the queue's last, once per broker."""
        return ()

    def close(self) -> None:
        """Called last, when the producer is closed."""


# Replaces grouping and encoding: the events of one batch to the parts of one request.
EventHandler = Callable[[Sequence[Event]], Sequence[SetPart]]


def new_callbacks(
    kind: Callable[[], ProducerCallbacks] | None, properties: Mapping[str, str]
) -> ProducerCallbacks | None:
    """An instance of the class that `callback.handler` names. Raises TypeError for any other."""
    if kind is None:
        return None
    made = kind()
    if not isinstance(made, ProducerCallbacks):
        raise TypeError(f"callback.handler: {made!r} is not a ProducerCallbacks")
    made.init(properties)
    return made


def new_handler(
    kind: Callable[..., Any] | None, properties: Mapping[str, str]
) -> EventHandler | None:
    """The handler that `event.handler` names: the function itself, or an instance of the class,
    whose `init`, if any, is called with the properties. Raises TypeError if not callable."""
    if not isinstance(kind, type):
        return kind
    made = kind()
    if not callable(made):
        raise TypeError(f"event.handler: {made!r} is not a function of a batch's events")
    init = getattr(made, "init", None)
    if init is not None:
        init(properties)
    handler: EventHandler = made
    return handler
