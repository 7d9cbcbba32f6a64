"""The README's own broker command and example, and those of docs/course.md, as they stand there but
for port and directory."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.commands import KAFKA2011, RunningProcess, execute, held_port, run_python

pytestmark = pytest.mark.integration


def blocks(language: str, page: str = "README.md") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@contextmanager
def broker_of(command: str, tmp_path: Path) -> Iterator[int]:
    """Runs a page's broker command with a free port and a directory of its own; yields the port."""
    port = held_port()
    words = re.sub(r"log\.dir=\S+", f"log.dir={tmp_path / 'logs'}", command)
    words = words.replace("\\\n", " ").replace("9092", str(port))
    program, *settings = words.split()
    assert program in ("kafka2011", ".venv/bin/kafka2011")
    with RunningProcess([*KAFKA2011, *settings], tmp_path / "log") as broker:
        broker.wait_for_event("serving")
        yield port
        assert broker.stop() == 0


def test_the_example_prints_what_it_sent(tmp_path: Path) -> None:
    (command,) = [block for block in blocks("sh") if "kafka2011 broker" in block]
    (example,) = blocks("python")
    assert example.count("9092") == 2
    with broker_of(command, tmp_path) as port:
        done = run_python("-c", example.replace("9092", str(port)))
    assert done.stdout == "b'hello' 15\nb'world' 30\n", done.stderr


def test_a_class_sees_what_the_course_says(tmp_path: Path) -> None:
    command, look = blocks("sh", "docs/course.md")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with broker_of(command, tmp_path) as port:
        look = look.replace("9092", str(port)).replace("/tmp/one-log", str(tmp_path / "logs"))
        done = execute(["sh", "-ec", look], variables={"PATH": path})
    words = re.findall(r"^consumed: (.*)$", done.stdout, re.M)
    assert words == ["one", "two", "three"], done.stderr
    assert "get 1 results\n41\n" in done.stdout
    assert re.findall(r"^offset: (\d+)", done.stdout, re.M) == ["0", "13", "26"]
