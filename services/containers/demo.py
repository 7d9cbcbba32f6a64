"""The story of `make demo-docker`: the containers from clean, run, drain, report, audit, summary.

The story, the summary and the exit rule are those of `make demo` (services.embedded.story). What a
person does to the containers meanwhile (kill, start, pause) is noticed and told to the audit, which
then lists extras as redelivered.
"""

import json
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from runtime.clock import Clock, now_ms
from services.containers.engine import ComposeProject, ContainerState, EngineError
from services.embedded.display import Display, Sample
from services.embedded.story import (
    POLL_S,
    GaveUp,
    Moment,
    follow,
    print_summary,
    sample_from,
)

AUDIT_URL = "http://127.0.0.1:8080"
RESTARTS_FILE = "/data/run/restarts.json"
START_TIMEOUT_S = 240.0
STALL_TIMEOUT_S = 120.0
ALL_PROFILES = "jobs,tools,observability,ha,load,chaos,two-live,spark"
FRONTENDS = ("frontend-1", "frontend-2")

# Asked within the audit's own container: nothing is published to the host.
ASK = (
    "import sys, urllib.request\n"
    "sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())\n"
)
# Written beside and moved into place: the audit never reads half a file.
WRITE = 'mkdir -p "${1%/*}" && cat > "$1.new" && mv "$1.new" "$1"'


@dataclass
class RestartWatch:
    """Notices services that started again, from what the engine says at each look."""

    clock: Clock = now_ms
    restarts: list[dict[str, object]] = field(default_factory=list)
    _runs: dict[str, str] = field(default_factory=dict)

    def look(self, states: Mapping[str, ContainerState]) -> bool:
        """True when a service runs that has started again since the last look."""
        is_new = False
        for service, state in states.items():
            if state.status != "running":
                continue
            before = self._runs.get(service)
            if before is not None and before != state.run:
                self.restarts.append({"name": service, "time_ms": self.clock()})
                is_new = True
            self._runs[service] = state.run
        return is_new

    @property
    def names(self) -> list[str]:
        return sorted({str(restart["name"]) for restart in self.restarts})


def moment_of(
    states: Mapping[str, ContainerState], expected: set[str], frontends: set[str]
) -> Moment:
    """What the story wants to know. `expected` are the services that should run."""
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
    ) -> None:
        self.project = project
        self.console = console
        self.frontends = set(frontends)
        self.report_table = report_table
        self.stop_asked = stop_asked
        self.watch = RestartWatch()
        self.expected: set[str] = set()

    def run(self) -> int:
        """Run to the end; the exit status. Leaves no container, network or volume behind."""
        began = time.monotonic()
        with Display(self.console) as display:
            try:
                self._take_down()
                self._bring_up(display, began)
                return self._story(display, began)
            except (EngineError, GaveUp) as error:
                display.say(f"error: {error}")
                return 1
            finally:
                try:
                    self._take_down()
                except EngineError as error:
                    display.say(f"error: not everything was removed: {error}")

    def _take_down(self) -> None:
        self.project.compose(
            "down", "--volumes", "--remove-orphans", "--timeout", "20", profiles=ALL_PROFILES
        )

    def _bring_up(self, display: Display, began: float) -> None:
        """Everything but the frontends first, so that the delays of the first messages are those
        of a deployment that runs."""
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
        """Everything without a profile, and of the frontends only these."""
        scales = [f"{name}={name in frontends:d}" for name in FRONTENDS]
        words = [word for scale in scales for word in ("--scale", scale)]
        self.project.compose("up", "--detach", "--no-recreate", *words)

    def _wait_until_all_serve(self, display: Display) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            states = self.project.states()
            waiting = sorted(name for name, state in states.items() if not state.serves)
            if states and not waiting:
                self.watch.look(states)
                return
            if self.stop_asked():
                raise GaveUp("stopped before everything served")
            if time.monotonic() > deadline:
                raise GaveUp(f"not within {START_TIMEOUT_S:.0f} s: {', '.join(waiting)}")
            display.show(sample_from(None, (), f"waiting for {', '.join(waiting)}"))
            time.sleep(POLL_S * 2)

    def _story(self, display: Display, began: float) -> int:
        sample = follow(
            display,
            look=self._look,
            ask_audit=self._ask_audit,
            stop_asked=self.stop_asked,
            stall_timeout_s=STALL_TIMEOUT_S,
        )
        display.show(replace(sample, phase="reporting"))
        self.project.compose("stop", "--timeout", "30", "loader")
        loader = self.project.states()["loader"]
        if loader.exit_code:
            display.say(f"loader: stopped with status {loader.exit_code}")
        report_status = self._report(display)
        display.close()
        audit_status = self._audit()
        self._summary(sample, began)
        return 1 if report_status or audit_status else 0

    def _look(self) -> Moment:
        states = self.project.states()
        if self.watch.look(states):
            self._tell_restarts()
        return moment_of(states, self.expected, self.frontends)

    def _tell_restarts(self) -> None:
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
        """The report job, in a container of its own on the Spark cluster."""
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
            display.say(f"error: the report job failed: {error}")
            return 1
        display.say(text.rstrip())
        return 0

    def _audit(self) -> int:
        """Recount every tier through the brokers, message by message, with guids; the status."""
        sys.stdout.flush()
        audit = self.project.states()["audit"].container_id
        columns = f"COLUMNS={self.console.width}"
        words = ("exec", "--env", columns, audit, "kafka2011", "audit", "--var", "/data")
        return self.project.attached(*words, "--url", AUDIT_URL, "--recount", "--final")

    def _summary(self, sample: Sample, began: float) -> None:
        print_summary(
            self.console,
            sample,
            self.watch.names,
            f"{time.monotonic() - began:.0f} s in all; delays are from the frontend's event time",
        )


def project_root() -> Path:
    """Where docker-compose.yml is; raises EngineError when this is not a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "docker-compose.yml").is_file():
        raise EngineError(f"no docker-compose.yml in {root}: run it from a checkout")
    return root
