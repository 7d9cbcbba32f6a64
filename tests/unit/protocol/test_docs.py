"""The worked examples of the documents, read with the code."""

import re

from kafka2011.protocol import message_set
from kafka2011.protocol.requests import ProduceRequest, decode_request
from tests import ROOT
from tests.vectors import vector

DOCS = ROOT / "docs"


def example(name: str) -> str:
    found = re.search(r"```\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_log_format_example() -> None:
    rows = [row.split("length")[0] for row in example("log-format.md").splitlines()]
    data = bytes.fromhex("".join(rows))
    entries = list(message_set.entries(data))
    assert [entry.payload for entry in entries] == [b"hello", b"world", b""]
    assert [entry.magic for entry in entries] == [0, 1, 1]
    assert [entry.next_offset for entry in entries] == [14, 29, 39]
    assert all(entry.is_valid for entry in entries)


def test_protocol_example() -> None:
    frame = bytes.fromhex(example("protocol.md").splitlines()[0])
    assert frame == vector("P1")
    assert decode_request(frame[4:]) == ProduceRequest("test", 0, vector("S1"))
