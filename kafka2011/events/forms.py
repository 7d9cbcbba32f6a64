"""The two forms of an event's first bytes, and the form of each topic.

    id      byte 0, 4 bytes: the schema's id in the registry, big-endian; then Avro
    2011    byte 0, 16 bytes: MD5 of the schema's Parsing Canonical Form; then Avro

Both start with 0, so a payload does not identify its form: the setting `event.forms` does, and must
be the same for all processes that write or read a topic. Monitoring events and heartbeats (topic
`audit`) are always in the 2011 form, so that the audit never waits for a registry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kafka2011.events.header import PREFIX_BYTES_2011, PREFIX_BYTES_ID
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.config import comma_list

ALL_OTHERS = "*"


class Form(Enum):
    """A form; the value is its name in `event.forms`."""

    ID = "id"
    MD5 = "2011"

    @property
    def prefix_bytes(self) -> int:
        """Bytes in front of the header."""
        return PREFIX_BYTES_ID if self is Form.ID else PREFIX_BYTES_2011


@dataclass(frozen=True)
class Forms:
    """Topic -> form; `default` for topics not in `by_topic`."""

    default: Form
    by_topic: Mapping[str, Form] = field(default_factory=dict)

    def of(self, topic: str) -> Form:
        if topic == AUDIT:
            return Form.MD5
        return self.by_topic.get(topic, self.default)

    def prefix_bytes(self, topic: str) -> int:
        """Bytes in front of the header of the topic's events."""
        return self.of(topic).prefix_bytes

    def __str__(self) -> str:
        """As `parse_forms` reads it."""
        named = {ALL_OTHERS: self.default, **dict(sorted(self.by_topic.items()))}
        return ",".join(f"{topic}:{form.value}" for topic, form in named.items())


FORMS_DEFAULT = Forms(Form.ID)
FORMS_2011 = Forms(Form.MD5)  # for processes without a registry


def parse_forms(text: str) -> Forms:
    """`*:id,login:2011` -> Forms; `*` is for all topics not named (default: `id`).

    Raises ValueError with one line.
    """
    found: dict[str, Form] = {}
    for part in comma_list(text):
        topic, colon, name = part.rpartition(":")
        try:
            form = Form(name)
        except ValueError:
            raise ValueError(f"{part!r} must be topic:id or topic:2011") from None
        if not colon or not topic or topic in found:
            raise ValueError(f"{part!r} must be topic:id or topic:2011, each topic once")
        if topic == AUDIT and form is not Form.MD5:
            raise ValueError(f"topic {AUDIT} is always in the 2011 form: it needs no registry")
        found[topic] = form
    return Forms(found.pop(ALL_OTHERS, FORMS_DEFAULT.default), found)
