"""The producer's settings: every name of 0.7's producer, and `address.map`.

Exactly one of `zk.connect` and `broker.list` says where the brokers are; a library user may hand a
registry over instead. Class names of the JVM are understood where we have the same thing; Python
objects are named as `module:attribute`.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.compression import Codec
from runtime.config import address, address_map, comma_list, one_of, setting, text, whole
from runtime.process_config import ProcessConfig

Address = tuple[str, int]
BrokerList = tuple[tuple[int, Address], ...]

INT_MAX = 2**31 - 1


def broker_list(value: str) -> BrokerList:
    """`id:host:port,id:host:port`."""
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
    """A number as 0.7 writes it, or the codec's name."""
    names = {"0": Codec.NONE, "1": Codec.GZIP, "2": Codec.SNAPPY}
    names |= {kind.name.lower(): kind for kind in Codec}
    if value.lower() not in names:
        raise ValueError("must be 0 (none), 1 (gzip) or 2 (snappy)")
    return names[value.lower()]


def python_object(value: str) -> Any:
    """What `module:attribute` names. ValueError when it cannot be imported."""
    module, colon, attribute = value.partition(":")
    if not colon or not attribute:
        raise ValueError("must be module:attribute")
    try:
        found: Any = importlib.import_module(module)
        for word in attribute.split("."):
            found = getattr(found, word)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot be imported: {error}") from None
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


def partitioner(value: str) -> Callable[[Any, int], int] | None:
    """A function (key, count) -> index; None is the default one."""
    if value in ("", "kafka.producer.DefaultPartitioner"):
        return None
    found: Callable[[Any, int], int] = python_object(value)
    return found


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ProcessConfig):
    """Settings of a `Producer`; times in ms, sizes in bytes."""

    zk_connect: str = setting(
        "zk.connect", "", text, "ZooKeeper of the brokers: host:port,host:port/chroot"
    )
    broker_list: BrokerList = setting(
        "broker.list", (), broker_list, "the brokers, or a balancer's address: id:host:port,..."
    )
    address_map: dict[Address, Address] = setting(
        "address.map", {}, address_map, "published=dial: where to connect instead"
    )
    zk_session_timeout_ms: int = setting(
        "zk.sessiontimeout.ms", 6000, whole(1, INT_MAX), "ZooKeeper session, ms"
    )
    zk_connection_timeout_ms: int = setting(
        "zk.connectiontimeout.ms",
        0,
        whole(0, INT_MAX),
        "wait for the first connection to ZooKeeper, ms; 0: as long as the session",
    )
    zk_sync_time_ms: int = setting(
        "zk.synctime.ms",
        2000,
        whole(0, INT_MAX),
        "our client is told of changes by watches",
        has_effect=False,
    )
    producer_type: str = setting(
        "producer.type", "sync", one_of("sync", "async"), "send at once, or from a queue"
    )
    serializer: Callable[[Any], bytes] | None = setting(
        "serializer.class", None, serializer, "message to payload; unset: bytes as they are"
    )
    partitioner: Callable[[Any, int], int] | None = setting(
        "partitioner.class", None, partitioner, "key and count to partition; unset: the JVM's hash"
    )
    compression_codec: Codec = setting(
        "compression.codec", Codec.NONE, codec, "0 none, 1 gzip, 2 snappy"
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics", (), comma_list, "topics to compress, async only; empty: all"
    )
    send_buffer_bytes: int = setting(
        "buffer.size", 102400, whole(1, INT_MAX), "SO_SNDBUF of a connection, bytes"
    )
    connect_timeout_ms: int = setting(
        "connect.timeout.ms", 5000, whole(1, INT_MAX), "keep trying to connect for this long, ms"
    )
    socket_timeout_ms: int = setting(
        "socket.timeout.ms",
        30000,
        whole(1, INT_MAX),
        "longest wait for a broker to take bytes or to answer, ms",
    )
    reconnect_interval: int = setting(
        "reconnect.interval", 30000, whole(1, INT_MAX), "sends after which to connect anew"
    )
    reconnect_time_interval_ms: int = setting(
        "reconnect.time.interval.ms",
        10_000_000,
        whole(-1, INT_MAX),
        "time after which to connect anew, ms; negative: never",
    )
    max_message_bytes: int = setting(
        "max.message.size", 1_000_000, whole(1, INT_MAX), "largest payload, bytes"
    )
    queue_time_ms: int = setting(
        "queue.time", 5000, whole(0, INT_MAX), "longest stay in the queue, ms (async)"
    )
    queue_size: int = setting(
        "queue.size", 10000, whole(1, INT_MAX), "messages that a broker's queue holds (async)"
    )
    enqueue_timeout_ms: int = setting(
        "queue.enqueueTimeout.ms",
        0,
        whole(-1, INT_MAX),
        "queue full: 0 drop at once, negative wait, else wait so many ms and drop (async)",
    )
    batch_size: int = setting(
        "batch.size", 200, whole(1, INT_MAX), "messages that are sent together (async)"
    )
    num_retries: int = setting(
        "num.retries", 0, whole(0, 1000), "times to send a failed batch again (async)"
    )
    zk_read_num_retries: int = setting(
        "zk.read.num.retries",
        3,
        whole(0, 1000),
        "times to look for another broker when the chosen one is gone",
    )
    callback_handler: str = setting(
        "callback.handler", "", text, "pass `callbacks=` to Producer instead", has_effect=False
    )
    callback_handler_props: str = setting(
        "callback.handler.props", "", text, "pass `callbacks=` to Producer", has_effect=False
    )
    event_handler: str = setting(
        "event.handler", "", text, "pass `event_handler=` to Producer instead", has_effect=False
    )
    event_handler_props: str = setting(
        "event.handler.props", "", text, "pass `event_handler=` to Producer", has_effect=False
    )
    host: str = setting(
        "host", "", text, "of 0.7's single-broker producer: use broker.list", has_effect=False
    )
    port: str = setting(
        "port", "", text, "of 0.7's single-broker producer: use broker.list", has_effect=False
    )

    def __post_init__(self) -> None:
        if self.zk_connect and self.broker_list:
            raise ValueError("set zk.connect or broker.list, not both")
        if self.broker_list and self.partitioner is not None:
            raise ValueError(
                "partitioner.class has no use with broker.list (the broker picks the partition): "
                "use zk.connect"
            )
