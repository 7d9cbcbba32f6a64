"""Whole loads over logs in memory: nothing lost, nothing twice, whatever happens in between."""

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.events.forms import Form, Forms
from kafka2011.events.header import UNREADABLE
from kafka2011.events.topics import ACCESS_LOG, AUDIT, PAGE_VIEW
from kafka2011.protocol.compression import Codec
from kafka2011.runtime.failpoints import FailpointError
from kafka2011.runtime.os_errors import reason_of
from kafka2011.services.warehouse.delta_table import SchemaConflict, WarehouseTable
from kafka2011.services.warehouse.load.lag import Lag
from kafka2011.services.warehouse.load.plan import BROKER_AWAY, GAP, PlannedRange
from kafka2011.services.warehouse.load_commits import CommitInfo
from tests.unit.services.warehouse.load import deployment as deployments
from tests.unit.services.warehouse.load.deployment import (
    FIRST,
    SECOND,
    Deployment,
    patch_failpoints,
    read_planned,
    run_here,
)
from tests.unit.services.warehouse.samples import HEADER_TIME_MS, WINDOW_MS, access_log_payload


def test_new_messages_of_all_partitions_are_loaded_once_by_one_commit(
    deployment: Deployment,
) -> None:
    deployment.add_partition(ACCESS_LOG, source=SECOND)
    loader = deployment.loader()
    times = [HEADER_TIME_MS + 3000 * n for n in range(10)]
    first = [
        deployment.append(range(n, n + 1), server="ab"[n % 2], header_time=times[n])
        for n in range(10)
    ]
    second = deployment.append(range(1), source=SECOND)
    outcome = loader.load()
    assert outcome.rows == {ACCESS_LOG: 11}
    assert outcome.read_bytes == first[-1] + second
    assert outcome.is_caught_up
    assert (outcome.problems, outcome.failures) == ([], [])
    assert sum(outcome.ages.values()) == 11
    assert min(outcome.ages) >= 9000
    assert deployment.rows() == [
        *((f"/11-0/{n}", 11, 0, first[n]) for n in range(10)),
        ("/12-1/0", 12, 1, second),
    ]
    windows = [time_ms - time_ms % WINDOW_MS for time_ms in times]
    counts = Counter([*zip(windows, "ab" * 5, strict=True), (windows[0], "frontend-1")])
    (info,) = deployment.commits()
    assert info == CommitInfo(
        version=1,
        timestamp_ms=info.timestamp_ms,
        topic=ACCESS_LOG,
        window_ms=WINDOW_MS,
        counts=counts,
        quarantined={},
        offsets={FIRST: first[-1], SECOND: second},
        gaps={},
        rows=11,
    )
    assert info.timestamp_ms > HEADER_TIME_MS
    assert loader.load().versions == {}
    assert deployment.load(run_tasks=lambda *_: pytest.fail("a task was run")).versions == {}


@pytest.mark.parametrize("bytes_max", [1, 3000], ids=["message by message", "3000 bytes"])
def test_a_large_log_is_loaded_in_steps(deployment: Deployment, bytes_max: int) -> None:
    deployment.append(range(20))
    loader = deployment.loader(partition_bytes_max=bytes_max)
    outcome = loader.load()
    assert 0 < outcome.rows[ACCESS_LOG] < 20
    assert not outcome.is_caught_up
    while not outcome.is_caught_up:
        outcome = loader.load()
    assert deployment.numbers() == [*range(20)]


def test_the_audit_topic_is_not_loaded_and_topics_can_be_chosen(deployment: Deployment) -> None:
    for topic in (AUDIT, "other", ACCESS_LOG):
        deployment.add_partition(topic, b"x")
    assert set(deployment.load(topics=(ACCESS_LOG,)).versions) == {ACCESS_LOG}
    assert set(deployment.load().versions) == {"other"}


@pytest.mark.parametrize(
    "name",
    ["after_plan", "after_files_written", "after_quarantine", "before_commit", "after_commit"],
)
@pytest.mark.parametrize("nth", [1, 2])
def test_killed_at_any_step_nothing_is_lost_or_repeated(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    deployment.append(range(10), b"junk 1")
    deployment.load()
    deployment.append(range(10, 20), b"junk 2")
    seen = Counter[str]()

    def failpoint(reached: str) -> None:
        seen[reached] += 1
        if reached == name and seen[reached] == nth:
            raise FailpointError(name)

    patch_failpoints(monkeypatch, failpoint)
    try:
        deployment.load()
    except FailpointError:
        assert seen[name] == nth
    else:
        assert seen[name] < nth  # this step comes only once
    monkeypatch.undo()
    # A load is seen whole or not at all.
    assert deployment.numbers() in ([*range(10)], [*range(20)])

    # More arrives, then a new process.
    deployment.append(range(20, 30), b"junk 3")
    deployment.load()
    assert deployment.numbers() == [*range(30)]
    assert deployment.quarantined() == [b"junk 1", b"junk 2", b"junk 3"]
    assert sum(info.rows for info in deployment.commits()) == 30
    assert sum(info.quarantined[UNREADABLE] for info in deployment.commits()) == 3


def test_of_two_instances_at_once_one_wins(deployment: Deployment) -> None:
    end = deployment.append(range(10), b"junk")
    first = deployment.loader()

    def run_while_the_other_loads(function: Any, tasks: Any) -> Any:
        results = run_here(function, tasks)
        assert first.load().rows == {ACCESS_LOG: 10}
        return results

    second = deployment.loader(run_while_the_other_loads)
    outcome = second.load()
    assert outcome.rows == {}
    assert outcome.lost_to_another == [f"access-log 11-0: planned from None, the table is at {end}"]
    assert (deployment.numbers(), deployment.quarantined()) == ([*range(10)], [b"junk"])
    # The second one continues where the first one ended.
    deployment.append(range(10, 12))
    second._run_tasks = run_here
    assert second.load().rows == {ACCESS_LOG: 2}
    assert first.load().versions == {}
    assert deployment.numbers() == [*range(12)]


def test_two_instances_set_nothing_aside_twice_below_what_a_load_that_died_has_set_aside(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quarantine's offset is ahead and stays: it did not show that another had added some."""
    deployment.append(range(10), b"junk")

    def failpoint(reached: str) -> None:
        if reached == "after_quarantine":
            raise FailpointError(reached)

    patch_failpoints(monkeypatch, failpoint)
    with pytest.raises(FailpointError):
        deployment.load()
    monkeypatch.undo()
    assert deployment.quarantined() == [b"junk"]
    # Both begin with another form of the events, so that none can be a row any more.
    first = deployment.loader(event_forms=Forms(Form.JSON))

    def run_while_the_other_loads(function: Any, tasks: Any) -> Any:
        results = run_here(function, tasks)
        assert first.load().quarantined == {ACCESS_LOG: 11}
        return results

    second = deployment.loader(run_while_the_other_loads, event_forms=Forms(Form.JSON))
    assert len(second.load().lost_to_another) == 1
    assert len(deployment.quarantined()) == 11
    assert second.load().versions == {}


@pytest.mark.parametrize("is_registered", [True, False], ids=["it is silent", "it left"])
def test_a_broker_that_is_away_is_reported_by_any_loader_and_the_others_are_loaded(
    deployment: Deployment, is_registered: bool
) -> None:
    broker = deployment.add_partition(ACCESS_LOG, source=SECOND)
    end = deployment.append(range(5), source=SECOND)
    deployment.load()
    deployment.append(range(3))
    deployment.append(range(5, 9), source=SECOND)
    if is_registered:
        broker.hang_ups = 100
    else:
        deployment.remove_broker(12, ACCESS_LOG)
    outcome = deployment.load()
    assert outcome.rows == {ACCESS_LOG: 3}
    problems = {problem.source: problem for problem in outcome.problems}
    assert {source.broker_id for source in problems} == {12}
    assert problems[SECOND].kind == BROKER_AWAY
    assert str(end) in problems[SECOND].detail
    assert outcome.lag.unknown == {ACCESS_LOG}  # not 0
    broker.hang_ups = 0
    deployment.add_partition(ACCESS_LOG, source=SECOND)
    outcome = deployment.load()
    assert (outcome.rows, outcome.problems) == ({ACCESS_LOG: 4}, [])
    assert outcome.lag.unknown == set()


@pytest.mark.parametrize("ends", ["while it is planned", "while it is read"])
def test_a_broker_that_ends_during_a_load_is_waited_for_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Each of its partitions was, for 15 s, and meanwhile nothing of the others was committed: a
    load took 215 s."""
    second, waited = 12, []
    for topic in (ACCESS_LOG, PAGE_VIEW):
        for partition in range(2):
            source = BrokerPartition(second, partition)
            broker = deployment.add_partition(topic, b"x", source=source)
    deployment.append(range(3))

    def read(planned: PlannedRange) -> Iterator[Chunk]:
        if planned.source.broker_id == second:
            waited.append(planned)
            raise BrokerUnavailable("broker at here: refused")
        yield from read_planned(planned)

    def earliest(self: SimpleConsumer, *_: object) -> int:
        if self.port == broker.port:
            waited.append(self)
            raise BrokerUnavailable("broker at here: refused")
        return 0

    monkeypatch.setattr(deployments, "read_planned", read)
    if ends == "while it is planned":
        monkeypatch.setattr(SimpleConsumer, "earliest", earliest)
    outcome = deployment.load()
    assert len(waited) == 1
    assert outcome.rows[ACCESS_LOG] == 3
    if ends == "while it is planned":
        away = {(each.topic, each.source.text) for each in outcome.problems}
        assert away == {(t, f"12-{n}") for t in (ACCESS_LOG, PAGE_VIEW) for n in range(2)}
    else:
        assert len([text for text in outcome.failures if text.endswith("at here: refused")]) == 4


def test_the_lag_is_known_before_a_load_after_it_and_between_loads(
    deployment: Deployment,
) -> None:
    """It was what the load had left of the bytes that it had planned with: 0, whatever came."""
    planned: list[Lag] = []

    def run_and_append(function: Any, tasks: Any) -> Any:
        assert len(planned) == 1
        results = run_here(function, tasks)
        deployment.append(range(10, 11))
        return results

    end = deployment.append(range(10))
    loader = deployment.loader(run_and_append)
    outcome = loader.load(planned.append)
    during = deployment.append(range(0)) - end
    assert planned[0].bytes == {ACCESS_LOG: end}
    assert (outcome.lag.bytes, outcome.lag.total) == ({ACCESS_LOG: during}, during)
    assert outcome.is_caught_up
    later = deployment.append(range(11, 13)) - end
    assert loader.look().bytes == {ACCESS_LOG: later}
    deployment.add_partition(ACCESS_LOG, source=SECOND)
    assert loader.look().total == later, "nothing is in the new partition"
    planned.clear()
    assert loader.load(planned.append).rows == {ACCESS_LOG: 3}
    assert planned[0].total == later


def test_a_look_does_not_know_what_only_a_load_can_judge(deployment: Deployment) -> None:
    broker = deployment.brokers[11]
    end = deployment.append(range(3))
    loader = deployment.loader()
    loader.load()
    assert (loader.look().total, loader.look().bytes) == (0, {ACCESS_LOG: 0})
    broker.hang_ups = 100
    assert (loader.look().total, loader.look().unknown) == (None, {ACCESS_LOG})
    broker.hang_ups = 0
    deployment.add_partition("new", b"x")  # its table may be there, with offsets
    found = loader.look()
    assert (found.bytes[ACCESS_LOG], found.unknown) == (0, {"new"})
    loader.load()
    assert loader.look().total == 0
    del broker.logs[ACCESS_LOG, 0][: end - 1]  # lost, and begun again
    assert loader.look().unknown == {ACCESS_LOG}
    assert loader.load().lag.unknown == {ACCESS_LOG}
    deployment.append(range(100))
    assert loader.look().unknown == {ACCESS_LOG}, "more bytes do not make it the log that was read"


def test_a_load_counts_whose_look_afterwards_fails(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.append(range(3))
    loader = deployment.loader()

    def look() -> Lag:
        raise CoordinationUnavailable("it does not answer")

    monkeypatch.setattr(loader, "look", look)
    outcome = loader.load()
    assert (outcome.rows, outcome.lag.unknown) == ({ACCESS_LOG: 3}, {ACCESS_LOG})


def test_retired_offsets_are_reported_and_recorded(deployment: Deployment) -> None:
    loaded_to = deployment.append(range(5))
    loader = deployment.loader()
    loader.load()
    retired_to = deployment.append(range(5, 8))
    deployment.append(range(8, 10))
    deployment.brokers[11].retire(ACCESS_LOG, 0, retired_to)
    outcome = loader.load()
    assert [problem.kind for problem in outcome.problems] == [GAP]
    assert outcome.rows == {ACCESS_LOG: 2}
    assert deployment.commits()[1].gaps == {FIRST: (loaded_to, retired_to)}


def test_a_topic_without_events_is_quarantined_and_its_offset_kept(
    deployment: Deployment,
) -> None:
    deployment.add_partition("plain-text", b"one", b"two")
    assert deployment.load().quarantined["plain-text"] == 2
    assert deployment.rows("plain_text") == []
    reason = "the payload is not in the 2011 form (byte 0 and 16 bytes of MD5)"
    found = deployment.select("payload, reason", "quarantine-tables/plain_text")
    assert found == [(b"one", reason), (b"two", reason)]
    assert deployment.load().versions == {}
    (info,) = deployment.commits("plain_text")
    assert info.quarantined == {UNREADABLE: 2}


def test_a_read_error_is_reported_and_the_next_load_continues(deployment: Deployment) -> None:
    end = deployment.append(range(30))
    loader = deployment.loader()
    broker = deployment.brokers[11]
    broker.damage = lambda request, data: data if request.offset == 0 else b""
    outcome = loader.load()
    (failure,) = outcome.failures
    assert re.fullmatch(f"access-log: 11-0: .* has nothing at [0-9]+, planned up to {end}", failure)
    assert 0 < outcome.rows[ACCESS_LOG] < 30
    broker.damage = lambda _, data: data
    assert loader.load().failures == []
    assert deployment.numbers() == [*range(30)]


def test_messages_of_one_wrapper_are_all_rows_with_its_end(deployment: Deployment) -> None:
    expected = []
    for start in range(0, 30, 10):
        numbers = range(start, start + 10)
        events = [access_log_payload(n, path=f"/{n}") for n in numbers]
        end = deployment.brokers[11].append(ACCESS_LOG, 0, events, Codec.GZIP)
        expected += [(f"/{n}", 11, 0, end) for n in numbers]
        deployment.append(range(0), b"junk")
        deployment.load()
    assert deployment.rows() == sorted(expected)
    assert len(deployment.quarantined()) == 3


def test_a_table_that_was_removed_is_loaded_again(deployment: Deployment) -> None:
    deployment.append(range(5))
    loader = deployment.loader()
    loader.load()
    shutil.rmtree(deployment.warehouse)
    deployment.append(range(5, 8))
    assert len(loader.load().failures) == 1  # finds the table missing
    assert loader.load().is_caught_up
    assert deployment.numbers() == [*range(8)]


# --- a failure leaves no files, and stops nothing else --------------------------------------------


def test_a_topic_whose_types_do_not_fit_is_not_read_and_the_others_are(
    deployment: Deployment,
) -> None:
    deployment.add_partition("plain-text", b"one")
    deployment.append(range(5))
    columns = pa.schema([("status", pa.string()), ("hour", pa.string())])
    WarehouseTable.open_or_create(deployment.warehouse / "access_log", columns, "an old one")
    loader = deployment.loader()
    for _ in range(3):
        outcome = loader.load()
        assert ["access_log.status is string" in failure for failure in outcome.failures] == [True]
        assert outcome.lag.bytes[ACCESS_LOG] > 0
        assert outcome.left_bytes == 0
    assert deployment.quarantined("plain_text") == [b"one"]
    assert list((deployment.warehouse / "access_log").rglob("*.parquet")) == []


@pytest.mark.parametrize(
    ("step", "error", "commits"),
    [
        ("open_or_create", OSError(28, "No space left on device"), 0),
        ("add_columns", SchemaConflict("another loader was first"), 1),
    ],
    ids=["no space for the quarantine", "types change while it runs"],
)
def test_a_load_that_fails_leaves_no_files(
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: Exception,
    commits: int,
) -> None:
    deployment.append(range(5), b"junk")
    monkeypatch.setattr(WarehouseTable, step, Mock(side_effect=error))
    loader = deployment.loader()
    for _ in range(3):
        assert loader.load().failures == [f"access-log: {reason_of(error)}"]
    monkeypatch.undo()
    # At most the quarantine was committed, once.
    named = deployment.named_files("quarantine-tables/access_log")
    assert len(named) == commits
    assert sorted(map(str, deployment.warehouse.rglob("*.parquet"))) == sorted(named)
    assert loader.load().rows == {ACCESS_LOG: 5}
    assert deployment.quarantined() == [b"junk"]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_without_an_answer_keeps_its_files_and_is_looked_up(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    deployment.append(range(5))
    loader = deployment.loader()
    loader.load()
    deployment.append(range(5, 8))
    commit = DeltaTable.create_write_transaction

    def lose_the_answer(*args: Any, **named: Any) -> None:
        if is_there:
            commit(*args, **named)
        raise OSError("no answer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose_the_answer)
    outcome = loader.load()
    # The log tells whether it is in.
    assert outcome.failures == ([] if is_there else ["access-log: no answer"])
    assert outcome.rows == ({ACCESS_LOG: 3} if is_there else {})
    monkeypatch.undo()
    assert len(set(deployment.warehouse.rglob("*.parquet"))) == 2
    loader.load()
    assert deployment.numbers() == [*range(8)]


def test_bytes_are_left_only_of_partitions_that_move(deployment: Deployment) -> None:
    broker = deployment.add_partition(ACCESS_LOG, source=SECOND)
    broker.damage = lambda *_: b""
    deployment.append(range(5), source=SECOND)
    deployment.append(range(50))
    loader = deployment.loader(partition_bytes_max=3000)
    outcome = loader.load()
    assert outcome.left_bytes > 0
    while outcome.left_bytes:
        outcome = loader.load()
    assert not outcome.is_caught_up
    assert deployment.numbers() == [*range(50)]
