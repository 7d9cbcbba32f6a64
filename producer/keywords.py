"""The keyword arguments of `Producer`, `AioProducer` and `ShippingHandler`, for type checkers.

They are the fields of `ProducerConfig`, each with its type or a text as in a properties file; a
test keeps both equal.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from kafka2011.coordination.registry import Registry
from kafka2011.events.forms import Forms
from kafka2011.producer.asynchronous.callbacks import EventHandler, ProducerCallbacks
from kafka2011.producer.config import BrokerList
from kafka2011.protocol.compression import Codec
from kafka2011.runtime.shared_settings import Address

if TYPE_CHECKING:
    from typing_extensions import Buffer, TypeVar

    BytesLike: TypeAlias = Buffer

    # What `send` takes: bytes and what is like bytes, or what the `serializer` takes.
    Message = TypeVar("Message", default=BytesLike)
    AnyBytes = TypeVar("AnyBytes", bound=BytesLike)
else:  # Python 3.11 has neither a Buffer nor defaults of type variables
    from typing import TypeVar

    BytesLike = bytes | bytearray | memoryview
    Message = TypeVar("Message")
    AnyBytes = TypeVar("AnyBytes")


class ProducerSettings(TypedDict, total=False):
    """Every setting but `serializer`, whose argument's type is what may be sent, and
    `event_handler`."""

    process_name: str
    datacenter: str
    metrics_bind: str
    metrics_port: int | str
    http_hosts: tuple[str, ...] | str
    log_format: str
    window_ms: int | str
    heartbeat_interval_ms: int | str
    event_forms: Forms | str
    event_time_field: dict[str, str] | str
    event_server_field: dict[str, str] | str
    schema_registry_url: str
    schema_registry_timeout_ms: int | str
    schema_cache_file: Path | str | None
    audit_enable: bool | str
    audit_dir: Path | str | None
    audit_server: str
    audit_service: str
    zk_session_timeout_ms: int | str
    zk_connect: str
    address_map: dict[Address, Address] | str
    socket_timeout_ms: int | str
    flush_method: str
    broker_list: BrokerList | str
    zk_connection_timeout_ms: int | str
    zk_sync_time_ms: int | str
    producer_type: str
    partitioner: Callable[[Any, int], int] | str | None
    compression_codec: Codec | str
    compressed_topics: tuple[str, ...] | str
    send_buffer_bytes: int | str
    connect_timeout_ms: int | str
    reconnect_interval: int | str
    reconnect_time_interval_ms: int | str
    max_message_bytes: int | str
    request_bytes_max: int | str
    request_unpacked_bytes_max: int | str
    request_parts_max: int | str
    queue_time_ms: int | str
    queue_size: int | str
    enqueue_timeout_ms: int | str
    batch_size: int | str
    required_acks: int | str
    num_retries: int | str
    zk_read_num_retries: int | str
    callback_handler: Callable[..., Any] | str | None
    callback_handler_props: dict[str, str] | str
    event_handler_props: dict[str, str] | str
    host: str
    port: int | str


class ProducerArguments(ProducerSettings, total=False):
    """The settings, and the arguments that only a program can give."""

    registry: Registry | None
    callbacks: ProducerCallbacks | None
    event_handler: EventHandler | str | None
    rng: random.Random | None
    sleep: Callable[[float], object]
