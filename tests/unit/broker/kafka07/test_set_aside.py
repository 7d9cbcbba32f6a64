"""A replica's partition that was set aside while it followed is there again when it leads."""

import math

import pytest

from kafka2011.broker.core.appends import Appends
from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.kafka07.handlers import RequestHandlers
from kafka2011.broker.log.cutting import CutKind
from kafka2011.broker.log.log_cuts import LogCuts, Wanted
from kafka2011.broker.log.quarantine import Quarantine
from kafka2011.broker.log.replica_journal import ReplicaIdentity
from kafka2011.protocol.requests import ANY_PARTITION, encode_route
from tests.support.logs import broker_config, partitions_of
from tests.support.raw_requests import EMPTY, entry, fetch, offsets, waiting_fetch
from tests.unit.broker.data_directory import DataDirectory, some

E = memoryview(entry(b"hello"))
ROUTE = encode_route("t", 0)
ANY = encode_route("t", ANY_PARTITION)


class Leader:
    """Partition 0 of topic `t` was appended to and set aside: a protocol has seen it."""

    def __init__(self, disk: DataDirectory) -> None:
        self.logs = disk.open(replica=ReplicaIdentity(1, "a"))
        config = broker_config(disk.root)
        self.handlers = RequestHandlers(config, partitions_of(config, self.logs), BrokerMetrics())
        for route in (ROUTE, ANY):
            self.append(route)
        cuts = LogCuts(self.logs, disk.files, Quarantine(disk.files, disk.quarantine))
        job = cuts.begin({("t", 0): Wanted(CutKind.ASIDE, 0)})
        job.run()
        cuts.complete(job)

    def append(self, route: bytes) -> None:
        self.handlers.append(route, E, 1, Appends(lambda *_: None), 0)
        log = some(self.logs.get("t", 0))
        log.open_for_appends()
        log.flush()


@pytest.fixture
def leader(disk: DataDirectory) -> Leader:
    return Leader(disk)


def body(request: bytes) -> memoryview:
    return memoryview(request)[4:]


@pytest.mark.parametrize("route", [ROUTE, ANY], ids=["0", "any"])
def test_it_is_made_again_by_an_append(leader: Leader, route: bytes) -> None:
    leader.append(route)
    assert some(leader.logs.get("t", 0)).flushed_end == len(E)
    leader.append(route)
    assert some(leader.logs.get("t", 0)).flushed_end == 2 * len(E)


def test_a_client_finds_it_as_one_that_was_never_appended_to(leader: Leader) -> None:
    assert leader.handlers.fetch(body(fetch(b"t", 7))).pieces == [EMPTY]
    query = leader.handlers.offsets_query(body(offsets(b"t")))
    appends = Appends(lambda *_: None)
    assert leader.handlers.awaited(query, appends) == {}
    assert leader.handlers.offsets(query, appends).pieces[-1].endswith(bytes(8))  # type: ignore[union-attr]
    waiting = leader.handlers.waiting_fetch(body(waiting_fetch(1000, (b"t", 0, 0, 1000))))
    reading = leader.handlers.reading(waiting.parts)
    assert reading.go_on(math.inf)
    assert reading.is_empty
    assert leader.handlers.ends_behind(waiting) == ({}, True), "it waits for the new log"
