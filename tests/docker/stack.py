"""The whole deployment in containers, as the tests handle it: bring up, send, break, heal, count.

Everything that a run makes carries its Compose project's name or the label below, and is swept at
the end of the run and, should that have been cut off, at the start of the next.
"""

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError
from docker.models.containers import Container
from docker.models.volumes import Volume

from kafka2011.runtime.clock import now_ms
from kafka2011.services.containers import engine
from kafka2011.services.containers.demo import AUDIT_URL, RESTARTS_FILE, WRITE
from kafka2011.services.containers.engine import ComposeProject, ContainerState, EngineError
from tests import ROOT
from tests.support import waiting

RUN_LABEL = "kafka2011.test"
PROJECT_PREFIX = "kafka2011-test-"
IMAGE_VERSION = subprocess.check_output(
    [ROOT / "deploy" / "tools" / "setting.sh", "KAFKA2011_VERSION", "dev"], text=True
).strip()
APP_IMAGE = f"localhost/kafka2011/app:{IMAGE_VERSION}"

# Two cores may be shared with others; what is slow is not wrong.
START_TIMEOUT_S = 900
TIMEOUT_S = 600  # for anything else: what is sent arrives, and is read again
# A look starts processes; without a pause they would take the cores from what is waited for.
POLL_S = 0.5
# For how long one question to the audit waits for the answer that is hoped for.
AUDIT_LOOK_S = 10
# What each frontend of the deployment sends before it ends: known totals.
RATE = 100
DURATION_MS = 10_000
EACH_SENDS = RATE * DURATION_MS // 1000
SETTINGS = {
    "FRONTEND_RATE": str(RATE),
    "FRONTEND_DURATION_MS": str(DURATION_MS),
    "MEASURE_INTERVAL_MS": "0",  # the counts are the frontends'
    "DASHBOARD_PORT": "0",  # any free one
    "PROXY_CONTROL": "true",
    "AUDIT_REDELIVERY_EXPECTED": "false",  # each scenario names its own fault
    "AWAIT_TIMEOUT_S": str(START_TIMEOUT_S),
}
HARDENED: dict[str, Any] = {
    "init": True,
    "user": "10001:10001",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "tmpfs": {"/tmp": "mode=1777,size=32m"},
    "mem_limit": "160m",
    "pids_limit": 128,
}
# Prints the answer to a GET of a URL, or to a POST of the JSON behind it.
ASK = """
import sys, urllib.request
url, *body = sys.argv[1:]
body = body[0].encode() if body else None
asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
sys.stdout.write(urllib.request.urlopen(asked, timeout=5).read().decode())
"""
# Polls inside the container until `wanted`, an expression over the summary `told`, is true.
# Prints the last summary.
AUDIT_UNTIL = """
import json, sys, time, urllib.request
url, wanted, seconds = sys.argv[1:]
deadline = time.monotonic() + float(seconds)
while True:
    told = json.loads(urllib.request.urlopen(url, timeout=5).read())
    if eval(wanted) or time.monotonic() > deadline:
        break
    time.sleep(0.1)
print(json.dumps(told))
"""


def wait_until(
    condition: Callable[[], Any], message: str | Callable[[], str], timeout_s: float = TIMEOUT_S
) -> Any:
    """As tests.support.waiting.wait_until, for conditions that ask the engine."""
    return waiting.wait_until(condition, message, timeout_s, poll_s=POLL_S)


def hold(seconds: float) -> None:
    """How long a fault lasts. Never used to wait for something to have happened."""
    threading.Event().wait(seconds)


class Stack:
    """One Compose project of docker-compose.yml, with these profiles besides the default."""

    def __init__(
        self,
        client: docker.DockerClient,
        name: str,
        settings: Mapping[str, str] = SETTINGS,
        profiles: str = "",
    ) -> None:
        self.client = client
        self.name = name
        self.project = ComposeProject(name, ROOT, {**os.environ, **settings})
        self.sent_count = 0
        self._settings = settings
        self._profiles = profiles
        self._faults: list[dict[str, object]] = []

    # --- life --------------------------------------------------------------------------------

    def up(self) -> None:
        """As `docker compose up` does it, without a script of this project."""
        try:
            self.project.compose(
                "up", "--detach", profiles=self._profiles, timeout_s=START_TIMEOUT_S
            )
        except EngineError as error:
            raise AssertionError(f"{error}\n{self.diagnosis()}") from None
        self.wait_until_all_serve()
        self.sent_count = 2 * EACH_SENDS

    @contextmanager
    def profile(self, name: str, **settings: str) -> Iterator[None]:
        """With the services of a profile, and without them again."""
        before = set(self.project.states())
        try:
            self.make_up(name, **settings)
            yield
        finally:
            added = [self.container(service) for service in set(self.project.states()) - before]
            for container in added:
                container.stop(timeout=20)
            for container in added:
                container.remove(force=True)

    def make_up(self, profiles: str = "", **settings: str) -> None:
        """As `make up` does it, senders last; returns when all serve."""
        environment = {**os.environ, **self._settings, **settings, "COMPOSE_PROFILES": profiles}
        done = subprocess.run(
            [ROOT / "deploy" / "tools" / "up.sh", self.name],
            env=environment | {"COMPOSE_PROJECT_NAME": self.name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        assert not done.returncode, f"{done.stdout}{done.stderr}\n{self.diagnosis()}"
        self.wait_until_all_serve()

    def down(self) -> None:
        remove(labelled(self.client, f"{RUN_LABEL}={self.name}"))
        self.project.compose("down", "--volumes", "--timeout", "10", profiles=self._profiles)

    def wait_until_all_serve(self) -> None:
        def are_serving() -> bool:
            states = self.project.states()
            return bool(states) and all(
                state.serves or (is_sender(name) and state.is_done) or self._passes_its_check(state)
                for name, state in states.items()
            )

        wait_until(are_serving, self.diagnosis, timeout_s=START_TIMEOUT_S)

    def _passes_its_check(self, state: ContainerState) -> bool:
        """Asked now: the engine's next turn may be ten seconds away."""
        if state.status != "running":
            return False
        container = self.client.containers.get(state.container_id)
        kind, *words = container.attrs["Config"]["Healthcheck"]["Test"]
        assert kind == "CMD"
        try:
            return bool(container.exec_run(words).exit_code == 0)
        except APIError:
            return False  # it ended meanwhile

    def diagnosis(self) -> str:
        """The services that do not serve, with their last lines."""
        lines = ["not everything serves"]
        for name, state in sorted(self.project.states().items()):
            if not state.serves and not state.is_done:
                lines.append(f"{name}: {state.status} {state.health} {state.exit_code}")
                lines.append(self.project.logs(name, 8))
        return "\n".join(lines)

    # --- parts -------------------------------------------------------------------------------

    def container(self, service: str) -> Container:
        states = self.project.states()
        assert service in states, f"no container of {service}"
        return self.client.containers.get(states[service].container_id)

    @property
    def services(self) -> list[str]:
        return sorted(self.project.states())

    # --- traffic -----------------------------------------------------------------------------

    def send(self, count: int, rate: int) -> Container:
        """Start a frontend that sends `count` events and ends; else with the settings of
        frontend-1."""
        name = f"sender-{uuid.uuid4().hex[:8]}"
        given = self.container("frontend-1").attrs["Config"]["Env"]
        environment = dict(entry.split("=", 1) for entry in given) | {
            "KAFKA2011_PROCESS_NAME": name,
            "KAFKA2011_FRONTEND_SERVER": name,
            "KAFKA2011_SEED": str(self.sent_count + 1),
            "KAFKA2011_RATE": str(rate),
            "KAFKA2011_DURATION_MS": "0",
            "KAFKA2011_MESSAGE_COUNT": str(count),
        }
        volume = self.client.volumes.create(f"{self.name}_{name}", labels={RUN_LABEL: self.name})
        self.sent_count += count
        return self.client.containers.run(
            APP_IMAGE,
            ["frontend"],
            name=f"{self.name}-{name}",
            hostname=name,
            environment=environment,
            network=f"{self.name}_live",
            volumes={volume.name: {"bind": "/data", "mode": "rw"}},
            labels={RUN_LABEL: self.name},
            detach=True,
            **HARDENED,
        )

    def wait_until_sent(self, sender: Container) -> None:
        def is_done() -> bool:
            sender.reload()
            state = sender.attrs["State"]
            return bool(state["Status"] == "exited" and state["ExitCode"] == 0)

        wait_until(is_done, lambda: f"the sender ends: {sender.logs(tail=10)!r}")

    def audit(
        self, *, is_final: bool, service: str = "audit", until: str = "True"
    ) -> dict[str, Any]:
        """The audit's summary, for which `until`, over `told`, was waited a while; empty while it
        does not answer."""
        url = f"{AUDIT_URL}/audit/summary?final={is_final:d}"
        words = ("python3", "-I", "-c", AUDIT_UNTIL, url, until, str(AUDIT_LOOK_S))
        try:
            found = json.loads(self.project.execute(service, *words))
        except (EngineError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def wait_until_counted(self, tier: str, count: int) -> None:
        """At least so many messages have been read in that tier."""
        until = f"told['tiers']['{tier}']['count'] >= {count}"
        wait_until(
            lambda: self.counted(tier, until) >= count,
            lambda: f"{count} in tier {tier}, not {self.counted(tier)}\n{self.diagnosis()}",
        )

    def counted(self, tier: str, until: str = "True") -> int:
        tiers = self.audit(is_final=False, until=until).get("tiers", {})
        return int(tiers.get(tier, {}).get("count", 0))

    def recount(self, audit: str = "audit") -> int:
        """The exit status of a recount of every message, by guid."""
        words = ("--var", "/data", "--url", AUDIT_URL, "--recount", "--final", "--json")
        text = self.project.execute(audit, "kafka2011", "audit", *words, timeout_s=TIMEOUT_S)
        return int(json.loads(text)["exit_status"])

    def ask(self, url: str, body: object = None, *, service: str = "audit") -> Any:
        """The JSON that a page answers to a process in the service's container. Raises EngineError
        or ValueError."""
        sent = [] if body is None else [json.dumps(body)]
        return json.loads(self.project.execute(service, "python3", "-I", "-c", ASK, url, *sent))

    def lag_bytes(self, audit: str = "audit") -> dict[str, int | None]:
        """By group, as `kafka2011 status` prints it; None where it is not known."""
        # All servers of its ensemble: with profile `ha` any one of them may be dead.
        command = 'kafka2011 status --zookeeper "$KAFKA2011_LIVE_ZK_CONNECT" --json || true'
        text = self.project.execute(audit, "sh", "-c", command)
        groups = json.loads(text)["groups"] if text.strip() else []
        return {group["group"]: group["lag_bytes"] for group in groups}

    def wait_until_balanced(
        self, audit: str = "audit", sent_count: int | None = None
    ) -> dict[str, Any]:
        """Every message that was ever sent has arrived in every tier, and no group lags.

        The audit's last summary. `sent_count` is known for the first datacenter's audit.
        """
        last: dict[str, Any] = {}
        wanted = self.sent_count if sent_count is None else sent_count
        balanced = {"balanced": True, "produced": wanted, "exit_status": 0}
        until = f"all(told[name] == value for name, value in {balanced}.items())"

        def is_balanced() -> bool:
            nonlocal last
            last = self.audit(is_final=True, service=audit, until=until)
            return bool(last) and all(last[name] == value for name, value in balanced.items())

        def differences() -> str:
            tiers = {
                tier: {name: found.get(name) for name in ("count", "missing", "extra", "away")}
                for tier, found in last.get("tiers", {}).items()
            }
            return (
                f"{audit}: sent {wanted}, reported {last.get('produced')}, {tiers}, "
                f"{last.get('verdicts')}, {last.get('notes')}\n{self.diagnosis()}"
            )

        wait_until(is_balanced, differences)
        wait_until(
            lambda: set(self.lag_bytes(audit).values()) == {0},
            lambda: f"lag: {self.lag_bytes(audit)}",
        )
        return last

    # --- faults ------------------------------------------------------------------------------

    def tell_fault(self, name: str) -> None:
        """Name a restart: the audit then excuses redelivered messages, and never missing ones."""
        self._faults.append({"name": name, "time_ms": now_ms()})
        self.project.execute(
            "audit", "sh", "-c", WRITE, "sh", RESTARTS_FILE, stdin=json.dumps(self._faults)
        )

    def set_wan(self, faults: Mapping[str, object]) -> None:
        """Change what is wrong with every route of the wide-area link."""
        self.ask("http://127.0.0.1:8080/faults", {"faults": faults}, service="wan-link")

    @contextmanager
    def disconnected(self, service: str, network: str) -> Iterator[None]:
        """The service without that network, and with it again under the same names."""
        container = self.container(service)
        (found,) = self.client.networks.list(names=[f"^{self.name}_{network}$"])
        aliases = container.attrs["NetworkSettings"]["Networks"][found.name]["Aliases"] or []
        names = [alias for alias in aliases if not container.id.startswith(alias)]
        found.disconnect(container, force=True)
        try:
            yield
        finally:
            found.connect(container, aliases=names)


def project_name(kind: str = "") -> str:
    """The name of what this test run makes."""
    return f"{PROJECT_PREFIX}{os.getpid()}{kind and '-'}{kind}"


def is_sender(service: str) -> bool:
    """It ends when it has sent the number of messages in its settings."""
    return "frontend" in service or service == "load"


def labelled(client: docker.DockerClient, label: str) -> list[Any]:
    """Containers, networks and volumes with a label (`name` or `name=value`), in the order in which
    they can be removed."""
    filters = {"label": label}
    found = client.containers.list(all=True, filters=filters)
    return [*found, *client.networks.list(filters=filters), *client.volumes.list(filters=filters)]


def made_of(client: docker.DockerClient, project: str) -> list[Any]:
    """Everything that carries the project's name: what was made beside Compose, and by it."""
    labels = (f"{RUN_LABEL}={project}", f"{engine.PROJECT_LABEL}={project}")
    return [thing for label in labels for thing in labelled(client, label)]


def remove(things: Iterable[Any]) -> None:
    for thing in things:
        if isinstance(thing, Container):
            thing.remove(force=True, v=True)
        elif isinstance(thing, Volume):
            with suppress(APIError):  # gone with its container
                thing.remove(force=True)
        else:
            thing.remove()


def sweep_dead_runs(client: docker.DockerClient) -> list[str]:
    """Remove everything of test runs whose process is gone; their projects.

    The pid is in the project's name.
    """
    projects = set()
    for thing in labelled(client, RUN_LABEL) + labelled(client, engine.PROJECT_LABEL):
        labels = thing.attrs.get("Labels") or thing.attrs.get("Config", {}).get("Labels") or {}
        projects.add(labels.get(engine.PROJECT_LABEL) or labels.get(RUN_LABEL) or "")
    swept = []
    for project in sorted(projects):
        pid = project.removeprefix(PROJECT_PREFIX).partition("-")[0]
        if project.startswith(PROJECT_PREFIX) and pid.isdecimal() and not is_running(pid):
            remove(made_of(client, project))
            swept.append(project)
    return swept


def is_running(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()
