"""Log lines as events: the header that lets a line be counted, and the line.

The file tailer, the logging handler and the console producer send their lines like this when they
count (`audit.enable`): a plain line has no time and no server to count it by.
"""

from collections.abc import Callable

from kafka2011.events import codec
from kafka2011.events.forms import Form
from kafka2011.events.header import Header
from kafka2011.events.schemas import schema_text
from kafka2011.events.settings import SchemaSettings
from kafka2011.events.topic_codec import RegistryMissing, id_prefix, subject_of
from kafka2011.events.topics import LOG_LINE

# (header, line, source) -> payload
Envelope = Callable[[Header, bytes, str], bytes]


def envelope(settings: SchemaSettings, topic: str) -> Envelope:
    """A function that makes the topic's payloads, in its form; without Avro a line stays as it is.

    In the form `id` this registers the schema of lines for the topic. Raises RegistryMissing,
    RegistryRefused (it has another schema already) and RegistryUnavailable (try again later).
    """
    form = settings.event_forms.of(topic)
    if not form.is_avro:
        return lambda _header, line, _source: line
    if form is Form.MD5:
        prefix = codec.prefix_of(LOG_LINE)
    else:
        registry = settings.registry_client()
        if registry is None:
            raise RegistryMissing(topic)
        prefix = id_prefix(registry.id_of(subject_of(topic), schema_text(LOG_LINE)))
    encode = codec.encoder_behind(prefix, LOG_LINE)

    def wrapped(header: Header, line: bytes, source: str) -> bytes:
        fields = {
            "guid": header.guid,
            "time": header.time_ms,
            "server": header.server,
            "service": header.service,
        }
        text = line.decode("utf-8", "backslashreplace")
        name = source.encode("utf-8", "backslashreplace").decode()
        return encode({"header": fields, "line": text, "source": name})

    return wrapped
