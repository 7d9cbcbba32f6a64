"""Events for the warehouse's tests."""

import hashlib
import json
from typing import Any

from kafka2011.events import codec, schemas
from kafka2011.events.topic_codec import id_prefix
from kafka2011.events.topics import ACCESS_LOG
from tests.support.registries import DirectRegistry

WINDOW_MS = 10_000
# 2015-05-17 10:05:03 UTC
EVENT_TIME_MS = 1_431_857_103_000
HEADER_TIME_MS = 1_700_000_000_000


SHIPPED_SCHEMA = json.loads(schemas.schema_text(ACCESS_LOG))
# The same with a column more.
NEWER_SCHEMA = {
    **SHIPPED_SCHEMA,
    "fields": [*SHIPPED_SCHEMA["fields"], {"name": "country", "type": "string", "default": ""}],
}


def access_log_event(number: int, **changed: Any) -> dict[str, Any]:
    header = {
        "guid": hashlib.md5(str(number).encode(), usedforsecurity=False).digest(),
        "time": changed.pop("header_time", HEADER_TIME_MS + number),
        "server": changed.pop("server", "frontend-1"),
        "service": changed.pop("service", "log"),
    }
    return {
        "header": header,
        "event_time": EVENT_TIME_MS + number * 1000,
        "host": f"10.0.0.{number % 7}",
        "ident": None,
        "user": None,
        "time": "17/May/2015:10:05:03 +0000",
        "method": "GET",
        "path": f"/page/{number % 5}?q={number % 3}",
        "protocol": "HTTP/1.1",
        "status": 404 if number % 10 == 9 else 200,
        "bytes": None if number % 10 == 8 else 100 + number,
        "referer": None,
        "agent": "a \N{SNOWMAN} browser",
        **changed,
    }


def access_log_payload(number: int, **changed: Any) -> bytes:
    return codec.encode(ACCESS_LOG, access_log_event(number, **changed))


def payload_with(prefix: bytes, number: int) -> bytes:
    """The event with a registry id's prefix in place of the 2011 form's."""
    return prefix + access_log_payload(number)[17:]


def prefix_of(registry: DirectRegistry, schema: Any, subject: str = "access-log-value") -> bytes:
    """The prefix of events of this schema, which the registry has from now on."""
    return id_prefix(registry.client().id_of(subject, json.dumps(schema)))
