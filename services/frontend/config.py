"""The settings of `kafka2011 frontend`: a producer's, and the source of its events."""

import socket
from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.forms import Form
from kafka2011.events.header import NAME_BYTES_MAX
from kafka2011.producer.config import ProducerConfig
from kafka2011.runtime.config import boolean, one_of, setting, text, whole
from kafka2011.runtime.shared_settings import (
    AuditWindow,
    DatacenterSettings,
    DataDir,
    shared,
)
from kafka2011.services.frontend.log_format import FORMAT_DEFAULT, FORMAT_DOC, log_format
from kafka2011.services.frontend.schemas import topics_of


@dataclass(frozen=True, kw_only=True)
class FrontendConfig(ProducerConfig, DataDir):
    """One load generator. `broker.list` is a balancer's address, or use `zk.connect`."""

    source: str = setting(
        "source",
        "synthetic",
        one_of("synthetic", "access-log", "none"),
        "source of the events; none: heartbeats only",
    )
    input_path: str = setting(
        "input.path",
        "",
        text,
        "access log to send (source=access-log); may be packed by gzip, bzip2, xz or zstd",
    )
    input_format: str = setting("input.format", FORMAT_DEFAULT, log_format, FORMAT_DOC)
    input_follow: bool = setting(
        "input.follow",
        False,
        boolean,
        "true: follow the access log as it grows, through rotation and truncation",
    )
    seed: int = setting("seed", 2011, whole(0, 2**63 - 1), "seed of the synthetic activity")
    rate: int = setting(
        "rate",
        0,
        whole(0, 10_000_000),
        "events a second; 0: 1000 for synthetic ones, no limit for an access log",
    )
    message_count: int = setting(
        "message.count", 0, whole(0), "synthetic events after which to stop; 0: no limit"
    )
    duration_ms: int = setting(
        "duration.ms", 0, whole(0), "length of the synthetic activity, ms; 0: no limit"
    )
    catch_up_ms: int = setting(
        "catch.up.ms",
        10_000,
        whole(-1),
        "longest delay of synthetic activity that is made up for, ms: after a longer pause it goes "
        "on from now; -1: no limit",
    )
    batch_ms: int = setting(
        "frontend.batch.ms",
        50,
        whole(0, 60_000),
        "pause after events that come at a rate (synthetic, or a log with one), ms: fewer and "
        "larger requests, events so much later",
    )
    is_keyed: bool = setting(
        "frontend.keyed",
        False,
        boolean,
        "true: synthetic events that have a key go to its partition, at the brokers that "
        "live.zk.connect (or zk.connect) names; all others go to broker.list",
    )
    keys_items: bool = setting(
        "frontend.keyed.items",
        False,
        boolean,
        "true: with frontend.keyed, impressions go to the partition of the item shown",
    )
    server: str = setting(
        "frontend.server",
        "",
        text,
        "server name in event headers; empty: process.name, else the host's",
    )
    service: str = setting("frontend.service", "site", text, "service name in event headers")
    data_dir: Path = shared(
        DataDir,
        "data.dir",
        default=Path("var/frontend"),
        doc="directory of progress.json and the journal of sent messages",
    )
    window_ms: int = shared(AuditWindow, "audit.window.ms", parse=whole(1_000))
    live_zk_connect: str = shared(
        DatacenterSettings,
        "live.zk.connect",
        doc="ZooKeeper in which this process is registered; empty: zk.connect",
    )
    flush_interval_ms: int = setting(
        "frontend.flush.interval.ms",
        150,
        whole(1, 60_000),
        "time between barriers, ms: at most this much is sent twice after a broker's death",
    )
    unconfirmed_messages_max: int = setting(
        "frontend.unconfirmed.messages",
        20_000,
        whole(1),
        "unconfirmed messages at which the source waits",
    )
    stop_timeout_ms: int = setting(
        "frontend.stop.timeout.ms",
        10_000,
        whole(0, 600_000),
        "longest time of delivery after SIGTERM, ms; a quarter more after a failed attempt",
    )
    # A load balancer spreads connections, not requests, so a frontend reconnects this often.
    reconnect_time_interval_ms: int = shared(
        ProducerConfig, "reconnect.time.interval.ms", default=2_000
    )
    # A reconnect gives up on a broker that hangs as soon as a delivery's barrier does.
    socket_timeout_ms: int = shared(ProducerConfig, "socket.timeout.ms", default=10_000)
    # Failures are retried without end anyway; a short wait keeps SIGTERM punctual.
    connect_timeout_ms: int = shared(ProducerConfig, "connect.timeout.ms", default=1_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.required_acks != -1:
            raise ValueError("a frontend counts what cannot be lost: request.required.acks is -1")
        if self.audit_enable:
            raise ValueError("a frontend counts what it sends by itself: unset audit.enable")
        if not self.zk_connect and not self.broker_list:
            raise ValueError("set broker.list (a load balancer or brokers) or zk.connect")
        if self.places_by_key and not (self.live_zk_connect or self.zk_connect):
            raise ValueError("frontend.keyed=true needs live.zk.connect, to know the brokers")
        if self.source == "access-log" and not self.input_path:
            raise ValueError("source=access-log needs input.path, the log to send")
        plain = [t for t in topics_of(self.source) if not self.event_forms.of(t).is_avro]
        if plain:
            raise ValueError(
                f"a frontend sends Avro: {plain[0]} must be in the form id or 2011 (event.forms)"
            )
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
        """The server name in the headers of events."""
        return self.server or self.process_name or socket.gethostname()

    @property
    def places_by_key(self) -> bool:
        """Whether events go to the partition of their key; lines of a log have none."""
        return self.is_keyed and self.source == "synthetic"

    @property
    def gather_ms(self) -> int:
        """Pause after a batch that was not full, ms; 0 if no rate holds the events back."""
        return self.batch_ms if self.rate or self.source == "synthetic" else 0

    @property
    def pause_ms_max(self) -> int:
        """Delay above which synthetic activity goes on from now, ms; -1: none. It allows for the
        pauses between its own batches."""
        return -1 if self.catch_up_ms < 0 else self.catch_up_ms + 4 * self.gather_ms

    @property
    def synthetic_rate(self) -> int:
        return self.rate or 1000

    @property
    def event_count_max(self) -> int | None:
        """The number of synthetic events; None: no limit."""
        limits = []
        if self.message_count:
            limits.append(self.message_count)
        if self.duration_ms:
            limits.append(self.duration_ms * self.synthetic_rate // 1000)
        return min(limits) if limits else None
