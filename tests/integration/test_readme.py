"""The README's own broker command and example, as they stand there, but for port and directory."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_the_example_prints_what_it_sent(tmp_path: Path) -> None:
    port = free_port()
    (command,) = [block for block in blocks("sh") if "kafka2011 broker" in block]
    words = command.replace("\\\n", " ").split()
    assert words[0] == ".venv/bin/kafka2011"
    settings = [
        word.replace("9092", str(port)).replace("/tmp/kafka2011-logs", str(tmp_path / "logs"))
        for word in words[1:]
    ]
    (example,) = blocks("python")
    assert example.count("9092") == 2
    with subprocess.Popen(
        [sys.executable, "-m", "kafka2011", *settings], cwd=ROOT, stderr=subprocess.DEVNULL
    ) as broker:
        try:
            wait_until(lambda: answers(port), "the README's broker to answer")
            done = subprocess.run(
                [sys.executable, "-c", example.replace("9092", str(port))],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            broker.terminate()
            status = broker.wait(timeout=30)
    assert done.stdout == "b'hello' 15\nb'world' 30\n", done.stderr
    assert status == 0
