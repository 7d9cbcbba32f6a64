"""Sets that were not kept are counted by topic and reason, wherever they are dropped."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.kafka07.handlers import RequestHandlers
from kafka2011.broker.kafka07.session import Session
from kafka2011.broker.log.replica_journal import ReplicaIdentity
from tests.support.logs import broker_config, partitions_of
from tests.support.raw_requests import entry, frame, multi_produce, produce
from tests.unit.broker.data_directory import DataDirectory, some

E = entry(b"hello")
DAMAGED = entry(b"hello", crc=0)
LARGE = entry(b"h" * 1001)


class Channel:
    """A channel that waits for nothing; `reasons` are those of its closings."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.gave_way = False

    @property
    def is_closed(self) -> bool:
        return bool(self.reasons)

    def close(self, reason: str, detail: str = "") -> None:
        del detail
        self.reasons.append(reason)

    def hold(self, begin: Callable[..., Any], then: Callable[[], bool] | None = None) -> None:
        begin(lambda _: None)
        if then is not None:
            then()

    def give_way(self) -> None:
        self.gave_way = True


class Client:
    """One connection to a broker whose topics have one partition."""

    def __init__(self, disk: DataDirectory, **for_logs: Any) -> None:
        self.logs = disk.open(**for_logs)
        self.metrics = BrokerMetrics()
        config = broker_config(disk.root, max_message_size=1000, multi_request_parts_max=3)
        partitions = partitions_of(config, self.logs)
        handlers = RequestHandlers(config, partitions, self.metrics)
        self.channel: Any = Channel()
        self.session = Session(
            self.channel, config, partitions, handlers, lambda: 0, loop_time=lambda: 0.0
        )

    def send(self, *requests: bytes) -> None:
        """Have the session take requests that came together, in as many turns as it needs."""
        buffer = bytearray(b"".join(requests))
        position, self.channel.gave_way = 0, True
        while self.channel.gave_way:
            self.channel.gave_way = False
            position = self.session.take(memoryview(buffer), position, len(buffer))

    def write(self) -> None:
        for log in self.logs.logs.values():
            log.write_gathered()

    @property
    def refused(self) -> dict[tuple[str, str], int]:
        return self.metrics.refused_sets


@pytest.mark.parametrize(
    ("error", "reason"),
    [(errno.ENOSPC, "storage-full"), (errno.EFBIG, "storage-full"), (errno.EIO, "storage-failed")],
)
@pytest.mark.parametrize("count", [1, 3])
def test_sets_that_could_not_be_written(
    disk: DataDirectory, error: int, reason: str, count: int
) -> None:
    """They had been taken over: the connection was closed, and they were counted nowhere. Three
    that come together are moved together, and written as one."""
    client = Client(disk)
    client.send(produce(b"t", E))
    client.write()
    assert client.refused == {}
    disk.fail(error, "write_at")
    client.send(*[produce(b"t", E)] * count)
    client.write()
    assert client.refused == {("t", reason): count}
    assert set(client.channel.reasons) == {reason}
    assert some(client.logs.get("t", 0)).log_end == len(E)


def test_sets_for_a_log_that_is_read_only(disk: DataDirectory) -> None:
    client = Client(disk)
    client.send(produce(b"t", E))
    some(client.logs.get("t", 0)).flush()
    disk.fail(errno.EIO, "sync_data")
    client.send(produce(b"t", E))
    some(client.logs.get("t", 0)).flush()
    assert client.refused == {}, "it is written: a restart finds out whether it is kept"
    client.send(*[produce(b"t", E)] * 3)
    assert client.refused == {("t", "storage-failed"): 3}


def test_sets_that_wait_for_a_segment_for_which_there_is_no_room(disk: DataDirectory) -> None:
    client = Client(disk, segment_bytes_max=len(E) - 1)
    client.send(produce(b"t", E))
    client.send(produce(b"t", E))
    log = some(client.logs.get("t", 0))
    assert log.is_held
    disk.fail(errno.ENOSPC, "open")
    log.flush()
    assert client.refused == {("t", "storage-full"): 1}


def test_sets_that_a_replica_held_when_it_stepped_back(disk: DataDirectory) -> None:
    client = Client(disk, replica=ReplicaIdentity(1, "a"))
    client.send(produce(b"t", E))
    some(client.logs.get("t", 0)).stop_leading()
    assert client.refused == {("t", "leads-no-more"): 1}


@pytest.mark.parametrize(
    ("request_", "refused", "closed"),
    [
        (produce(b"t", DAMAGED), {("t", "invalid-message"): 1}, ["invalid-message"]),
        (
            multi_produce((b"t", 0, LARGE), (b"t", 0, E), (b"t", 0, LARGE)),
            {("t", "message-too-large"): 2},
            [],
        ),
        # What is behind a refused set was not looked at.
        (
            multi_produce((b"t", 0, E), (b"t", 0, DAMAGED), (b"t", 0, DAMAGED)),
            {("t", "invalid-message"): 1},
            ["invalid-message"],
        ),
        # Anything can stand in the place of a topic: it must not become a label.
        (produce(b"a/b", E), {("", "illegal-topic"): 1}, ["illegal-topic"]),
        (produce(b"a/b", LARGE), {("", "illegal-topic"): 1}, ["illegal-topic"]),
        (produce(b"t", E, 7), {("", "wrong-partition"): 1}, ["wrong-partition"]),
        (produce(b"more", E), {("", "too-many-partitions"): 1}, ["too-many-partitions"]),
        # Refused as a whole: how many sets there are is not known, or beyond the limit.
        (multi_produce(*[(b"t", 0, E)] * 4), {}, ["too-many-parts"]),
        (frame(b"\0\0\0"), {}, ["malformed-request"]),
    ],
)
def test_sets_that_are_refused_at_once(
    disk: DataDirectory,
    request_: bytes,
    refused: dict[tuple[str, str], int],
    closed: list[str],
) -> None:
    client = Client(disk, partitions_max=1)
    client.send(produce(b"t", E))
    client.send(request_)
    assert (client.refused, client.channel.reasons) == (refused, closed)


def test_sets_for_a_partition_that_cannot_be_made(disk: DataDirectory) -> None:
    client = Client(disk)
    disk.fail(errno.EACCES, "make_directory")
    client.send(produce(b"t", E))
    assert client.refused == {("", "cannot-create-log"): 1}
