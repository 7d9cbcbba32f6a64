"""The README's own broker command and example, as they stand there, but for port and directory."""

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.commands import KAFKA2011, RunningProcess, held_port, run_python

pytestmark = pytest.mark.integration


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_example_prints_what_it_sent(tmp_path: Path) -> None:
    port = held_port()
    (command,) = [block for block in blocks("sh") if "kafka2011 broker" in block]
    words = command.replace("\\\n", " ").split()
    assert words[0] == ".venv/bin/kafka2011"
    settings = [
        word.replace("9092", str(port)).replace("/tmp/kafka2011-logs", str(tmp_path / "logs"))
        for word in words[1:]
    ]
    (example,) = blocks("python")
    assert example.count("9092") == 2
    with RunningProcess([*KAFKA2011, *settings], tmp_path / "log") as broker:
        broker.wait_for_event("serving")
        done = run_python("-c", example.replace("9092", str(port)))
        assert broker.stop() == 0
    assert done.stdout == "b'hello' 15\nb'world' 30\n", done.stderr
