"""Partition -1: one choice for what comes within a millisecond, another for what comes later."""

import pytest

from kafka2011.broker.core.appends import Appends
from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.kafka07.handlers import RequestHandlers, RequestRefused
from kafka2011.broker.log.log import LogState
from kafka2011.protocol.requests import ANY_PARTITION, encode_route
from tests.support.logs import broker_config, partitions_of
from tests.support.raw_requests import entry
from tests.unit.broker.data_directory import DataDirectory

E = memoryview(entry(b"hello"))


def test_one_choice_holds_for_a_millisecond_over_all_connections(disk: DataDirectory) -> None:
    logs = disk.open()
    config = broker_config(disk.root, num_partitions=8)
    handlers = RequestHandlers(config, partitions_of(config, logs), BrokerMetrics())
    clients = [Appends(lambda *_: None) for _ in range(4)]

    def chosen(now_ms: int, topic: str = "t") -> str:
        route = encode_route(topic, ANY_PARTITION)
        for client in clients:
            handlers.append(route, E, 1, client, now_ms)
        (name,) = {client.last.name for client in clients if client.last is not None}
        return name

    assert len({chosen(now_ms) for now_ms in range(100)}) == 8
    assert chosen(100) == chosen(100)
    assert chosen(100, "u").startswith("u-")
    assert sum(log.log_end for log in logs.logs.values()) == 103 * len(clients) * len(E)


def test_a_partition_that_fails_is_not_chosen_again(disk: DataDirectory) -> None:
    logs = disk.open()
    config = broker_config(disk.root, num_partitions=2)
    handlers = RequestHandlers(config, partitions_of(config, logs), BrokerMetrics())
    client = Appends(lambda *_: None)
    route = encode_route("t", ANY_PARTITION)
    handlers.append(route, E, 1, client, 0)
    failed = client.last
    assert failed is not None
    failed.state = LogState.FAILED
    with pytest.raises(RequestRefused):
        handlers.append(route, E, 1, client, 0)
    handlers.append(route, E, 1, client, 0)
    assert client.last is not failed
