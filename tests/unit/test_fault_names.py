"""Faults that tests and comments name stand in the table of docs/testing.md, each with a test."""

import re

from tests import ROOT

TABLE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([SNZCB]\d+) \|.*\| `([\w/.]+)` \|$", TABLE, re.MULTILINE)
# In prose: behind a quote that begins a docstring, a bracket, a hash or the word fault.
USE = re.compile(r'(?:"""|\(|# |[Ff]aults? |bug |and )([SNZB]\d{1,2})\b(?=[ ,.:)])')
PLACES = ("tests/unit", "tests/integration", "tests/faults", "broker", "consumer", "kafka2011")


def test_every_fault_in_use_is_in_the_table() -> None:
    used = {
        name: path.relative_to(ROOT)
        for place in PLACES
        for path in (ROOT / place).rglob("*.py")
        for name in USE.findall(path.read_text(encoding="utf-8"))
    }
    assert used.keys() >= {"S9", "N6", "Z8", "B7"}, "the pattern finds names"
    known = {name for name, _ in ROWS}
    assert {name: str(path) for name, path in used.items() if name not in known} == {}


def test_every_test_in_the_table_names_its_fault() -> None:
    for name, path in ROWS:
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert re.search(rf"\b{name}\b", text), f"{path} does not name {name}"
