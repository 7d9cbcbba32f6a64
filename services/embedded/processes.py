"""One process of the deployment: start, signal, probe, and its state file.

Every process leads its own process group, so that a signal also reaches its children (spark-submit
is a shell, a JVM and a Python driver), and dies with the supervisor (PR_SET_PDEATHSIG), so that
none is left even when the supervisor is killed.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kafka2011.services.embedded.topology import ProcessSpec

PR_SET_PDEATHSIG = 1
PROBE_TIMEOUT_S = 2.0


_libc = ctypes.CDLL(None)  # loaded here: nothing may be loaded between fork and exec


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ManagedProcess:
    """One process of the deployment and its state file `var/run/<name>.json`."""

    def __init__(self, spec: ProcessSpec, root: Path) -> None:
        self.spec = spec
        self.log_path = root / "logs" / f"{spec.name}.log"
        self._state_path = root / "run" / f"{spec.name}.json"
        self._child: subprocess.Popen[bytes] | None = None
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
        """Start it, appending its output to its log file. Raises OSError when it cannot be run."""
        environment = {
            name: value
            for name, value in base_environment.items()
            if not name.startswith("KAFKA2011_") or name in ("KAFKA2011_PURE",)
        }
        environment.update(self.spec.environment)
        self.is_stop_asked = False
        self.has_served = False
        with open(self.log_path, "ab") as log:
            self._child = subprocess.Popen(
                self.spec.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (one system call, no locks)
            )
        self.started_ms = now_ms
        self.start_count += 1
        self.write_state()

    def write_state(self) -> None:
        """Replace the state file in one step, so that a reader never sees half of it."""
        state = {
            "name": self.spec.name,
            "kind": self.spec.kind,
            "datacenter": self.spec.datacenter,
            "pid": self.pid,
            "status": self.status,
            "running": self.is_running,
            "started_ms": self.started_ms,
            "start_count": self.start_count,
            "ports": dict(self.spec.ports),
            "metrics_address": f"127.0.0.1:{self.spec.ports['metrics']}",
            "log": str(self.log_path),
            "command": list(self.spec.command),
            "environment": dict(self.spec.environment),
        }
        write_json(self._state_path, state)

    def signal(self, number: int) -> None:
        """Send a signal to the process group, if it still exists."""
        if self._child is None:
            return
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return

    def ask_to_stop(self) -> None:
        """SIGTERM to the process, or to the Python driver below a launcher."""
        self.is_stop_asked = True
        if self._child is None or self._child.poll() is not None:
            return
        drivers = python_descendants(self._child.pid) if self.spec.stop_driver else []
        for pid in drivers or [self._child.pid]:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue

    def serves(self) -> bool:
        """Whether it answers that it is ready."""
        if self.spec.ready == "zookeeper":
            found = b"Mode:" in four_letter_word(self.spec.ports["client"], b"srvr")
        else:
            address = f"127.0.0.1:{self.spec.ports['metrics']}"
            found = http_status(f"http://{address}/healthz") == 200
        self.has_served = self.has_served or found
        return found

    def log_tail(self, lines: int = 15) -> str:
        try:
            text = self.log_path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def is_alive(pid: int | None) -> bool:
    """Whether a process of this id runs (a zombie does not)."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def is_ours(pid: int | None, name: str) -> bool:
    """Whether `pid` is the process that was started as `name`. A reused pid belongs to another
    process, which must not be signalled."""
    if not is_alive(pid):
        return False
    try:
        variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"KAFKA2011_PROCESS_NAME={name}".encode() in variables


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by the JSON of `value` in one rename."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def python_descendants(pid: int) -> list[int]:
    """The leaf-most Python processes below `pid` whose command names a job script."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found = []
    for candidate in parents:
        ancestor = candidate
        while ancestor in parents and ancestor != pid:
            ancestor = parents[ancestor]
        if ancestor != pid or candidate == pid:
            continue
        try:
            words = Path("/proc", str(candidate), "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"python" in os.path.basename(words[0]) and words[-2:-1][0].endswith(b".py"):
            found.append(candidate)
    return found


def four_letter_word(port: int, word: bytes) -> bytes:
    """ZooKeeper's answer, or empty when it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PROBE_TIMEOUT_S) as connection:
            connection.sendall(word)
            answer = b""
            while block := connection.recv(4096):
                answer += block
            return answer
    except OSError:
        return b""


def http_status(url: str) -> int:
    """The status of a GET, 0 when nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def http_json(url: str) -> dict[str, Any] | None:
    """The JSON object of a GET, None when nothing usable answers."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as answer:  # noqa: S310
            value = json.loads(answer.read())
    except (OSError, ValueError):
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
    for state_path in sorted((root / "run").glob("*.json")):
        try:
            state = json.loads(state_path.read_text(encoding="utf-8"))
            pid, name = int(state["pid"]), str(state["name"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_ours(pid, name):
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.append(name)
    return ended
