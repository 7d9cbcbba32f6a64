"""What an executor does with ranges: rows, counts, quarantine, and what it says when it fails."""

from collections.abc import Iterator
from pathlib import Path

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
from kafka2011.services.warehouse.load import parquet_files as files_module
from kafka2011.services.warehouse.load.parquet_files import write_file
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.tasks import count_windows, rounded_ages, run_task
from tests.unit.services.warehouse.samples import (
    FIRST,
    HEADER_TIME_MS,
    ScriptedBroker,
    access_log_payload,
    task_settings,
)


def rows_of(directory: Path, files: list[NewFile]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for file in files:
        found += pq.ParquetFile(directory / file.path).read().to_pylist()
    return found


def test_a_range_becomes_files_counts_and_an_end(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    payloads = [access_log_payload(n, server="a" if n < 6 else "b") for n in range(10)]
    end = broker.log(ACCESS_LOG).append(payloads)
    (result,) = run_task([broker.plan(ACCESS_LOG)], task_settings(tmp_path), broker.read)
    assert result.errors == []
    assert result.ends == {FIRST: end}
    assert (result.rows, result.read_bytes) == (10, end)
    window = HEADER_TIME_MS - HEADER_TIME_MS % 10_000
    assert result.counts == {(window, "a"): 6, (window, "b"): 4}
    assert result.quarantined == {}
    assert result.quarantine_files == []
    rows = rows_of(tmp_path / "access_log", result.files)
    assert len(rows) == 10
    assert rows[-1]["source_offset"] == end
    assert sum(result.ages.values()) == 10


def test_loading_in_steps_equals_loading_at_once(tmp_path: Path) -> None:
    broker = ScriptedBroker(fetch_size=700)
    end = broker.log(ACCESS_LOG).append([access_log_payload(n) for n in range(50)])
    offsets: list[object] = []
    committed = None
    while committed != end:
        planned = broker.plan(ACCESS_LOG, committed, end=(committed or 0) + 1)
        (result,) = run_task([planned], task_settings(tmp_path), broker.read)
        offsets += [r["source_offset"] for r in rows_of(tmp_path / "access_log", result.files)]
        committed = result.ends[FIRST]
    assert len(offsets) == len(set(offsets)) == 50


def test_messages_in_wrappers_are_rows_with_the_wrappers_end(tmp_path: Path) -> None:
    broker = ScriptedBroker(fetch_size=100_000)
    log = broker.log(ACCESS_LOG)
    first = log.append([access_log_payload(0)])
    log.data += message_set.encode_compressed(
        [access_log_payload(1), access_log_payload(2)], Codec.GZIP
    )
    (result,) = run_task([broker.plan(ACCESS_LOG)], task_settings(tmp_path), broker.read)
    rows = rows_of(tmp_path / "access_log", result.files)
    assert [row["source_offset"] for row in rows] == [first, len(log.data), len(log.data)]


def test_what_cannot_be_decoded_goes_to_quarantine_with_its_offset(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    log = broker.log(ACCESS_LOG)
    log.append([access_log_payload(0)])
    junk_end = log.append([b"junk"])
    cut_end = log.append([access_log_payload(1)[:-1]])
    log.append([access_log_payload(2)])
    (result,) = run_task([broker.plan(ACCESS_LOG)], task_settings(tmp_path), broker.read)
    assert result.errors == []
    assert result.rows == 2
    window = HEADER_TIME_MS - HEADER_TIME_MS % 10_000
    assert result.quarantined == {UNREADABLE: 1, (window, "frontend-1"): 1}
    rows = rows_of(tmp_path / "quarantine" / "access_log", result.quarantine_files)
    assert [(row["payload"], row["source_offset"]) for row in rows] == [
        (b"junk", junk_end),
        (access_log_payload(1)[:-1], cut_end),
    ]


def test_what_an_earlier_try_quarantined_is_counted_and_not_written_again(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    log = broker.log(ACCESS_LOG)
    first = log.append([b"junk"])
    log.append([b"more"])
    settings = task_settings(tmp_path, quarantined_up_to={(ACCESS_LOG, FIRST): first})
    (result,) = run_task([broker.plan(ACCESS_LOG)], settings, broker.read)
    assert result.quarantined == {UNREADABLE: 2}
    rows = rows_of(tmp_path / "quarantine" / "access_log", result.quarantine_files)
    assert [row["payload"] for row in rows] == [b"more"]


def test_a_damaged_entry_is_quarantined_and_its_neighbours_are_loaded(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    log = broker.log(ACCESS_LOG)
    start = log.append([access_log_payload(0)])
    end = log.append([access_log_payload(1)])
    log.append([access_log_payload(2)])
    damaged = bytearray(log.data)
    damaged[end - 1] ^= 0xFF
    log.data = bytes(damaged)
    (result,) = run_task([broker.plan(ACCESS_LOG)], task_settings(tmp_path), broker.read)
    assert result.errors == []
    assert result.rows == 2
    (row,) = rows_of(tmp_path / "quarantine" / "access_log", result.quarantine_files)
    assert row["payload"] == log.data[start:end]
    assert row["source_offset"] == end
    assert "damaged entry" in str(row["reason"])


def test_a_topic_without_a_schema_goes_to_quarantine(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.log("plain").append([b"hello"])
    (result,) = run_task([broker.plan("plain")], task_settings(tmp_path), broker.read)
    assert (result.rows, result.files, result.errors) == (0, [], [])
    (row,) = rows_of(tmp_path / "quarantine" / "plain", result.quarantine_files)
    assert row["reason"] == "no schema is shipped for topic plain"


def test_a_range_that_breaks_off_is_loaded_up_to_there_and_reported(tmp_path: Path) -> None:
    broker = ScriptedBroker(fetch_size=700)
    broker.log(ACCESS_LOG).append([access_log_payload(n) for n in range(10)])
    broker.log("plain").append([b"hello"])

    def read(planned: PlannedRange) -> Iterator[Chunk]:
        if planned.topic == "plain":
            raise ConnectionResetError("gone")
        for number, chunk in enumerate(broker.read(planned)):
            if number == 2:
                raise ConnectionResetError("gone, too")
            yield chunk

    plain, log = run_task(
        [broker.plan("plain"), broker.plan(ACCESS_LOG)], task_settings(tmp_path), read
    )
    assert (plain.errors, plain.ends, plain.is_usable) == (["11-0: gone"], {}, True)
    assert log.errors == ["11-0: gone, too"]
    rows = rows_of(tmp_path / "access_log", log.files)
    assert 0 < len(rows) == log.rows < 10
    assert log.ends == {FIRST: rows[-1]["source_offset"]}


def test_a_disk_that_is_full_makes_the_result_unusable(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.log(ACCESS_LOG).append([access_log_payload(0)])
    (tmp_path / "access_log").write_text("a file where the table's directory should be")
    (result,) = run_task([broker.plan(ACCESS_LOG)], task_settings(tmp_path), broker.read)
    assert not result.is_usable
    assert "NotADirectoryError" in result.errors[0]


def test_a_task_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScriptedBroker()
    hours = range(0, 7200, 1800)
    broker.log(ACCESS_LOG).append([access_log_payload(n) for n in hours] + [b"junk"])
    written: list[Path] = []

    def write_two(path: Path, hour: str, rows: pa.Table, name: str) -> NewFile:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        file = write_file(path, hour, rows, name)
        written.append(path / file.path)
        return file

    monkeypatch.setattr(files_module, "write_file", write_two)
    (result,) = run_task([broker.plan(ACCESS_LOG)], task_settings(tmp_path), broker.read)
    assert not result.is_usable
    assert "No space left" in result.errors[0]
    assert len(written) == 2
    assert list(tmp_path.rglob("*.parquet")) == []


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
