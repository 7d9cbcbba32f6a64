"""What one sample observed, and the metrics that it reads. Types only, no decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka2011.coordination.paths import BrokerAddress
from kafka2011.coordination.processes import ProcessRecord
from kafka2011.coordination.replica_sets import SetView
from kafka2011.services.dashboard.process_states import ProcessHealth
from kafka2011.services.dashboard.sampling.metrics_text import Samples

Row = dict[str, Any]
Rows = dict[str, Row]

# Every metric that the dashboard reads; a test finds each of them in the processes' code.
METRICS = (
    "kafka2011_broker_messages_in_total",
    "kafka2011_broker_bytes_in_total",
    "kafka2011_broker_bytes_out_total",
    "kafka2011_broker_log_start",
    "kafka2011_broker_log_end",
    "kafka2011_broker_high_watermark",
    "kafka2011_broker_segments",
    "kafka2011_broker_partition_online",
    "kafka2011_broker_retention_seconds",
    "kafka2011_broker_retention_bytes",
    "kafka2011_broker_connections",
    "kafka2011_broker_flush_errors_total",
    "kafka2011_broker_flush_seconds_sum",
    "kafka2011_broker_flush_seconds_count",
    "kafka2011_frontend_messages_total",
    "kafka2011_frontend_keyed_bytes_total",
    "kafka2011_mirror_copied_bytes_total",
    "kafka2011_mirror_lag_bytes",
    "kafka2011_online_messages_total",
    "kafka2011_online_bytes_total",
    "kafka2011_online_lag_bytes",
    "kafka2011_consumed_messages",
    "kafka2011_consumed_state",
    "kafka2011_consumed_complete_to_seconds",
    "kafka2011_consumed_counted_from_seconds",
    "kafka2011_site_events_total",
    "kafka2011_site_lag_bytes",
    "kafka2011_proxy_bytes_total",
    "kafka2011_proxy_connections_open",
    "kafka2011_proxy_dropped_messages_total",
    "kafka2011_warehouse_rows_total",
    "kafka2011_warehouse_lag_bytes",
    "kafka2011_warehouse_problems",
)
WANTED = frozenset(METRICS)
# In these NaN means not known at present; in the others it would be a forgery or a fault.
MAY_BE_UNKNOWN = frozenset(name for name in METRICS if name.endswith("_lag_bytes"))


@dataclass(frozen=True)
class ObservedGroup:
    """One group as it stands in ZooKeeper. Owners and offsets by (topic, "<id>-<partition>")."""

    name: str
    members: dict[str, str]
    owners: dict[tuple[str, str], str]
    offsets: dict[tuple[str, str], tuple[int, int]]  # offset and the node's version
    owners_age: int = 0  # samples since the owners were read


@dataclass
class ObservedCluster:
    """The last state of one datacenter's ZooKeeper. Replaced whole, never changed."""

    datacenter: str
    address: str
    is_answering: bool = False
    reason: str = "not connected yet"
    at_ms: int = 0
    expected: dict[str, str] = field(default_factory=dict)  # process key -> kind
    alive: dict[str, ProcessRecord] = field(default_factory=dict)
    goodbyes: frozenset[str] = frozenset()  # keys whose last run ended with a clean stop
    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    sets: dict[int, SetView] = field(default_factory=dict)  # the broker ids that are replica sets
    topics: tuple[str, ...] = ()
    # topic -> broker id -> number of its partitions there, of registered brokers
    partitions: dict[str, dict[int, int]] = field(default_factory=dict)
    groups: dict[str, ObservedGroup] = field(default_factory=dict)
    groups_at_ms: int = 0


@dataclass
class ObservedProcess:
    """One process: its registration and its last scrape. Written by the sampler."""

    key: str  # <datacenter>/<name>
    datacenter: str
    name: str
    kind: str
    address: str = ""
    metrics: str = ""
    pid: int = 0
    health: ProcessHealth = field(default_factory=ProcessHealth)
    samples: Samples = field(default_factory=dict)
    samples_ms: int = 0  # when they were read
    is_large: bool = False  # its /metrics takes long, and is read apart and more rarely
    facts: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)  # of a proxy, in words
    site: dict[str, Any] | None = None  # what it computes for the page Site
    registered_in: str = ""  # the datacenter whose ZooKeeper has its registration

    def measured_ms(self, now_ms: int) -> int:
        """The time of its figures: rates are differences of those."""
        return self.samples_ms or now_ms


@dataclass
class Observations:
    """What one sample observed."""

    now_ms: int
    processes: Mapping[str, ObservedProcess]
    clusters: Mapping[str, ObservedCluster]
    audit: Mapping[str, Any] | None
    cells: Rows  # as `cell_rows` makes them
    loader: Mapping[str, Any] | None
    commits: Rows
    reports: Rows
    # Of the cells: when they were read, ms, and how many were left out; empty: never read.
    cells_read: Mapping[str, int] = field(default_factory=dict)
    audit_unheard_ms: int = 0  # since when the audit has not answered; 0 while it does
    site: Sequence[Mapping[str, Any]] = ()  # answers of the processes that compute the page Site
