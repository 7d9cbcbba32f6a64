"""`kafka2011 embedded stop|start|restart` from another terminal, and the record of what runs.

A request is a line each way over a local socket that only the owner can open. Its path is in
run/supervisor.json, since a path below a deep directory can be too long for a socket address
(108 bytes); the socket is then put into a private temporary directory. The record, there as long as
the deployment runs:

    {"pid", "socket", "command": "demo" or "up", "directory",
     "zookeeper": {"live": "127.0.0.1:p", "offline": ...}, "registry": "http://127.0.0.1:p",
     "brokers": {"broker-1": "127.0.0.1:p", ...}, "dashboard": "http://127.0.0.1:p" or null,
     "serves": whether everything has been started and served}
"""

import errno
import fcntl
import json
import os
import shlex
import socket
import socketserver
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.program import from_here, program
from kafka2011.runtime.workers import Worker
from kafka2011.services.embedded.config import DEFAULT_DIRECTORY
from kafka2011.services.embedded.processes import StateFile, wait_for, write_json
from kafka2011.services.embedded.running import MARK, RECORD, runs
from kafka2011.services.embedded.topology import LOOPBACK, ProcessSpec

SOCKET_PATH_MAX = 100
REQUEST_BYTES_MAX = 4096
CLIENT_TIMEOUT_S = 180.0  # above what the supervisor takes to begin a request and carry it out
LOCK_TIMEOUT_S = 0.2
SETTINGS_WORD = "settings "  # begins the mark's line of settings


def addresses(specs: Sequence[ProcessSpec]) -> dict[str, Any]:
    """The addresses of the record: what another program connects to."""
    found: dict[str, Any] = {"zookeeper": {}, "registry": None, "brokers": {}, "dashboard": None}
    for spec in specs:
        if spec.kind == "zookeeper":
            found["zookeeper"][spec.datacenter] = f"{LOOPBACK}:{spec.ports['client']}"
        elif spec.kind == "broker":
            found["brokers"][spec.name] = f"{LOOPBACK}:{spec.ports['broker']}"
        elif spec.kind == "registry":
            found["registry"] = f"http://{LOOPBACK}:{spec.ports['registry']}"
        elif spec.kind == "dashboard":
            found["dashboard"] = f"http://{LOOPBACK}:{spec.ports['page']}"
    return found


class ControlServer:
    """Answers requests `{"verb": ..., "name": ...}` with one line of text."""

    def __init__(
        self,
        root: Path,
        answer: Callable[[str, str], str],
        record: Mapping[str, Any] | None = None,
    ) -> None:
        path = (root / "run" / "supervisor.sock").resolve()
        self._private_directory: Path | None = None
        if len(str(path)) > SOCKET_PATH_MAX:
            self._private_directory = Path(tempfile.mkdtemp(prefix="kafka2011-"))
            path = self._private_directory / "supervisor.sock"
        path.unlink(missing_ok=True)

        class Handler(socketserver.StreamRequestHandler):
            timeout = CLIENT_TIMEOUT_S

            def handle(self) -> None:
                try:
                    request = json.loads(self.rfile.readline(REQUEST_BYTES_MAX))
                    verb, name = str(request["verb"]), str(request.get("name", ""))
                except (ValueError, KeyError, TypeError, AttributeError):
                    self.wfile.write(b"error: not a request\n")
                    return
                self.wfile.write(answer(verb, name).encode() + b"\n")

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        mask = os.umask(0o177)
        try:
            self._server = Server(str(path), Handler)
        finally:
            os.umask(mask)
        self._path = path
        self._record = root / RECORD
        self._worker = Worker(self._server.serve_forever, "control", restarts=True)
        self._worker.start()
        self._recorded = {"pid": os.getpid(), "socket": str(path), **(record or {})}
        write_json(self._record, {**self._recorded, "serves": False})

    def note_serving(self, serves: bool) -> None:
        """Keep in the record whether everything has been started and served."""
        StateFile(self._record).write({**self._recorded, "serves": serves})

    def close(self) -> None:
        self._server.shutdown()
        self._worker.join()
        self._server.server_close()
        self._record.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)
        if self._private_directory is not None:
            self._private_directory.rmdir()


class NotRunning(RuntimeError):
    """No supervisor answers for this directory. The text is one line."""

    def __init__(self, root: Path) -> None:
        where = "`make live` starts one, --dir looks in another directory"
        super().__init__(f"no deployment runs under {root}: {where}")


class TakesNoRequests(NotRunning):
    """A supervisor has the directory, and answers none. The text is one line."""

    def __init__(self, root: Path) -> None:
        RuntimeError.__init__(
            self,
            f"the deployment under {root} takes no requests: it is starting, or being stopped",
        )


class DirectoryRefused(RuntimeError):
    """The directory cannot be a deployment's. The text is one line."""


class AlreadyRuns(DirectoryRefused):
    """Another deployment has the directory. The text has its pid and directory."""


def to_paste(
    root: Path, *words: str, command: str = "embedded", names_default: bool = False
) -> str:
    """The line to paste into a shell in the current directory: `kafka2011 embedded WORDS`, or
    another command with --dir, for the deployment under `root`. `names_default`: name the default
    directory too, since another deployment may be the one that runs here."""
    is_default = from_here(root) == DEFAULT_DIRECTORY and not names_default
    place = () if is_default else ("--dir", from_here(root))
    return f"{program()} {shlex.join([command, *words, *place])}"


def ask(root: Path, verb: str, name: str = "") -> str:
    """Send one request to the running supervisor. Returns its answer, which begins with `error` if
    it was not done. Raises NotRunning, also when the supervisor ends before it answers, and
    TakesNoRequests."""
    try:
        state = json.loads((root / RECORD).read_text(encoding="utf-8"))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CLIENT_TIMEOUT_S)
            connection.connect(state["socket"])
            connection.sendall(json.dumps({"verb": verb, "name": name}).encode() + b"\n")
            answer = connection.makefile(encoding="utf-8").readline().rstrip("\n")
    except TimeoutError:
        limit = f"{CLIENT_TIMEOUT_S:.0f} s"
        return (
            f"error: the supervisor did not answer within {limit}; the request may still be "
            "carried out"
        )
    except (OSError, ValueError, KeyError, TypeError):
        answer = ""
    if not answer:
        raise TakesNoRequests(root) if runs(root) else NotRunning(root)
    return answer


def is_serving(root: Path) -> bool:
    """Whether the deployment under `root` has started, and is not being stopped."""
    try:
        record = json.loads((root / RECORD).read_text(encoding="utf-8"))
        return record["serves"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


class LastUse(NamedTuple):
    """What a directory's mark says of the command that had it last; see `last_command` and
    `last_settings`."""

    command: str
    settings: str | None


@contextmanager
def held(
    root: Path,
    command: str,
    settings: str | None = None,
    check: Callable[[], object] = lambda: None,
) -> Iterator[LastUse]:
    """Hold the directory for this process alone; gives how it was used last. Raises AlreadyRuns,
    and DirectoryRefused where it cannot be made or written.

    `check` looks at what is in the directory once no other has it: what it raises is raised, and
    the mark stays as it was. The mark's second line says which command had it last, and its process
    id; a third line has that command's `settings`, if given.
    """

    def is_locked() -> bool:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    text = f"Made by `kafka2011 embedded`; its `demo` empties it.\n{command} {os.getpid()}\n"
    if settings is not None:
        text += f"{SETTINGS_WORD}{settings}\n"
    with ExitStack() as closing:
        try:
            root.mkdir(parents=True, exist_ok=True)
            mark = os.open(root / MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise DirectoryRefused(
                f"{error.filename}: {error.strerror}; choose a directory of your own "
                "(make: DIR=, --dir)"
            ) from None
        closing.callback(os.close, mark)
        if not wait_for(is_locked, LOCK_TIMEOUT_S, 0.02):  # longer than `runs` elsewhere holds it
            other, pid = last_command(root)
            raise AlreadyRuns(
                f"a deployment already runs under {root.resolve()} ({other}, pid {pid}); "
                f"stop it ({to_paste(root, 'stop')}) or choose another directory "
                "(make: DIR=, --dir)"
            )
        last = LastUse(last_command(root)[0], last_settings(root))
        check()
        try:
            _overwrite(mark, text.encode(errors="surrogateescape"))
        except OSError as error:
            raise DirectoryRefused(f"{root / MARK}: {error.strerror}") from None
        yield last


@contextmanager
def preparing(root: Path) -> Iterator[None]:
    """Raises DirectoryRefused for an OSError of the block, which looks at the directory or changes
    it: what is in it may be another user's, or its disk full."""
    try:
        yield
    except OSError as error:
        file = "" if error.filename else f"{root}: "
        raise DirectoryRefused(
            f"{file}{reason_of(error)}; choose another directory (--dir, make: DIR=)"
        ) from None


def _overwrite(file: int, data: bytes) -> None:
    """Give the file this content, in the room that it has where that is enough: a disk that is full
    must not leave it empty. Raises OSError."""
    if os.pwrite(file, data, 0) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(file, len(data))
    os.fsync(file)


def last_command(root: Path) -> tuple[str, str]:
    """The command that has or had the directory ("demo", "up") and its process id; "?" for what is
    not known."""
    command, pid = [*_marked(root, 1).split(), "?", "?"][:2]
    return command, pid


def stopped_text(root: Path) -> str:
    """What the user should know after a stop: what is safe, and how to audit it."""
    return (
        "all that was confirmed to producers is on the brokers' disks; what is not in the "
        "warehouse yet waits for the next start, which loads it. The audit's counts end where it "
        "was stopped; this counts the files:\n"
        f"  {to_paste(root, command='audit', names_default=True)}"
    )


def last_settings(root: Path) -> str | None:
    """The settings of the directory's last deployment, as they stand on a command line; None when
    they are not known."""
    line = _marked(root, 2)
    return line.removeprefix(SETTINGS_WORD) if line.startswith(SETTINGS_WORD) else None


def _marked(root: Path, number: int) -> str:
    try:
        text = (root / MARK).read_text(encoding="utf-8", errors="surrogateescape")
        return text.split("\n")[number]
    except (OSError, IndexError):
        return ""
