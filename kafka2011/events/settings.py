"""The settings of every process that writes or reads events: the topics' forms, the registry."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka2011.events.forms import (
    FORMS_DEFAULT,
    Forms,
    parse_fields,
    parse_forms,
)
from kafka2011.runtime.config import path, setting, whole
from kafka2011.runtime.process_config import ProcessConfig

if TYPE_CHECKING:  # loaded where they are used: every Producer has these settings
    from kafka2011.events.registry_client import RegistryClient
    from kafka2011.events.topic_codec import TopicCodec
    from kafka2011.runtime.storage_paths import StoragePath


def _url(value: str) -> str:
    if value:
        from kafka2011.events.registry_client import http_requester

        http_requester(value, 1.0)  # raises ValueError for an invalid address
    return value


@dataclass(frozen=True, kw_only=True)
class FormSettings(ProcessConfig):
    """Settings of a process that reads only events' headers. `forms` has all three together."""

    event_forms: Forms = setting(
        "event.forms",
        FORMS_DEFAULT,
        parse_forms,
        "form of each topic's messages, topic:form,...; * for all others; "
        "the form id, 2011, json, text or bytes",
    )
    event_time_field: dict[str, str] = setting(
        "event.time.field",
        {},
        parse_fields,
        "field that holds the time of a topic's JSON, topic:field,...; * for all others",
    )
    event_server_field: dict[str, str] = setting(
        "event.server.field",
        {},
        parse_fields,
        "field that holds the server that made a topic's JSON, topic:field,...; * for all others",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.forms  # raises ValueError for a field of a topic that is not JSON

    @property
    def forms(self) -> Forms:
        """The topics' forms, with the fields that hold time and server."""
        return self.event_forms.with_fields(self.event_time_field, self.event_server_field)


@dataclass(frozen=True, kw_only=True)
class SchemaSettings(FormSettings):
    """Settings of a process that encodes or decodes whole events."""

    schema_registry_url: str = setting(
        "schema.registry.url",
        "",
        _url,
        "schema registry, http://host:port; empty: only the 2011 form can be used",
    )
    schema_registry_timeout_ms: int = setting(
        "schema.registry.timeout.ms",
        2_000,
        whole(1, 600_000),
        "longest wait for the schema registry, ms",
    )
    schema_cache_file: Path | None = setting(
        "schema.cache.file",
        None,
        path,
        "file that keeps the registry's schemas; unset: in memory only",
    )

    def topic_codec(self, cache_file: "StoragePath | None" = None) -> "TopicCodec":
        """A codec by these settings, with `cache_file` unless schema.cache.file is set."""
        from kafka2011.events.topic_codec import TopicCodec

        return TopicCodec(self.forms, self.registry_client(cache_file))

    def registry_client(self, cache_file: "StoragePath | None" = None) -> "RegistryClient | None":
        """A client by these settings; None when no registry is set."""
        url = self.schema_registry_url
        if not url:
            return None
        from kafka2011.events.registry_client import RegistryClient
        from kafka2011.events.schema_cache import SchemaCache

        file = self.schema_cache_file or cache_file
        return RegistryClient(
            url,
            cache=SchemaCache(file, url.rstrip("/")) if file is not None else None,
            timeout_s=self.schema_registry_timeout_ms / 1000,
        )
