"""Whole loads of topics without Avro: JSON, text and bytes."""

import json
from collections.abc import Callable
from typing import Any

import polars
import pytest

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.spark.rows import MessageRows
from kafka2011.events.codec_source import CodecSource
from kafka2011.events.forms import forms_of, parse_fields, parse_forms
from kafka2011.events.header import UNREADABLE
from kafka2011.events.origin import origin_of
from kafka2011.protocol import message_set
from kafka2011.runtime.failpoints import FailpointError
from kafka2011.services.warehouse import delta_table
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.data_source.decoded import DecodedFactory, json_columns
from kafka2011.services.warehouse.delta_table import WarehouseTable, owner_of
from kafka2011.services.warehouse.load import replay
from kafka2011.services.warehouse.load.columns import event_columns
from kafka2011.services.warehouse.load.job import LoadOutcome, RunTasks
from tests.unit.services.audit.samples import T0
from tests.unit.services.warehouse.load.deployment import (
    FIRST,
    SECOND,
    Deployment,
    patch_failpoints,
    run_here,
)
from tests.unit.services.warehouse.samples import WINDOW_MS

FORMS = "*:2011,orders:json,notes:json,lines:text,raw:bytes"
FIELDS = {"event_time_field": "orders:at", "event_server_field": "orders:host"}
SETTINGS = {
    "event.forms": FORMS,
    "event.time.field": "orders:at",
    "event.server.field": "orders:host",
}


def load(deployment: Deployment, forms: str = FORMS, run_tasks: RunTasks = run_here) -> LoadOutcome:
    fields = {name: parse_fields(text) for name, text in FIELDS.items()}
    return deployment.load(run_tasks=run_tasks, event_forms=parse_forms(forms), **fields)


def run_apart(function: Any, tasks: Any) -> Any:
    """Read each range as in a process of its own, which knows nothing of the others' columns."""
    results = []
    for planned in (planned for task in tasks for planned in task):
        event_columns.cache_clear()
        results.append(function([planned]))
    return results


def order(number: int, **changed: Any) -> bytes:
    at = T0 + number * WINDOW_MS
    return json.dumps({"n": number, "at": at, "host": f"shop-{number % 2}", **changed}).encode()


def test_each_form_has_its_table_and_json_is_counted_and_partitioned_by_its_fields(
    deployment: Deployment,
) -> None:
    orders = [order(0), order(0), order(1, n="seven"), order(2, host=None), b"poison"]
    deployment.add_partition("orders", *orders)
    deployment.add_partition("notes", b'{"a b":1}')
    deployment.add_partition("lines", "grüße".encode(), b"\xff")
    deployment.add_partition("raw", b"\xff\x00")
    outcome = load(deployment)
    assert outcome.failures == []
    assert outcome.rows == {"orders": 4, "notes": 1, "lines": 1, "raw": 1}
    assert outcome.quarantined == {"orders": 1, "notes": 0, "lines": 1, "raw": 0}
    found = deployment.select("n, server, rest, epoch_ms(header_time)", "orders")
    assert found == [
        *((0, "shop-0", None, T0),) * 2,
        (2, None, None, T0 + 2 * WINDOW_MS),
        (None, "shop-1", '{"n":"seven"}', T0 + WINDOW_MS),
    ]
    assert deployment.select("rest", "notes") == [('{"a b":1}',)]
    assert deployment.select("value", "lines") == [("grüße",)]
    assert deployment.select("value", "raw") == [(b"\xff\x00",)]
    # The load counts as everyone does who asks `origin_of`.
    counts: dict[tuple[int, str], int] = {}
    origin_of(forms_of(SETTINGS), "orders").count(orders, WINDOW_MS, counts)
    (info,) = deployment.commits("orders")
    both = {key: info.counts.get(key, 0) + info.quarantined.get(key, 0) for key in counts}
    assert both == counts
    assert counts[UNREADABLE] == 2
    assert {file.split("hour=")[1][:13] for file in deployment.named_files("orders")} == {
        "2011-03-13-07"
    }
    frame = polars.read_delta(str(deployment.warehouse / "orders"))
    assert frame["n"].to_list().count(0) == 2


@pytest.mark.parametrize("name", ["after_files_written", "after_quarantine", "after_commit"])
def test_killed_at_any_step_nothing_is_lost_or_repeated_and_no_type_changes(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def failpoint(reached: str) -> None:
        if reached == name:
            raise FailpointError(name)

    deployment.add_partition("orders", order(0), b"poison")
    for number, changed in enumerate([{}, {"n": 1.5}, {"new": True, "n": {"a": 1}}], start=1):
        deployment.add_partition("orders", order(number, **changed), b"poison %d" % number)
        with monkeypatch.context() as patched, pytest.raises(FailpointError):
            patch_failpoints(patched, failpoint)
            load(deployment)
        assert load(deployment).failures == []
    frame = polars.read_delta(str(deployment.warehouse / "orders")).sort("at")
    assert frame.select("at", "n", "rest", "new", "n_json").rows() == [
        (T0, 0, None, None, None),
        (T0 + WINDOW_MS, 1, None, None, None),
        (T0 + 2 * WINDOW_MS, None, '{"n":1.5}', None, None),
        (T0 + 3 * WINDOW_MS, None, None, True, '{"a":1}'),
    ]
    junk = [b"poison", *(b"poison %d" % number for number in (1, 2, 3))]
    assert sorted(deployment.quarantined("orders")) == junk


@pytest.mark.parametrize("odd", [{"n": "text"}, {"N": 1}])
def test_tasks_that_begin_the_same_column_differently_are_loaded_one_after_the_other(
    deployment: Deployment, odd: dict[str, Any]
) -> None:
    without = {name: value for name, value in json.loads(order(1)).items() if name != "n"}
    deployment.add_partition("orders", order(0))
    deployment.add_partition("orders", json.dumps({**without, **odd}).encode(), source=SECOND)
    first = load(deployment, run_tasks=run_apart)
    assert [text for text in first.failures if "loaded with the next load" in text]
    assert load(deployment).failures == []
    found = deployment.select("n, rest", "orders")
    assert found in (
        [(0, None), (None, json.dumps(odd, separators=(",", ":")))],
        [(None, None), (None, '{"n":0}')],
    )


def test_what_another_form_can_read_is_replayed_from_the_quarantine(
    deployment: Deployment,
) -> None:
    deployment.add_partition("lines", b'{"a":1}', b"plain")
    assert load(deployment, "*:2011,orders:json,lines:json").quarantined == {"lines": 1}
    config = WarehouseConfig(
        warehouse_dir=deployment.warehouse, event_forms=parse_forms("lines:text")
    )
    assert replay.replay(config, "lines") == replay.Replayed(rows=1, left=0)
    assert len(deployment.named_files("lines")) == 2
    assert deployment.quarantined("lines") == []


@pytest.mark.parametrize("topic", ["raw", "lines"])
def test_a_damaged_entry_stays_in_quarantine_although_its_bytes_are_a_text(
    deployment: Deployment, topic: str
) -> None:
    good = message_set.encode([b"to be damaged"])
    damaged = good[:6] + bytes(4) + good[10:]  # without its CRC it is UTF-8
    broker = deployment.add_partition(topic, b"good")
    broker.logs[topic, FIRST.partition] += damaged
    assert load(deployment).quarantined == {topic: 1}
    config = WarehouseConfig(warehouse_dir=deployment.warehouse, event_forms=parse_forms(FORMS))
    assert replay.replay(config, topic) == replay.Replayed(0, 1, "damaged entry at 14: wrong CRC")
    assert deployment.quarantined(topic) == [damaged]
    assert len(deployment.select("value", topic)) == 1


@pytest.mark.parametrize("step", ["before the check", "before the commit", "it dies"])
def test_of_two_replays_at_once_one_makes_the_rows(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    deployment.add_partition("lines", b"plain", b"plainer")
    load(deployment, "*:2011,orders:json,lines:json")
    config = WarehouseConfig(
        warehouse_dir=deployment.warehouse, event_forms=parse_forms("lines:text")
    )
    plain_append = WarehouseTable.append

    def another() -> None:
        monkeypatch.undo()
        if step == "it dies":
            with monkeypatch.context() as patched, pytest.raises(FailpointError):
                patched.setattr(replay, "failpoint", dying)
                replay.replay(config, "lines")
        else:
            assert replay.replay(config, "lines") == replay.Replayed(rows=2, left=0)

    def dying(name: str) -> None:
        raise FailpointError(name)

    def append(*given: Any) -> None:
        another()
        plain_append(*given)

    def before_commit(name: str) -> None:
        if name == "before_commit":
            another()

    if step == "before the commit":
        monkeypatch.setattr(delta_table, "failpoint", before_commit)
    else:
        monkeypatch.setattr(WarehouseTable, "append", append)
    assert replay.run_replay(config, "lines") == 1
    assert replay.run_replay(config, "lines") == 0
    assert deployment.select("value", "lines") == [("plain",), ("plainer",)]
    assert deployment.quarantined("lines") == []
    # Loads and their readers see no load in it.
    assert len(deployment.commits("lines")) == 1
    assert owner_of(deployment.warehouse / "lines") == "lines"


def rows_of(topic: str, payloads: list[bytes], make: Callable[[], Any]) -> list[dict[str, Any]]:
    data = message_set.encode(payloads)
    chunk = Chunk(topic, 11, 0, 0, data, len(data))
    return [row for batch in make().batches(chunk) for row in batch.to_pylist()]


def test_the_spark_source_reads_the_forms_too() -> None:
    codec = CodecSource(forms_of(SETTINGS))
    found = rows_of("orders", [order(1), b"poison"], lambda: MessageRows((), None, codec.forms))
    assert [row["timestamp"] is not None for row in found] == [True, False]
    assert [row["schema_id"] for row in found] == [None, None]
    found = rows_of(
        "orders",
        [order(1), b"poison"],
        lambda: DecodedFactory("orders", codec=codec).rows(None),
    )
    assert sorted((row["server"], row["rest"], row["error"]) for row in found if row["rest"]) == [
        ("shop-1", order(1).decode().replace(" ", ""), None)
    ]
    assert [row["payload"] for row in found if row["error"]] == [b"poison"]
    known = json_columns("orders", codec.codec(), [order(1)])
    found = rows_of(
        "orders",
        [order(1), order(2, n="seven", new=1)],
        lambda: DecodedFactory("orders", codec=codec, known=known).rows(None),
    )
    assert [(row["n"], row["at"] > 0, row["rest"]) for row in found] == [
        (1, True, None),
        (None, True, '{"n":"seven","new":1}'),
    ]
    lines = rows_of("lines", [b"a"], lambda: DecodedFactory("lines", codec=codec).rows(None))
    assert [row["value"] for row in lines] == ["a"]
