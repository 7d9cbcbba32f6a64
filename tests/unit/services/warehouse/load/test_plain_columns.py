"""JSON, text and bytes as columns: nothing is lost, no value and no column's type changed."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events.bounds import DEPTH_MAX
from kafka2011.events.forms import forms_of
from kafka2011.services.warehouse.load import plain_columns
from kafka2011.services.warehouse.load.plain_columns import PlainColumns, column_names
from tests.unit.services.audit.samples import T0

FORMS = forms_of(
    {
        "event.forms": "*:json,lines:text,raw:bytes",
        "event.time.field": "orders:at",
        "event.server.field": "orders:host",
    }
)
HEADER = ("guid", "header_time", "server", "service")


def raw(*records: dict[str, Any]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def rows(columns: PlainColumns, payloads: Sequence[bytes]) -> list[dict[str, Any]]:
    """The events' own columns, without nulls."""
    return [
        {name: value for name, value in row.items() if name not in HEADER and value is not None}
        for row in columns.decode(payloads).batch.to_pylist()
    ]


def own_types(columns: PlainColumns) -> dict[str, str]:
    return {f.name: str(f.type) for f in columns.event_schema if f.name not in (*HEADER, "rest")}


def test_the_first_batch_gives_each_field_its_type() -> None:
    columns = PlainColumns("orders", FORMS)
    records = [
        {"s": "x", "b": True, "n": 1, "d": 1, "o": {"k": [1, 2.5]}, "l": [], "none": None},
        {"s": None, "d": 2.5, "at": T0, "host": "shop-1"},
    ]
    found = columns.decode(raw(*records))
    assert own_types(columns) == {
        "s": "string",
        "b": "bool",
        "n": "int64",
        "d": "double",
        "o_json": "string",
        "l_json": "string",
        "at": "int64",
        "host": "string",
    }
    assert found.batch.column("o_json").to_pylist() == ['{"k":[1,2.5]}', None]
    assert found.batch.column("d").to_pylist() == [1.0, 2.5]
    assert found.batch.column("server").to_pylist() == [None, "shop-1"]
    assert found.batch.column("header_time").cast(pa.int64()).to_pylist() == [None, T0 * 1000]
    assert found.batch.column("rest").null_count == 2


def test_what_does_not_fit_later_is_in_rest() -> None:
    columns = PlainColumns("t", FORMS)
    columns.decode(raw({"n": 1, "s": "x", "d": 0.5, "b": False, "o": {}}))
    types = own_types(columns)
    again = PlainColumns("t", FORMS, columns.table_schema)
    odd = {"n": 1.5, "s": 7, "d": "x", "b": 0, "o": [1]}
    assert rows(
        again, raw(odd, {"n": True, "d": 2**53 + 1}, {"n": 2**63, "d": 3, "o": "text"})
    ) == [
        {"rest": '{"n":1.5,"s":7,"d":"x","b":0}', "o_json": "[1]"},
        {"rest": '{"n":true,"d":9007199254740993}'},
        {"rest": '{"n":9223372036854775808}', "d": 3.0, "o": "text"},
    ]
    assert own_types(again) == {**types, "o": "string"}


def test_names_that_can_be_no_column_are_in_rest_and_those_that_are_taken_get_others() -> None:
    columns = PlainColumns("t", FORMS)
    record = {"a b": 1, "": 2, "hour": 3, "event_hour": 4, "rest": 5, "x": {}, "x_json": 6,
              "x_json_value": 7, "Id": 8, "id": 9, "user-agent": "m", "größe": 1}  # fmt: skip
    assert rows(columns, raw(record)) == [
        {
            "event_hour": 3,
            "event_event_hour": 4,
            "event_rest": 5,
            "x_json": "{}",
            "x_json_value": 6,
            "x_json_value_value": 7,
            "Id": 8,
            "user-agent": "m",
            "größe": 1,
            "rest": '{"id":9,"a b":1,"":2}',
        }
    ]


def test_the_columns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_columns, "COLUMNS_MAX", 7)
    columns = PlainColumns("t", FORMS)
    found = rows(columns, raw({"a": 1}, *({f"key{n}": n} for n in range(5))))
    assert found[:2] == [{"a": 1}, {"key0": 0}]
    assert found[2:] == [{"rest": f'{{"key{n}":{n}}}'} for n in range(1, 5)]


def test_without_growth_all_of_it_is_in_rest() -> None:
    columns = PlainColumns("orders", FORMS, grows=False)
    record = {"at": T0, "host": "h", "n": 1}
    found = columns.decode(raw(record)).batch.to_pylist()[0]
    assert (found["server"], json.loads(found["rest"])) == ("h", record)


def test_what_cannot_be_read_or_written_is_rejected_with_its_reason() -> None:
    columns = PlainColumns("t", FORMS)
    found = columns.decode([*raw({"a": 1}), b"poison", b'{"a":"\\ud800"}', *raw({"a": 2})])
    assert found.batch.column("a").to_pylist() == [1, 2]
    assert [index for index, _ in found.rejected] == [1, 2]
    assert [reason.split(":")[0] for _, reason in found.rejected] == [
        "not JSON",
        "cannot be written as text",
    ]


@pytest.mark.parametrize(
    ("start", "end"), [(b"[", b"]"), (b'{"b":', b"}")], ids=["lists", "objects"]
)
def test_json_is_a_row_or_rejected_however_deep_it_nests(start: bytes, end: bytes) -> None:
    for depth in (DEPTH_MAX - 1, DEPTH_MAX, *range(900, 1010), 10_000):
        deep = b'{"a":' + start * (depth - 1) + b"[]" + end * (depth - 1) + b"}"
        found = PlainColumns("t", FORMS).decode([*raw({"x": 1}), deep])
        assert found.batch.num_rows == (2 if depth < DEPTH_MAX else 1)
        for index, reason in found.rejected:
            assert index == 1
            assert f"more than {DEPTH_MAX} deep" in reason


def test_text_and_bytes_are_one_column() -> None:
    found = PlainColumns("lines", FORMS).decode(["zwölf".encode(), b"\xff", b""])
    assert found.batch.column("value").to_pylist() == ["zwölf", ""]
    assert found.rejected[0][1].startswith("not UTF-8")
    found = PlainColumns("raw", FORMS).decode([b"\xff", b""])
    assert found.batch.column("value").to_pylist() == [b"\xff", b""]
    assert found.batch.column("guid")[0].as_py() != found.batch.column("guid")[1].as_py()


SCALARS = (
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("xyz", max_size=3)
)
RECORDS = st.dictionaries(
    st.sampled_from(["a", "A", "b", "b_json", "hour", "event_hour", "rest", "a.b"]),
    SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text("k"), SCALARS, max_size=1),
)


@given(st.lists(st.lists(RECORDS, min_size=1, max_size=5), min_size=1, max_size=4))
def test_every_value_is_in_its_column_or_in_rest_exactly(
    batches: list[list[dict[str, Any]]],
) -> None:
    columns = PlainColumns("t", FORMS)
    types: dict[str, str] = {}
    for batch in batches:
        columns = PlainColumns("t", FORMS, columns.table_schema)  # another load
        found = columns.decode(raw(*batch)).batch.to_pylist()
        for record, row in zip(batch, found, strict=True):
            assert read_back(record, row) == record
        assert types.items() <= own_types(columns).items(), "a column has changed its type"
        types = own_types(columns)


def read_back(record: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The record as its row has it."""
    found = json.loads(row["rest"] or "{}")
    for name in record.keys() - found.keys():
        names = column_names(name)
        assert names is not None
        if isinstance(record[name], list | dict):
            found[name] = json.loads(row[names.nested])
        else:
            found[name] = row[names.flat]
            assert isinstance(found[name], bool) == isinstance(record[name], bool)
    return found
