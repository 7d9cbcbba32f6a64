"""One broker process without ZooKeeper, on a fresh directory, for the length of a measurement."""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.brokers import broker_command
from tests.support.commands import RunningProcess

START_TIMEOUT_S = 60
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class RunningBroker:
    """Its address and its use of the machine; `stop` and `start` for questions about recovery."""

    def __init__(self, directory: Path, settings: dict[str, object]) -> None:
        self.directory = directory
        self.log_dir = directory / "logs"
        self.host = "127.0.0.1"
        with socket.socket() as probe:
            probe.bind((self.host, 0))
            self.port: int = probe.getsockname()[1]
        words = {"log_dir": self.log_dir, "quarantine_dir": directory / "quarantine", **settings}
        self._command = broker_command(directory, port=self.port, metrics=False, **words)
        self._process: RunningProcess | None = None

    @property
    def broker_list(self) -> str:
        return f"0:{self.host}:{self.port}"

    @property
    def process(self) -> RunningProcess:
        assert self._process is not None
        return self._process

    def start(self) -> float:
        """Start and wait until it takes connections; returns the seconds that took."""
        began = time.perf_counter()
        self._process = RunningProcess(self._command, self.directory / "broker.log")
        while True:
            is_late = time.perf_counter() - began > START_TIMEOUT_S
            if is_late or not self.process.is_running:
                raise RuntimeError(f"no broker: {self.process.log()}")
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                return time.perf_counter() - began
            except OSError:
                time.sleep(0.005)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.signal(signal_number)
            self._process.wait()
            self._process = None

    def cpu_s(self) -> float:
        """User and system CPU seconds that the process has used."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_mib(self) -> float:
        return self.process.resident_bytes() / 2**20


@contextmanager
def running_broker(data_dir: Path, **settings: object) -> Iterator[RunningBroker]:
    """Start, wait until it answers, yield, stop, and remove the directory. `settings` are 0.7's
    names with `_` for `.`."""
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=data_dir))
    broker = RunningBroker(directory, settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
