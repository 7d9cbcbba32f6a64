"""Runs the processes: starts them in order, waits until each serves, reports when one ends.

Everything happens on the thread that calls `poll`: the kernel kills a child when the *thread* that
started it ends (PR_SET_PDEATHSIG), so requests from other threads are queued for it. A process that
ends is reported in one line, and the others continue. A stop follows the stream (STOP_ORDER), so
that what is sent is taken, and nothing has to be sent again.
"""

import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka2011
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.process_state import is_paused, read_states
from kafka2011.runtime.program import from_here
from kafka2011.services.embedded.control import to_paste
from kafka2011.services.embedded.processes import (
    ManagedProcess,
    StateFile,
    child_environment,
    end_leftovers,
    run_to_end,
    wait_for,
)
from kafka2011.services.embedded.topology import ProcessSpec

STOP_GRACE_S = 15.0
KILL_WAIT_S = 60.0
REQUEST_WAIT_S = 60.0  # until a request is begun
# The kinds of processes in the order of a stop; each stage has ended before the next is asked.
# What is in none of them (audit, loader, dashboard, balancer and link) is the stage OTHERS.
OTHERS: tuple[str, ...] = ()
STOP_ORDER = (
    ("frontend", "site"),  # the site publishes measurements
    ("mirror", "online-consumer"),
    OTHERS,
    ("registry", "broker"),
    ("zookeeper",),
)
RESTARTS_MAX = 1_000  # kept on record, the newest
SERVING_POLL_S = 0.05
_RECEIVING_ONLY = re.compile(r"(west-)?audit|dashboard|online-\d+|registry")

log = get_logger(__name__)


class StartFailed(RuntimeError):
    """A process ended or did not serve in time. The text is one line with the log's path."""


class Request:
    """A request from another thread: it is either carried out and answered, or cancelled."""

    def __init__(self, name: str, work: Callable[[], str]) -> None:
        """`name`: the process that it concerns."""
        self.answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._name = name
        self._work = work
        self._lock = threading.Lock()
        self._is_begun = self._is_cancelled = False

    def carry_out(self) -> None:
        """Do the work and answer, unless it is cancelled. A failure is the answer."""
        with self._lock:
            if self._is_cancelled:
                return
            self._is_begun = True
        try:
            answer = self._work()
        except Exception as error:
            log.exception("request_failed", process=self._name)
            answer = f"error: {self._name}: {reason_of(error)}"
        self.answer.put(answer)

    def cancel(self) -> bool:
        """Prevent the work. Returns False if it has begun already: an answer will come."""
        with self._lock:
            self._is_cancelled = not self._is_begun
            return self._is_cancelled


class Supervisor:
    """The processes of one deployment under `root`.

    `report` receives one line for each event that concerns the user. `stop_asked` ends waits early
    (Ctrl-C).
    """

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        root: Path,
        *,
        environment: Mapping[str, str],
        report: Callable[[str], None],
        stop_asked: Callable[[], bool],
        clock: Clock = now_ms,
    ) -> None:
        self._root = root
        self._environment = environment
        self._report = report
        self._stop_asked = stop_asked
        self._clock = clock
        self.processes = {spec.name: ManagedProcess(spec, root) for spec in specs}
        self._reported: set[tuple[str, int]] = set()
        self._paused: set[str] = set()  # reported as paused
        self._earlier_restarts: list[dict[str, object]] = []
        self._restarts: list[dict[str, object]] = []
        self._restarts_file = StateFile(root / "run" / "restarts.json")
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        for directory in ("run", "logs"):
            (root / directory).mkdir(parents=True, exist_ok=True)
        for name in end_leftovers(root):
            report(f"{name}: left over from an earlier run; killed")
        if (root / "run" / "restarts.json").exists():
            self._earlier_restarts = _read_restarts(root)
            # A restart: what was sent, but not confirmed when the last run ended, is sent again.
            if not _was_stopped(root):
                again = {"name": "the deployment", "time_ms": self._clock()}
                self._earlier_restarts.append(again)
        for stale in (root / "run").glob("*.json"):
            stale.unlink()
        self._write_restarts()

    # --- starting ----------------------------------------------------------------------------

    def start_all(
        self, progress: Callable[[str], None], *, after_first_stage: Callable[[], None]
    ) -> None:
        """Start every process and wait until each serves; raises StartFailed.

        Stage by stage: the ZooKeepers, the brokers, all others, and last, when all else serves,
        the finite ones (frontends). A process that starts slowly (a Spark driver) is started with
        the first stage, waits itself for ZooKeeper, and must serve in its own stage.
        `after_first_stage` is called when the ZooKeepers serve.
        """
        stages = self._stages()
        early = [process for process in self.processes.values() if process.spec.is_slow]
        for number, stage in enumerate(stages):
            for process in [*stage, *(early if number == 0 else ())]:
                if not process.start_count:
                    progress(f"starting {process.spec.name}")
                    try:
                        self._set_up(process)
                        process.start(self._environment, now_ms=self._clock())
                    except OSError as error:
                        reason = reason_of(error)
                        raise StartFailed(
                            f"{process.spec.name} could not start: {reason}"
                        ) from None
            for process in stage:
                self._wait_until_serving(process, progress)
            if number == 0:
                after_first_stage()

    def _set_up(self, process: ManagedProcess) -> None:
        if not process.spec.setup:
            return
        status = 1
        with open(process.log_path, "ab") as log:
            environment = child_environment(self._environment, {})
            command = process.spec.setup
            status = run_to_end(command, environment, self._stop_asked, stdout=log, stderr=log)
        if status:
            raise StartFailed(
                f"{process.spec.name} could not be set up (status {status}): "
                f"see {process.log_path}\n{process.log_tail()}"
            )

    def _stages(self) -> list[list[ManagedProcess]]:
        stages: list[list[ManagedProcess]] = [[], [], [], []]
        for process in self.processes.values():
            if process.spec.is_finite:
                stages[3].append(process)
            elif process.spec.kind == "zookeeper":
                stages[0].append(process)
            elif process.spec.kind == "broker":
                stages[1].append(process)
            else:
                stages[2].append(process)
        return [stage for stage in stages if stage]

    def _wait_until_serving(self, process: ManagedProcess, progress: Callable[[str], None]) -> None:
        slow = " (slow to start)" if process.spec.is_slow else ""

        def is_settled() -> bool:
            progress(f"waiting for {process.spec.name}{slow}")
            return process.serves() or not process.is_running or self._stop_asked()

        timeout_s = process.spec.start_timeout_ms / 1000
        settled = wait_for(is_settled, timeout_s, SERVING_POLL_S)
        if self._stop_asked():
            raise StartFailed("stopped before everything served")
        if not process.is_running and not process.has_finished:
            raise StartFailed(
                f"{process.spec.name} could not start (status {process.status}): "
                f"see {process.log_path}\n{process.log_tail()}"
            )
        if not settled:
            raise StartFailed(
                f"{process.spec.name} did not serve within {timeout_s:.0f} s (a busy machine may "
                f"need KAFKA2011_EMBEDDED_START_TIMEOUT_MS={4 * process.spec.start_timeout_ms}): "
                f"see {process.log_path}\n{process.log_tail()}"
            )

    # --- while it runs -----------------------------------------------------------------------

    def poll(self) -> None:
        """Report processes that ended, are paused or continue, carry out queued requests, and write
        state files again that a full disk refused. Call it a few times a second."""
        self._report_pauses()
        if self._restarts_file.is_due:
            self._write_restarts()
        for process in self.processes.values():
            if process.is_state_due:
                process.write_state()
            status = process.status
            key = (process.spec.name, process.start_count)
            if status is None or key in self._reported:
                continue
            self._reported.add(key)
            process.write_state()
            if process.is_stop_asked or process.has_finished:
                continue
            self._report(
                f"{process.spec.name} ended: {describe_status(status)}; "
                f"log {from_here(process.log_path)}; "
                f"start it again: {to_paste(self._root, 'start', process.spec.name)}"
            )
        while not self._requests.empty():
            self._requests.get().carry_out()

    def _report_pauses(self) -> None:
        """Report processes that are paused or continue: nothing else tells of a pause."""
        for name, process in self.processes.items():
            paused = process.is_running and not process.is_stop_asked and is_paused(process.pid)
            if paused and name not in self._paused:
                self._paused.add(name)
                how = self._go_on(name)
                spec = process.spec
                is_live_broker = (spec.kind, spec.datacenter) == ("broker", "live")
                waits = (
                    "; frontends that send to it wait, some ten seconds" if is_live_broker else ""
                )
                self._report(f"{name} is paused (SIGSTOP): it hangs{waits}; let it go on: {how}")
            elif not paused and name in self._paused:
                self._paused.remove(name)
                if process.is_running and not process.is_stop_asked:
                    self._report(f"{name} goes on")

    def _go_on(self, name: str) -> str:
        return to_paste(self._root, "kill", name, "CONT")

    def request(self, verb: str, name: str, timeout_s: float = REQUEST_WAIT_S) -> str:
        """Have `name` started again ("start"), stopped first ("restart"), or killed and its disk
        deleted ("lose-disk"), from another thread. Returns one line with the outcome. A request
        that is not begun within `timeout_s` is cancelled."""
        verbs = {
            "start": self.start_again,
            "restart": self._restart,
            "lose-disk": self._lose_disk,
        }
        work = verbs.get(verb)
        if work is None:
            return f"error: no request {verb!r}"
        request = Request(name, lambda: work(name))
        self._requests.put(request)
        try:
            return request.answer.get(timeout=timeout_s)
        except queue.Empty:
            if not request.cancel():
                return request.answer.get()
        return (
            f"error: {name}: the supervisor did not come to it within {timeout_s:.0f} s (it starts "
            "or stops others); it is not done"
        )

    def _restart(self, name: str) -> str:
        process = self.processes.get(name)
        if process is not None and process.is_running:
            self._stop_together([process], STOP_GRACE_S)
        return self.start_again(name)

    def _lose_disk(self, name: str) -> str:
        process = self.processes.get(name)
        if process is None or "KAFKA2011_REPLICA_NAME" not in process.spec.environment:
            return f"error: {name!r} is no replica: there is no copy of what is on its disk"
        if not process.is_running:
            return f"error: {name} does not run"
        if not self.kill(name):
            return f"error: {name} did not end within {KILL_WAIT_S:.0f} s of SIGKILL"
        try:
            place = self.wipe(name)
        except OSError as error:
            return f"error: {name} is killed, its disk is not deleted: {reason_of(error)}"
        outcome = f"{name} is killed (SIGKILL) and its disk gone: {place} is deleted"
        self._report(outcome)
        return outcome

    def kill(self, name: str) -> bool:
        """Kill a process, and return whether it has ended."""
        process = self.processes[name]
        process.signal(signal.SIGKILL)
        return wait_for(lambda: not process.is_running, KILL_WAIT_S)

    def wipe(self, name: str) -> str:
        """Delete the directory of a broker that does not run; returns its place under the root."""
        log_dir = Path(self.processes[name].spec.environment["KAFKA2011_LOG_DIR"])
        shutil.rmtree(log_dir.parent)
        return str(log_dir.parent.relative_to(self._root))

    def start_again(self, name: str) -> str:
        """Start a process that has ended; returns one line with the outcome."""
        process = self.processes.get(name)
        if process is None:
            meant = suggestion(name, self.processes)
            return f"error: no process {name!r}{meant} (there are: {', '.join(self.processes)})"
        if process.is_running:
            if is_paused(process.pid):
                return f"error: {name} is paused; let it go on: {self._go_on(name)}"
            return f"error: {name} is running (pid {process.pid})"
        try:
            process.start(self._environment, now_ms=self._clock())
        except OSError as error:
            return f"error: {name}: {reason_of(error)}"
        self._restarts.append({"name": name, "time_ms": self._clock()})
        self._write_restarts()
        self._report(f"{name} started again (pid {process.pid})")
        return f"{name} started, pid {process.pid}"

    def _write_restarts(self) -> None:
        """Write the restarts for the audit, which takes each for a reason of copies."""
        ours = [one for one in self._restarts if may_have_repeated(str(one["name"]))]
        self._restarts_file.write([*self._earlier_restarts, *ours][-RESTARTS_MAX:])

    @property
    def restarted_names(self) -> list[str]:
        return sorted({str(restart["name"]) for restart in self._restarts})

    @property
    def paused(self) -> list[str]:
        """Processes that are paused by SIGSTOP, as of the last `poll`."""
        return sorted(self._paused)

    def down(self) -> list[ManagedProcess]:
        """Processes that should serve and do not: they ended, or have not served since their last
        start. Without those that finished or were stopped on request."""
        return [
            process
            for process in self.processes.values()
            if process.start_count
            and not process.is_stop_asked
            and not process.has_finished
            and not (process.is_running and (process.has_served or process.serves()))
        ]

    def down_in_words(self) -> tuple[str, ...]:
        """What is down or paused: `broker-1`, `broker-1 (starting)`, `broker-1 (paused)`."""
        words = {
            process.spec.name: " (starting)" if process.is_running else ""
            for process in self.down()
        } | dict.fromkeys(self.paused, " (paused)")
        return tuple(f"{name}{word}" for name, word in words.items())

    # --- stopping ----------------------------------------------------------------------------

    def stop(self, name: str, grace_s: float = STOP_GRACE_S) -> int | None:
        """Stop one process cleanly, with SIGKILL after `grace_s`. Returns its exit status."""
        return self._stop_together([self.processes[name]], grace_s)

    def stop_all(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Stop all processes in the order of the stream (STOP_ORDER), which takes at most
        STOP_GRACE_S for each stage. The slow ones are asked first, as nothing follows them. A
        failure with one process does not keep the others from being stopped."""
        for process in self.processes.values():
            if process.spec.is_slow:
                with _whatever_fails(process.spec.name):
                    process.ask_to_stop()
        named = {kind for stage in STOP_ORDER for kind in stage}
        for stage in STOP_ORDER:
            group = [
                process
                for process in self.processes.values()
                if process.is_running
                and (process.spec.kind in stage or (not stage and process.spec.kind not in named))
            ]
            if group:
                names = ", ".join(process.spec.name for process in group)
                with _whatever_fails(names):
                    progress(f"stopping {names}")
                self._stop_together(group, STOP_GRACE_S)
        for process in self.processes.values():
            if process.start_count:  # also what ended before its stage, or since the last poll
                with _whatever_fails(process.spec.name):
                    process.write_state()

    def _stop_together(self, group: Sequence[ManagedProcess], grace_s: float) -> int | None:
        """Stop them cleanly, and kill what is left. Returns the exit status of the last one."""
        for process in group:
            with _whatever_fails(process.spec.name):
                process.ask_to_stop()
        deadline = time.monotonic() + grace_s
        for process in group:
            with _whatever_fails(process.spec.name):
                self._see_to_its_end(process, deadline, grace_s)
        return group[-1].status if group else None

    def _see_to_its_end(self, process: ManagedProcess, deadline: float, grace_s: float) -> None:
        left_s = max(0.0, deadline - time.monotonic())
        has_ended = wait_for(lambda: not process.is_running, left_s)
        # Children of a launcher may outlive it: kill the whole group.
        process.signal(signal.SIGKILL)
        wait_for(lambda: not process.is_running, 5.0)
        process.write_state()
        if not has_ended:
            self._report(f"{process.spec.name} did not stop in {grace_s:.0f} s, killed")


@contextmanager
def _whatever_fails(names: str) -> Iterator[None]:
    """Log an exception that is raised inside, and continue after the block."""
    try:
        yield
    except Exception:
        log.exception("stop_failed", processes=names)


def describe_status(status: int) -> str:
    """`status 1`, or `killed by signal 9`."""
    return f"status {status}" if status >= 0 else f"killed by signal {-status}"


def base_environment() -> dict[str, str]:
    """The environment that every process inherits: this one's, with this package importable."""
    environment = dict(os.environ)
    root = str(Path(kafka2011.__file__).resolve().parents[1])
    existing = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{root}{os.pathsep}{existing}" if existing else root
    # Spark runs this very interpreter, which the jobs name themselves, and PySpark's own jars, on
    # loopback, with the jobs' settings.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR"):
        environment.pop(name, None)
    # SPARK_HOME is set, as the script that would find the jars fails where the path has a space.
    spark = importlib.util.find_spec("pyspark")
    if spark is not None and spark.submodule_search_locations:
        environment["SPARK_HOME"] = spark.submodule_search_locations[0]
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def may_have_repeated(name: str) -> bool:
    """Whether a restart of this process, embedded or in a container, may be why a message came
    twice: false of those that send none."""
    return not _RECEIVING_ONLY.fullmatch(name)


def _read_restarts(root: Path) -> list[Any]:
    """The restarts on record of earlier runs; none where the file does not hold a list."""
    try:
        found = json.loads((root / "run" / "restarts.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def _was_stopped(root: Path) -> bool:
    """Whether the last run was stopped and each of its processes ended by itself, with status 0:
    then all that was sent is confirmed."""
    states = read_states(root)
    return bool(states) and all(state.get("status") == 0 for state in states)
