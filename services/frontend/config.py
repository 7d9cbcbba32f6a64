"""The settings of `kafka2011 frontend`: a producer's, and where its events come from."""

import socket
from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.forms import Form
from kafka2011.events.header import NAME_BYTES_MAX
from kafka2011.events.settings import SchemaSettings
from kafka2011.producer.config import INT_MAX, ProducerConfig
from kafka2011.runtime.config import boolean, one_of, path, setting, text, whole
from kafka2011.services.frontend.schemas import topics_of


@dataclass(frozen=True, kw_only=True)
class FrontendConfig(ProducerConfig, SchemaSettings):
    """One load generator. `broker.list` is a balancer's address, or use `zk.connect`."""

    source: str = setting(
        "source", "synthetic", one_of("synthetic", "access-log"), "where the events come from"
    )
    input_path: str = setting(
        "input.path", "", text, "access log to send (source=access-log), common or combined format"
    )
    input_follow: bool = setting(
        "input.follow", False, boolean, "go on with what is appended to the access log"
    )
    seed: int = setting("seed", 2011, whole(0, 2**63 - 1), "of the synthetic activity")
    rate: int = setting(
        "rate",
        0,
        whole(0, 10_000_000),
        "events a second; 0: 1000 synthetic ones, an access log as fast as it goes",
    )
    message_count: int = setting(
        "message.count", 0, whole(0), "stop after so many synthetic events; 0: no limit"
    )
    duration_ms: int = setting(
        "duration.ms", 0, whole(0), "stop the synthetic activity after this long, ms; 0: no limit"
    )
    server: str = setting(
        "frontend.server", "", text, "server name in event headers; empty: process.name, or host"
    )
    service: str = setting("frontend.service", "site", text, "service name in event headers")
    data_dir: Path = setting(
        "data.dir", Path("var/frontend"), path, "journal of what was sent, and progress.json"
    )
    window_ms: int = setting(
        "audit.window.ms", 600_000, whole(1_000), "width of an audit window, ms"
    )
    live_zk_connect: str = setting(
        "live.zk.connect", "", text, "process registry to enter; empty: zk.connect"
    )
    flush_interval_ms: int = setting(
        "frontend.flush.interval.ms",
        150,
        whole(1, 60_000),
        "between barriers, ms: what is sent twice at most after a broker's death",
    )
    unconfirmed_messages_max: int = setting(
        "frontend.unconfirmed.messages",
        20_000,
        whole(1),
        "the source waits while so many messages are not confirmed",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        5_000,
        whole(0, 3_600_000),
        "between heartbeats to topic audit, ms; 0: none",
    )
    stop_timeout_ms: int = setting(
        "frontend.stop.timeout.ms",
        10_000,
        whole(0, 600_000),
        "how long to go on delivering after SIGTERM, ms",
    )
    # A balancer spreads connections: this often a frontend moves on (contracts section 5).
    reconnect_time_interval_ms: int = setting(
        "reconnect.time.interval.ms",
        2_000,
        whole(-1, INT_MAX),
        "time after which to connect anew, ms; negative: never",
    )
    # Failures are retried for ever anyway; a short wait keeps SIGTERM punctual.
    connect_timeout_ms: int = setting(
        "connect.timeout.ms", 1_000, whole(1, INT_MAX), "keep trying to connect for this long, ms"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.zk_connect and not self.broker_list:
            raise ValueError("set broker.list (a balancer or brokers) or zk.connect")
        if self.source == "access-log" and not self.input_path:
            raise ValueError("source=access-log needs input.path, the log to send")
        in_ids = [t for t in topics_of(self.source) if self.event_forms.of(t) is Form.ID]
        if in_ids and not self.schema_registry_url:
            raise ValueError(
                f"events of {in_ids[0]} carry ids of a schema registry: set schema.registry.url, "
                "or event.forms=*:2011 to do without one"
            )
        for name in (self.server_name, self.service):
            if len(name.encode()) > NAME_BYTES_MAX:
                raise ValueError(f"a name in the header may have {NAME_BYTES_MAX} bytes: {name!r}")

    @property
    def server_name(self) -> str:
        """Who the events say made them."""
        return self.server or self.process_name or socket.gethostname()

    @property
    def synthetic_rate(self) -> int:
        return self.rate or 1000

    @property
    def event_count_max(self) -> int | None:
        """How many synthetic events there are in all; None without end."""
        limits = []
        if self.message_count:
            limits.append(self.message_count)
        if self.duration_ms:
            limits.append(self.duration_ms * self.synthetic_rate // 1000)
        return min(limits) if limits else None
