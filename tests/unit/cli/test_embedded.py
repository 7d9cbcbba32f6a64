"""`kafka2011 embedded status`: what it prints of the state files, and its exit status."""

import contextlib
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka2011.cli import embedded
from kafka2011.cli.embedded import _given_again, app
from kafka2011.cli.status import cures, deployment_here, seen_here
from kafka2011.runtime.process_state import is_ours, is_paused, is_running
from kafka2011.services.embedded import control
from kafka2011.services.embedded.config import EmbeddedConfig
from kafka2011.services.embedded.control import ControlServer, NotRunning, held
from kafka2011.services.embedded.running import RECORD
from tests.support.commands import Child
from tests.support.waiting import DEADLINE_S, wait_until

PORT = 65_535


def state(name: str, status: int | None, *, is_done: bool = False, **ports: int) -> dict[str, Any]:
    known = {"name": name, "pid": 2**22, "command": ["x"], "status": status, "done": is_done}
    return {**known, "ports": {"metrics": PORT, **ports}}


def shown(root: Path) -> tuple[int, list[str]]:
    """Exit status and lines."""
    done = CliRunner().invoke(app, ["status", "--dir", str(root)])
    return done.exit_code, done.output.splitlines()


def test_the_table_names_addresses_by_their_options_and_fits_80_columns(tmp_path: Path) -> None:
    states = [
        state("zookeeper-offline", -9, client=PORT),
        state("broker-12", 0, broker=PORT),  # by SIGTERM, and not the deployment's
        state("broker-2", 0, broker=PORT, is_done=True),
        state("balancer", 3, balancer=PORT - 1),
        state("dashboard", 0, page=PORT, is_done=True),
        state("registry", 0, registry=PORT),
        state("audit", 0),
    ]
    with held(tmp_path, "up"):
        (tmp_path / "run").mkdir()
        (tmp_path / RECORD).write_text(json.dumps({"serves": True, "pid": 1, "command": "up"}))
        for one in states:
            (tmp_path / "run" / f"{one['name']}.json").write_text(json.dumps(one))
        status, lines = shown(tmp_path)
    text = "\n".join(lines)
    names = [state["name"] for state in states]
    shown_names = [line.split()[0] for line in lines if line.split()[0] in names]
    assert shown_names == sorted(names, key=lambda name: (name.split("-")[0], len(name)))
    assert status == 1
    advice = [line for line in lines if line.startswith("start it again: ")]
    assert len(advice) == len(names) - 2  # what is done is not down
    assert f"embedded start balancer --dir {tmp_path}" in advice[1]
    table = lines[: -1 - len(advice)]  # what is below it has the directory
    assert max(map(len, table)) <= 80
    for words in (
        *("killed by signal 9", "status 3", "stopped", "done", "--zookeeper 127.0.0.1:65535"),
        *("--server kafka://127.0.0.1:65535", " http://127.0.0.1:65535"),
        *("--broker-list 0:127.0.0.1:65534", "--registry http://127.0.0.1:65535"),
        "--url http://127.0.0.1:65535",
    ):
        assert words in text
    assert "None" not in text


def test_a_process_that_is_not_there_is_a_wrong_word_of_each_command(tmp_path: Path) -> None:
    with held(tmp_path, "up"):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "broker-1.json").write_text(json.dumps(state("broker-1", 0)))
        for command in ("start", "restart", "kill"):
            done = CliRunner().invoke(app, [command, "brokr-1", "--dir", str(tmp_path)])
            assert done.exit_code == 2
            assert "no process 'brokr-1' under" in done.output
            assert "did you mean broker-1?" in done.output


def test_what_is_only_starting_or_stopping_is_no_success(tmp_path: Path) -> None:
    with held(tmp_path, "up"):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "broker-1.json").write_text(
            json.dumps(state("broker-1", 0, is_done=True))
        )
        before = shown(tmp_path)
        with contextlib.closing(ControlServer(tmp_path, lambda verb, _: verb)) as server:
            starting = shown(tmp_path)
            server.note_serving(True)
            serving = shown(tmp_path)
        stopping = shown(tmp_path)
    said = "not all of it serves yet: it is starting, or being stopped"
    for status, lines in (before, starting, stopping):
        assert (status, lines[-2]) == (1, said)
    assert serving[0] == 0
    assert said not in serving[1]


def test_a_paused_process_is_not_called_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.cli.status.found_directory", lambda: tmp_path)
    monkeypatch.setattr("kafka2011.cli.status.found_zookeepers", lambda: {"live": "zk:1"})
    marked = {**os.environ, "KAFKA2011_PROCESS_NAME": "online-2"}
    with held(tmp_path, "up"), Child(["sleep", "600"], env=marked) as paused:
        (tmp_path / "run").mkdir()
        one = {**state("online-2", None), "pid": paused.pid}
        (tmp_path / "run" / "online-2.json").write_text(json.dumps(one))
        wait_until(lambda: is_ours(paused.pid, "online-2"), "the process to be itself")
        assert f"running, pid {paused.pid}" in "\n".join(shown(tmp_path)[1])
        paused.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_paused(paused.pid), "paused")
        status, lines = shown(tmp_path)
        loader = {**state("loader", 0, is_done=True), "pid": None}  # as the demo stops it
        (tmp_path / "run" / "loader.json").write_text(json.dumps(loader))
        down = {("live", "online-2"): "down", ("live", "online-1"): "down"}
        down["offline", "loader"] = "stopped"
        cut_off = {**state("mirror-1", None), "pid": os.getpid()}
        (tmp_path / "run" / "mirror-1.json").write_text(json.dumps(cut_off))
        monkeypatch.setattr(
            "kafka2011.services.embedded.processes.is_running",
            lambda state: state["name"] == "mirror-1" or is_running(state),
        )
        down["live", "mirror-1"] = "down"
        assert deployment_here(["zk:1", "elsewhere:1"]) is None
        found = seen_here(deployment_here(["zk:1"]), down)
        assert seen_here(tmp_path, {("live", "online-2"): "serves"}) == {}
        assert seen_here(None, down) == {}
        dead = {**state("online-1", -9), "pid": None}
        (tmp_path / "run" / "online-1.json").write_text(json.dumps(dead))
        of_others = {("live", "online-9"): "down", ("live", "online-8"): "paused"}
        advice = list(cures(tmp_path, {**down, **found, ("live", "online-9"): "down"}, {}))
        assert len(list(cures(None, {**of_others, **found}, {}))) == 1
        says = "online-2 runs and does not serve: "
        silent, why = (
            {("live", "online-2"): "not serving"},
            {("live", "online-2"): "failed: reader"},
        )
        assert list(cures(None, silent, {})) == [f"{says}it starts, or a part of it failed"]
        assert list(cures(tmp_path, silent, why)) == [
            f"{says}failed: reader ({tmp_path}/logs/online-2.log)"
        ]
    text = "\n".join(lines)
    assert found == {
        ("live", "online-2"): "paused",
        ("offline", "loader"): "done",
        ("live", "mirror-1"): "not registered",
    }
    paused_one, dead_one, *others = advice
    assert paused_one.startswith("online-2 is paused (SIGSTOP); let it go on: ")
    assert dead_one.startswith("online-1 has ended; start it again: ")
    assert " embedded start online-1 --dir " in dead_one
    assert [line.split(" is not")[0] for line in others] == ["mirror-1 runs and"]
    assert (status, f"paused by SIGSTOP, pid {paused.pid}" in text) == (1, True), text
    assert "embedded kill online-2 CONT --dir" in text


@pytest.mark.parametrize(
    "verb", [["status"], ["stop"], ["start", "x"], ["restart", "x"], ["kill", "x"]]
)
def test_where_no_deployment_runs_it_says_so(tmp_path: Path, verb: list[str]) -> None:
    done = CliRunner().invoke(app, [*verb, "--dir", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        3,
        f"kafka2011: no deployment runs under {tmp_path}: `make live` starts one, "
        "--dir looks in another directory\n",
    )


def test_stop_returns_when_all_has_ended_also_while_it_is_being_stopped_already(
    tmp_path: Path,
) -> None:
    """Ctrl-C in one terminal, stop in another: requests are not taken any more."""
    holds, ends, is_asked = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with held(tmp_path, "up"):
            holds.set()
            assert ends.wait(DEADLINE_S)

    def refuse(*_: str) -> str:
        is_asked.set()
        raise NotRunning(tmp_path)

    with ThreadPoolExecutor() as pool, pytest.MonkeyPatch.context() as patch:
        holding = pool.submit(hold)
        assert holds.wait(DEADLINE_S)
        patch.setattr(control, "ask", refuse)
        stopping = pool.submit(CliRunner().invoke, app, ["stop", "--dir", str(tmp_path)])
        assert is_asked.wait(DEADLINE_S)
        ends.set()
        holding.result()
        done = stopping.result(DEADLINE_S)
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        0,
        f"stopped; data and logs stay in {tmp_path}/",
    )


def test_a_request_to_what_is_starting_or_stopping_says_so(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "broker-1.json").write_text(json.dumps(state("broker-1", 0)))
    with held(tmp_path, "up"):
        done = CliRunner().invoke(app, ["start", "broker-1", "--dir", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        1,
        f"kafka2011: the deployment under {tmp_path} takes no requests: it is starting, or being "
        "stopped\n",
    )


@pytest.mark.parametrize("words", ["status", "stop", "start broker-1", "kill broker-1"])
def test_another_users_deployment_is_called_so_and_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "broker-1.json").write_text(json.dumps(state("broker-1", None)))
    accesses = os.access
    monkeypatch.setattr(
        "os.access", lambda path, *_, **__: accesses(path, os.R_OK) and "/proc/" not in str(path)
    )
    with held(tmp_path, "up"):
        done = CliRunner().invoke(app, [*words.split(), "--dir", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        1,
        f"kafka2011: the deployment under {tmp_path} is another user's (pid {os.getpid()}): its "
        "processes cannot be looked at\n",
    )


def test_a_process_that_ends_before_the_signal_comes_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {"pid": 2**22 + 1, "running": True}  # above every process id
    monkeypatch.setattr(embedded, "_state_of_one", lambda *_: ended)
    done = CliRunner().invoke(app, ["kill", "load", "--dir", str(tmp_path)])
    assert (done.exit_code, done.output) == (1, "kafka2011: load does not run\n")


def test_stop_with_a_name_says_how_one_process_is_stopped(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["stop", "broker-1", "--dir", str(tmp_path)])
    assert done.exit_code == 2
    assert done.output.startswith("kafka2011: stop is for the whole deployment; ")
    assert done.output.endswith(f"embedded kill broker-1 TERM --dir {tmp_path}\n")


def test_the_line_to_go_on_has_what_was_given_and_not_the_defaults() -> None:
    config = EmbeddedConfig(dashboard_port=18088, chaos="on", rate=9, root_dir=Path("other"))
    overrides = [
        "embedded.chaos=on",
        "embedded.stream=off",
        "embedded.dir=other",
        "embedded.rate=9",
    ]
    options = {"--port": 18088, "--replicas": 3, "--warehouse": None}
    assert _given_again(config, options, overrides) == [
        *("--port", "18088", "--replicas", "3"),
        *("--set", "embedded.chaos=on", "--set", "embedded.rate=9"),
    ]
    assert _given_again(EmbeddedConfig(), {"--port": 8088}, ["embedded.chaos=off"]) == []
