"""Callbacks and event handlers: what they see and change, and what their failures cost."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from kafka2011.producer import NotDurable, Part
from kafka2011.producer.asynchronous.callbacks import Event, ProducerCallbacks
from kafka2011.producer.requests import SetPart
from kafka2011.protocol.message_set import encode
from tests.support.scripted_server import ScriptedBroker
from tests.unit.producer.support import async_producer, sent


class Recorder(ProducerCallbacks):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def before_enqueue(self, event: Event) -> Event:
        return event._replace(payload=event.payload.upper())

    def after_enqueue(self, event: Event, accepted: bool) -> None:
        self.calls.append(f"queued {event.payload!r} {accepted}")

    def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
        return [event for event in events if event.payload != b"SECRET"]

    def last_batch_before_close(self) -> Sequence[Event]:
        return [Event("a", -1, b"goodbye")]

    def close(self) -> None:
        self.calls.append("closed")


class NamedCallbacks(Recorder):
    properties: ClassVar[dict[str, str]] = {}

    def init(self, properties: Mapping[str, str]) -> None:
        NamedCallbacks.properties = dict(properties)


class Joining:
    """An event handler with properties, as 0.7's has."""

    def init(self, properties: Mapping[str, str]) -> None:
        self.glue = properties["glue"].encode()

    def __call__(self, events: Sequence[Event]) -> Sequence[SetPart]:
        return [SetPart("all", 3, encode([self.glue.join(event.payload for event in events)]))]


def test_callbacks_see_and_change_what_passes(server) -> None:
    recorder = Recorder()
    with async_producer(server, callbacks=recorder) as producer:
        producer.send("a", [b"one", b"secret"])
    assert sent(server) == [b"ONE", b"goodbye"]
    assert recorder.calls == ["queued b'ONE' True", "queued b'SECRET' True", "closed"]


def test_hooks_named_in_the_settings_take_effect(server) -> None:
    with async_producer(
        server,
        callback_handler=f"{__name__}.NamedCallbacks",
        callback_handler_props="a=1,b=x=y",
        event_handler=f"{__name__}:Joining",
        event_handler_props="glue=+",
    ) as producer:
        producer.send_parts([Part("a", [b"one"]), Part("b", [b"two"])])
        producer.flush()
        assert sent(server) == [b"ONE+TWO"]
    assert NamedCallbacks.properties == {"a": "1", "b": "x=y"}
    assert {(part.topic, part.partition) for part in server.parts()} == {("all", 3)}


def test_a_callback_that_raises_does_not_end_the_sender(server) -> None:
    class Broken(ProducerCallbacks):
        def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
            raise RuntimeError("mine")

    with async_producer(server, callbacks=Broken()) as producer:
        producer.send("a", b"x")
    assert sent(server) == [b"x"]


X = encode([b"x"])


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (RuntimeError("mine"), r"RuntimeError\('mine"),
        ([SetPart("a", None, X)], "LocalProtocolError"),
        ([SetPart("a", 2**31, X)], "LocalProtocolError"),
        ([SetPart("a", 0, "text")], "TypeError"),
        ([SetPart("a", 0, None)], "TypeError"),
        ([None], "TypeError"),
        (None, "TypeError"),
    ],
)
def test_a_handler_that_raises_or_returns_nonsense_loses_its_batch_and_not_the_sender(
    server, parts, reason
) -> None:
    def handler(events: Sequence[Event]) -> Any:
        if events[0].payload == b"good":
            return [SetPart("a", 0, encode([b"good"]))]
        if isinstance(parts, Exception):
            raise parts
        return parts

    check_that_a_bad_batch_is_lost(server, reason, event_handler=handler)


def test_a_callback_that_returns_no_events_loses_its_batch_and_not_the_sender(server) -> None:
    class Broken(ProducerCallbacks):
        def before_sending(self, events: Sequence[Event]) -> Any:
            return events if events[0].payload == b"good" else [7] * len(events)

    check_that_a_bad_batch_is_lost(server, "", callbacks=Broken())


def check_that_a_bad_batch_is_lost(server: ScriptedBroker, reason: str, **hook: Any) -> None:
    """Two messages are lost for that reason; a `good` one after them arrives."""
    producer = async_producer(server, **hook)
    producer.send("a", [b"1", b"2"])
    with pytest.raises(NotDurable, match=f"not encoded: {reason}"):
        producer.flush(5000)
    assert producer.stats.failed == 2
    producer.send("a", b"good")
    producer.close()
    assert sent(server) == [b"good"]
