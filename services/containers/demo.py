"""`make demo-docker`: the containers from clean, run, drain, report, audit, summary.

The end of the run, the summary and the exit status are those of `make demo`
(services.embedded.demo_progress). Restarts of containers during the run are reported to the audit,
which then lists extra messages as redelivered.
"""

import json
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

import kafka2011
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.services.containers.engine import ComposeProject, ContainerState, EngineError
from kafka2011.services.containers.replicas import ContainerSet
from kafka2011.services.embedded.demo_input import check_input as check_content
from kafka2011.services.embedded.demo_input import is_stream
from kafka2011.services.embedded.demo_progress import (
    DELAYS,
    INTERRUPTED,
    POLL_S,
    REPORTING,
    GaveUp,
    Moment,
    follow,
    print_summary,
    sample_from,
    says_what_was_read,
)
from kafka2011.services.embedded.display import Display, Sample
from kafka2011.services.embedded.lost_leader import LostLeader
from kafka2011.services.embedded.supervisor import StartFailed, may_have_repeated

AUDIT_URL = "http://127.0.0.1:8080"
RESTARTS_FILE = "/data/run/restarts.json"
START_TIMEOUT_S = 240.0
STALL_TIMEOUT_S = 120.0
ALL_PROFILES = "jobs,tools,observability,ha,load,chaos,two-live,spark"
FRONTENDS = ("frontend-1", "frontend-2")
DASHBOARD_PORT = 8088
LOG_LINES = 5

# Runs in the audit's container: its port is not published to the host.
ASK = (
    "import sys, urllib.request\n"
    "sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())\n"
)
# Replaced in one step: the audit never reads half a file.
WRITE = 'mkdir -p "${1%/*}" && cat > "$1.new" && mv "$1.new" "$1"'


@dataclass
class RestartWatch:
    """Detects restarts of services, by comparing the engine's states: `names` of all, `restarts` of
    those that the audit takes for a reason of copies."""

    clock: Clock = now_ms
    restarts: list[dict[str, object]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    _runs: dict[str, str] = field(default_factory=dict)

    def look(self, states: Mapping[str, ContainerState]) -> bool:
        """Whether a running service has restarted since the last call."""
        is_new = False
        for service, state in states.items():
            if state.status != "running":
                continue
            before = self._runs.get(service)
            if before is not None and before != state.run:
                self.names.add(service)
                if may_have_repeated(service):
                    self.restarts.append({"name": service, "time_ms": self.clock()})
                is_new = True
            self._runs[service] = state.run
        return is_new


def moment_of(
    states: Mapping[str, ContainerState], expected: set[str], frontends: set[str]
) -> Moment:
    """The state for `demo_progress.follow`. `expected` are the services that should run."""
    down = [
        service
        for service in sorted(expected)
        if service not in states
        or not (states[service].serves or (service in frontends and states[service].is_done))
    ]
    is_sent = all(name in states and states[name].is_done for name in frontends)
    return Moment(is_sent, tuple(down))


class ContainerDemo:
    """One run of all containers from clean volumes to the audit's verdict."""

    def __init__(
        self,
        project: ComposeProject,
        console: Console,
        *,
        frontends: tuple[str, ...],
        report_table: str,
        stop_asked: Callable[[], bool],
        loses_leader: bool = False,
    ) -> None:
        """`loses_leader`: live brokers are replica sets, of which one loses a leader's disk."""
        self.project = project
        self.console = console
        self.frontends = set(frontends)
        self.report_table = report_table
        self.stop_asked = stop_asked
        self.loses_leader = loses_leader
        self.lost_leader: LostLeader | None = None
        self.watch = RestartWatch()
        self.expected: set[str] = set()

    def run(self) -> int:
        """Run to the end; returns the exit status. Removes all containers, networks and volumes."""
        began = time.monotonic()
        with Display(self.console) as display:
            try:
                self._take_down()
                self._bring_up(display, began)
                return self._story(display, began)
            except GaveUp as error:
                display.say(f"kafka2011: {error}")
                if not self.stop_asked():
                    self._print_last_lines(display)
                return INTERRUPTED if self.stop_asked() else 1
            except EngineError as error:
                display.say(f"kafka2011: {error}")
                return 1
            finally:
                try:
                    self._take_down()
                except EngineError as error:
                    display.say(
                        f"kafka2011: not everything was removed: {error}; {way_out(self.project)}"
                    )

    def _print_last_lines(self, display: Display) -> None:
        """Print the last log lines of services that should serve and do not."""
        try:
            states = self.project.states()
            down = moment_of(states, self.expected or set(states), self.frontends).down
            for service in down:
                state = states.get(service)
                text = f"{state.status} {state.health}".strip() if state else "no container"
                display.say(f"{service} ({text}), its last lines:")
                display.say(self.project.logs(service, LOG_LINES).rstrip())
        except EngineError as error:
            display.say(f"kafka2011: {error}")

    def _take_down(self) -> None:
        self.project.compose(
            "down", "--volumes", "--remove-orphans", "--timeout", "20", profiles=ALL_PROFILES
        )

    def _bring_up(self, display: Display, began: float) -> None:
        """Start everything but the frontends first, so that the first messages' delays are those of
        a running deployment."""
        display.show(sample_from(None, (), "starting containers"))
        self._up(())
        self._wait_until_all_serve(display)
        self.expected = set(self.project.states()) | self.frontends
        display.say(
            f"{len(self.expected - self.frontends)} containers serve after "
            f"{time.monotonic() - began:.0f} s"
        )
        self._up(self.frontends)

    def _up(self, frontends: Collection[str]) -> None:
        """Start all services without a profile, and only these frontends."""
        scales = [f"{name}={name in frontends:d}" for name in FRONTENDS]
        words = [word for scale in scales for word in ("--scale", scale)]
        self.project.compose("up", "--detach", "--no-recreate", *words)

    def _wait_until_all_serve(self, display: Display) -> None:
        timeout_s = START_TIMEOUT_S * (2 if self.loses_leader else 1)  # there are more containers
        deadline = time.monotonic() + timeout_s
        while True:
            states = self.project.states()
            waiting = sorted(name for name, state in states.items() if not state.serves)
            if states and not waiting:
                self.watch.look(states)
                return
            if self.stop_asked():
                raise GaveUp("stopped before everything served")
            if time.monotonic() > deadline:
                raise GaveUp(f"did not serve within {timeout_s:.0f} s: {', '.join(waiting)}")
            display.show(sample_from(None, (), f"waiting for {', '.join(waiting)}"))
            time.sleep(POLL_S * 2)

    def _story(self, display: Display, began: float) -> int:
        if self.loses_leader:
            self.lost_leader = LostLeader(ContainerSet(self.project), display.say)
        sample = follow(
            display,
            look=self._look,
            ask_audit=self._ask_audit,
            stop_asked=self.stop_asked,
            stall_timeout_s=STALL_TIMEOUT_S,
        )
        display.show_phase(REPORTING, stays=True)
        self.project.compose("stop", "--timeout", "30", "loader")
        loader = self.project.states()["loader"]
        if loader.exit_code:
            display.say(f"loader: stopped with status {loader.exit_code}")
        report_status = self._report(display)
        display.close()
        summary = self._ask_audit(True) or {}
        audit_status = self._audit()
        self._summary(sample, began)
        is_readable = says_what_was_read(self.console, sent_of(summary), None)
        return 1 if report_status or audit_status or not is_readable else 0

    def _look(self) -> Moment:
        states = self.project.states()
        if self.watch.look(states):
            self._report_restarts()
        moment = moment_of(states, self.expected, self.frontends)
        if self.lost_leader is None:
            return moment
        self.lost_leader.step()
        return moment._replace(is_sent=moment.is_sent and self.lost_leader.is_over)

    def _report_restarts(self) -> None:
        self.project.execute(
            "audit", "sh", "-c", WRITE, "sh", RESTARTS_FILE, stdin=json.dumps(self.watch.restarts)
        )

    def _ask_audit(self, is_final: bool) -> dict[str, Any] | None:
        try:
            text = self.project.execute(
                "audit", "python3", "-I", "-c", ASK, f"{AUDIT_URL}/audit/summary?final={is_final:d}"
            )
            found = json.loads(text)
        except (EngineError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _report(self, display: Display) -> int:
        """Run the report job in its own container on the Spark cluster. Returns its status."""
        try:
            text = self.project.compose(
                "run",
                "--rm",
                "-T",
                "-e",
                f"KAFKA2011_REPORT_TABLE={self.report_table}",
                "report",
                profiles=ALL_PROFILES,
            )
        except EngineError as error:
            display.say(f"kafka2011: the report job failed: {error}")
            return 1
        display.say(text.rstrip())
        return 0

    def _audit(self) -> int:
        """Recount every tier through the brokers, by guid. Returns the exit status."""
        sys.stdout.flush()
        audit = self.project.states()["audit"].container_id
        columns = f"COLUMNS={self.console.width}"
        words = ("exec", "--env", columns, audit, "kafka2011", "audit", "--var", "/data")
        return self.project.attached(*words, "--url", AUDIT_URL, "--recount", "--final")

    def _summary(self, sample: Sample, began: float) -> None:
        print_summary(
            self.console,
            sample,
            sorted(self.watch.names),
            f"{time.monotonic() - began:.0f} s in all; {DELAYS}",
        )


def sent_of(summary: Mapping[str, Any]) -> dict[str, int]:
    """The messages that were sent of each topic, by the audit's summary."""
    return {name: int(topic["produced"]) for name, topic in summary.get("topics", {}).items()}


def way_out(project: ComposeProject) -> str:
    """The command that removes what the demo could not."""
    return f"COMPOSE_PROJECT_NAME={project.name} make down removes it"


def leave(project: ComposeProject) -> None:
    """Print what remains when a second signal ends this process at once."""
    project.abandon()
    text = f"kafka2011: the project {project.name} still exists: {way_out(project)}"
    os.write(sys.stderr.fileno(), f"\n{text}\n".encode())


def check_input(input_path: str, log_format: str) -> str:
    """A line about what the access log is; empty for no input. Raises StartFailed when it cannot be
    read, here or in a container, and InputRefused when there is nothing to send."""
    if not input_path:
        return ""
    if is_stream(input_path):
        raise StartFailed(f"input {input_path}: containers need a file")
    found = check_content(input_path, log_format)
    mode = Path(input_path).stat().st_mode
    if not mode & stat.S_IROTH:
        raise StartFailed(
            f"input {input_path}: others may not read it, and containers run as user 10001; "
            "chmod o+r it, or give a copy"
        )
    return found


def dashboard_port(project: ComposeProject) -> tuple[int, str]:
    """The port of the dashboard, and a line for the user when it is not the default one.

    A free port replaces the default when that is taken, by `make up` for example. Raises
    EngineError when the port in DASHBOARD_PORT is taken or invalid.
    """
    asked = project.setting("DASHBOARD_PORT")
    if asked and not asked.isdecimal():
        raise EngineError(f"DASHBOARD_PORT={asked} is not a port")
    port = int(asked or DASHBOARD_PORT)
    if not port:
        return port, ""
    holders = project.publishers(port)
    others = [name for name, owner in holders.items() if owner != project.name]
    # Containers of an earlier run of the demo are removed before anything starts.
    if not others and (holders or is_free(port)):
        return port, ""
    taken = f"port {port} of 127.0.0.1 is taken by {others[0] if others else 'another process'}"
    if asked:
        raise EngineError(f"{taken}; free it or choose another DASHBOARD_PORT")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return port, f"{taken}; the demo's dashboard: http://127.0.0.1:{port}"


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now; true for 0, any free port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except (OSError, OverflowError):
        return False
    return True


def project_root() -> Path:
    """The directory of docker-compose.yml; raises EngineError when this is not a clone."""
    root = Path(kafka2011.__file__).resolve().parents[1]
    if not (root / "docker-compose.yml").is_file():
        raise EngineError(f"no docker-compose.yml in {root}: run it from a clone")
    return root
