"""The registry of znode paths, with the exact form of every value; pure text, no ZooKeeper.

Broker registry
  /brokers/ids/<broker id>                           ephemeral   <host>-<ms>:<host>:<port>
  /brokers/topics                                    persistent  null
  /brokers/topics/<topic>                            persistent  null, never deleted
  /brokers/topics/<topic>/<broker id>                ephemeral   number of partitions, decimal
Consumer registry
  /consumers/<group>/ids/<consumer id>               ephemeral   subscription, see below
Owner registry
  /consumers/<group>/owners/<topic>/<id>-<partition> ephemeral   consumer thread id
Offset registry
  /consumers/<group>/offsets/<topic>/<id>-<partition> persistent byte offset, decimal
Counts of what a group has read (not in 0.7)
  /kafka2011/counts/<group>/<topic>/<id>-<partition> persistent  JSON: from, to, messages by window
Process registry (not in 0.7)
  /kafka2011/processes/<datacenter>/<name>           persistent  JSON: kind, stopped
  /kafka2011/processes/<datacenter>/<name>/alive     ephemeral   JSON: address, metrics address, pid
Replica sets (not in 0.7)
  /kafka2011/replicas/<broker id>/state              persistent  JSON: epoch, leader, in-sync set
  /kafka2011/replicas/<broker id>/live/<directory>   ephemeral   JSON: name, replica address, pid
  /kafka2011/replicas/<broker id>/starts/<directory> persistent  number of starts, decimal
  /kafka2011/replicas/<broker id>/unclean/<epoch>    persistent  JSON: what it may have lost
  /kafka2011/replicas/<broker id>/places/<name>      persistent  JSON: machine and rack of a member
Mirrors (not in 0.7)
  /kafka2011/cluster-id                              persistent  random text that names the cluster
  /kafka2011/upstream/<cluster id>                   persistent  group: a mirror copies from there
  /kafka2011/mirrors/<group>/map/<topic>/<id>-<partition> persistent  target <id>-<partition>
  /kafka2011/mirrors/<group>/paused/<id>-<partition>:<topic>  persistent  null
  /kafka2011/mirrors/<group>/paused/all:<topic>      persistent  null
  /kafka2011/mirrors/<group>/refused/<topic>/<id>-<partition>  persistent  JSON: entries left out
  /kafka2011/mirrors/<group>/lineage/<topic>/<id>-<partition>  persistent  JSON: epochs read from
  and in the target's ZooKeeper, for consumers that fail over (docs/mirror.md):
  /kafka2011/mirrors/<group>/offsets/<cluster id>/<topic>/<id>-<partition>  persistent  JSON

Subscription: `{ "a": 1,"b": 4 }` (topic: streams), or `*<streams>*<whitelist regex>`, or
`!<streams>!<blacklist regex>`. Values are UTF-8 without terminator.
docs/znodes.md is the same for operators.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kafka2011.coordination.errors import BadZnode

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CONSUMERS = "/consumers"
PROCESSES = "/kafka2011/processes"
COUNTS = "/kafka2011/counts"
TAILS = "/kafka2011/tails"
CLUSTER_ID = "/kafka2011/cluster-id"
UPSTREAM = "/kafka2011/upstream"
MIRRORS = "/kafka2011/mirrors"
REPLICAS = "/kafka2011/replicas"

VALUE_BYTES_MAX = 65536  # a larger value is invalid: valid ones are below 1 KiB
UNCLEAN_BYTES_MAX = 1_000_000  # ZooKeeper takes no more

OFFSET_MAX = 2**63 - 1


class BrokerAddress(NamedTuple):
    """The address that a broker publishes."""

    host: str
    port: int


class BrokerPartition(NamedTuple):
    """Identity of a partition of a topic: its broker, and its number on that broker."""

    broker_id: int
    partition: int

    @property
    def text(self) -> str:
        """`<broker id>-<partition>`, the form of node names; consumers sort by it as text."""
        return f"{self.broker_id}-{self.partition}"


@dataclass(frozen=True, slots=True)
class StaticSubscription:
    """Named topics with a number of streams each."""

    streams: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WildcardSubscription:
    """All topics that `pattern` allows (a Java regular expression that must match the whole name).

    `kind` "whitelist": topics that match; "blacklist": topics that do not.
    """

    kind: Literal["whitelist", "blacklist"]
    stream_count: int
    pattern: str


Subscription = StaticSubscription | WildcardSubscription


# --- paths ---------------------------------------------------------------------------------------


def broker_id_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}"


def topic_broker_path(topic: str, broker_id: int) -> str:
    return f"{BROKER_TOPICS}/{topic}/{broker_id}"


def group_path(group: str) -> str:
    return f"{CONSUMERS}/{group}"


def consumer_ids_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def consumer_id_path(group: str, consumer_id: str) -> str:
    return f"{CONSUMERS}/{group}/ids/{consumer_id}"


def owners_path(group: str, topic: str) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}"


def owner_path(group: str, topic: str, partition: BrokerPartition) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}/{partition.text}"


def offsets_path(group: str, topic: str) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}"


def offset_path(group: str, topic: str, partition: BrokerPartition) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition.text}"


def counts_root(group: str) -> str:
    """The parent of the topics of a group's counts."""
    return f"{COUNTS}/{group}"


def counts_path(group: str, topic: str, partition: BrokerPartition) -> str:
    return f"{counts_root(group)}/{topic}/{partition.text}"


def tails_path(group: str, topic: str) -> str:
    return f"{TAILS}/{group}/{topic}"


def tail_path(group: str, topic: str, partition: BrokerPartition) -> str:
    return f"{tails_path(group, topic)}/{partition.text}"


def datacenter_path(datacenter: str) -> str:
    return f"{PROCESSES}/{datacenter}"


def process_path(datacenter: str, name: str) -> str:
    return f"{PROCESSES}/{datacenter}/{name}"


def process_alive_path(datacenter: str, name: str) -> str:
    return f"{PROCESSES}/{datacenter}/{name}/alive"


def upstream_path(cluster_id: str) -> str:
    return f"{UPSTREAM}/{cluster_id}"


def mirror_topic_map_path(group: str, topic: str) -> str:
    return f"{MIRRORS}/{group}/map/{topic}"


def mirror_map_path(group: str, topic: str, source: BrokerPartition) -> str:
    return f"{MIRRORS}/{group}/map/{topic}/{source.text}"


def mirror_paused_path(group: str) -> str:
    return f"{MIRRORS}/{group}/paused"


def mirror_refused_root(group: str) -> str:
    return f"{MIRRORS}/{group}/refused"


def mirror_refused_path(group: str, topic: str, source: BrokerPartition) -> str:
    return f"{mirror_refused_root(group)}/{topic}/{source.text}"


def mirror_lineage_path(group: str, topic: str, source: BrokerPartition) -> str:
    return f"{MIRRORS}/{group}/lineage/{topic}/{source.text}"


def mirror_offsets_root(group: str) -> str:
    """The parent of the ids of source clusters, in the target's ZooKeeper."""
    return f"{MIRRORS}/{group}/offsets"


def mirror_offsets_path(group: str, cluster_id: str, topic: str, source: BrokerPartition) -> str:
    """The node with the confirmed offset of a partition `source` of the cluster `cluster_id`, in
    the target's ZooKeeper."""
    return f"{mirror_offsets_root(group)}/{cluster_id}/{topic}/{source.text}"


def replica_state_path(broker_id: int) -> str:
    return f"{REPLICAS}/{broker_id}/state"


def replica_live_root(broker_id: int) -> str:
    """The parent of the directories whose process has a session."""
    return f"{REPLICAS}/{broker_id}/live"


def replica_live_path(broker_id: int, directory: str) -> str:
    return f"{replica_live_root(broker_id)}/{directory}"


def replica_starts_path(broker_id: int, directory: str) -> str:
    return f"{REPLICAS}/{broker_id}/starts/{directory}"


def replica_place_path(broker_id: int, name: str) -> str:
    return f"{REPLICAS}/{broker_id}/places/{name}"


def replica_unclean_root(broker_id: int) -> str:
    """The parent of the epochs that began with an unclean election."""
    return f"{REPLICAS}/{broker_id}/unclean"


def replica_unclean_path(broker_id: int, epoch: int) -> str:
    return f"{replica_unclean_root(broker_id)}/{epoch}"


def parents(path: str) -> list[str]:
    """The nodes above `path`, topmost first, without the root."""
    words = path.strip("/").split("/")
    return ["/" + "/".join(words[:count]) for count in range(1, len(words))]


# --- values --------------------------------------------------------------------------------------


def encode_broker(host: str, port: int, now_ms: int) -> bytes:
    """The broker's value; `now_ms` makes each registration's text unique."""
    return f"{host}-{now_ms}:{host}:{port}".encode()


def decode_broker(value: bytes | None) -> BrokerAddress:
    """Read fields 1 and 2 of three, as the original's clients do. Raises BadZnode."""
    fields = _text(value).split(":")
    if len(fields) < 3 or not fields[1] or not _is_number(fields[2], 65535):
        raise BadZnode(f"not a broker's value: {value!r}")
    return BrokerAddress(fields[1], int(fields[2]))


def is_broker_id(name: str) -> bool:
    """Whether a node's name is a broker id: any client can make a node of any name."""
    return bool(re.fullmatch(r"[0-9]{1,10}", name))


def encode_number(number: int) -> bytes:
    return str(number).encode()


def decode_partition_count(value: bytes | None) -> int:
    """The value of a topic's broker node. Raises BadZnode."""
    text = _text(value)
    if not _is_number(text, 100_000):
        raise BadZnode(f"not a number of partitions: {value!r}")
    return int(text)


def decode_offset(value: bytes | None) -> int:
    """A stored offset. Raises BadZnode for text and negative numbers, which no consumer wrote."""
    text = _text(value)
    if not _is_number(text, OFFSET_MAX):
        raise BadZnode(f"not an offset: {value!r}")
    return int(text)


def decode_broker_partition(name: str) -> BrokerPartition:
    """Parse the node name `<broker id>-<partition>`. Raises BadZnode."""
    match = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", name)
    if not match:
        raise BadZnode(f"not a broker-partition name: {name!r}")
    return BrokerPartition(int(match[1]), int(match[2]))


def encode_subscription(subscription: Subscription) -> bytes:
    if isinstance(subscription, WildcardSubscription):
        mark = "*" if subscription.kind == "whitelist" else "!"
        return f"{mark}{subscription.stream_count}{mark}{subscription.pattern}".encode()
    entries = ",".join(f'"{topic}": {count}' for topic, count in subscription.streams.items())
    return f"{{ {entries} }}".encode()


def decode_subscription(value: bytes | None) -> Subscription:
    """A member's subscription, written by any client. Raises BadZnode."""
    text = _text(value)
    wildcard = re.fullmatch(r"(?P<mark>[*!])(?P<count>[0-9]{1,6})(?P=mark)(?P<pattern>.*)", text)
    if wildcard:
        return WildcardSubscription(
            "whitelist" if wildcard["mark"] == "*" else "blacklist",
            int(wildcard["count"]),
            wildcard["pattern"],
        )
    try:
        streams = json.loads(text)
    except (ValueError, RecursionError):
        raise BadZnode(f"not a subscription: {value!r}") from None
    if not isinstance(streams, dict) or not all(
        type(count) is int and 0 <= count < 1_000_000 for count in streams.values()
    ):
        raise BadZnode(f"not a subscription: {value!r}")
    return StaticSubscription(streams)


def _text(value: bytes | None) -> str:
    if value is None:
        raise BadZnode("the value is null")
    if len(value) > VALUE_BYTES_MAX:
        raise BadZnode(f"a value of {len(value)} bytes")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadZnode(f"not UTF-8: {value[:64]!r}") from None


def _is_number(text: str, maximum: int) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,19}", text)) and int(text) <= maximum
