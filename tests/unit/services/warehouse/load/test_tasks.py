"""One task: messages that cannot become rows, ages, and a task that fails."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafka2011.events.forms import FORMS_2011
from kafka2011.events.header import UNREADABLE
from kafka2011.events.origin import origin_of
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol import message_set
from kafka2011.protocol.message_set import Codec
from kafka2011.services.audit.recount.guid_comparison import GuidTally
from kafka2011.services.audit.recount.warehouse_rows import rows_of, topic_tables
from kafka2011.services.warehouse.load import parquet_files, tasks
from kafka2011.services.warehouse.load.parquet_files import write_file
from kafka2011.services.warehouse.load.tasks import rounded_ages
from kafka2011.services.warehouse.load_commits import NewFile
from tests.support.bombs import BOMB_BYTES, BOMBS_COUNT, bombs, bounded_memory
from tests.unit.services.warehouse.load import deployment as deployments
from tests.unit.services.warehouse.load.deployment import Deployment
from tests.unit.services.warehouse.samples import HEADER_TIME_MS, WINDOW_MS, access_log_payload

CUT = access_log_payload(1)[:-1]
DAMAGED = message_set.encode([access_log_payload(1)])[:-1] + b"!"


@pytest.mark.parametrize(
    ("entry", "quarantined", "counted_in", "reason"),
    [
        (message_set.encode([b"junk"]), b"junk", UNREADABLE, "not in the 2011 form"),
        (
            message_set.encode([CUT]),
            CUT,
            (HEADER_TIME_MS - HEADER_TIME_MS % WINDOW_MS, "frontend-1"),
            "body",
        ),
        (DAMAGED, DAMAGED, UNREADABLE, "damaged entry at {offset}: wrong CRC"),
    ],
    ids=["no event", "a cut event", "a damaged entry"],
)
def test_a_message_that_is_no_row_is_quarantined_and_its_neighbours_are_loaded(
    deployment: Deployment,
    entry: bytes,
    quarantined: bytes,
    counted_in: tuple[int, str],
    reason: str,
) -> None:
    ends = [deployment.append(range(1))]
    deployment.log += entry
    ends += [len(deployment.log), deployment.append(range(1, 2))]
    assert deployment.load().failures == []
    assert [row[-1] for row in deployment.rows()] == [ends[0], ends[2]]
    ((payload, offset, found),) = deployment.select(
        "payload, source_offset, reason", "quarantine-tables/access_log"
    )
    assert (payload, offset) == (quarantined, ends[1])
    assert reason.format(offset=ends[0]) in found
    (info,) = deployment.commits()
    assert info.quarantined == {counted_in: 1}


def test_bombs_are_loaded_in_bounded_memory(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments, "FETCH_BYTES", 1_000_000)
    deployment.append(range(1))
    deployment.log += bombs()
    deployment.append(range(1, 2))
    with bounded_memory():
        assert deployment.load().failures == []
    assert deployment.numbers() == [0, 1]
    assert [len(payload) for payload in deployment.quarantined()] == [BOMB_BYTES] * BOMBS_COUNT


def test_a_set_of_many_messages_is_decoded_part_by_part(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "DECODED_MAX", 2)
    events = [access_log_payload(number, path=f"/{number}") for number in range(4)]
    deployment.log += message_set.encode_compressed([*events, b"junk"], Codec.GZIP)
    assert deployment.load().failures == []
    assert deployment.numbers() == [0, 1, 2, 3]
    assert {row[-1] for row in deployment.rows()} == {len(deployment.log)}
    assert deployment.quarantined() == [b"junk"]


def test_a_task_that_fails_leaves_no_files(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = range(0, 7200, 1800)
    deployment.add_partition(ACCESS_LOG, *map(access_log_payload, hours), b"junk")
    written: list[Path] = []

    def write_two(path: Path, hour: str, rows: pa.Table, name: str) -> NewFile:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        file = write_file(path, hour, rows, name)
        written.append(path / file.path)
        return file

    monkeypatch.setattr(parquet_files, "write_file", write_two)
    outcome = deployment.load()
    assert outcome.failures == [f"{ACCESS_LOG}: OSError: No space left on device"]
    assert outcome.versions == {}
    assert len(written) == 2
    assert list(deployment.warehouse.rglob("*.parquet")) == []


def test_a_row_is_counted_in_the_cell_in_which_everyone_counts_its_message(
    deployment: Deployment,
) -> None:
    names = ["s" * 255, "é" * 128, "s" * 256, ""]
    events = [access_log_payload(n, server=server) for n, server in enumerate(names)]
    events += [access_log_payload(n, service=name) for n, name in enumerate(names)]
    deployment.add_partition(ACCESS_LOG, *events)
    assert deployment.load().rows == {ACCESS_LOG: len(events)}
    counts: dict[tuple[int, str], int] = {}
    origin_of(FORMS_2011, ACCESS_LOG).count(events, WINDOW_MS, counts)
    (info,) = deployment.commits()
    assert info.counts == counts
    assert counts[UNREADABLE] == 4
    with GuidTally(1, WINDOW_MS) as recounted:
        for topic, path in topic_tables(deployment.warehouse):
            for rows in rows_of(path):
                recounted.add_rows(0, topic, rows.guids, rows.times_ms, rows.servers)
        found = recounted.counts(0)
    assert {(key.window_start_ms, key.server): n for key, n in found.items()} == counts


def test_ages_are_rounded_to_two_digits() -> None:
    times = np.array([1000, 999, 995, 900, 1005, 1000 - 123456, 0])
    assert rounded_ages(times, 1000) == {0: 2, 1: 1, 5: 1, 100: 1, 120_000: 1, 1000: 1}
