"""The examples of docs/clients.md, then docs/consumer.md, in their order, as they stand there but
for the two ports."""

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.brokers import start_broker
from tests.support.commands import run_python

pytestmark = pytest.mark.integration


def examples() -> list[tuple[str, str]]:
    """(program, what it prints)."""
    pages = [ROOT / "docs" / name for name in ("clients.md", "consumer.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    found = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    assert len(found) >= 7
    return found


def test_every_example_prints_what_its_page_says(tmp_path: Path, zk_connect: str) -> None:
    with start_broker(tmp_path, 0, zk_connect) as broker:
        for program, output in examples():
            here = program.replace("127.0.0.1:2181", zk_connect).replace("9092", str(broker.port))
            # On a busy machine; with 700 it is awaited.
            here = here.replace("timeout_ms=5000", "timeout_ms=120000")
            here = here.replace("timeout_ms=700", "timeout_ms=5000")
            done = run_python("-c", here)
            assert done.stdout == output, f"{program}\n{done.stderr}"
            # Their own logs show from WARNING on, as a library's: there is nothing to warn of.
            assert "kafka2011" not in done.stderr, done.stderr
        assert broker.stop() == 0
