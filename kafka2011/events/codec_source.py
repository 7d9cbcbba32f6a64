"""A codec's settings and known schemas, to rebuild it in another process, such as a Spark worker.

Pickled with a task, so a worker requests only ids that are new, and needs no registry for the rest.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka2011.events.forms import FORMS_2011, Forms, forms_of
from kafka2011.events.registry_client import TIMEOUT_S, RegistryClient
from kafka2011.events.schema_cache import RegisteredSchema
from kafka2011.events.topic_codec import TopicCodec


@dataclass(frozen=True)
class CodecSource:
    """What a codec is made of. `url`: the registry's, empty for none. `known`: schemas by id."""

    forms: Forms = FORMS_2011
    url: str = ""
    timeout_s: float = TIMEOUT_S
    known: Mapping[int, RegisteredSchema] = field(default_factory=dict)

    def codec(self) -> TopicCodec:
        """This process's codec for these settings, created once."""
        found = _codec(tuple(self.forms.settings().items()), self.url, self.timeout_s)
        found.learn(self.known)
        return found


@functools.lru_cache(16)
def _codec(forms: tuple[tuple[str, str], ...], url: str, timeout_s: float) -> TopicCodec:
    registry = RegistryClient(url, timeout_s=timeout_s) if url else None
    return TopicCodec(forms_of(dict(forms)), registry)
