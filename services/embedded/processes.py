"""One process of the deployment: start, signal, probe, and its state file.

Every process leads its own process group, so that a signal also reaches its children, and ends with
the supervisor, even when that is killed: the process sees to it itself (runtime.lifeline), and the
JVMs below it end with it (ZooKeeper's by the same means, Spark's at the end of its standard input).
"""

import http.client
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kafka2011.coordination.four_letter_words import is_serving
from kafka2011.runtime import direct_http
from kafka2011.runtime.lifeline import PARENT_VARIABLE
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.process_state import is_paused, is_running, read_states
from kafka2011.services.embedded.topology import ProcessSpec

PROBE_TIMEOUT_S = 2.0

log = get_logger(__name__)


class StateFile:
    """A file that others read. A `write` that fails, as on a full disk, is logged and not raised;
    `is_due` is true from then until a later one succeeds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_due = False

    def write(self, value: Any) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        try:
            write_json(self._path, value)
        except OSError as error:
            if not self.is_due:
                log.warning("state_not_written", file=str(self._path), reason=reason_of(error))
            self.is_due = True
        else:
            self.is_due = False


class ManagedProcess:
    """One process of the deployment and its state file `var/run/<name>.json`."""

    def __init__(self, spec: ProcessSpec, root: Path) -> None:
        self.spec = spec
        self.log_path = root / "logs" / f"{spec.name}.log"
        self._state_file = StateFile(root / "run" / f"{spec.name}.json")
        self._progress_path = root / spec.name / "progress.json"
        self._temporary = root / "tmp" / spec.name
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.started_ms = 0
        self.start_count = 0
        self.is_stop_asked = False
        self.has_served = False  # since its last start

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def status(self) -> int | None:
        """The exit status (negative: signal), None while it runs or was never started."""
        return self._child.poll() if self._child is not None else None

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self, base_environment: Mapping[str, str], *, now_ms: int) -> None:
        """Start it, appending its output to its log file. Raises OSError when it cannot be run.

        Its temporary files are below the deployment's directory, and those of an earlier run are
        deleted: one that was killed has left them, as a JVM the libraries that it unpacks.
        """
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(parents=True, exist_ok=True)
        environment = child_environment(base_environment, self.spec.environment)
        environment["TMPDIR"] = str(self._temporary.resolve())
        self.is_stop_asked = False
        self.has_served = False
        with open(self.log_path, "ab") as log:
            if self.start_count:
                self._log_start = log.tell()
            self._child = subprocess.Popen(
                self.spec.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started_ms = now_ms
        self.start_count += 1
        self.write_state()

    @property
    def has_finished(self) -> bool:
        """Whether a finite process has done its work: it ended with status 0, or with 1 after it
        had sent everything, of which it could read less than half."""
        if not self.spec.is_finite or self.status not in (0, 1):
            return False
        return self.status == 0 or self.progress().get("finished") is True

    @property
    def is_done(self) -> bool:
        """Whether it ended as it should: it has finished, or stopped cleanly when it was asked."""
        return self.has_finished or (self.is_stop_asked and self.status == 0)

    def progress(self) -> dict[str, Any]:
        """What a frontend says of its work in progress.json; {} where there is none."""
        try:
            found = json.loads(self._progress_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def is_state_due(self) -> bool:
        """Whether the state file is out of date, since it could not be written."""
        return self._state_file.is_due

    def write_state(self) -> None:
        """Replace the state file; after a failure `is_state_due` is true."""
        state = {
            "name": self.spec.name,
            "kind": self.spec.kind,
            "datacenter": self.spec.datacenter,
            "pid": self.pid,
            "status": self.status,
            "running": self.is_running,
            "done": self.is_done,
            "started_ms": self.started_ms,
            "start_count": self.start_count,
            "ports": dict(self.spec.ports),
            "metrics_address": f"127.0.0.1:{self.spec.ports['metrics']}",
            "log": str(self.log_path),
            "command": list(self.spec.command),
            "environment": dict(self.spec.environment),
        }
        self._state_file.write(state)

    def signal(self, number: int) -> None:
        """Send a signal to the process group, if it still exists."""
        if self._child is None:
            return
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return

    def ask_to_stop(self) -> None:
        """Send SIGTERM, once: a second one would end it in the middle. Resumes a paused one."""
        if self._child is None or self._child.poll() is not None or self.is_stop_asked:
            return
        self.is_stop_asked = True
        self._child.send_signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def serves(self) -> bool:
        """Whether it answers that it is ready."""
        if self.spec.ready == "zookeeper":
            found = is_serving("127.0.0.1", self.spec.ports["client"], PROBE_TIMEOUT_S)
        else:
            address = f"127.0.0.1:{self.spec.ports['metrics']}"
            found = http_answer(f"http://{address}/healthz")[0] == 200
        self.has_served = self.has_served or found
        return found

    def log_tail(self, lines: int = 15) -> str:
        """The last `lines` of its log since this start and what set it up; empty without a log."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(self._log_start)
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def child_environment(inherited: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child of this process: those inherited, but no other settings of ours; its
    own settings; and the one by which it ends with this process."""
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("KAFKA2011_") or name == "KAFKA2011_PURE"
    }
    return {**kept, **settings, PARENT_VARIABLE: str(os.getpid())}


def states_now(root: Path) -> list[dict[str, Any]]:
    """The state files, with what is running and what is paused at this moment."""
    found = []
    for state in read_states(root):
        runs = is_running(state)
        known = {"done": False, **state}  # a supervisor of an older version does not say
        found.append({**known, "running": runs, "paused": runs and is_paused(state["pid"])})
    return found


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by the JSON of `value` in one rename."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def http_answer(url: str) -> tuple[int, str]:
    """The status and the text of a GET; 0 and no text when nothing answers."""
    try:
        try:
            answer = direct_http.opener.open(url, timeout=PROBE_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            answer = error  # an answer, too
        with answer:
            return int(answer.status), answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):  # the second: it ended inside its answer
        return 0, ""


def http_json(url: str, body: object = None) -> dict[str, Any] | None:
    """The JSON object of a GET, or of a POST of `body`; None when nothing usable answers."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - of a process of ours
    try:
        with direct_http.opener.open(request, timeout=PROBE_TIMEOUT_S) as answer:
            value = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return value if isinstance(value, dict) else None


def wait_for(condition: Callable[[], bool], timeout_s: float, pause_s: float = 0.1) -> bool:
    """Poll until the condition holds; False after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def run_to_end(
    command: Sequence[str],
    environment: Mapping[str, str],
    stop_asked: Callable[[], bool],
    **files: Any,
) -> int:
    """Run a command until it ends, or kill it when a stop is asked for. Returns its status."""
    with subprocess.Popen(command, env=environment, **files) as child:
        wait_for(lambda: child.poll() is not None or stop_asked(), math.inf)
        child.kill()  # harmless when it has ended
    return child.returncode


def free_port_source() -> Callable[[], int]:
    """A function that names free loopback ports, each only once."""
    given: set[int] = set()

    def free_port() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            if port not in given:
                given.add(port)
                return port

    return free_port


class Ports:
    """The ports of one deployment: the same in every run, as far as they are free.

    The base belongs to one deployment on the machine at a time. It is claimed by a socket's name,
    which the kernel frees with this process: the ports themselves are taken only seconds later. A
    second deployment, and one with base 0, gets any free ports.
    """

    def __init__(self, base: int) -> None:
        self.free = free_port_source()
        self._base = base
        self._given: set[int] = set()
        self.taken: list[int] = []  # wanted, and not free
        self.is_second = False  # another deployment has the base
        self._claims: list[socket.socket] = []

    def __enter__(self) -> Self:
        if not self._claimed(f"ports-{self._base}"):
            self._base, self.is_second = 0, bool(self._base)
        return self

    def __exit__(self, *_: object) -> None:
        for claim in self._claims:
            claim.close()

    def _claimed(self, name: str) -> bool:
        """Claim something until the end; False where another deployment has it."""
        claim = socket.socket(socket.AF_UNIX)
        self._claims.append(claim)
        try:
            claim.bind(f"\0kafka2011-{name}")
        except OSError:
            return False
        return True

    def take(self, port: int) -> bool:
        """Claim a port besides those of the base; False where it is not free, or is another
        deployment's that has yet to listen there."""
        return is_port_free(port) and self._claimed(f"port-{port}")

    def at(self, offset: int) -> int:
        """The port at `offset` from the base, or any free one."""
        port = self._base + offset
        if not self._base or port in self._given or not is_port_free(port):
            if self._base and port not in self._given:
                self.taken.append(port)
            return self.free()
        self._given.add(port)
        return port


def is_port_free(port: int) -> bool:
    """Whether a server could listen there now, on loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def end_leftovers(root: Path) -> list[str]:
    """Kill process groups that an earlier, killed supervisor left; returns their names."""
    ended = []
    for state in read_states(root):
        if is_running(state):
            try:
                os.killpg(state["pid"], signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.append(state["name"])
    return ended
