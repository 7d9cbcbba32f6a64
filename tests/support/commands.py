"""Real processes of ours for tests: `python -m kafka2011 COMMAND`, run to its end or left running.

    done = run("topics", "--zookeeper", zk_connect)          # a CompletedProcess, status 0

    with start_command("proxy", {"proxy.listen": "127.0.0.1:0"}, log=tmp_path / "proxy.log") as one:
        serving = one.wait_for_event("serving")              # the fields of that log line
        one.kill()

A process gets no KAFKA2011_ variable of the test's own environment but KAFKA2011_PURE.
"""

import atexit
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, Self

from kafka2011.runtime.config import environment_name
from kafka2011.runtime.lifeline import PARENT_VARIABLE
from tests import ROOT
from tests.support.waiting import DEADLINE_S, wait_until

KAFKA2011 = (sys.executable, "-m", "kafka2011")


HELD_MAX = 200  # the last ones: each is a descriptor
_held: deque[socket.socket] = deque()


@atexit.register
def _let_go() -> None:
    for holder in _held:
        holder.close()


def held_port() -> int:
    """A port of loopback that stays this test's: the kernel gives it to no other process while
    the server that a test starts on it, kills and starts again is away.

    A bound socket that does not listen holds it; a server that sets SO_REUSEADDR, as all of ours
    do, may listen there, and without one a connection is refused.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    if len(_held) > HELD_MAX:
        _held.popleft().close()
    port: int = holder.getsockname()[1]
    return port


def children_of(pid: int) -> list[int]:
    """The processes that it started and that still run."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # nothing may be there to take its status


def processor_s(pid: int) -> float:
    """The processor time that a process and its children have used."""
    used = 0.0
    for each in (pid, *children_of(pid)):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def interrupted(words: Sequence[object], after_processor_s: float) -> tuple[int, str]:
    """The status and the standard error of a command that gets Ctrl-C when it has used that much
    processor time. Nothing that it started then outlives it."""
    with Child([*KAFKA2011, *map(str, words)], cwd=ROOT, env=environment(), stderr=PIPE) as running:
        wait_until(lambda: processor_s(running.pid) > after_processor_s, "the command works")
        below = children_of(running.pid)
        running.send_signal(signal.SIGINT)
        status = running.wait(DEADLINE_S)
        wait_until(lambda: not any(map(_runs, below)), lambda: f"the end of {below}, its children")
        assert running.stderr is not None
        return status, running.stderr.read().decode()


def dotted(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings by the names of 0.7: `log_dir` is log.dir."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def set_options(settings: Mapping[str, object]) -> list[str]:
    """`--set name=value` for each, as the commands take them."""
    return [
        word for name, value in dotted(settings).items() for word in ("--set", f"{name}={value}")
    ]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a process of ours gets, with `more`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "KAFKA2011_PURE" or not name.startswith("KAFKA2011_")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **(more or {})}


def execute(
    words: Sequence[object],
    *,
    status: int | None = 0,
    text: str | bytes = "",
    variables: Mapping[str, str] | None = None,
    timeout_s: float = DEADLINE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command line on standard input `text` until it ends.

    AssertionError when its status is another than `status` (None: any will do). Output that is not
    UTF-8 is replaced by U+FFFD.
    """
    done = subprocess.run(
        [str(word) for word in words],
        input=text.encode() if isinstance(text, str) else text,
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert status in (None, done.returncode), (words, done.returncode, out[-2000:], err[-2000:])
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """`kafka2011 WORDS`; options as those of `execute`."""
    return execute([*KAFKA2011, *words], **options)


def run_python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python WORDS`; options as those of `execute`."""
    return execute([sys.executable, *words], **options)


class Child(subprocess.Popen[Any]):
    """A process that is killed at the end of its `with`, and also where a test that failed has left
    it: else it would fail the test in which it is collected."""

    def __exit__(self, *error: Any) -> None:
        self.kill()
        super().__exit__(*error)

    def __del__(self) -> None:
        if getattr(self, "pid", None):
            self.__exit__(None, None, None)
        super().__del__()


def hold(pid: int) -> None:
    """SIGSTOP; returns when it holds all threads. On a busy machine some go on for a while."""
    os.kill(pid, signal.SIGSTOP)

    def is_held() -> bool:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

    wait_until(is_held, f"process {pid} to be held")


class RunningProcess:
    """A child process whose standard error, and standard output unless `output` says where else,
    are appended to the file `log_path`. A `kafka2011` ends with the tests, however those end."""

    def __init__(
        self,
        words: list[str],
        log_path: Path,
        *,
        output: Path | None = None,
        variables: Mapping[str, str] | None = None,
        stdin: Path = Path(os.devnull),
        cwd: Path = ROOT,
    ) -> None:
        self.log_path = log_path
        self.output = output or log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        # The command itself takes the variable away; to other programs it is an unknown setting.
        parent = {PARENT_VARIABLE: str(os.getpid())} if "kafka2011" in words else {}
        with (
            stdin.open("rb") as given,
            log_path.open("ab") as errors,
            self.output.open("ab") as printed,
        ):
            self._log_start = errors.tell()
            self.process = Child(
                words,
                cwd=cwd,
                env={**environment(variables), **parent},
                stdin=given,
                stdout=printed,
                stderr=errors,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def log(self) -> str:
        """What it has printed so far, since this start."""
        with self.log_path.open("rb") as output:
            output.seek(self._log_start)
            return output.read().decode("utf-8", "replace")

    def lines(self) -> list[str]:
        """The whole lines on its standard output so far."""
        return self.output.read_text(errors="replace").split("\n")[:-1]

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of the event `name`, oldest first."""
        found = []
        for line in self.log().splitlines():
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    fields = json.loads(line)
                    if fields.get("event") == name:
                        found.append(fields)
            elif f"event={name}" in line.split():
                found.append(dict(re.findall(r"(\w+)=(\S+)", line)))
        return found

    def wait_for_event(self, name: str, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """The first log line of the event `name`; AssertionError when the process ends first."""

        def logged() -> list[dict[str, Any]]:
            found = self.events(name)
            if not found and not self.is_running:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log()}")
            return found

        return wait_until(logged, lambda: f"no {name!r} in\n{self.log()}", timeout_s)[0]

    @property
    def metrics_address(self) -> str:
        return str(self.wait_for_event("serving")["metrics"])

    def get(self, path: str, body: object = None) -> str:
        """A page of its metrics port; with `body`, the answer to a POST of it as JSON."""
        request = urllib.request.Request(
            f"http://{self.metrics_address}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())

    def get_json(self, path: str, body: object = None) -> Any:
        return json.loads(self.get(path, body))

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def pause(self) -> None:
        hold(self.pid)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for the end; the exit status."""
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def stop(self, timeout_s: float = DEADLINE_S) -> int:
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self.resume()
            self.kill()


def start_command(
    command: str, settings: Mapping[str, object], log: Path, failpoints: str = ""
) -> RunningProcess:
    """Start a command that logs JSON lines; `settings` become environment variables, as in the
    embedded deployment and in containers."""
    variables = {
        "KAFKA2011_LOG_FORMAT": "json",
        "KAFKA2011_EVENT_FORMS": "*:2011",  # no registry, unless a test has one
        **({"KAFKA2011_FAILPOINTS": failpoints} if failpoints else {}),
        **{environment_name(name): str(value) for name, value in settings.items()},
    }
    return RunningProcess([*KAFKA2011, *command.split()], log, variables=variables)
