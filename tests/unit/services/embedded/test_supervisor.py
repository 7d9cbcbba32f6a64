"""The supervisor over small real processes: start, report, restart, stop, leave nothing behind."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka2011.services.embedded.control import ControlServer, NotRunning, ask
from kafka2011.services.embedded.demo import check_root, clean
from kafka2011.services.embedded.processes import (
    end_leftovers,
    free_port_source,
    is_alive,
    python_descendants,
)
from kafka2011.services.embedded.supervisor import (
    StartFailed,
    Supervisor,
    base_environment,
    describe_status,
)
from kafka2011.services.embedded.topology import ProcessSpec
from tests.support.waiting import wait_until

SERVES = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
port = int(os.environ["KAFKA2011_METRICS_PORT"])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
ENDS_AT_ONCE = "print('no such disk'); raise SystemExit(3)"
NEVER_SERVES = "import threading; threading.Event().wait()"
SERVES_ONCE_IT_MAY = (
    "import pathlib, sys, threading\n"
    "while not pathlib.Path(sys.argv[1]).exists(): threading.Event().wait(0.02)\n" + SERVES
)
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVES

free_port = free_port_source()


def spec(name: str, script: str = SERVES, **changes: object) -> ProcessSpec:
    port = free_port()
    values: dict[str, object] = {
        "name": name,
        "kind": "service",
        "datacenter": "live",
        "command": (sys.executable, "-c", script),
        "environment": {
            "KAFKA2011_METRICS_PORT": str(port),
            "KAFKA2011_PROCESS_NAME": name,
        },
        "ports": {"metrics": port},
        "start_timeout_ms": 20_000,
    }
    return ProcessSpec(**{**values, **changes})  # type: ignore[arg-type]


class Deployment:
    """A supervisor, what it reported, and the directory it works in."""

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

    def start(self) -> None:
        self.supervisor.start_all(lambda _: None)

    def state(self, name: str) -> dict[str, object]:
        return json.loads((self.root / "run" / f"{name}.json").read_text())  # type: ignore[no-any-return]

    def polled(self) -> bool:
        self.supervisor.poll()
        return bool(self.lines)


Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """A function from process specifications to a deployment, whose processes end with the test."""
    made: list[Deployment] = []

    def make(*specs: ProcessSpec) -> Deployment:
        made.append(Deployment(tmp_path, *specs))
        return made[-1]

    yield make
    for deployment in made:
        deployment.supervisor.stop_all()


def test_state_file_says_what_runs(deploy: Deploy) -> None:
    deployment = deploy(spec("one"))
    deployment.start()
    state = deployment.state("one")
    assert state["running"] is True
    assert state["pid"] == deployment.supervisor.processes["one"].pid
    deployment.supervisor.stop_all()
    assert deployment.state("one")["running"] is False
    assert not is_alive(state["pid"])  # type: ignore[arg-type]


def test_a_process_that_ends_at_once_fails_the_start_and_shows_its_log(deploy: Deploy) -> None:
    deployment = deploy(spec("one", ENDS_AT_ONCE))
    with pytest.raises(StartFailed, match="no such disk") as raised:
        deployment.start()
    assert "status 3" in str(raised.value)
    assert "logs/one.log" in str(raised.value)


def test_a_process_that_does_not_serve_in_time_fails_the_start(deploy: Deploy) -> None:
    deployment = deploy(spec("one", NEVER_SERVES, start_timeout_ms=300))
    with pytest.raises(StartFailed, match="did not serve within"):
        deployment.start()


def test_a_killed_process_is_reported_in_one_line_and_the_rest_goes_on(deploy: Deploy) -> None:
    deployment = deploy(spec("one"), spec("two"))
    deployment.start()
    deployment.supervisor.processes["one"].signal(signal.SIGKILL)
    wait_until(deployment.polled, "a line about the killed process")
    deployment.supervisor.poll()
    assert len(deployment.lines) == 1
    assert "one ended: killed by SIGKILL" in deployment.lines[0]
    assert "kafka2011 embedded start one" in deployment.lines[0]
    assert [p.spec.name for p in deployment.supervisor.down()] == ["one"]
    assert deployment.supervisor.processes["two"].is_running


def test_started_again_it_is_down_until_it_serves(deploy: Deploy, tmp_path: Path) -> None:
    """Or a demo would wait for nobody while a load job's JVM starts."""
    may = tmp_path / "may-serve"
    may.touch()
    command = (sys.executable, "-c", SERVES_ONCE_IT_MAY, str(may))
    deployment = deploy(spec("one", command=command))
    deployment.start()
    supervisor = deployment.supervisor
    assert supervisor.down() == []
    may.unlink()
    supervisor.processes["one"].signal(signal.SIGKILL)
    wait_until(deployment.polled, "a line about the killed process")
    thread = threading.Thread(target=lambda: supervisor.request_start("one"))
    thread.start()
    wait_until(lambda: supervisor.poll() or not thread.is_alive(), "the start was asked for")
    assert supervisor.processes["one"].is_running
    assert [p.spec.name for p in supervisor.down()] == ["one"]
    may.touch()
    wait_until(lambda: not supervisor.down(), "it serves")


def test_it_is_restarted_over_the_socket_and_the_restart_is_recorded(
    deploy: Deploy, tmp_path: Path
) -> None:
    deployment = deploy(spec("one"))
    deployment.start()
    first_pid = deployment.supervisor.processes["one"].pid
    control = ControlServer(tmp_path, lambda _, name: deployment.supervisor.request_start(name))
    try:
        answers: list[str] = []

        def ask_for(name: str) -> None:
            answers.clear()
            thread = threading.Thread(target=lambda: answers.append(ask(tmp_path, "start", name)))
            thread.start()

            def is_answered() -> bool:
                deployment.supervisor.poll()
                return bool(answers)

            wait_until(is_answered, f"an answer about {name}")
            thread.join()

        ask_for("one")
        assert answers[0].startswith("error: one is running")
        ask_for("nine")
        assert "no process 'nine'; there are: one" in answers[0]

        deployment.supervisor.processes["one"].signal(signal.SIGKILL)
        wait_until(deployment.polled, "the end of the process")
        ask_for("one")
        assert answers[0].startswith("one started")
        assert deployment.supervisor.processes["one"].pid != first_pid
        wait_until(deployment.supervisor.processes["one"].serves, "the process to serve again")
        restarts = json.loads((tmp_path / "run" / "restarts.json").read_text())
        assert [restart["name"] for restart in restarts] == ["one"]
        assert deployment.supervisor.restarted_names == ["one"]
    finally:
        control.close()


def test_nothing_to_ask_where_nothing_runs(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="no embedded deployment"):
        ask(tmp_path, "start", "one")


def test_a_deep_directory_is_no_obstacle_to_the_socket(tmp_path: Path) -> None:
    root = tmp_path / ("deep" * 30)
    (root / "run").mkdir(parents=True)
    control = ControlServer(root, lambda verb, _: verb)
    try:
        assert ask(root, "status") == "status"
    finally:
        control.close()


def test_a_process_that_will_not_stop_is_killed_and_said_so(deploy: Deploy) -> None:
    deployment = deploy(spec("stubborn", IGNORES_SIGTERM))
    deployment.start()
    status = deployment.supervisor.stop("stubborn", grace_s=0.3)
    assert status == -signal.SIGKILL
    assert deployment.lines == ["stubborn did not stop in 0 s, killed"]


def test_a_finite_process_that_is_done_is_no_news(deploy: Deploy) -> None:
    deployment = deploy(spec("job", "pass", is_finite=True))
    deployment.start()
    wait_until(lambda: deployment.supervisor.processes["job"].status == 0, "the job to end")
    assert not deployment.polled()
    assert deployment.supervisor.down() == []


def test_sigterm_goes_to_the_driver_below_a_launcher(deploy: Deploy, tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(SERVES)
    launcher = (
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(driver)!r}]))"
    )
    deployment = deploy(spec("job", launcher, stop_driver=True))
    deployment.start()
    pid = deployment.supervisor.processes["job"].pid
    assert pid is not None
    (driver_pid,) = python_descendants(pid)
    deployment.supervisor.processes["job"].ask_to_stop()
    wait_until(lambda: not is_alive(driver_pid), "the driver to stop")
    wait_until(lambda: not is_alive(pid), "the launcher to follow")


def test_leftovers_of_a_killed_supervisor_are_ended_and_no_other_process(
    deploy: Deploy, tmp_path: Path
) -> None:
    deployment = deploy(spec("one"))
    deployment.start()
    pid = deployment.supervisor.processes["one"].pid
    (tmp_path / "run" / "me.json").write_text(
        json.dumps({"name": "me", "pid": os.getpid(), "command": ["python"]})
    )
    assert end_leftovers(tmp_path) == ["one"]
    wait_until(lambda: not is_alive(pid), "the left-over process to end")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StartFailed, match="was not made by this command"):
        check_root(tmp_path)


@pytest.mark.parametrize("place", ["/", "/var", "/usr"])
def test_no_directory_of_the_system_passes_for_ours(place: str) -> None:
    with pytest.raises(StartFailed, match="was not made by this command"):
        check_root(Path(place))


def test_an_old_run_is_cleaned_away_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "history.jsonl").write_text("{}")
    check_root(tmp_path)  # make bench, and then make demo
    clean(tmp_path)
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "segment").write_text("x")
    check_root(tmp_path)
    clean(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "benchmarks", ".kafka2011"}
    assert (tmp_path / "benchmarks" / "history.jsonl").read_text() == "{}"


def test_a_deployment_from_before_the_mark_is_ours(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(StartFailed, match="was not made by this command"):
        check_root(tmp_path)
    (tmp_path / "run" / "restarts.json").write_text("[]")
    check_root(tmp_path)


@pytest.mark.parametrize(
    ("status", "text"), [(0, "status 0"), (3, "status 3"), (-9, "killed by SIGKILL")]
)
def test_statuses_in_words(status: int, text: str) -> None:
    assert describe_status(status) == text
