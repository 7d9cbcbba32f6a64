"""The benchmark command answers a question; its figures are for people, so none is judged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT

pytestmark = pytest.mark.integration

BUILD = "pure" if os.environ.get("KAFKA2011_PURE") == "1" else "compiled"


def command(
    module: str, *words: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_one_question_as_json_and_in_the_history(tmp_path: Path) -> None:
    done = command(
        "benchmarks", "--json", "--runs", "2", "--only", "durable", "--build", BUILD,
        "--data-dir", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    entry = json.loads(done.stdout)
    [result] = entry["results"]
    assert result["build"] == BUILD
    assert len(result["answers"]) == 2
    assert result["median"]["p50_ms"] > 0
    assert {"cpu", "cores", "kernel", "file_system", "load_average"} <= entry["machine"].keys()
    assert json.loads((tmp_path / "history.jsonl").read_text()) == entry
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"], "something is left"


def test_a_question_that_nobody_asks_is_said_so(tmp_path: Path) -> None:
    done = command("benchmarks", "--only", "no such thing", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "no such thing" in done.stderr


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    from benchmarks.log_sizes import NotEnoughRoom, check_room

    with pytest.raises(NotEnoughRoom, match="GB free"):
        check_room(tmp_path, 10**9)


def test_peers_that_are_not_here_are_named_with_their_package(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = command(
        "benchmarks.peers", "--json", "--runs", "1", "--only", "NATS", "--data-dir", str(tmp_path),
        environment=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["peers"]
    assert result["missing"] == "nats-server is not installed (Debian: nats-server)"
