"""Makes the same codec in another process, such as a Spark worker, with what this one knows.

Pickled with a task; so a worker asks the registry only for ids that nobody has met yet, and a task
needs no registry at all when there are none.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka2011.events.forms import FORMS_2011, Forms, parse_forms
from kafka2011.events.registry_client import TIMEOUT_S, RegistryClient
from kafka2011.events.schema_cache import RegisteredSchema
from kafka2011.events.topic_codec import TopicCodec


@dataclass(frozen=True)
class CodecSource:
    """`url` of the registry, empty for none. `known`: schemas by id."""

    forms: Forms = FORMS_2011
    url: str = ""
    timeout_s: float = TIMEOUT_S
    known: Mapping[int, RegisteredSchema] = field(default_factory=dict)

    def codec(self) -> TopicCodec:
        """This process's codec of these settings: the same one each time."""
        found = _codec(str(self.forms), self.url, self.timeout_s)
        found.learn(self.known)
        return found


@functools.lru_cache(16)
def _codec(forms: str, url: str, timeout_s: float) -> TopicCodec:
    registry = RegistryClient(url, timeout_s=timeout_s) if url else None
    return TopicCodec(parse_forms(forms), registry)
