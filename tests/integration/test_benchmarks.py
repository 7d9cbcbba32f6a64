"""The benchmark command answers a question; its figures are for people, so none is judged."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.commands import RunningProcess, children_of, run_python
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

BUILD = "pure" if os.environ.get("KAFKA2011_PURE") == "1" else "compiled"


def test_one_question_as_json_and_in_the_history(tmp_path: Path) -> None:
    one = ("--json", "--runs", "2", "--only", "durable", "--build", BUILD, "--data-dir", tmp_path)
    done = run_python("-m", "benchmarks", *one, timeout_s=600)
    entry = json.loads(done.stdout)
    [result] = entry["results"]
    assert result["build"] == BUILD
    assert len(result["answers"]) == 2
    assert result["median"]["p50_ms"] > 0
    assert {"cpu", "cores", "kernel", "file_system", "load_average"} <= entry["machine"].keys()
    assert json.loads((tmp_path / "history.jsonl").read_text()) == entry
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"], "something is left"


def test_a_question_that_nobody_asks_is_said_so(tmp_path: Path) -> None:
    words = ("--only", "no such thing", "--data-dir", tmp_path)
    done = run_python("-m", "benchmarks", *words, status=2)
    assert "no such thing" in done.stderr


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    from benchmarks.log_sizes import NotEnoughRoom, check_room

    with pytest.raises(NotEnoughRoom, match="GB free"):
        check_room(tmp_path, 10**9)


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        ("NATS JetStream", "nats-server is not installed (Debian: nats-server)"),
        (
            "Tansu",
            "tansu is not installed (cargo install tansu --features dynostore,libsql)",
        ),
    ],
)
def test_peers_that_are_not_here_are_named_with_their_package(
    tmp_path: Path, peer: str, reason: str
) -> None:
    words = ("--json", "--runs", "1", "--only", peer, "--data-dir", tmp_path)
    done = run_python("-m", "benchmarks.peers", *words, variables={"PATH": str(tmp_path)})
    missing = json.loads(done.stdout)["missing"]
    assert missing == {f"{peer}, asynchronous": reason}


def test_a_comparison_that_is_ended_leaves_no_server(tmp_path: Path) -> None:
    words = ["--only", "kafka2011, durable", "--what", "throughput", "--data-dir", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.peers", *words]
    with RunningProcess(command, tmp_path / "log") as comparison:
        wait_until(lambda: len(children_of(comparison.pid)) >= 2, "ZooKeeper and a broker")
        servers = children_of(comparison.pid)
        assert comparison.stop() == 128 + signal.SIGTERM, comparison.log()
    assert not [server for server in servers if Path(f"/proc/{server}").exists()]
