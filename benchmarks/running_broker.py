"""One broker process without ZooKeeper, on a fresh directory, for the length of a measurement."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_TIMEOUT_S = 60
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class RunningBroker:
    """Its address and its use of the machine; `kill` and `start` for questions about recovery."""

    def __init__(self, directory: Path, settings: dict[str, object]) -> None:
        self.directory = directory
        self.log_dir = directory / "logs"
        self.host = "127.0.0.1"
        with socket.socket() as probe:
            probe.bind((self.host, 0))
            self.port: int = probe.getsockname()[1]
        words = {
            "brokerid": 0,
            "port": self.port,
            "log.dir": self.log_dir,
            "quarantine.dir": directory / "quarantine",
            "enable.zookeeper": "false",
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self._command = [sys.executable, "-m", "kafka2011", "broker"]
        for name, value in words.items():
            self._command += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def broker_list(self) -> str:
        return f"0:{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start and wait until it takes connections; returns the seconds that took."""
        began = time.perf_counter()
        with open(self.directory / "broker.log", "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        while True:
            if self._process.poll() is not None or time.perf_counter() - began > START_TIMEOUT_S:
                raise RuntimeError(f"no broker: {(self.directory / 'broker.log').read_text()}")
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                return time.perf_counter() - began
            except OSError:
                time.sleep(0.005)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(timeout=60)
            self._process = None

    def cpu_s(self) -> float:
        """User and system CPU seconds that the process has used."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * PAGE_MIB


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
