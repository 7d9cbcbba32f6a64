"""`kafka2011 embedded start NAME` from another terminal: a line each way over a local socket.

Only the owner can open this Unix socket. Its path is in var/run/supervisor.json,
since a path below a deep directory can be too long for a socket address (108 bytes); the socket
is then put into a private temporary directory.
"""

import json
import os
import socket
import socketserver
import tempfile
from collections.abc import Callable
from pathlib import Path

from kafka2011.runtime.workers import Worker
from kafka2011.services.embedded.processes import write_json

SOCKET_PATH_MAX = 100
REQUEST_BYTES_MAX = 4096
CLIENT_TIMEOUT_S = 90.0


class ControlServer:
    """Answers requests `{"verb": ..., "name": ...}` with one line of text."""

    def __init__(self, root: Path, answer: Callable[[str, str], str]) -> None:
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
        self._worker = Worker(self._server.serve_forever, "control", restarts=True)
        self._worker.start()
        write_json(root / "run" / "supervisor.json", {"pid": os.getpid(), "socket": str(path)})

    def close(self) -> None:
        self._server.shutdown()
        self._worker.join()
        self._server.server_close()
        self._path.unlink(missing_ok=True)
        if self._private_directory is not None:
            self._private_directory.rmdir()


class NotRunning(RuntimeError):
    """No supervisor answers for this directory."""


def ask(root: Path, verb: str, name: str = "") -> str:
    """Send one request to the running supervisor. Returns its answer. Raises NotRunning."""
    try:
        state = json.loads((root / "run" / "supervisor.json").read_text(encoding="utf-8"))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CLIENT_TIMEOUT_S)
            connection.connect(state["socket"])
            connection.sendall(json.dumps({"verb": verb, "name": name}).encode() + b"\n")
            return connection.makefile(encoding="utf-8").readline().rstrip("\n")
    except (OSError, ValueError, KeyError):
        raise NotRunning(f"no embedded deployment runs under {root}") from None
