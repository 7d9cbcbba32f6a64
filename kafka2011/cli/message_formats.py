"""How the console consumer prints one message: the formats of `--formatter` and `--json`."""

import base64
import json
import os
import zlib
from collections.abc import Callable, Iterable

from kafka2011.cli.output import fail
from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.producer.config import python_object

# The names here, and the original's classes.
FORMATTERS = {
    "newline": "newline",
    "checksum": "checksum",
    "event": "event",
    "kafka.consumer.ConsoleConsumer$NewlineMessageFormatter": "newline",
    "kafka.consumer.ConsoleConsumer$ChecksumMessageFormatter": "checksum",
}


class FormatFailed(Exception):
    """The user's formatter failed on a message."""


Format = Callable[[ConsumedMessage], bytes]


def message_format(
    name: str,
    properties: Iterable[str],
    as_json: bool,
    shown: Callable[[bytes], bytes],
    *,
    is_here: bool,
) -> Format:
    """The format that `--formatter`, `--property` and `--json` name; `shown` turns a payload into
    what is printed, `is_here` says that the messages are of the deployment that runs in the current
    directory. Exits with status 2 when they cannot be used."""
    known = {"print.topic": "", "print.partition": "", "print.offset": "", "line.separator": "\n"}
    of_events = {"event.forms": "", "schema.registry.url": ""}
    for text in properties:
        key, equals, value = text.partition("=")
        if not equals or key not in {**known, **of_events}:
            names = ", ".join([*known, *of_events])
            fail(f"--property {text!r}: one of {names}, as NAME=VALUE", 2)
        (known if key in known else of_events)[key] = value
    kind = FORMATTERS.get(name)
    if kind is None:
        return _own_formatter(name)
    end = os.fsencode(known["line.separator"])
    if kind == "event":
        from kafka2011.cli.event_json import event_formatter

        return event_formatter(of_events, end, is_here=is_here)
    if as_json:
        return lambda message: json.dumps(as_record(message)).encode() + end
    if kind == "checksum":
        return lambda message: (
            (
                (f"{message.topic}-" if known["print.topic"] == "true" else "")
                + f"checksum:{zlib.crc32(message.payload)}"
            ).encode()
            + end
        )
    return lambda message: _prefix(message, known) + shown(message.payload) + end


def _own_formatter(name: str) -> Format:
    try:
        found = python_object(name)
    except ValueError as error:
        names = ", ".join(dict.fromkeys(FORMATTERS.values()))
        fail(f"--formatter {name!r}: {names} or module:function ({error})", 2)
    if not callable(found):
        fail(f"--formatter {name!r} is not a function", 2)

    def formatted(message: ConsumedMessage) -> bytes:
        try:
            text = found(message)
        except Exception as error:  # the user's own code
            raise FormatFailed(f"{name}: {type(error).__name__}: {error}") from error
        if not isinstance(text, bytes):
            raise FormatFailed(f"{name} returned {type(text).__name__}, not bytes")
        return text

    return formatted


def _prefix(message: ConsumedMessage, wanted: dict[str, str]) -> bytes:
    """The fields that --property adds before the payload, tab-separated."""
    fields = []
    if wanted["print.topic"] == "true":
        fields.append(message.topic)
    if wanted["print.partition"] == "true":
        fields.append(f"{message.broker_id}-{message.partition}")
    if wanted["print.offset"] == "true":
        fields.append(str(message.next_offset))
    return "".join(f"{field}\t" for field in fields).encode()


def as_record(message: ConsumedMessage) -> dict[str, object]:
    """The message for JSON; its payload as text, or in base 64 where it is not UTF-8."""
    fields: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker_id,
        "partition": message.partition,
        "next_offset": message.next_offset,
    }
    try:
        fields["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    return fields
