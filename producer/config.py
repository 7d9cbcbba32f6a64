"""The producer's settings: every name of 0.7's producer, and `address.map`.

Exactly one of `zk.connect`, `broker.list` and `host` with `port` says where the brokers are; a
library user may pass a registry instead. JVM class names are accepted where there is an
equivalent here; Python objects are named as `package.module.Name` or `package.module:Name`.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka2011.producer.counting.settings import CountingSettings
from kafka2011.producer.requests import (
    ENTRY_OVERHEAD_BYTES,
    PARTS_MAX,
    REQUEST_HEAD_BYTES_MAX,
    RequestLimits,
)
from kafka2011.protocol.compression import Codec
from kafka2011.runtime.config import (
    address,
    comma_list,
    one_of,
    setting,
    text,
    whole,
)
from kafka2011.runtime.shared_settings import (
    INT_MAX,
    Address,
    DialSettings,
    FlushMethod,
    MessageSize,
    ZooKeeperConnect,
    ZooKeeperSessionSettings,
    ZooKeeperSettings,
    shared,
)

BrokerList = tuple[tuple[int, Address], ...]

MIB = 1024 * 1024

# Below what a broker accepts by default: 10 MiB and, decompressed, 16 MiB.
REQUEST_BYTES = 8 * MIB
UNPACKED_BYTES = 12 * MIB
REQUEST_BYTES_MIN = 4096  # explicit limits leave room for a message


def broker_list(value: str) -> BrokerList:
    """Parse `id:host:port,id:host:port`."""
    found = []
    for part in comma_list(value):
        broker_id, colon, rest = part.partition(":")
        if not colon or not broker_id.isdecimal():
            raise ValueError(f"{part!r} must be id:host:port")
        try:
            found.append((int(broker_id), address(rest)))
        except ValueError:
            raise ValueError(f"{part!r} must be id:host:port") from None
    if not found:
        raise ValueError("must be id:host:port,id:host:port...")
    return tuple(found)


def codec(value: str) -> Codec:
    """Parse a codec: its number in 0.7, or its name."""
    names = {"0": Codec.NONE, "1": Codec.GZIP, "2": Codec.SNAPPY}
    names |= {kind.name.lower(): kind for kind in Codec}
    if value.lower() not in names:
        raise ValueError("must be 0 (none), 1 (gzip) or 2 (snappy)")
    return names[value.lower()]


def python_object(value: str) -> Any:
    """The object that `module:name` or `module.name` names. Raises ValueError."""
    module, colon, attribute = value.partition(":")
    if not colon:
        module, _, attribute = value.rpartition(".")
    if not module or not attribute:
        raise ValueError("must be package.module.Name or package.module:Name")
    try:
        found: Any = importlib.import_module(module)
        for word in attribute.split("."):
            found = getattr(found, word)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot be imported: {error}") from None
    except Exception as error:  # the user's own code
        raise ValueError(f"cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _encode_text(message: Any) -> bytes:
    return message if isinstance(message, bytes) else str(message).encode()


def serializer(value: str) -> Callable[[Any], bytes] | None:
    """A function message -> payload; None passes bytes through."""
    if value in ("", "kafka.serializer.DefaultEncoder"):
        return None
    if value == "kafka.serializer.StringEncoder":
        return _encode_text
    found: Callable[[Any], bytes] = python_object(value)
    return found


def hook(value: str) -> Callable[..., Any] | None:
    """A class or function of the application; None for the original's own default classes."""
    if value in ("", "kafka.producer.async.DefaultEventHandler"):
        return None
    found: Callable[..., Any] = python_object(value)
    if not callable(found):
        raise ValueError("must name a class or a function")
    return found


def properties(value: str) -> dict[str, str]:
    """Parse `name=value,name=value`."""
    found = {}
    for part in comma_list(value):
        name, equals, text_ = part.partition("=")
        if not equals or not name:
            raise ValueError(f"{part!r} must be name=value")
        found[name] = text_
    return found


def partitioner(value: str) -> Callable[[Any, int], int] | None:
    """A function (key, count) -> index; None is the default one."""
    if value in ("", "kafka.producer.DefaultPartitioner"):
        return None
    found: Callable[[Any, int], int] = python_object(value)
    return found


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(
    FlushMethod, DialSettings, ZooKeeperConnect, ZooKeeperSessionSettings, CountingSettings
):
    """Settings of a `Producer`; times in ms, sizes in bytes."""

    broker_list: BrokerList = setting(
        "broker.list",
        (),
        broker_list,
        "the brokers or a load balancer, id:host:port,...: instead of zk.connect",
    )
    zk_connection_timeout_ms: int = shared(
        ZooKeeperSettings,
        "zk.connectiontimeout.ms",
        default=0,
        parse=whole(0, INT_MAX),
        doc="longest wait for the first connection to ZooKeeper, ms; 0: the session timeout",
    )
    zk_sync_time_ms: int = shared(
        ZooKeeperSettings,
        "zk.synctime.ms",
        parse=whole(0, INT_MAX),
        doc="this client uses watches instead",
        has_effect=False,
    )
    producer_type: str = setting(
        "producer.type",
        "sync",
        one_of("sync", "async"),
        "sync: send in the caller's thread; async: through a queue",
    )
    serializer: Callable[[Any], bytes] | None = setting(
        "serializer.class",
        None,
        serializer,
        "function from message to payload; unset: messages are bytes",
    )
    partitioner: Callable[[Any, int], int] | None = setting(
        "partitioner.class",
        None,
        partitioner,
        "function from key and partition count to partition; unset: the JVM's hash",
    )
    compression_codec: Codec = setting(
        "compression.codec", Codec.NONE, codec, "0: none, 1: gzip, 2: snappy"
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics",
        (),
        comma_list,
        "topics to compress, comma-separated; empty: all (async)",
    )
    send_buffer_bytes: int = setting(
        "buffer.size", 102400, whole(1, INT_MAX), "SO_SNDBUF of a connection, bytes"
    )
    connect_timeout_ms: int = setting(
        "connect.timeout.ms", 5000, whole(1, INT_MAX), "how long to try to connect, ms"
    )
    reconnect_interval: int = setting(
        "reconnect.interval", 30000, whole(1, INT_MAX), "sends after which a connection is replaced"
    )
    reconnect_time_interval_ms: int = setting(
        "reconnect.time.interval.ms",
        10_000_000,
        whole(-1, INT_MAX),
        "age at which a connection is replaced, ms; negative: never",
    )
    max_message_bytes: int = shared(MessageSize, "max.message.size")
    request_bytes_max: int = setting(
        "request.bytes.max",
        0,
        whole(0, INT_MAX),
        "largest request, bytes; more is sent in several requests; "
        "0: 8 MiB, or one message of max.message.size if that is more",
    )
    request_unpacked_bytes_max: int = setting(
        "request.decompressed.bytes.max",
        0,
        whole(0, INT_MAX),
        "most bytes that a request's compressed sets decompress to; more is sent in several "
        "requests; 0: 12 MiB, or one message if that is more",
    )
    request_parts_max: int = setting(
        "request.parts.max",
        500,
        whole(1, PARTS_MAX),
        "most message sets in a request; more are sent in several requests",
    )
    queue_time_ms: int = setting(
        "queue.time",
        5000,
        whole(0, INT_MAX),
        "longest time that a message stays queued, ms (async)",
    )
    queue_size: int = setting(
        "queue.size", 10000, whole(1, INT_MAX), "most messages in a broker's queue (async)"
    )
    enqueue_timeout_ms: int = setting(
        "queue.enqueueTimeout.ms",
        0,
        whole(-1, INT_MAX),
        "queue full: 0: drop at once; negative: wait; else wait this long, ms, then drop (async)",
    )
    batch_size: int = setting("batch.size", 200, whole(1, INT_MAX), "messages of one batch (async)")
    required_acks: int = setting(
        "request.required.acks",
        -1,
        whole(-1, 100),
        "what flush waits for: -1: all replicas in sync; 0: nothing; 1: the broker's own disk; "
        "more: so many replicas' disks",
    )
    num_retries: int = setting(
        "num.retries", 0, whole(0, 1000), "retries of a failed batch (async)"
    )
    zk_read_num_retries: int = setting(
        "zk.read.num.retries",
        3,
        whole(0, 1000),
        "attempts to find another broker when the chosen one is gone",
    )
    callback_handler: Callable[..., Any] | None = setting(
        "callback.handler", None, hook, "subclass of ProducerCallbacks (async)"
    )
    callback_handler_props: dict[str, str] = setting(
        "callback.handler.props",
        {},
        properties,
        "name=value,...: passed to the callbacks' init (async)",
    )
    event_handler: Callable[..., Any] | None = setting(
        "event.handler",
        None,
        hook,
        "function or class that splits a batch into topic-partitions (async)",
    )
    event_handler_props: dict[str, str] = setting(
        "event.handler.props", {}, properties, "name=value,...: passed to the class's init (async)"
    )
    host: str = setting("host", "", text, "host of the one broker, instead of broker.list")
    port: int = setting("port", 0, whole(0, 65535), "port of the one broker")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (
            ("request.bytes.max", self.request_bytes_max),
            ("request.decompressed.bytes.max", self.request_unpacked_bytes_max),
        ):
            if 0 < value < REQUEST_BYTES_MIN:
                raise ValueError(f"{name} must be 0 or at least {REQUEST_BYTES_MIN}")
        if self.required_acks != -1:
            for name, is_set in (
                ("audit.enable, which counts what cannot be lost", self.audit_enable),
                ("flush.method=offsets", self.flush_method == "offsets"),
            ):
                if is_set:
                    raise ValueError(f"{name}, needs request.required.acks=-1")
        if self.zk_connect and self.broker_list:
            raise ValueError("set zk.connect or broker.list, not both")
        if self.host and not self.port:
            raise ValueError("host names the one broker together with port: set both")
        if self.host:
            if self.zk_connect or self.broker_list:
                raise ValueError("set zk.connect, broker.list or host and port, one of them")
            object.__setattr__(self, "broker_list", ((0, (self.host, self.port)),))
            object.__setattr__(self, "host", "")
            object.__setattr__(self, "port", 0)
        if self.broker_list and self.partitioner is not None:
            raise ValueError(
                "partitioner.class has no effect with broker.list, where the broker picks the "
                "partition: use zk.connect"
            )

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that is sent: `max.message.size`, or what fits into a request."""
        limit = self.max_message_bytes
        if self.request_bytes_max:
            head = REQUEST_HEAD_BYTES_MAX + ENTRY_OVERHEAD_BYTES
            limit = min(limit, self.request_bytes_max - head)
        if self.compression_codec and self.request_unpacked_bytes_max:
            limit = min(limit, self.request_unpacked_bytes_max - ENTRY_OVERHEAD_BYTES)
        return limit

    @property
    def request_limits(self) -> RequestLimits:
        """The limits of one request."""
        entry = self.payload_bytes_max + ENTRY_OVERHEAD_BYTES
        return RequestLimits(
            self.payload_bytes_max,
            self.request_bytes_max or max(REQUEST_BYTES, REQUEST_HEAD_BYTES_MAX + entry),
            self.request_unpacked_bytes_max or max(UNPACKED_BYTES, entry),
            self.request_parts_max,
        )
