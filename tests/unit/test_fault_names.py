"""Faults that tests and comments name stand in the table of docs/testing.md, each with a test."""

import re

from tests import ROOT
from tests.unit import files_below, text_of

TABLE = text_of("docs/testing.md")
ROWS = re.findall(r"^\| ([SNZCB]\d+) \|.*\| `([\w/.]+)` \|$", TABLE, re.MULTILINE)
# In prose: behind a quote that begins a docstring, a bracket, a hash or the word fault.
USE = re.compile(r'(?:"""|\(|# |[Ff]aults? |bug |and )([SNZB]\d{1,2})\b(?=[ ,.:)])')
PLACES = ("tests/unit", "tests/integration", "tests/faults", "broker", "consumer", "kafka2011")


def test_every_fault_in_use_is_in_the_table() -> None:
    used = {
        name: path.relative_to(ROOT)
        for path in files_below(PLACES, ".py")
        for name in USE.findall(text_of(path))
    }
    assert used.keys() >= {"S9", "N6", "Z8", "B7"}, "the pattern finds names"
    known = {name for name, _ in ROWS}
    assert {name: str(path) for name, path in used.items() if name not in known} == {}


def test_every_test_in_the_table_names_its_fault() -> None:
    for name, path in ROWS:
        text = text_of(f"tests/{path}")
        assert re.search(rf"\b{name}\b", text), f"{path} does not name {name}"
