"""The keyword arguments of `Consumer`, for type checkers: the fields of `ConsumerConfig`, each with
its type or a text as in a properties file. A test keeps both equal."""

from typing import Required, TypedDict

from kafka2011.events.forms import Forms
from kafka2011.runtime.shared_settings import Address


class ConsumerSettings(TypedDict, total=False):
    """Every setting of a consumer."""

    group_id: Required[str]
    process_name: str
    datacenter: str
    metrics_bind: str
    metrics_port: int | str
    http_hosts: tuple[str, ...] | str
    log_format: str
    zk_session_timeout_ms: int | str
    zk_connect: str
    zk_connection_timeout_ms: int | str
    zk_sync_time_ms: int | str
    address_map: dict[Address, Address] | str
    socket_timeout_ms: int | str
    fetch_size: int | str
    fetch_size_max: int | str
    fetch_wait_ms: int | str
    fetch_gather_ms: int | str
    fetcher_backoff_ms: int | str
    fetcher_backoff_max_ms: int | str
    consumer_id: str
    socket_buffer_bytes: int | str
    autocommit_enable: bool | str
    autocommit_interval_ms: int | str
    queued_chunks_max: int | str
    rebalance_retries_max: int | str
    rebalance_backoff_ms_set: int | str
    autooffset_reset: str
    consumer_timeout_ms: int | str
    shallow_iterator_enable: bool | str
    mirror_topics_whitelist: str
    mirror_topics_blacklist: str
    mirror_consumer_numthreads: int | str
    backoff_increment_ms: int | str
    rule: str
    audit_enable: bool | str
    window_ms: int | str
    event_forms: Forms | str
    event_time_field: dict[str, str] | str
    event_server_field: dict[str, str] | str
