"""The supervisor over small real processes: start, report, restart, stop, leave nothing behind."""

import contextlib
import dataclasses
import errno
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import structlog
from rich.console import Console

from kafka2011.runtime.process_state import is_alive, is_ours, is_paused
from kafka2011.services.dashboard.faults.actions import FaultRefused
from kafka2011.services.dashboard.faults.processes import EmbeddedFaults, paused_below
from kafka2011.services.embedded import control, processes, root_directory, running
from kafka2011.services.embedded import supervisor as supervising
from kafka2011.services.embedded.config import EmbeddedConfig
from kafka2011.services.embedded.control import (
    AlreadyRuns,
    ControlServer,
    DirectoryRefused,
    NotRunning,
    ask,
    held,
    last_command,
    last_settings,
)
from kafka2011.services.embedded.demo import Demo
from kafka2011.services.embedded.root_directory import (
    check_forms,
    check_replaceable,
    check_replicas,
    check_root,
    clean,
    settings_changed,
    settings_given,
    settings_not_taken,
)
from kafka2011.services.embedded.running import MARK, runs
from kafka2011.services.embedded.supervisor import (
    Request,
    StartFailed,
    Supervisor,
    base_environment,
    describe_status,
)
from kafka2011.services.embedded.topology import ProcessSpec
from tests.support.commands import held_port
from tests.support.waiting import DEADLINE_S, wait_until

SERVES = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
port = int(os.environ["KAFKA2011_METRICS_PORT"])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
SERVES_ONCE_IT_MAY = (
    "import pathlib, sys, threading\n"
    "while not pathlib.Path(sys.argv[1]).exists(): threading.Event().wait(0.02)\n" + SERVES
)
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVES


def spec(name: str, script: str = SERVES, *words: str, **changes: Any) -> ProcessSpec:
    """A process that runs the script with these words as its arguments."""
    port = held_port()
    values = {
        "name": name,
        "kind": "service",
        "datacenter": "live",
        "command": (sys.executable, "-c", script, *words),
        "environment": {"KAFKA2011_METRICS_PORT": str(port), "KAFKA2011_PROCESS_NAME": name},
        "ports": {"metrics": port},
        "start_timeout_ms": 120_000,
    }
    return ProcessSpec(**{**values, **changes})


class Deployment:
    """A supervisor whose processes are started, and what it reported."""

    def __init__(self, root: Path, *specs: ProcessSpec) -> None:
        self.root = root
        self.lines: list[str] = []
        self.supervisor = Supervisor(
            specs,
            root,
            environment=base_environment(),
            report=self.lines.append,
            stop_asked=lambda: False,
        )
        self.managed = list(self.supervisor.processes.values())

    def state(self, name: str) -> Any:
        """What the file in `run/` says."""
        return json.loads((self.root / "run" / f"{name}.json").read_text())

    def polled(self) -> bool:
        """Poll; returns whether anything was reported so far."""
        self.supervisor.poll()
        return bool(self.lines)


Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Starts a deployment of these processes, which end with the test."""
    with contextlib.ExitStack() as ending:

        def start(
            *specs: ProcessSpec, first_stage_serves: Callable[[], None] = lambda: None
        ) -> Deployment:
            deployment = Deployment(tmp_path, *specs)
            ending.callback(deployment.supervisor.stop_all)
            deployment.supervisor.start_all(lambda _: None, after_first_stage=first_stage_serves)
            return deployment

        yield start


def test_what_an_earlier_run_left_in_zookeeper_is_removed_before_all_else_starts(
    deploy: Deploy, tmp_path: Path
) -> None:
    started: list[list[str]] = []

    def first_stage_serves() -> None:
        started.append(sorted(path.stem for path in (tmp_path / "run").glob("zoo*.json")))
        started.append([path.stem for path in (tmp_path / "run").glob("dashboard.json")])

    deploy(
        spec("zookeeper-live", kind="zookeeper"),
        spec("dashboard"),
        first_stage_serves=first_stage_serves,
    )
    assert started == [["zookeeper-live"], []]


@pytest.mark.parametrize(
    ("script", "timeout_ms", "words"),
    [
        ("exit('no such disk')", 120_000, ["no such disk", "status 1", "logs/one.log"]),
        (
            "print('no answer yet', flush=True); import threading; threading.Event().wait()",
            5_000,
            [
                *("did not serve within 5 s", "KAFKA2011_EMBEDDED_START_TIMEOUT_MS=20000)"),
                "no answer yet",
            ],
        ),
    ],
    ids=["ends at once", "does not serve in time"],
)
def test_a_process_that_does_not_serve_fails_the_start(
    deploy: Deploy, tmp_path: Path, script: str, timeout_ms: int, words: list[str]
) -> None:
    """The end of the log is shown of this start alone: a quarter of an hour old lines of the run
    before stood there."""
    log = tmp_path / "logs" / "one.log"
    log.parent.mkdir(parents=True)
    log.write_text("of the run before\n")
    with pytest.raises(StartFailed) as raised:
        deploy(spec("one", script, start_timeout_ms=timeout_ms))
    said = str(raised.value)
    assert [word for word in words if word not in said] == []
    assert "of the run before" not in said
    assert "of the run before" in log.read_text()


def test_a_killed_process_is_reported_in_one_line_and_started_again_over_the_socket(
    deploy: Deploy, tmp_path: Path
) -> None:
    may_serve = tmp_path / "may-serve"
    may_serve.touch()
    deployment = deploy(
        spec("one", SERVES_ONCE_IT_MAY, str(may_serve)), spec("two"), spec("online-1")
    )
    supervisor = deployment.supervisor
    one, two, consumer = deployment.managed
    killed_pid = one.pid
    assert supervisor.down() == []
    assert deployment.state("one")["running"] is True
    assert deployment.state("one")["pid"] == killed_pid

    may_serve.unlink()
    one.signal(signal.SIGKILL)
    wait_until(deployment.polled, "a line about the killed process")
    supervisor.poll()
    (line,) = deployment.lines
    assert "one ended: killed by signal 9" in line
    assert f"kafka2011 embedded start one --dir {deployment.root}" in line
    assert (supervisor.down(), two.is_running) == ([one], True)
    assert supervisor.down_in_words() == ("one",)

    def asked_to(verb: str, name: str) -> str:
        """The answer to a request from another process."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, tmp_path, verb, name)
            wait_until(lambda: supervisor.poll() or answer.done(), f"an answer about {name}")
            return answer.result()

    with contextlib.closing(ControlServer(tmp_path, supervisor.request)):
        assert asked_to("start", "two").startswith("error: two is running")
        assert "no process 'six' (there are: one, two, online-1)" in asked_to("restart", "six")
        assert asked_to("bend", "two") == "error: no request 'bend'"
        assert asked_to("start", "one").startswith("one started")
        before = two.pid
        assert asked_to("restart", "two") == f"two started, pid {two.pid}"
        assert two.pid != before
        assert asked_to("restart", "online-1") == f"online-1 started, pid {consumer.pid}"
    assert one.is_running
    assert one.pid != killed_pid
    # Or a demo would not wait while a load job's JVM starts.
    wait_until(lambda: supervisor.down() == [one], "only the other serves")
    assert supervisor.down_in_words() == ("one (starting)",)
    may_serve.touch()
    wait_until(lambda: not supervisor.down(), "it serves")
    restarted = [restart["name"] for restart in deployment.state("restarts")]
    assert restarted == ["one", "two"], "a consumer sends nothing that could have come twice"
    assert supervisor.restarted_names == ["one", "online-1", "two"]

    pid = two.pid
    supervisor.stop_all()
    assert deployment.state("two")["running"] is False
    assert not is_alive(pid)


def test_a_paused_process_is_reported_and_so_is_that_it_goes_on(deploy: Deploy) -> None:
    deployment = deploy(spec("one"), spec("two"))
    one, _ = deployment.managed
    assert not deployment.polled()
    one.signal(signal.SIGSTOP)
    wait_until(deployment.polled, "a line about the paused process")
    assert paused_below(deployment.root) == ["one"]
    deployment.supervisor.poll()
    [line] = deployment.lines
    assert line.startswith("one is paused (SIGSTOP): it hangs; let it go on: ")
    go_on = f"kafka2011 embedded kill one CONT --dir {deployment.root}"
    assert line.endswith(go_on)
    answer = deployment.supervisor.start_again("one")
    assert answer.startswith("error: one is paused; let it go on: ")
    assert answer.endswith(go_on)
    one.signal(signal.SIGCONT)
    wait_until(lambda: deployment.polled() and deployment.lines[1:], "a line that it goes on")
    assert deployment.lines[1:] == ["one goes on"]
    assert paused_below(deployment.root) == []


@pytest.mark.parametrize("is_mine", [True, False], ids=["ours", "another deployment's"])
def test_a_process_with_a_recorded_id_is_signalled_only_if_it_is_the_one_that_was_started(
    tmp_path: Path, is_mine: bool
) -> None:
    """After a reboot the id may be another process's, also of another deployment's broker-1. The
    name of a directory need not be UTF-8."""
    mine = {"KAFKA2011_PROCESS_NAME": "broker-1", "KAFKA2011_LOG_DIR": "/mine\udce9"}
    given = mine if is_mine else {**mine, "KAFKA2011_LOG_DIR": "/theirs"}
    (tmp_path / "run").mkdir()
    with subprocess.Popen(
        ["sleep", "600"], env={**os.environ, **given}, start_new_session=True
    ) as found:
        try:
            recorded = {"name": "broker-1", "pid": found.pid, "command": ["x"], "environment": mine}
            (tmp_path / "run" / "broker-1.json").write_text(json.dumps(recorded))
            wait_until(lambda: is_ours(found.pid, "broker-1"), "it is started")
            assert processes.states_now(tmp_path)[0]["running"] is is_mine
            faults = EmbeddedFaults(tmp_path)
            if is_mine:
                faults.signal("pause", "broker-1")
                wait_until(lambda: is_paused(found.pid), "it is paused")
                assert paused_below(tmp_path) == ["broker-1"]
            else:
                with pytest.raises(FaultRefused, match="broker-1 is not running"):
                    faults.signal("kill", "broker-1")
                found.send_signal(signal.SIGSTOP)
                wait_until(lambda: is_paused(found.pid), "another has paused it")
                assert paused_below(tmp_path) == []
            assert processes.end_leftovers(tmp_path) == (["broker-1"] if is_mine else [])
            if not is_mine:
                assert found.poll() is None
        finally:
            found.kill()


def test_what_a_killed_process_left_in_its_temporary_files_is_gone_at_its_next_start(
    tmp_path: Path,
) -> None:
    """Each kill of a loader left a library of its JVM in /tmp."""
    leaves = "import os, tempfile, time; tempfile.mkstemp(prefix='left-'); time.sleep(600)"
    one = dataclasses.replace(spec("one"), command=(sys.executable, "-c", leaves))
    (tmp_path / "run").mkdir()
    (tmp_path / "logs").mkdir()
    process = processes.ManagedProcess(one, tmp_path)

    def left() -> list[Path]:
        return list((tmp_path / "tmp" / "one").iterdir())

    seen = []
    for _ in range(2):
        process.start(os.environ, now_ms=1)
        try:
            wait_until(left, "a temporary file")
            seen.append(left())
        finally:
            process.signal(signal.SIGKILL)
            wait_until(lambda: not process.is_running, "its end")
    assert [len(names) for names in seen] == [1, 1]
    assert seen[0] != seen[1]


def test_a_replica_loses_its_disk_as_the_dashboard_asks_and_no_other_process_does(
    deploy: Deploy, tmp_path: Path
) -> None:
    alone = spec("alone")
    replica = spec("broker-1-a")
    disk = tmp_path / "machine-1" / "broker-1"
    (disk / "logs").mkdir(parents=True)
    stored = {"KAFKA2011_REPLICA_NAME": "a", "KAFKA2011_LOG_DIR": str(disk / "logs")}
    replica = dataclasses.replace(replica, environment={**replica.environment, **stored})
    deployment = deploy(alone, replica)
    supervisor = deployment.supervisor
    faults = EmbeddedFaults(tmp_path)

    def asked(name: str) -> str:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(faults.lose_disk, name)
            wait_until(lambda: supervisor.poll() or answer.done(), f"an answer about {name}")
            return answer.result()

    with contextlib.closing(ControlServer(tmp_path, supervisor.request)):
        with pytest.raises(FaultRefused, match="'alone' is no replica"):
            asked("alone")
        said = "broker-1-a is killed (SIGKILL) and its disk gone: machine-1/broker-1 is deleted"
        assert asked("broker-1-a") == said
        assert not disk.exists()
        with pytest.raises(FaultRefused, match="broker-1-a does not run"):
            asked("broker-1-a")
    supervisor.poll()
    assert deployment.lines[0] == said
    assert "broker-1-a ended: killed by signal 9" in deployment.lines[1]
    assert [process.is_running for process in deployment.managed] == [True, False]


@contextlib.contextmanager
def full_disk(root: Path) -> Iterator[None]:
    """Nothing can be written into `run/`."""
    away = (root / "run").rename(root / "away")
    try:
        yield
    finally:
        away.rename(root / "run")


def test_a_full_disk_ends_no_deployment_and_what_it_did_not_take_is_written_later(
    deploy: Deploy, tmp_path: Path
) -> None:
    deployment = deploy(spec("one"), spec("two"))
    supervisor = deployment.supervisor
    one, two = deployment.managed
    with full_disk(tmp_path):
        one.signal(signal.SIGKILL)
        wait_until(deployment.polled, "a line about the killed process")
        supervisor.poll()
        (line,) = deployment.lines
        assert "one ended: killed by signal 9" in line
        assert two.is_running
    supervisor.poll()
    assert (deployment.state("one")["running"], deployment.state("one")["status"]) == (False, -9)
    with full_disk(tmp_path):
        assert supervisor.start_again("one") == f"one started, pid {one.pid}"
        assert one.is_running
    supervisor.poll()
    assert deployment.state("one")["pid"] == one.pid
    assert [each["name"] for each in deployment.state("restarts")] == ["one"]
    with full_disk(tmp_path):
        supervisor.stop_all()
    assert (one.is_running, two.is_running) == (False, False)


def test_a_record_that_is_not_written_is_said_once_for_each_file(
    deploy: Deploy, tmp_path: Path
) -> None:
    deployment = deploy(spec("one"))
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            with full_disk(tmp_path):
                deployment.supervisor.stop("one")
                deployment.supervisor.poll()
                deployment.supervisor.poll()
            deployment.supervisor.poll()
            deployment.supervisor.start_again("one")
    said = [each for each in logged if each["event"] == "state_not_written"]
    assert [each["file"] for each in said] == [str(tmp_path / "run" / "one.json")] * 2
    assert all("No such file" in each["reason"] for each in said)


def test_a_process_that_cannot_be_run_fails_the_start_in_one_line(
    deploy: Deploy, tmp_path: Path
) -> None:
    with pytest.raises(StartFailed, match=r"one could not start: .*gone: No such file"):
        deploy(spec("one", command=(str(tmp_path / "gone"),)))


def test_a_request_that_fails_is_answered_so_and_ends_no_deployment(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "python"
    launcher.symlink_to(sys.executable)
    deployment = deploy(spec("one", command=(str(launcher), "-c", SERVES)))
    supervisor = deployment.supervisor
    launcher.unlink()

    def asked_to(verb: str, name: str) -> str:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(supervisor.request, verb, name)
            wait_until(lambda: supervisor.poll() or answer.done(), f"an answer about {name}")
            return answer.result()

    said = f"error: one: {launcher}: No such file or directory"
    assert asked_to("restart", "one") == said
    assert supervisor.start_again("one") == said  # as a demo does that loses a disk

    def fails(name: str) -> str:
        raise RuntimeError(f"{name} is too much")

    monkeypatch.setattr(supervisor, "start_again", fails)
    assert asked_to("start", "one") == "error: one: one is too much"
    assert not any("started again" in line for line in deployment.lines)


def test_a_stop_ends_every_process_whatever_goes_wrong_with_one(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(
        spec("load", kind="loader", is_slow=True),
        *(spec(name, kind="broker") for name in ("one", "two")),
        spec("stubborn", IGNORES_SIGTERM),
    )
    monkeypatch.setattr(supervising, "STOP_GRACE_S", 0.3)

    def fails(*_: object) -> None:
        raise RuntimeError("too much")

    load, one, *_ = deployment.managed
    for process in (load, one):
        monkeypatch.setattr(process, "ask_to_stop", fails)
    monkeypatch.setattr(one, "write_state", fails)
    monkeypatch.setattr(deployment.supervisor, "_report", fails)
    deployment.supervisor.stop_all(fails)
    assert [process.is_running for process in deployment.managed] == [False] * 4


def test_a_request_that_was_not_answered_in_time_is_not_carried_out_later(
    deploy: Deploy, tmp_path: Path
) -> None:
    disk = tmp_path / "machine-1" / "broker-1"
    (disk / "logs").mkdir(parents=True)
    replica = spec("broker-1-a")
    stored = {"KAFKA2011_REPLICA_NAME": "a", "KAFKA2011_LOG_DIR": str(disk / "logs")}
    replica = dataclasses.replace(replica, environment={**replica.environment, **stored})
    deployment = deploy(replica)
    supervisor = deployment.supervisor
    for verb in ("lose-disk", "restart"):
        said = supervisor.request(verb, "broker-1-a", timeout_s=0)
        assert said.startswith("error: broker-1-a: the supervisor did not come to it within 0 s")
    pid = deployment.managed[0].pid
    supervisor.poll()
    assert deployment.managed[0].pid == pid
    assert disk.exists()
    assert deployment.lines == []


def test_a_request_is_either_carried_out_and_answered_or_cancelled() -> None:
    """Its sender has waited long enough while it is being carried out."""
    cancelled: list[bool] = []

    def work() -> str:
        cancelled.append(begun.cancel())
        return "done"

    begun = Request("one", work)
    begun.carry_out()
    assert (begun.answer.get_nowait(), cancelled, begun.cancel()) == ("done", [False], False)
    late = Request("one", work)
    assert late.cancel()
    late.carry_out()
    assert (late.answer.empty(), cancelled) == (True, [False])


def test_a_supervisor_that_is_slow_is_no_deployment_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(control, "CLIENT_TIMEOUT_S", 0.2)
    goes_on = threading.Event()

    def answer(verb: str, name: str) -> str:
        goes_on.wait(DEADLINE_S)
        return verb

    with contextlib.closing(ControlServer(tmp_path, answer)):
        said = ask(tmp_path, "restart", "one")
        goes_on.set()
    assert (
        said
        == "error: the supervisor did not answer within 0 s; the request may still be carried out"
    )


def test_a_supervisor_that_ends_before_it_answers_is_one_that_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()

    def hang_up() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)

    with socket.socket(socket.AF_UNIX) as server, ThreadPoolExecutor(1) as pool:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        record = {"socket": str(tmp_path / "socket")}
        (tmp_path / running.RECORD).write_text(json.dumps(record))
        hung_up = pool.submit(hang_up)
        with pytest.raises(NotRunning):
            ask(tmp_path, "restart", "one")
        hung_up.result(DEADLINE_S)


def test_a_record_of_serving_that_cannot_be_written_ends_no_deployment(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with contextlib.closing(ControlServer(tmp_path, lambda verb, _: verb)) as server:
        with full_disk(tmp_path):
            server.note_serving(True)
        assert json.loads((tmp_path / running.RECORD).read_text())["serves"] is False


def test_a_socket_answers_also_below_a_deep_directory_while_a_deployment_runs(
    tmp_path: Path,
) -> None:
    root = tmp_path / ("deep" * 30)
    (root / "run").mkdir(parents=True)
    with pytest.raises(NotRunning, match="no deployment runs"):
        ask(root, "status")
    with contextlib.closing(ControlServer(root, lambda verb, _: verb)):
        assert ask(root, "status") == "status"


@pytest.mark.parametrize("text", ["[]", "7", '{"socket": 7}', '{"socket": null}', "{}", "{"])
def test_a_record_that_is_none_is_of_no_deployment(tmp_path: Path, text: str) -> None:
    (tmp_path / running.RECORD).parent.mkdir()
    (tmp_path / running.RECORD).write_text(text)
    with pytest.raises(NotRunning):
        ask(tmp_path, "status")


def test_a_process_that_will_not_stop_is_killed_and_said_so(deploy: Deploy) -> None:
    deployment = deploy(spec("stubborn", IGNORES_SIGTERM))
    assert deployment.supervisor.stop("stubborn", grace_s=0.3) == -signal.SIGKILL
    assert deployment.lines == ["stubborn did not stop in 0 s, killed"]


@pytest.mark.parametrize(
    "answer",
    [
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\nit",
        b"",
    ],
    ids=["something else", "ends inside its answer", "ends as it says why not", "says nothing"],
)
def test_a_probe_that_meets_half_an_answer_is_no_end_of_the_supervisor(answer: bytes) -> None:
    def answer_twice() -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer_twice)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert processes.http_json(url) is None
        assert processes.http_answer(url)[0] in (0, 200)
        answered.result(DEADLINE_S)


@pytest.mark.parametrize(
    ("script", "is_stop_asked", "status"),
    [("exit(3)", False, 3), ("import threading; threading.Event().wait()", True, -signal.SIGKILL)],
)
def test_a_job_runs_to_its_end_or_until_a_stop(
    script: str, is_stop_asked: bool, status: int
) -> None:
    job = (sys.executable, "-c", script)
    assert processes.run_to_end(job, base_environment(), lambda: is_stop_asked) == status


def test_a_finite_process_that_is_done_is_no_news(deploy: Deploy) -> None:
    deployment = deploy(spec("job", "pass", is_finite=True))
    (job,) = deployment.managed
    wait_until(lambda: job.status == 0, "the job to end")
    assert not deployment.polled()
    assert deployment.supervisor.down() == []


ENDS_WHEN_ASKED = "import os, signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(1))\n"


@pytest.mark.parametrize("has_sent_all", [True, False])
def test_a_frontend_that_could_not_read_most_of_its_input_is_done_when_it_has_sent_all(
    deploy: Deploy, tmp_path: Path, *, has_sent_all: bool
) -> None:
    deployment = deploy(spec("job", ENDS_WHEN_ASKED + SERVES, is_finite=True))
    (job,) = deployment.managed
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "progress.json").write_text(json.dumps({"finished": has_sent_all}))
    job.signal(signal.SIGTERM)
    wait_until(lambda: job.status == 1, "the job to end")
    assert deployment.polled() != has_sent_all
    assert (deployment.supervisor.down() == []) == job.has_finished == has_sent_all


def test_a_stop_follows_the_stream_and_what_is_slow_is_asked_first(
    deploy: Deploy, tmp_path: Path
) -> None:
    """Each process notes that it was asked and that it has ended, in one file. The frontend ends
    only when the slow one was asked."""
    notes = tmp_path / "notes"
    script = f"""
import os, signal, sys, threading
def note(word):
    with open({str(notes)!r}, "a") as file:
        print(word, sys.argv[1], file=file)
def stop(*_):
    note("asked")
    while sys.argv[1] == "front" and "asked load" not in open({str(notes)!r}).read():
        threading.Event().wait(0.02)
    note("ended")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
{SERVES}"""
    kinds = {
        "zk": "zookeeper",
        "broker": "broker",
        "balancer": "proxy",
        "mirror": "mirror",
        "audit": "audit",
        "front": "frontend",
    }
    deployment = deploy(
        *(spec(name, script, name, kind=kind) for name, kind in kinds.items()),
        spec("load", script, "load", kind="loader", is_slow=True),
    )
    paused = deployment.supervisor.processes["front"]
    paused.signal(signal.SIGSTOP)
    deployment.supervisor.stop_all()
    noted = notes.read_text().split("\n")[:-1]
    for earlier, later in (
        *(("front", "mirror"), ("mirror", "balancer"), ("mirror", "audit")),
        *(("load", "broker"), ("audit", "broker"), ("balancer", "broker"), ("broker", "zk")),
    ):
        assert noted.index(f"ended {earlier}") < noted.index(f"asked {later}"), noted
    assert [deployment.state(name)["status"] for name in deployment.supervisor.processes] == [0] * 7


def test_leftovers_of_a_killed_supervisor_are_ended_and_no_other_process(
    deploy: Deploy, tmp_path: Path
) -> None:
    (one,) = deploy(spec("one")).managed
    this_process = {"name": "me", "pid": os.getpid(), "command": ["python"]}
    (tmp_path / "run" / "me.json").write_text(json.dumps(this_process))
    assert processes.end_leftovers(tmp_path) == ["one"]
    wait_until(lambda: not is_alive(one.pid), "the left-over process to end")


@pytest.mark.parametrize(
    ("status", "text"), [(0, "status 0"), (3, "status 3"), (-9, "killed by signal 9")]
)
def test_statuses_in_words(status: int, text: str) -> None:
    assert describe_status(status) == text


# --- the directory of a deployment ----------------------------------------------------------------


@pytest.mark.parametrize("entry", ["thesis.tex", "run/supervisor.json", "/", "/var", "/usr"])
def test_a_directory_that_no_deployment_made_is_refused(tmp_path: Path, entry: str) -> None:
    path = tmp_path / entry
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text("years of work")
    with pytest.raises(StartFailed, match="was not made by this command"):
        check_root(path if path.is_dir() else tmp_path)


def test_a_deployment_from_before_the_mark_is_ours(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "restarts.json").write_text("[]")
    check_root(tmp_path)


def test_an_old_run_is_cleaned_away_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    measured = tmp_path / "benchmarks" / "history.jsonl"
    measured.parent.mkdir()
    measured.write_text("{}")
    check_root(tmp_path)  # make bench, and then make demo
    for command in ("demo", "up", "demo"):
        check_root(tmp_path)
        check_replaceable(tmp_path)
        with held(tmp_path, command):
            clean(tmp_path)
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "segment").write_text("x")
    check_root(tmp_path)
    check_replaceable(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "access.log").write_text("x")
    kept = {"run", "benchmarks", ".kafka2011"}
    for path, more in ((tmp_path / "mine" / "access.log", {"mine"}), (tmp_path.parent, set())):
        with held(tmp_path, "demo"):
            clean(tmp_path, str(path))
        assert {entry.name for entry in tmp_path.iterdir()} == kept | more
    assert measured.read_text() == "{}"


def test_an_input_behind_a_link_in_the_directory_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was deleted, and the demo then found no input."""
    root, elsewhere = tmp_path / "var", tmp_path / "logs"
    for directory in (root, elsewhere):
        directory.mkdir()
    (elsewhere / "access.log").write_text("x")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("var")
    for given, kept in (
        ("var/to-file", "to-file"),
        ("link/to-file", "to-file"),
        ("var/../var/to-directory/access.log", "to-directory"),
    ):
        (root / "to-file").symlink_to(elsewhere / "access.log")
        (root / "to-directory").symlink_to(elsewhere)
        clean(root, given)
        assert Path(given).read_text() == "x"
        assert {entry.name for entry in root.iterdir()} == {"run", kept}
        (root / kept).unlink()


def test_paths_of_any_name_are_passed_to_spark() -> None:
    """Its own script finds no home below a directory whose name has a space."""
    assert (Path(base_environment()["SPARK_HOME"]) / "bin" / "spark-class").is_file()


def test_what_live_collected_is_not_emptied_and_its_topics_are_named(tmp_path: Path) -> None:
    for name in ("page-view-0", "my-topic-0", "my-topic-1"):
        (tmp_path / "broker-1" / "logs" / name).mkdir(parents=True)
    with held(tmp_path, "demo"):
        check_replaceable(tmp_path)
    with held(tmp_path, "up"):
        assert runs(tmp_path)
    assert not runs(tmp_path)
    for mark in ((tmp_path / MARK).read_text(), "", "\0" * 60):  # a disk that lost its text
        (tmp_path / MARK).write_text(mark)
        with pytest.raises(DirectoryRefused, match=r"topics my-topic, page-view; .*FRESH=1"):
            check_replaceable(tmp_path)


@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_demo_looks_at_the_directory_when_it_has_it_and_not_only_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_fresh: bool
) -> None:
    """A live deployment that was being stopped when the demo was started has ended meanwhile."""
    topic = tmp_path / "broker-1" / "logs" / "orders-0"
    topic.mkdir(parents=True)
    monkeypatch.setattr(Demo, "_with_everything", lambda *_: 0)
    demo = Demo(EmbeddedConfig(root_dir=tmp_path), Console(file=io.StringIO()), keeps=not is_fresh)
    with held(tmp_path, "up", "--set a=1"), pytest.raises(AlreadyRuns):
        demo.run()
    with nullcontext() if is_fresh else pytest.raises(DirectoryRefused, match="topics orders; "):
        demo.run()
    assert topic.exists() != is_fresh
    kept = ("demo", None) if is_fresh else ("up", "--set a=1")
    assert (last_command(tmp_path)[0], last_settings(tmp_path)) == kept


def test_what_is_refused_leaves_the_mark_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broker-1").mkdir()
    with held(tmp_path, "demo"):
        pass
    config = EmbeddedConfig(root_dir=tmp_path, replicas=3)
    with pytest.raises(DirectoryRefused, match="holds brokers without replicas"):
        Demo(config, Console(file=io.StringIO())).run_until_stopped()
    assert last_command(tmp_path)[0] == "demo"

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    refused = pytest.raises(DirectoryRefused, match=r"\.kafka2011: No space left on device$")
    with refused, held(tmp_path, "up"):
        pass
    assert last_command(tmp_path)[0] == "demo"


@pytest.mark.parametrize("entry", ["logs", "run/restarts.json/x", "run/supervisor.sock/x"])
@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_directory_with_entries_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, command: str
) -> None:
    """As after a start by another user."""
    handled: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda number, _: handled.append(number))
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)  # also under nohup
    monkeypatch.setattr(root_directory, "KEPT", {"logs", "run", MARK})  # nor can it be deleted
    (tmp_path / MARK).touch()
    (tmp_path / entry).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / entry).touch()
    config = EmbeddedConfig(root_dir=tmp_path, port_base=0, dashboard_port=-1)
    demo = Demo(config, Console(file=io.StringIO()))
    run = demo.run if command == "demo" else demo.run_until_stopped
    name = tmp_path / entry.removesuffix("/x")
    with pytest.raises(DirectoryRefused, match=rf"^{name}: .*; choose another directory \(--dir"):
        run()
    assert set(handled) == {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # by now


def test_what_cannot_be_deleted_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broker-1").mkdir()
    with held(tmp_path, "demo"):
        pass

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("shutil.rmtree", refuse)
    config = EmbeddedConfig(root_dir=tmp_path)
    with pytest.raises(DirectoryRefused, match=r"broker-1: Permission denied; choose another"):
        Demo(config, Console(file=io.StringIO())).run()


def test_a_mark_has_no_more_than_what_was_written_last(tmp_path: Path) -> None:
    for settings in ("--set a=1 --set b=2", "a\udcff", None):
        with held(tmp_path, "up", settings):
            assert last_settings(tmp_path) == settings
    assert len((tmp_path / MARK).read_text().splitlines()) == 2


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(DirectoryRefused, match=r"file: File exists; choose a directory of your own"),
        held(tmp_path / "file", "up"),
    ):
        pass


def test_two_deployments_never_have_one_directory(tmp_path: Path) -> None:
    with (
        held(tmp_path, "up"),
        pytest.raises(AlreadyRuns, match=rf"{tmp_path} \(up, pid {os.getpid()}\)"),
        held(tmp_path, "demo"),
    ):
        pass


@pytest.mark.parametrize(
    ("before", "statuses", "is_restart"),
    [
        ("", [], False),
        ("garbage", [0], False),
        ("{}", [], True),
        ('[{"name": "mirror-1", "time_ms": 5}]', [0, 0], False),
        ('[{"name": "mirror-1", "time_ms": 5}]', [0, -9], True),
        ("[]", [0, None], True),
    ],
)
def test_a_deployment_that_did_not_stop_cleanly_is_a_restart_on_record(
    tmp_path: Path, before: str, statuses: list[int | None], is_restart: bool
) -> None:
    """What the last run had not confirmed is sent again by this one, and is no extra."""
    file = tmp_path / "run" / "restarts.json"
    file.parent.mkdir()
    if before:
        file.write_text(before)
    for number, status in enumerate(statuses):
        state = {"name": str(number), "pid": 0, "command": ["x"], "status": status}
        (tmp_path / "run" / f"{number}.json").write_text(json.dumps(state))
    Supervisor(
        [],
        tmp_path,
        environment={},
        report=lambda _: None,
        stop_asked=lambda: False,
        clock=lambda: 99,
    )
    earlier = json.loads(before) if before.startswith("[") else []
    again = [{"name": "the deployment", "time_ms": 99}] if is_restart else []
    assert json.loads(file.read_text()) == earlier + again


@pytest.mark.parametrize(
    ("directories", "wanted", "held"),
    [
        ((), 3, ""),
        (("broker-1", "broker-11"), 1, ""),
        (("broker-1", "broker-11"), 2, "brokers without replicas: start with --replicas 1 "),
        (("machine-1/broker-1", "machine-2/broker-1", "broker-11"), 2, ""),
        (("machine-1/broker-1", "machine-2/broker-1"), 1, "replica sets of 2: start with --repl"),
        (("machine-1/broker-1", "machine-2/broker-1"), 3, "replica sets of 2: start with --repl"),
    ],
)
def test_what_brokers_hold_is_gone_on_with_by_as_many_replicas(
    directories: tuple[str, ...], wanted: int, held: str, tmp_path: Path
) -> None:
    for name in directories:
        (tmp_path / name).mkdir(parents=True)
    if not held:
        check_replicas(tmp_path, wanted)
        return
    with pytest.raises(DirectoryRefused, match=f"{tmp_path} holds {held}"):
        check_replicas(tmp_path, wanted)


SALES = {
    "KAFKA2011_EVENT_FORMS": "*:id,sales:json",
    "KAFKA2011_EVENT_TIME_FIELD": "sales:at",
    "KAFKA2011_EVENT_SERVER_FIELD": "sales:host",
}


@pytest.mark.parametrize(
    ("now", "is_refused"),
    [
        (SALES, False),
        ({}, True),
        ({"KAFKA2011_EVENT_FORMS": "*:id,sales:json"}, True),  # and the fields are not
        ({**SALES, "KAFKA2011_EVENT_SERVER_FIELD": ""}, True),
        ({"KAFKA2011_EVENT_FORMS": "*:id,sales:text"}, False),  # named anew
        ({**SALES, "KAFKA2011_EVENT_FORMS": "*:id,sales:json,orders:json"}, False),
        ({**SALES, "KAFKA2011_EVENT_FORMS": "*:2011,sales:json"}, True),  # page views are not
        ({"KAFKA2011_EVENT_FORMS": "sales:jsn"}, False),  # each process says so
    ],
)
def test_messages_are_gone_on_with_by_the_settings_that_read_them(
    now: dict[str, str], is_refused: bool, tmp_path: Path
) -> None:
    """Without, an audit of the files called a hundred messages missing that were all there."""
    for name in ("sales-0", "page-view-0"):
        (tmp_path / "broker-1/logs" / name).mkdir(parents=True)
    before, after = (f"{settings_given(each)}--set embedded.rate=1" for each in (SALES, now))
    if not is_refused:
        check_forms(tmp_path, before, after)
        check_forms(tmp_path / "none", before, "")
        return
    with pytest.raises(DirectoryRefused, match="that other settings read: start with ") as refused:
        check_forms(tmp_path, before, after)
    for name, value in SALES.items():
        assert f"{name}={shlex.quote(value)} " in str(refused.value)


def test_settings_in_words_read_messages_too(tmp_path: Path) -> None:
    (tmp_path / "broker-1/logs/sales-0").mkdir(parents=True)
    words = "--set event.forms=sales:json --set=event.time.field=sales:at"
    check_forms(tmp_path, words, f"KAFKA2011_EVENT_TIME_FIELD=sales:at {words}")
    with pytest.raises(DirectoryRefused) as refused:
        check_forms(tmp_path, words, "--set event.forms=sales:json")
    said = "start with --set event.forms=sales:json --set event.time.field=sales:at as last"
    assert said in str(refused.value)


def test_a_form_that_is_given_for_the_first_time_is_a_cure(tmp_path: Path) -> None:
    (tmp_path / "broker-1/logs/sales-0").mkdir(parents=True)
    check_forms(tmp_path, "", settings_given(SALES))
    check_forms(tmp_path, "--set 'cut off", "")
    said = re.escape("start without KAFKA2011_EVENT_FORMS='*:2011' as last time")
    with pytest.raises(DirectoryRefused, match=said):
        check_forms(tmp_path, "", "KAFKA2011_EVENT_FORMS=*:2011")


def test_the_line_to_go_on_has_the_settings_of_the_environment() -> None:
    given = {"KAFKA2011_EVENT_FORMS": "*:id,a b:json", "HOME": "/x", "KAFKA2011_EMBEDDED_RATE": "1"}
    said = "KAFKA2011_EMBEDDED_RATE=1 KAFKA2011_EVENT_FORMS='*:id,a b:json' "
    assert settings_given(given) == said
    assert settings_given({}) == settings_not_taken(given | {"KAFKA2011_PARENT": "1"}) == ""


def test_a_setting_that_no_process_of_the_deployment_takes_is_named() -> None:
    """It was announced as one of the settings, also to go on with, and given to none."""
    given = {"KAFKA2011_WAREHOUSE_RETENTION_HOURS": "24", "KAFKA2011_PURE": "1"}
    assert settings_given(given) == "KAFKA2011_PURE=1 "
    said = "no process of the deployment takes KAFKA2011_WAREHOUSE_RETENTION_HOURS; "
    assert settings_not_taken(given).startswith(said)


def test_what_is_other_than_at_the_last_start_is_named_and_no_more() -> None:
    before = "KAFKA2011_A='1 2' --set embedded.chaos=on --port 1"
    assert settings_changed(before, before) == ""
    assert settings_changed(before, "--port 1 --set embedded.chaos=on --set b=2") == (
        "without KAFKA2011_A=1 2; with --set b=2"
    )
    assert settings_changed("", "--port 2") == "with --port 2"
    assert settings_changed("A='1", "") == "without A='1"
    assert settings_changed("--set a='x y' --port 1", "--port 1") == "without --set 'a=x y'"
