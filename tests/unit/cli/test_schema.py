"""`kafka2011 schema` over the registry's own decisions: output, statuses, one-line errors."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.cli import schema
from tests.support.registries import URL, DirectRegistry
from tests.unit.cli.conftest import Run


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
    for _ in range(2):  # the same again changes nothing
        assert run("schema", "register", "orders", first).out == "orders-value version 1, id 1\n"
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


def test_a_refusal_names_the_field_and_why_and_registers_nothing(run: Run, avsc: Avsc) -> None:
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
    assert run("schema", "check", "orders", avsc(ITEM, NOTE)).status == 0
    assert json.loads(run("schema", "show", "orders", "--json").out)["versions"] == [1]


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
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
        ("show", "other"): "no subject other-value in http://registry:8081: ",
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
    assert "give --registry http://HOST:PORT" in done.err
