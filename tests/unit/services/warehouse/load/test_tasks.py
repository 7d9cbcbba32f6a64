"""A task's results: rows, counts, quarantine, and failures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka2011.consumer.chunk import Chunk
from kafka2011.events.header import UNREADABLE
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.services.warehouse.delta_table import NewFile
from kafka2011.services.warehouse.load import parquet_files
from kafka2011.services.warehouse.load.parquet_files import write_file
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.tasks import (
    TopicResult,
    count_windows,
    rounded_ages,
    run_task,
)
from tests.unit.services.warehouse.samples import (
    FIRST,
    HEADER_TIME_MS,
    ScriptedBroker,
    access_log_payload,
    task_settings,
)

WINDOW = HEADER_TIME_MS - HEADER_TIME_MS % 10_000


class World(ScriptedBroker):
    """A broker with logs in memory, a warehouse, and tasks that read whole logs."""

    def __init__(self, warehouse: Path) -> None:
        super().__init__()
        self.warehouse = warehouse

    def load(self, topic: str = ACCESS_LOG, **settings: Any) -> TopicResult:
        planned, given = self.plan(topic), task_settings(self.warehouse, **settings)
        (result,) = run_task([planned], given, self.read)
        return result

    def rows(self, files: list[NewFile], table: str = "access_log") -> list[dict[str, Any]]:
        paths = [self.warehouse / table / file.path for file in files]
        return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]

    def quarantined(self, result: TopicResult, table: str = "access_log") -> list[dict[str, Any]]:
        return self.rows(result.quarantine_files, f"quarantine/{table}")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_range_becomes_files_counts_and_an_end(world: World) -> None:
    payloads = [access_log_payload(n, server="a" if n < 6 else "b") for n in range(10)]
    end = world.log(ACCESS_LOG).append(payloads)
    result = world.load()
    assert (result.errors, result.ends) == ([], {FIRST: end})
    assert (result.rows, result.read_bytes) == (10, end)
    assert result.counts == {(WINDOW, "a"): 6, (WINDOW, "b"): 4}
    assert (result.quarantined, result.quarantine_files) == ({}, [])
    rows = world.rows(result.files)
    assert len(rows) == 10
    assert rows[-1]["source_offset"] == end
    assert sum(result.ages.values()) == 10


def test_loading_in_steps_equals_loading_at_once(world: World) -> None:
    world.fetch_size = 700
    end = world.log(ACCESS_LOG).append([access_log_payload(n) for n in range(50)])
    offsets: list[object] = []
    committed = None
    while committed != end:
        planned = world.plan(ACCESS_LOG, committed, end=(committed or 0) + 1)
        (result,) = run_task([planned], task_settings(world.warehouse), world.read)
        offsets += [row["source_offset"] for row in world.rows(result.files)]
        committed = result.ends[FIRST]
    assert len(offsets) == len(set(offsets)) == 50


def test_messages_in_wrappers_are_rows_with_the_wrappers_end(world: World) -> None:
    world.fetch_size = 100_000
    log = world.log(ACCESS_LOG)
    first = log.append([access_log_payload(0)])
    wrapped = [access_log_payload(1), access_log_payload(2)]
    log.data += message_set.encode_compressed(wrapped, Codec.GZIP)
    rows = world.rows(world.load().files)
    assert [row["source_offset"] for row in rows] == [first, len(log.data), len(log.data)]


def test_an_undecodable_message_goes_to_quarantine_with_its_offset(world: World) -> None:
    log = world.log(ACCESS_LOG)
    log.append([access_log_payload(0)])
    junk_end = log.append([b"junk"])
    cut = access_log_payload(1)[:-1]
    cut_end = log.append([cut])
    log.append([access_log_payload(2)])
    result = world.load()
    assert (result.errors, result.rows) == ([], 2)
    assert result.quarantined == {UNREADABLE: 1, (WINDOW, "frontend-1"): 1}
    rows = [(row["payload"], row["source_offset"]) for row in world.quarantined(result)]
    assert rows == [(b"junk", junk_end), (cut, cut_end)]


def test_a_message_quarantined_before_is_counted_and_not_written_again(world: World) -> None:
    log = world.log(ACCESS_LOG)
    first = log.append([b"junk"])
    log.append([b"more"])
    result = world.load(quarantined_up_to={(ACCESS_LOG, FIRST): first})
    assert result.quarantined == {UNREADABLE: 2}
    assert [row["payload"] for row in world.quarantined(result)] == [b"more"]


def test_a_damaged_entry_is_quarantined_and_its_neighbours_are_loaded(world: World) -> None:
    log = world.log(ACCESS_LOG)
    start = log.append([access_log_payload(0)])
    end = log.append([access_log_payload(1)])
    log.append([access_log_payload(2)])
    log.data = log.data[: end - 1] + bytes([log.data[end - 1] ^ 0xFF]) + log.data[end:]
    result = world.load()
    assert (result.errors, result.rows) == ([], 2)
    (row,) = world.quarantined(result)
    assert (row["payload"], row["source_offset"]) == (log.data[start:end], end)
    assert "damaged entry" in row["reason"]


def test_a_topic_without_a_schema_goes_to_quarantine(world: World) -> None:
    world.log("plain").append([b"hello"])
    result = world.load("plain")
    assert (result.rows, result.files, result.errors) == (0, [], [])
    (row,) = world.quarantined(result, "plain")
    assert row["reason"] == "no schema is shipped for topic plain"


def test_a_range_that_breaks_off_is_loaded_up_to_there_and_reported(world: World) -> None:
    world.fetch_size = 700
    world.log(ACCESS_LOG).append([access_log_payload(n) for n in range(10)])
    world.log("plain").append([b"hello"])

    def read(planned: PlannedRange) -> Iterator[Chunk]:
        if planned.topic == "plain":
            raise ConnectionResetError("gone")
        for number, chunk in enumerate(world.read(planned)):
            if number == 2:
                raise ConnectionResetError("gone, too")
            yield chunk

    planned = [world.plan("plain"), world.plan(ACCESS_LOG)]
    plain, log = run_task(planned, task_settings(world.warehouse), read)
    assert (plain.errors, plain.ends, plain.is_usable) == (["11-0: gone"], {}, True)
    assert log.errors == ["11-0: gone, too"]
    rows = world.rows(log.files)
    assert 0 < len(rows) == log.rows < 10
    assert log.ends == {FIRST: rows[-1]["source_offset"]}


def test_a_write_error_makes_the_result_unusable(world: World) -> None:
    world.log(ACCESS_LOG).append([access_log_payload(0)])
    (world.warehouse / "access_log").write_text("a file where the table's directory should be")
    result = world.load()
    assert not result.is_usable
    assert "NotADirectoryError" in result.errors[0]


def test_a_task_that_fails_leaves_no_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = range(0, 7200, 1800)
    world.log(ACCESS_LOG).append([access_log_payload(n) for n in hours] + [b"junk"])
    written: list[Path] = []

    def write_two(path: Path, hour: str, rows: pa.Table, name: str) -> NewFile:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        file = write_file(path, hour, rows, name)
        written.append(path / file.path)
        return file

    monkeypatch.setattr(parquet_files, "write_file", write_two)
    result = world.load()
    assert not result.is_usable
    assert "No space left" in result.errors[0]
    assert len(written) == 2
    assert list(world.warehouse.rglob("*.parquet")) == []


def test_windows_are_counted_by_server() -> None:
    times = np.array([0, 9_999, 10_000, 10_001, 25_000])
    servers = pa.array(["a", "a", "a", "b", "b"])
    assert count_windows(times, servers, 10_000) == {
        (0, "a"): 2,
        (10_000, "a"): 1,
        (10_000, "b"): 1,
        (20_000, "b"): 1,
    }


def test_ages_are_rounded_to_two_digits() -> None:
    times = np.array([1000, 999, 995, 900, 1005, 1000 - 123456, 0])
    assert rounded_ages(times, 1000) == {0: 2, 1: 1, 5: 1, 100: 1, 120_000: 1, 1000: 1}
