"""The form of each topic's payloads, and which fields of a topic of JSON hold time and server.

    id      byte 0, 4 bytes: the schema's id in the registry, big-endian; then Avro
    2011    byte 0, 16 bytes: MD5 of the schema's Parsing Canonical Form; then Avro
    json    a JSON object, UTF-8
    text    text, UTF-8
    bytes   anything

A payload does not identify its form (both Avro forms begin with 0): the setting `event.forms` does,
and must be the same for all processes that write or read a topic. Monitoring events and heartbeats
(topic `audit`) are always in the 2011 form, so that the audit never waits for a registry. What Avro
events have in their header, JSON has in the fields that `event.time.field` and `event.server.field`
name (events.origin).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka2011.events.header import PREFIX_BYTES_2011, PREFIX_BYTES_ID
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.config import comma_list

ALL_OTHERS = "*"

FORMS_SETTING = "event.forms"
TIME_SETTING = "event.time.field"
SERVER_SETTING = "event.server.field"


class Form(Enum):
    """A form; the value is its name in `event.forms`."""

    ID = "id"
    MD5 = "2011"
    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"

    @property
    def is_avro(self) -> bool:
        return self in (Form.ID, Form.MD5)

    @property
    def prefix_bytes(self) -> int:
        """The number of bytes in front of the event; 0 if it begins at once."""
        return {Form.ID: PREFIX_BYTES_ID, Form.MD5: PREFIX_BYTES_2011}.get(self, 0)


@dataclass(frozen=True)
class Forms:
    """The topics' forms; `default` for topics not in `by_topic`.

    `times`, `servers`: JSON topic -> the top-level field that holds the event's time, and the field
    that holds the server that made it; `*` for all others.
    """

    default: Form
    by_topic: Mapping[str, Form] = field(default_factory=dict)
    times: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, str] = field(default_factory=dict)

    def of(self, topic: str) -> Form:
        if topic == AUDIT:
            return Form.MD5
        return self.by_topic.get(topic, self.default)

    def time_field(self, topic: str) -> str:
        """The field that holds the time of the topic's events; empty for none."""
        return _named(self.times, topic)

    def server_field(self, topic: str) -> str:
        """The field that holds the server of the topic's events; empty for none."""
        return _named(self.servers, topic)

    def prefix_bytes(self, topic: str) -> int:
        """The number of bytes in front of the topic's events."""
        return self.of(topic).prefix_bytes

    def with_fields(self, times: Mapping[str, str], servers: Mapping[str, str]) -> "Forms":
        """These forms with such fields. Raises ValueError for a topic not in the form `json`."""
        for setting, fields in ((TIME_SETTING, times), (SERVER_SETTING, servers)):
            for topic in fields:
                if topic != ALL_OTHERS and self.of(topic) is not Form.JSON:
                    raise ValueError(
                        f"{setting} names a field of {topic}, which is in the form "
                        f"{self.of(topic).value}: only JSON has such fields "
                        f"(event.forms={topic}:json)"
                    )
        return replace(self, times=times, servers=servers)

    def settings(self) -> dict[str, str]:
        """The settings, as `forms_of` reads them."""
        fields = {TIME_SETTING: self.times, SERVER_SETTING: self.servers}
        return {FORMS_SETTING: str(self), **{n: _fields_text(each) for n, each in fields.items()}}

    def __str__(self) -> str:
        """The text that `parse_forms` reads."""
        named = {ALL_OTHERS: self.default, **dict(sorted(self.by_topic.items()))}
        return ",".join(f"{topic}:{form.value}" for topic, form in named.items())


def _named(fields: Mapping[str, str], topic: str) -> str:
    return fields.get(topic) or fields.get(ALL_OTHERS, "")


def _fields_text(fields: Mapping[str, str]) -> str:
    return ",".join(f"{topic}:{name}" for topic, name in sorted(fields.items()))


FORMS_DEFAULT = Forms(Form.ID)
FORMS_2011 = Forms(Form.MD5)  # for processes without a registry

_WANTED = f"must be topic:form, the form one of {', '.join(form.value for form in Form)}"


def parse_forms(text: str) -> Forms:
    """Parse `*:id,login:2011,clicks:json`; `*` is for all topics not named (default: `id`).

    Raises ValueError with one line.
    """
    found: dict[str, Form] = {}
    for part in comma_list(text):
        topic, colon, name = part.rpartition(":")
        try:
            form = Form(name)
        except ValueError:
            raise ValueError(f"{part!r} {_WANTED}") from None
        if not colon or not topic or topic in found:
            raise ValueError(f"{part!r} {_WANTED}, each topic once")
        if topic == AUDIT and form is not Form.MD5:
            raise ValueError(f"topic {AUDIT} is always in the 2011 form: it needs no registry")
        found[topic] = form
    return Forms(found.pop(ALL_OTHERS, FORMS_DEFAULT.default), found)


def parse_fields(text: str) -> dict[str, str]:
    """Parse `clicks:created_at,*:time` to {topic: field}. Raises ValueError with one line."""
    found: dict[str, str] = {}
    for part in comma_list(text):
        topic, _, name = part.rpartition(":")
        if not topic or not name or topic in found:
            raise ValueError(f"{part!r} must be topic:field, each topic once")
        found[topic] = name
    return found


def forms_of(settings: Mapping[str, str]) -> Forms:
    """The forms that the settings, by name, describe; missing ones have their defaults.

    Raises ValueError with one line.
    """
    forms = parse_forms(settings.get(FORMS_SETTING, ""))
    times = parse_fields(settings.get(TIME_SETTING, ""))
    return forms.with_fields(times, parse_fields(settings.get(SERVER_SETTING, "")))
