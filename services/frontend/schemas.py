"""The first bytes of a frontend's events, from registering its schemas at the start.

A frontend waits for a registry that is down, unless it has the ids from an earlier start. When the
registry refuses a schema (incompatible with the subject's versions) the process ends, since its
events could not be decoded.
"""

import threading
from collections.abc import Sequence

from kafka2011.events.registry_client import RegistryUnavailable
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.events.topics import ACCESS_LOG, ACTIVITY_TOPICS, unreadable_topic
from kafka2011.runtime.logs import get_logger

RETRY_S = 0.5

log = get_logger(__name__)


def topics_of(source: str) -> tuple[str, ...]:
    """The topics that a source (`synthetic`, `access-log`, `none`) writes."""
    match source:
        case "synthetic":
            return ACTIVITY_TOPICS
        case "none":
            return ()
    return (ACCESS_LOG, unreadable_topic(ACCESS_LOG))


def prefixes(
    codec: TopicCodec, topics: Sequence[str], stop: threading.Event
) -> dict[str, bytes] | None:
    """Topic -> the first bytes of its events; None if `stop` was set first.

    Raises RegistryRefused: the registry does not accept a schema.
    """
    found: dict[str, bytes] = {}
    is_reported = False
    while not stop.is_set():
        try:
            for topic in topics:
                if topic not in found:
                    found[topic] = codec.prefix(topic)
        except RegistryUnavailable as error:
            if not is_reported:
                log.warning("waiting_for_schema_registry", detail=str(error))
                is_reported = True
            stop.wait(RETRY_S)
            continue
        log.info(
            "schemas_registered", **{topic: prefix[1:].hex() for topic, prefix in found.items()}
        )
        return found
    return None
