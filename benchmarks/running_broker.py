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
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 30


@dataclass(frozen=True)
class RunningBroker:
    host: str
    port: int
    log_dir: Path
    pid: int

    @property
    def broker_list(self) -> str:
        return f"0:{self.host}:{self.port}"

    def cpu_s(self) -> float:
        """User and system CPU seconds that the process has used."""
        fields = (
            Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def running_broker(data_dir: Path, **settings: object) -> Iterator[RunningBroker]:
    """Start, wait until it answers, yield, stop, and remove the directory."""
    log_dir = Path(tempfile.mkdtemp(prefix="bench-", dir=data_dir))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = {
        "brokerid": 0,
        "port": port,
        "log.dir": log_dir / "logs",
        "quarantine.dir": log_dir / "quarantine",
        "enable.zookeeper": "false",
    } | {name.replace("_", "."): value for name, value in settings.items()}
    command = [sys.executable, "-m", "cli", "broker"]
    for name, value in words.items():
        command += ["--set", f"{name}={value}"]
    with open(log_dir / "broker.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start: see {log_dir}/broker.log")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield RunningBroker("127.0.0.1", port, log_dir / "logs", process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        shutil.rmtree(log_dir, ignore_errors=True)
