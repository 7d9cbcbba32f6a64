"""The seam that protocols stand on: metadata, appends and their durability, reads, refusals."""

import contextlib
import errno
import os
from typing import Any

import pytest

from kafka2011.broker.core import errors
from kafka2011.broker.core.appends import Appends
from kafka2011.broker.core.partitions import Ends, Log
from kafka2011.broker.log.log import LogState
from tests.support.logs import DiskInThread, broker_config, entry, partitions_of
from tests.unit.broker.data_directory import DataDirectory, append_and_flush, some

E = entry(b"hello")


class Bench:
    """Two partitions a topic, at most three logs."""

    def __init__(self, disk: DataDirectory, **for_logs: Any) -> None:
        self.disk = disk
        self.logs = disk.open(partitions_max=3, **for_logs)
        config = broker_config(disk.root, num_partitions=2, max_topic_name_length=20)
        self.partitions = partitions_of(config, self.logs)
        self.failures: list[errors.PartitionError] = []
        self.appends = Appends(lambda _topic, error, _count: self.failures.append(error))
        self.called: list[bool] = []

    def append(self, log: Log, count: int = 1) -> int:
        return self.partitions.append(log, E * count, count, 0, self.appends)


@pytest.fixture
def bench(disk: DataDirectory) -> Bench:
    return Bench(disk)


@pytest.mark.parametrize(
    ("topic", "partition", "refusal"),
    [
        ("no/slash", 0, errors.IllegalTopic),
        ("t" * 21, 0, errors.IllegalTopic),
        ("", 0, errors.IllegalTopic),
        ("no/slash", -1, errors.IllegalTopic),
        ("no/slash", 2, errors.IllegalTopic),
        ("t", 2, errors.NoSuchPartition),
        ("t", -1, errors.NoSuchPartition),
    ],
)
def test_what_no_partition_can_be_is_refused(
    bench: Bench, topic: str, partition: int, refusal: type[errors.PartitionError]
) -> None:
    for find in (bench.partitions.find, bench.partitions.find_or_create):
        with pytest.raises(refusal):
            find(topic, partition)
    assert bench.partitions.topics == []


def test_appends_are_refused_as_long_as_a_replica_says_so(bench: Bench) -> None:
    log = bench.partitions.find_or_create("t", 0)
    bench.partitions.refuse("no replica is in sync")
    with pytest.raises(errors.TooMuchUnconfirmed, match="t-0: no replica is in sync"):
        bench.append(log)
    assert (log.log_end, bench.appends.was_refused) == (0, True)
    bench.partitions.refuse("")
    assert bench.append(log) == len(E)


def test_a_partition_is_made_by_an_append_to_it_alone(bench: Bench) -> None:
    assert bench.partitions.partition_count("t") == 2
    assert bench.partitions.find("t", 1) is None
    log = bench.partitions.find_or_create("t", 1)
    assert bench.partitions.find("t", 1) is log
    assert bench.partitions.topics == ["t"]


def test_limits_and_a_disk_that_makes_no_directory_are_refusals(bench: Bench) -> None:
    bench.disk.fail(errno.EACCES, "make_directory")
    with pytest.raises(errors.CannotCreateLog):
        bench.partitions.find_or_create("d", 0)
    for topic in ("a", "b", "c"):
        bench.partitions.find_or_create(topic, 0)
    with pytest.raises(errors.LimitReached):
        bench.partitions.find_or_create("d", 0)


def test_a_set_is_read_once_it_is_durable(bench: Bench) -> None:
    log = bench.partitions.find_or_create("t", 0)
    assert bench.append(log, 2) == 2 * len(E)
    assert bench.partitions.read(log, 0, 1000) is None
    assert bench.partitions.ends(log) == Ends(0, 0)
    bench.partitions.when_durable(bench.appends.not_durable(), bench.called.append)
    assert bench.called == [True]
    assert bench.appends.not_durable() == {}
    assert bench.partitions.ends(log) == Ends(0, 30)
    region = some(bench.partitions.read(log, 15, 1000))
    assert os.pread(region.fd, region.count, region.position) == E
    region.release()
    with pytest.raises(errors.OffsetNotInLog):
        bench.partitions.read(log, 31, 1000)


def test_a_cancelled_wait_for_durability_calls_nothing_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskInThread, "request_flush", lambda *_: None)
    log = bench.partitions.find_or_create("t", 0)
    bench.append(log)
    wait = bench.partitions.when_durable(bench.appends.not_durable(), bench.called.append)
    wait.cancel()
    log.flush()
    assert bench.called == []


def test_a_file_that_cannot_be_opened_is_a_refusal(bench: Bench) -> None:
    log = bench.partitions.find_or_create("t", 0)
    append_and_flush(log, E)
    bench.logs.open_files._close(log.segments[0])
    bench.disk.fail(errno.EMFILE, "open")
    with pytest.raises(errors.CannotRead):
        bench.partitions.read(log, 0, 100)


def test_a_file_that_cannot_be_opened_is_named_once_until_it_can(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers had error -1, again and again, and the log said nothing."""
    log = bench.partitions.find_or_create("t", 0)
    append_and_flush(log, E)

    def read(times: int) -> None:
        if log.segments[0].fd >= 0:
            bench.logs.open_files._close(log.segments[0])
            bench.logs.open_files._idle.clear()
        for _ in range(times):
            with contextlib.suppress(errors.CannotRead):
                some(bench.partitions.read(log, 0, 100)).release()

    bench.disk.fail(errno.EACCES, "open", persistent=True)
    read(3)
    bench.disk.files.fault = None
    read(1)
    bench.disk.fail(errno.EACCES, "open", persistent=True)
    read(3)
    bench.disk.files.fault = None
    lines = [line.partition("cannot_read ")[2] for line in caplog.messages if "cannot_read" in line]
    path = log.segments[0].path
    assert lines == [f'partition=t-0 path={path} reason="Permission denied"'] * 2


def test_an_appender_hears_of_a_set_that_could_not_be_written(bench: Bench) -> None:
    log = bench.partitions.find_or_create("t", 0)
    bench.append(log)
    bench.disk.fail(errno.EIO, "write_at")
    bench.partitions.when_durable(bench.appends.not_durable(), bench.called.append)
    assert bench.called == [False]
    assert [type(failure) for failure in bench.failures] == [errors.StorageFailed]
    assert bench.appends.was_refused
    with pytest.raises(errors.StorageFailed):
        bench.append(log)


@pytest.mark.parametrize(("interval", "sets", "waits"), [(3, 2, False), (3, 3, True)])
def test_the_flush_by_count_holds_an_appender_up(
    disk: DataDirectory, interval: int, sets: int, waits: bool
) -> None:
    bench = Bench(disk, flush_interval_messages=interval)
    log = bench.partitions.find_or_create("t", 0)
    for _ in range(sets):
        bench.append(log)
    assert bench.appends.must_wait == waits
    bench.partitions.when_ready(bench.appends, bench.called.append)
    assert bench.called == [True]
    assert not bench.appends.must_wait
    assert (log.high_watermark == sets * len(E)) == waits


def test_a_set_held_back_for_a_new_segment_holds_its_appender_up(disk: DataDirectory) -> None:
    bench = Bench(disk, segment_bytes_max=20)
    log = bench.partitions.find_or_create("t", 0)
    for _ in range(3):
        bench.append(log)
    assert bench.appends.must_wait
    barrier = bench.partitions.when_ready(bench.appends, bench.called.append)
    assert bench.called == []
    log.flush()
    assert bench.called == [True]
    barrier.cancel()


def test_any_partition_passes_over_a_failed_disk_while_there_is_another(bench: Bench) -> None:
    def drawn() -> set[str]:
        return {bench.partitions.find_or_create("t", None).name for _ in range(100)}

    assert drawn() == {"t-0", "t-1"}
    bench.partitions.find_or_create("t", 0).state = LogState.FAILED
    assert drawn() == {"t-1"}
    bench.partitions.find_or_create("t", 1).state = LogState.FAILED
    assert drawn() == {"t-0", "t-1"}


def test_room_is_that_of_the_log_appended_to_last(bench: Bench) -> None:
    assert not bench.partitions.has_room(bench.appends, 1), "nothing is known of any log yet"
    log = bench.partitions.find_or_create("t", 0)
    bench.append(log)
    assert bench.partitions.has_room(bench.appends, log.room_bytes)
    assert not bench.partitions.has_room(bench.appends, log.room_bytes + 1)
