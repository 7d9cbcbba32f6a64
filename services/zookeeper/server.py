"""One ZooKeeper server as a child process: start it, wait until it serves, stop it.

    with ZooKeeperServer(config, java_home) as server:
        server.start()
        ... server.port ...

The kernel kills the JVM when this process dies, however it dies, so that no ZooKeeper is left
running. (Linux counts the thread that called `start` as the parent: call it from one that lives as
long as the server should.)
"""

import contextlib
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka2011.coordination.four_letter_words import is_serving
from kafka2011.runtime.lifeline import die_with_parent
from kafka2011.runtime.os_errors import CannotListen, listening_on
from kafka2011.services.zookeeper import launch
from kafka2011.services.zookeeper.config import ZooKeeperConfig

PORT_ATTEMPTS = 5  # another process may take the free port before ZooKeeper binds it
POLL_INTERVAL_S = 0.05


class NotServing(RuntimeError):
    """The server ended, or did not serve before its deadline. The text is one line."""


class ZooKeeperServer:
    """The child process. Not thread-safe, except that `stop` may come from anywhere.

    `purges`: it removes old snapshots, and prints each.
    """

    def __init__(
        self, config: ZooKeeperConfig, java_home: str = "", *, purges: bool = True
    ) -> None:
        self._config = config
        self._purges = purges
        self._java = launch.find_java(java_home)
        self._jars = launch.find_jars(config.jars_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self.host = "127.0.0.1" if config.bind_address in ("0.0.0.0", "") else config.bind_address
        self.port = config.client_port

    @property
    def pid(self) -> int:
        """The JVM's process id: the one to freeze with SIGSTOP."""
        assert self._process is not None, "start() comes first"
        return self._process.pid

    def start(self, stop: threading.Event | None = None) -> bool:
        """Start the JVM and return True when it serves, False when `stop` was set before.

        Raises NotServing when it ends, or stays silent for `zk.start.timeout.ms`, or another
        ZooKeeper has the port; CannotListen when something else has it. No JVM of this object runs
        then, nor after False.
        """
        deadline = time.monotonic() + self._config.start_timeout_ms / 1000
        attempts = PORT_ATTEMPTS if self._config.client_port == 0 else 1
        for attempt in range(1, attempts + 1):
            try:
                self.port = _port_to_take(self._config.bind_address, self._config.client_port)
            except CannotListen:
                if not is_serving(self.host, self.port):
                    raise
                raise NotServing(
                    f"another ZooKeeper serves at {self.host}:{self.port} already: "
                    "use that one, or set zk.client.port to another port"
                ) from None
            self._process = self._spawn(self.port)
            try:
                if self._wait(deadline, stop or threading.Event()):
                    return True
                self.stop()
                return False
            except NotServing:
                ended_by_itself = self.status() is not None
                self.stop()
                if attempt == attempts or not ended_by_itself:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def status(self) -> int | None:
        """The JVM's exit status (negative: the signal that ended it), or None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the JVM's end; None when it still runs after `timeout_s` seconds."""
        assert self._process is not None, "start() comes first"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> int | None:
        """End the JVM: SIGTERM, and SIGKILL after `zk.stop.timeout.ms`. Returns its status.

        Harmless when it never ran or has ended.
        """
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.terminate()
            if self.wait(self._config.stop_timeout_ms / 1000) is None:
                self.kill()
        return self._process.poll()

    def kill(self) -> None:
        """Kill the JVM, like a crash; the data stays and `start` may be called again."""
        assert self._process is not None, "start() comes first"
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)  # a frozen process is killed as well
            self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        conf_dir, data_dir = self._config.conf_dir, self._config.snapshots
        for directory in (conf_dir, data_dir):
            directory.mkdir(parents=True, exist_ok=True)
        if self._config.ensemble:
            _write(data_dir / "myid", f"{self._config.server_id}\n")
        _write(conf_dir / "zoo.cfg", launch.zoo_cfg(self._config, port, purges=self._purges))
        _write(
            conf_dir / "log4j2.properties",
            launch.LOG4J_PROPERTIES.format(level=self._config.log_level),
        )
        return subprocess.Popen(
            launch.command(self._config, self._java, self._jars, conf_dir),
            stdin=subprocess.DEVNULL,
            stdout=2,  # what it prints belongs to the log
            # One system call between fork and exec; it takes no lock that another thread may hold.
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )

    def _wait(self, deadline: float, stop: threading.Event) -> bool:
        while not is_serving(self.host, self.port):
            status = self.wait(POLL_INTERVAL_S)
            if stop.is_set():
                return False
            if status is not None:
                raise NotServing(f"ZooKeeper ended with status {status} before it served")
            if time.monotonic() > deadline:
                raise NotServing(
                    f"ZooKeeper did not serve within {self._config.start_timeout_ms} ms"
                )
        return True


def _port_to_take(bind_address: str, port: int) -> int:
    """`port`, or a free one for 0. Raises CannotListen for a port that is taken, which the JVM
    would only report in a stack trace."""
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    with listening_on(bind_address, port, "zk.client.port"), socket.socket(family) as probe:
        if port:  # a port freed just now may be used again, as ZooKeeper does
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((bind_address, port))
        taken: int = probe.getsockname()[1]
        return taken


def _write(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8")
