"""When and by which server a topic's messages were made: one answer wherever they are counted.

The producer that counts what it sends, the audit, the recount and the load use this, so that a
message is in the same cell everywhere.

    id, 2011    the header (events.peek)
    json        the fields that event.time.field and event.server.field name
    text, bytes and JSON without those fields: not known; such a topic is not audited

The time in a field is a number, ms since the epoch, or text in ISO 8601 (UTC if it names no zone),
of the years 1970 to 9999; the server is text of at most 255 bytes, not empty. A message whose field
holds anything else is counted as one whose header cannot be read.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from kafka2011.events.errors import EventCorrupt, HeaderUnreadable
from kafka2011.events.forms import Form, Forms
from kafka2011.events.header import GUID_BYTES, NAME_BYTES_MAX, UNREADABLE, Header
from kafka2011.events.peek import count_by_window, peek
from kafka2011.events.plain import json_record
from kafka2011.runtime.clock import TIME_MS_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Origin:
    """Reads time and server of a topic's messages; this base class: none. Thread-safe."""

    has_guids = False  # whether each message has a guid of its own; else equal ones share it

    def header(self, payload: bytes) -> Header:  # noqa: ARG002
        """The message's header. Raises HeaderUnreadable if it lacks time or server."""
        raise HeaderUnreadable(
            "the topic's messages do not say when and by which server they were made"
        )

    def time_ms(self, payload: bytes) -> int | None:  # noqa: ARG002
        """When the message was made; None if it does not say."""
        return None

    def first_times_ms(self, payloads: Iterable[bytes], count: int) -> list[int]:
        """When the first `count` messages that say it were made."""
        found = (self.time_ms(each) for each in payloads)
        return list(islice((time_ms for time_ms in found if time_ms is not None), count))

    def guid(self, payload: bytes) -> bytes:
        """The 16 bytes that identify the message: the header's guid, else the MD5 of the payload.
        Meaningless for a payload that is not an event."""
        return hashlib.md5(payload, usedforsecurity=False).digest()

    def moment(self, record: Mapping[str, Any]) -> tuple[int | None, str | None]:  # noqa: ARG002
        """Time in ms and server of a decoded event, None where it does not say them."""
        return None, None

    def count(
        self,
        payloads: Iterable[bytes],
        window_ms: int,  # noqa: ARG002
        counts: dict[tuple[int, str], int],
        delays: dict[int, int] | None = None,  # noqa: ARG002
        now_ms: int = 0,  # noqa: ARG002
    ) -> int:
        """Add each payload to `counts` as `peek.count_by_window` does; returns their number."""
        counted = sum(1 for _ in payloads)
        if counted:
            counts[UNREADABLE] = counts.get(UNREADABLE, 0) + counted
        return counted


class _InHeader(Origin):
    has_guids = True

    def __init__(self, prefix_bytes: int) -> None:
        self._prefix_bytes = prefix_bytes

    def header(self, payload: bytes) -> Header:
        return peek(payload, self._prefix_bytes)

    def time_ms(self, payload: bytes) -> int | None:
        try:
            return peek(payload, self._prefix_bytes).time_ms
        except HeaderUnreadable:
            return None

    def guid(self, payload: bytes) -> bytes:
        return bytes(payload[self._prefix_bytes : self._prefix_bytes + GUID_BYTES])

    def moment(self, record: Mapping[str, Any]) -> tuple[int | None, str | None]:
        header = record.get("header")
        header = header if isinstance(header, Mapping) else {}
        return header.get("time"), header.get("server")

    def count(
        self,
        payloads: Iterable[bytes],
        window_ms: int,
        counts: dict[tuple[int, str], int],
        delays: dict[int, int] | None = None,
        now_ms: int = 0,
    ) -> int:
        return count_by_window(
            payloads, window_ms, counts, delays, now_ms, prefix_bytes=self._prefix_bytes
        )


class _InFields(Origin):
    def __init__(self, time_field: str, server_field: str) -> None:
        self._time_field = time_field
        self._server_field = server_field

    def header(self, payload: bytes) -> Header:
        time_ms, server = self._read(payload)
        if time_ms is None or server is None:
            wanted = self._time_field if time_ms is None else self._server_field
            raise HeaderUnreadable(
                f"the field {wanted!r} does not say it"
                if wanted
                else "one of the fields is not set"
            )
        return Header(self.guid(payload), time_ms, server, "")

    def time_ms(self, payload: bytes) -> int | None:
        return self._read(payload)[0]

    def moment(self, record: Mapping[str, Any]) -> tuple[int | None, str | None]:
        time_ms = time_of(record.get(self._time_field)) if self._time_field else None
        server = _server_of(record.get(self._server_field)) if self._server_field else None
        return time_ms, server

    def count(
        self,
        payloads: Iterable[bytes],
        window_ms: int,
        counts: dict[tuple[int, str], int],
        delays: dict[int, int] | None = None,
        now_ms: int = 0,
    ) -> int:
        if not self._time_field or not self._server_field:
            return super().count(payloads, window_ms, counts)
        counted = 0
        for payload in payloads:
            counted += 1
            time_ms, server = self._read(payload)
            if time_ms is None or server is None:
                counts[UNREADABLE] = counts.get(UNREADABLE, 0) + 1
                continue
            key = (time_ms - time_ms % window_ms, server)
            counts[key] = counts.get(key, 0) + 1
            if delays is not None:
                delay_ms = max(0, now_ms - time_ms)
                delays[delay_ms] = delays.get(delay_ms, 0) + 1
        return counted

    def _read(self, payload: bytes) -> tuple[int | None, str | None]:
        try:
            return self.moment(json_record(payload))
        except EventCorrupt:
            return None, None


_NOWHERE = Origin()


def origin_of(forms: Forms, topic: str) -> Origin:
    """The reader of when and by which server the topic's messages were made."""
    form = forms.of(topic)
    if form.is_avro:
        return _InHeader(form.prefix_bytes)
    fields = forms.time_field(topic), forms.server_field(topic)
    return _InFields(*fields) if form is Form.JSON and any(fields) else _NOWHERE


def time_of(value: object) -> int | None:
    """The time that a JSON field holds, ms since the epoch; None for anything else."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            since = moment - _EPOCH
        except (ValueError, OverflowError):
            return None
        value = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if isinstance(value, float):
        value = int(value)  # never infinite: JSON has no such number
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= TIME_MS_MAX else None


def _server_of(value: object) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return None
    return value if size <= NAME_BYTES_MAX else None
