"""The settings with which a producer counts what it sends (`audit.enable`)."""

import socket
from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.forms import Form
from kafka2011.events.header import NAME_BYTES_MAX
from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime.config import path, setting, text
from kafka2011.runtime.shared_settings import AuditSwitch, AuditWindow, HeartbeatSettings


@dataclass(frozen=True, kw_only=True)
class CountingSettings(SchemaSettings, HeartbeatSettings, AuditWindow, AuditSwitch):
    """Settings of a process that may count what it sends. Names in headers: 255 bytes at most."""

    audit_dir: Path | None = setting(
        "audit.dir",
        None,
        path,
        "directory of the journal of counts, one for each producer; needed with audit.enable",
    )
    audit_server: str = setting(
        "audit.server",
        "",
        text,
        "server name in the headers of the events to count; empty: process.name, else the host's",
    )
    audit_service: str = setting(
        "audit.service", "site", text, "service name in the headers of monitoring events"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.audit_enable and self.audit_dir is None:
            raise ValueError("audit.enable needs audit.dir, a directory for the journal of counts")
        for name in (self.counted_server, self.audit_service):
            if len(name.encode()) > NAME_BYTES_MAX:
                raise ValueError(f"a name in the header may have {NAME_BYTES_MAX} bytes: {name!r}")

    def check_lines(self, topic: str) -> None:
        """Raise ValueError if lines are to be counted but their schema's id cannot be had; for
        processes that send lines as events (`events.envelope`) when they count."""
        is_id = self.event_forms.of(topic) is Form.ID
        if self.audit_enable and is_id and not self.schema_registry_url:
            raise ValueError(
                "audit.enable sends lines as events with the id of their schema: set "
                f"schema.registry.url, or event.forms={topic}:2011 to do without a registry"
            )

    @property
    def counted_server(self) -> str:
        """The server name of the events that are counted."""
        return self.audit_server or self.process_name or socket.gethostname()
