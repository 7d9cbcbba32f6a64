"""`kafka2011 schema` over the registry's own decisions: output, statuses, one-line errors."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.cli import schema
from kafka2011.events.registry_client import RegistryClient
from tests.conftest import Run
from tests.support.registries import URL, DirectRegistry


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectRegistry]:
    found = DirectRegistry(tmp_path / "registry")
    monkeypatch.setattr(schema, "RegistryClient", lambda _url, timeout_s: found.client())
    monkeypatch.setattr(schema, "found_registry", lambda: URL)
    yield found
    found.close()


Avsc = Callable[..., Path]


@pytest.fixture
def avsc(tmp_path: Path) -> Avsc:
    """Writes a file with a record of these fields."""

    def written(*fields: dict[str, Any]) -> Path:
        file = tmp_path / "order.avsc"
        file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
        return file

    return written


ITEM: dict[str, Any] = {"name": "item", "type": "string"}
QUANTITY: dict[str, Any] = {"name": "quantity", "type": "int"}
NOTE: dict[str, Any] = {"name": "note", "type": "string", "default": ""}


def test_versions_are_registered_listed_and_shown(run: Run, avsc: Avsc) -> None:
    first = avsc(ITEM)
    for _ in range(2):  # the same file again changes nothing
        added = run("schema", "register", "orders", first).out
        assert added == f"orders-value version 1, id 1, at {URL}\n"
    added = run("schema", "register", "orders", first, "--registry", URL).out
    assert added == "orders-value version 1, id 1\n"
    made = run("schema", "register", "orders", avsc(ITEM, NOTE), "--json")
    assert json.loads(made.out) == {"subject": "orders-value", "version": 2, "id": 2}
    [row] = json.loads(run("schema", "list", "--json").out)
    assert row == {
        "subject": "orders-value",
        "version": 2,
        "id": 2,
        "compatibility": "BACKWARD",
    }
    assert "orders-value" in run("schema", "list").out
    shown = run("schema", "show", "orders").out
    assert shown.startswith("orders-value version 2 (of 1, 2), id 2\n")
    assert [line.split() for line in shown.splitlines()[-2:]] == [
        ["item", "string"],
        ["note", "string", '""'],
    ]
    old = json.loads(run("schema", "show", "orders", "--version", 1, "--json").out)
    assert [field["name"] for field in old["schema"]["fields"]] == ["item"]


def test_types_are_shown_as_they_are_meant_with_what_is_inside(run: Run, avsc: Avsc) -> None:
    def logical(kind: Any, logical_type: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": logical_type, **more}

    price = logical("bytes", "decimal", precision=12, scale=2)
    payer = {
        "type": "record",
        "name": "Payer",
        "fields": [ITEM, {"name": "above", "type": ["null", "Payer"], "default": None}],
    }
    line = {"type": "record", "name": "Line", "fields": [NOTE, {"name": "price", "type": price}]}
    fields = {
        "amount": price,
        "paid_at": logical("long", "timestamp-millis"),
        "due": ["null", logical("int", "date")],
        "id": logical("string", "uuid"),
        "whole": logical("fixed", "decimal", name="F", size=4, precision=6),
        "payer": payer,
        "lines": {"type": "array", "items": line},
    }
    run("schema", "register", "orders", avsc(*({"name": n, "type": t} for n, t in fields.items())))
    shown = run("schema", "show", "orders").out.splitlines()
    cells = [re.split(r" {2,}", line.strip()) for line in shown[-11:]]
    indents = [len(line) - len(line.lstrip()) for line in shown[-11:]]
    assert list(zip(indents, cells, strict=True)) == [
        (0, ["amount", "decimal(12,2)"]),
        (0, ["paid_at", "timestamp-millis"]),
        (0, ["due", "null or date"]),
        (0, ["id", "uuid"]),
        (0, ["whole", "decimal(6,0)"]),
        (0, ["payer", "record Payer"]),
        (2, ["item", "string"]),
        (2, ["above", "null or record Payer", "null"]),
        (0, ["lines", "array of record Line"]),
        (2, ["note", "string", '""']),
        (2, ["price", "decimal(12,2)"]),
    ]


def test_a_column_of_another_name_is_mentioned(run: Run, avsc: Avsc) -> None:
    file = avsc(ITEM, {"name": "hour", "type": "int"}, {"name": "Item", "type": "string"})
    expected = [
        "kafka2011: field hour becomes column event_hour",
        "kafka2011: field Item becomes column Item_2",
    ]
    assert run("schema", "check", "orders", file).err.splitlines() == expected
    for _ in range(2):
        done = run("schema", "register", "orders", file)
        assert (done.status, done.err.splitlines()) == (0, expected)
    assert run("schema", "register", "orders", file, "--json").err.splitlines() == expected


def test_a_refusal_names_the_field_and_why_and_registers_nothing(run: Run, avsc: Avsc) -> None:
    first = run("schema", "check", "orders", avsc(ITEM))
    assert first.out.endswith("order.avsc may be the first version of orders-value\n")
    run("schema", "register", "orders", avsc(ITEM))
    bad = avsc(ITEM, QUANTITY)
    for command in ("check", "register"):
        done = run("schema", command, "orders", bad)
        assert done.status == 1
        [line] = done.err.splitlines()
        assert "order.avsc cannot follow the versions of orders-value: field quantity: " in line
        assert "no default value" in line
    told = json.loads(run("schema", "check", "orders", bad, "--json").out)
    assert not told["is_compatible"]
    good = run("schema", "check", "orders", avsc(ITEM, NOTE))
    assert good.out.endswith("order.avsc may follow those of orders-value\n")
    assert json.loads(run("schema", "show", "orders", "--json").out)["versions"] == [1]


def test_a_version_that_the_load_will_not_take_is_named(run: Run, avsc: Avsc) -> None:
    def file(kind: str, *more: dict[str, Any]) -> Path:
        return avsc({"name": "counts", "type": {"type": "array", "items": kind}}, *more)

    assert run("schema", "check", "orders", file("int")).err == ""
    assert run("schema", "register", "orders", file("int")).err == ""
    expected = (
        "kafka2011: the load does not take this version, its messages go to quarantine: column "
        "counts is list<item: int32> in the table, list<item: int64> in this schema; "
        "int32 and int64\n"
    )
    assert run("schema", "check", "orders", file("long")).err == expected
    done = run("schema", "check", "orders", file("long"), "--json")
    assert (done.status, json.loads(done.out)["is_compatible"], done.err) == (0, True, expected)
    for _ in range(2):
        done = run("schema", "register", "orders", file("long"))
        assert (done.status, done.err) == (0, expected)
    told = json.loads(run("schema", "diff", "orders", "--json").out)["columns"]
    assert [f"kafka2011: {line}\n" for line in told] == [expected]
    # What it does not take has no columns for the versions behind it.
    assert run("schema", "register", "orders", file("int", NOTE)).status == 1
    newer = run("schema", "check", "orders", file("long", NOTE))
    assert newer.err == expected


def test_a_difference_is_told_of_the_schema_and_of_the_columns(run: Run, avsc: Avsc) -> None:
    for fields in ([ITEM], [ITEM, QUANTITY | {"default": 1}], [ITEM, NOTE]):
        run("schema", "register", "orders", avsc(*fields))
    newest = json.loads(run("schema", "diff", "orders", "--json").out)
    assert (newest["old"], newest["new"]) == (2, 3)
    assert newest["changes"] == ['note: added, string, default ""', "quantity: removed, int"]
    assert newest["columns"] == [
        "quantity: stays; null in rows of this version",
        "note: new, string; null in rows of other versions",
    ]
    told = run("schema", "diff", "orders", 1, 2).out
    assert told.startswith("orders-value, version 1 to 2:\n  quantity: added, int, default 1\n")


COMMANDS = ("list", "show orders", "check orders FILE", "register orders FILE", "diff orders")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("answer", [[], {}, ["a"], [1, 2], [0], [True], {"message": "hello"}])
def test_a_server_that_is_no_registry_is_one_line_and_status_1(
    run: Run, avsc: Avsc, monkeypatch: pytest.MonkeyPatch, command: str, answer: Any
) -> None:
    content = json.dumps(answer).encode()
    client = RegistryClient(URL, ask=lambda *_: (200, content))
    monkeypatch.setattr(schema, "RegistryClient", lambda _url, timeout_s: client)
    for as_json in ([], ["--json"]):
        words = [avsc(ITEM) if word == "FILE" else word for word in command.split()]
        done = run("schema", *words, *as_json)
        assert (done.status, done.out) == (1, "")
        [line] = done.err.splitlines()
        assert "http://registry:8081 is no schema registry: " in line


def test_an_answer_of_the_right_form_with_a_wrong_inside_is_no_registrys(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry's own answers, but for one."""
    answers: dict[str, Any] = {
        "GET /subjects": ["orders-value"],
        "GET /subjects/orders-value/versions": [1],
        "GET /subjects/orders-value/versions/1": {
            "subject": "orders-value",
            "version": 1,
            "id": 1,
            "schema": '"int"',
        },
        "GET /config/orders-value?defaultToGlobal=true": {"compatibilityLevel": "NONE"},
        "GET /schemas/ids/1": {"schema": '"int"'},
    }
    path = "GET /subjects/orders-value/versions/"
    answers[f"{path}latest"] = answers[f"{path}1"]

    def ask(method: str, path: str, _body: bytes | None) -> tuple[int, bytes]:
        return 200, json.dumps(answers[f"{method} {path}"]).encode()

    client = RegistryClient(URL, ask=ask)
    monkeypatch.setattr(schema, "RegistryClient", lambda _url, timeout_s: client)
    for words in (["list"], ["show", "orders"], ["show", "orders", "--json"]):
        assert run("schema", *words).status == 0
    answers[f"{path}1"] = {**answers[f"{path}1"], "schema": "no JSON"}
    done = run("schema", "show", "orders", "--json")
    assert (done.status, len(done.err.splitlines())) == (1, 1)
    answers["GET /config/orders-value?defaultToGlobal=true"] = {}
    done = run("schema", "list")
    assert (done.status, len(done.err.splitlines())) == (1, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b" \n", "is empty: it must hold an Avro schema, in JSON"),
        (b'{"type":', "is no Avro schema: not JSON"),
        (b'{"type": "record", "name": "R"}', "is no Avro schema: "),
        (b'"\xff"', "is not UTF-8"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_schema_is_status_2(
    run: Run, tmp_path: Path, text: bytes | None, reason: str
) -> None:
    file = tmp_path / "broken.avsc"
    if text is not None:
        file.write_bytes(text)
    for command in ("register", "check"):
        done = run("schema", command, "orders", file)
        assert done.status == 2
        [line] = done.err.splitlines()
        assert "broken.avsc" in line
        assert reason in line


def test_what_is_unknown_or_away_is_one_line_and_status_1(
    run: Run, avsc: Avsc, registry: DirectRegistry
) -> None:
    run("schema", "register", "orders", avsc(ITEM))
    expected = {
        ("show", "other"): "no subject other-value in http://registry:8081",
        ("diff", "ordres"): "no subject ordres-value in http://registry:8081; did you mean orders-",
        ("show", "orders", "--version", 3): "orders-value has no version 3: there are 1",
        ("diff", "orders"): "no version before 1",
    }
    for words, text in expected.items():
        done = run("schema", *words)
        assert (done.status, len(done.err.splitlines())) == (1, 1)
        assert text in done.err
    registry.is_down = True
    for words in [("list",), ("show", "orders"), ("check", "orders", avsc(ITEM))]:
        done = run("schema", *words)
        assert (done.status, len(done.err.splitlines())) == (1, 1)
        assert "registry:8081 is unavailable" in done.err
        assert "start it, or give --registry" in done.err


def test_without_an_address_it_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "found_registry", lambda: "")
    done = run("schema", "list")
    assert done.status == 2
    assert (
        "no deployment runs in this directory: start one, or give --registry http://HOST:PORT"
        in done.err
    )
