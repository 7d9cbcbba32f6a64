"""Events as JSON for the console consumer: `--formatter event`.

    {"topic": "share", "next_offset": 734, "schema": "kafka2011.Share", "event": {...}}

A payload that is not an event has `error` and `payload_base64` instead. Bytes are shown in
hexadecimal, decimals and numbers that JSON does not have as texts (`0.50`, `NaN`).
"""

import base64
import os
from collections.abc import Callable
from decimal import Decimal

from kafka2011.cli.connections import SCHEMAS, event_settings_here
from kafka2011.cli.output import fail
from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.events.errors import EventError
from kafka2011.events.registry_client import RegistryError
from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime import config, strict_json
from kafka2011.runtime.process_settings import known_names


def event_formatter(
    properties: dict[str, str], end: bytes, *, is_here: bool = True
) -> Callable[[ConsumedMessage], bytes]:
    """The format of events. `properties` are settings (event.forms, schema.registry.url); for an
    empty one the environment's holds, else, where the messages are its (`is_here`), that of the
    deployment that runs in the current directory. Exits with status 2 when one cannot be used."""
    words = [f"{name}={value}" for name, value in properties.items() if value]
    here = event_settings_here(words, names=SCHEMAS) if is_here else []
    try:
        settings, _ = config.load(
            SchemaSettings,
            overrides=[*words, *here],
            environment=os.environ,
            known_elsewhere=known_names(),
        )
    except config.ConfigError as error:
        fail(str(error), 2)
    codec = settings.topic_codec()

    def formatted(message: ConsumedMessage) -> bytes:
        shown: dict[str, object] = {"topic": message.topic, "next_offset": message.next_offset}
        try:
            schema, shown["event"] = codec.decode_to_show(message.topic, message.payload)
            shown["schema"] = schema["name"]
        except (EventError, RegistryError) as error:
            shown["error"] = str(error)
            shown["payload_base64"] = base64.b64encode(message.payload).decode()
        return strict_json.dumps(shown, default=_text).encode() + end

    return formatted


def _text(value: bytes | Decimal) -> str:
    return value.hex() if isinstance(value, bytes) else f"{value:f}"
