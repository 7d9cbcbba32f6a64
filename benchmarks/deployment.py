"""A whole embedded deployment to measure, and what each of its processes uses of the machine.

Processor time is from /proc/PID/stat, in ticks of 10 ms, so a measurement takes a minute; memory is
the proportional set size, in which pages that processes share count once in all.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka2011.runtime.process_state import read_states
from kafka2011.services.embedded.processes import http_json
from tests.support.commands import KAFKA2011, RunningProcess, set_options
from tests.support.waiting import wait_until

START_TIMEOUT_S = 300.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MIB = 2**20
SUPERVISOR = "supervisor"


@dataclass(frozen=True)
class Use:
    """What a process has used: seconds of processor time so far, bytes at this moment."""

    cpu_s: float
    resident_bytes: int
    proportional_bytes: int


@dataclass(frozen=True)
class Rate:
    """What a process used between two moments: ms of processor time a second, MiB at the end."""

    name: str
    cpu_ms_per_s: float
    resident_mib: float
    proportional_mib: float


class Deployment:
    """`kafka2011 embedded` in `root`, which serves."""

    def __init__(self, root: Path, process: RunningProcess) -> None:
        self.root = root
        self._process = process

    def pids(self) -> dict[int, str]:
        """Each process and its descendants: pid -> name; a child's is its parent's and its own."""
        named = {
            int(state["pid"]): str(state["name"])
            for state in read_states(self.root)
            if state["pid"] is not None
        }
        named[self._process.pid] = SUPERVISOR
        parents = _parents()
        found = {}
        for pid in parents:
            chain = [pid]
            while chain[-1] not in named and parents.get(chain[-1]):
                chain.append(parents[chain[-1]])
            if chain[-1] in named:
                own = f", {_kind(pid)}" if len(chain) > 1 else ""
                found[pid] = named[chain[-1]] + own
        return found

    def used(self) -> dict[int, tuple[str, Use]]:
        """By pid; a process that ends meanwhile is left out."""
        found = {}
        for pid, name in self.pids().items():
            try:
                found[pid] = name, use_of(pid)
            except (OSError, ValueError):
                continue
        return found

    def audit(self) -> dict[str, Any] | None:
        """The audit service's summary; None while it does not answer."""
        [port] = [
            state["ports"]["metrics"]
            for state in read_states(self.root)
            if state["name"] == "audit"
        ]
        return http_json(f"http://127.0.0.1:{port}/audit/summary")

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def wait(self, timeout_s: float) -> int:
        """The exit status of a demo, once it has ended."""
        return self._process.wait(timeout_s)

    def log(self) -> str:
        return self._process.log()


@contextmanager
def running(
    root: Path, settings: Mapping[str, object], subcommand: str = "up"
) -> Iterator[Deployment]:
    """Start on what `root` holds, wait until everything serves, and stop cleanly at the end."""
    command = [*KAFKA2011, "embedded", subcommand, "--dir", str(root), *set_options(settings)]
    with RunningProcess(command, root.with_suffix(".log")) as process:
        wait_until(
            lambda: "processes serve after" in process.log() or not process.is_running,
            process.log,
            START_TIMEOUT_S,
            poll_s=0.2,
        )
        if not process.is_running:
            raise RuntimeError(f"the deployment did not start:\n{process.log()}")
        try:
            yield Deployment(root, process)
        finally:
            if process.is_running:
                process.stop(START_TIMEOUT_S)


def rates(
    before: Mapping[int, tuple[str, Use]], after: Mapping[int, tuple[str, Use]], seconds: float
) -> list[Rate]:
    """By name, the greediest first. A process that was not there before counts from its start."""
    by_name: dict[str, Rate] = {}
    for pid, (name, use) in after.items():
        cpu_s = use.cpu_s - (before[pid][1].cpu_s if pid in before else 0.0)
        old = by_name.get(name, Rate(name, 0.0, 0.0, 0.0))
        by_name[name] = Rate(
            name,
            old.cpu_ms_per_s + 1000 * cpu_s / seconds,
            old.resident_mib + use.resident_bytes / MIB,
            old.proportional_mib + use.proportional_bytes / MIB,
        )
    return sorted(by_name.values(), key=lambda rate: -rate.cpu_ms_per_s)


def measured(deployment: Deployment, seconds: float) -> list[Rate]:
    """What each process uses in `seconds` from now."""
    before, began_s = deployment.used(), time.monotonic()
    time.sleep(seconds)
    after = deployment.used()
    return rates(before, after, time.monotonic() - began_s)


def use_of(pid: int) -> Use:
    """Raises OSError: it has ended."""
    directory = Path("/proc", str(pid))
    fields = (directory / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    sizes = {}
    for line in (directory / "smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) * 1024
    return Use((int(fields[11]) + int(fields[12])) / TICKS_PER_S, sizes["Rss"], sizes["Pss"])


def descendants(root: int | None = None) -> list[int]:
    """The process (default: this one) and all below it."""
    parents = _parents()
    found = [os.getpid() if root is None else root]
    for pid in found:  # grows meanwhile
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _parents() -> dict[int, int]:
    """pid -> its parent's, of all processes."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue
    return found


def _kind(pid: int) -> str:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return "JVM" if words[0].endswith(b"java") else "Python worker"
