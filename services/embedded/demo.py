"""`make demo`: start clean, run, drain, report, audit, summary.

`demo_progress` decides when the run is over, here and in containers; the effects (processes,
terminal) are in `Demo`. The exit status is that of the audit: 0 only when every message arrived in
every tier; 1 also for a run that could not be finished.
"""

import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from rich.console import Console

from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.processes import forget_others
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.signals import on_stop
from kafka2011.services.embedded.config import DASHBOARD_PORT, EmbeddedConfig
from kafka2011.services.embedded.control import (
    ControlServer,
    DirectoryRefused,
    addresses,
    held,
    last_settings,
    preparing,
    stopped_text,
    to_paste,
)
from kafka2011.services.embedded.demo_progress import (
    DELAYS,
    INTERRUPTED,
    POLL_S,
    REPORTING,
    STOPPED,
    AfterFault,
    GaveUp,
    Moment,
    Samples,
    follow,
    print_summary,
    says_what_was_read,
)
from kafka2011.services.embedded.display import Display, Sample
from kafka2011.services.embedded.lost_leader import LostLeader, SupervisedSet
from kafka2011.services.embedded.processes import (
    ManagedProcess,
    Ports,
    child_environment,
    http_json,
    run_to_end,
)
from kafka2011.services.embedded.root_directory import (
    check_forms,
    check_replaceable,
    check_replicas,
    clean,
    collected_topics,
    goes_on_text,
    settings_changed,
    settings_given,
    settings_not_taken,
)
from kafka2011.services.embedded.store_tables import check_goes_with, take
from kafka2011.services.embedded.supervisor import (
    StartFailed,
    Supervisor,
    base_environment,
    describe_status,
)
from kafka2011.services.embedded.topology import (
    LOOPBACK,
    ProcessSpec,
    command_of,
    plan,
    report_command,
)

REGISTRY_TIMEOUT_MS = 10_000
RUNNING = "running, Ctrl-C stops"
MADE_GOOD = "after the fault: all that was reported before everything ran again is in every tier"
FOREVER_MS = 365 * 24 * 3_600_000  # `up`: the activity ends with Ctrl-C, not by itself

log = get_logger(__name__)


class Demo:
    """One run of the whole deployment from a clean directory to the audit's verdict."""

    def __init__(
        self,
        config: EmbeddedConfig,
        console: Console,
        given: Sequence[str] = (),
        *,
        keeps: bool = True,
    ) -> None:
        """`given`: the words of `up` but for the directory, by which to start it again. `keeps`:
        `run` refuses a directory with messages that `up` collected."""
        self.config = config
        self.root = config.root_dir.resolve()
        self.tables = config.tables(self.root)
        self.console = console
        self._given = given
        self._keeps = keeps
        self.is_stop_asked = False

    def run(self) -> int:
        """Run to the end; returns the exit status. Always ends every process. Raises
        DirectoryRefused before anything is changed."""
        if not self.config.rate and not self.config.input_path:
            raise DirectoryRefused("a demo sends something: embedded.rate=0 is for `up`")
        # Looked at once more: an `up` may have ended, or come and gone, since the words were read.
        with held(self.root, "demo", check=self._check_replaceable):
            if self.config.warehouse is not None:
                take(self.config.warehouse, self.root, is_emptied=True)
            with preparing(self.root):
                clean(self.root, self.config.input_path)
            return self._with_everything("demo", self._story)

    def _check_replaceable(self) -> None:
        if self._keeps:
            check_replaceable(self.root)

    def run_until_stopped(self) -> int:
        """Keep everything running on the existing data until Ctrl-C; then stop it cleanly. Raises
        DirectoryRefused."""
        self.config = replace(self.config, duration_ms=FOREVER_MS)
        screen = Display(self.console)
        variables = settings_given(os.environ)
        settings = f"{variables}{shlex.join(self._given)}".strip().replace("\n", " ")  # one line

        def check() -> None:
            check_forms(self.root, last_settings(self.root) or "", settings)
            check_goes_with(self.tables, self.root)
            check_replicas(self.root, self.config.replicas)

        with held(self.root, "up", settings, check) as last:
            if self.config.warehouse is not None:
                take(self.config.warehouse, self.root, is_emptied=False)
            if collected_topics(self.root):
                screen.say(goes_on_text(self.config.root_dir, last.command))
                if last.settings is not None and (
                    text := settings_changed(last.settings, settings)
                ):
                    screen.say(f"other settings than at the last start: {text}")
            status = self._with_everything("up", self._stay)
            if status == 0:
                screen.say(stopped_text(self.root))
            screen.say(
                f"stopped; data and logs stay in {self.config.root_dir}/; to go on with them:\n"
                f"  {variables}{to_paste(self.root, 'up', *self._given)}"
            )
            return status

    def _with_everything(
        self, command: str, work: Callable[[Supervisor, Display, float], int]
    ) -> int:
        on_stop(self._ask_to_stop)
        began = time.monotonic()
        with Display(self.console) as display, Ports(self.config.port_base) as ports:
            if text := settings_not_taken(os.environ):
                display.say(text)
            config = self._settle_port(display, ports)
            specs = plan(config, self.root, ports.at)
            self._say_other_ports(display, ports)
            with preparing(self.root):
                supervisor = Supervisor(
                    specs,
                    self.root,
                    environment=base_environment(),
                    report=display.say,
                    stop_asked=lambda: self.is_stop_asked,
                )

            def answer(verb: str, name: str) -> str:
                if verb != "stop":
                    return supervisor.request(verb, name)
                self._ask_to_stop()
                return "stopping"

            record = {"command": command, "directory": str(self.root), **addresses(specs)}
            with preparing(self.root):
                control = ControlServer(self.root, answer, record)
            try:
                # Earlier processes are forgotten before there is a dashboard to show them.
                supervisor.start_all(
                    display.show_phase, after_first_stage=lambda: forget_earlier(supervisor)
                )
                control.note_serving(True)
                display.say(
                    f"{len(supervisor.processes)} processes serve after "
                    f"{time.monotonic() - began:.0f} s; logs in {self.config.root_dir}/logs"
                )
                self._say_what_to_break(display, specs)
                return work(supervisor, display, began)
            except StartFailed as error:
                if self.is_stop_asked and command == "up":
                    return 0
                display.say(f"kafka2011: {error}")
                return INTERRUPTED if self.is_stop_asked else 1
            finally:
                try:
                    control.close()
                finally:
                    self._stop_all(supervisor, display)

    def _say_other_ports(self, display: Display, ports: Ports) -> None:
        """Say where ports are not the usual ones; `plan` has taken them by now."""
        shown_by = to_paste(self.root, "status")
        if ports.is_second:
            display.say(
                "another deployment on this machine has the usual ports; others are used "
                f"here: {shown_by} shows them"
            )
        if ports.taken:
            wanted = ", ".join(map(str, ports.taken))
            display.say(f"taken, so that others are used ({shown_by} shows them): port {wanted}")

    def _say_what_to_break(self, display: Display, specs: Sequence[ProcessSpec]) -> None:
        broker = next(spec.name for spec in specs if spec.kind == "broker")
        display.say(
            "break something from a second terminal, and heal it:\n"
            f"  {to_paste(self.root, 'kill', broker)}\n"
            f"  {to_paste(self.root, 'start', broker)}"
        )

    def _stop_all(self, supervisor: Supervisor, display: Display) -> None:
        try:
            if any(process.is_running for process in supervisor.processes.values()):
                display.say("stopping ...")
        finally:
            supervisor.stop_all(display.show_phase)

    def _settle_port(self, display: Display, ports: Ports) -> EmbeddedConfig:
        """The settings with the dashboard's port decided; prints its address.

        The default port is replaced by a free one when it is taken.
        """
        port = self.config.dashboard_port
        if port < 0:
            return self.config
        if port == 0 or (port == DASHBOARD_PORT and not ports.take(port)):
            port = ports.free()
            if self.config.dashboard_port:
                display.say(
                    f"port {DASHBOARD_PORT} is taken, so another is used; "
                    "--port (make: PORT=) chooses one"
                )
        display.say(f"watch it live: http://127.0.0.1:{port}")
        return replace(self.config, dashboard_port=port)

    def _ask_to_stop(self, *_: object) -> None:
        self.is_stop_asked = True

    def _story(self, supervisor: Supervisor, display: Display, began: float) -> int:
        audit_url = self._audit_url(supervisor)
        frontends = [p for p in supervisor.processes.values() if p.spec.is_finite]
        try:
            with ExitStack() as cleanup:
                lost_leader = self._lost_leader(supervisor, display, cleanup)

                def look() -> Moment:
                    supervisor.poll()
                    if lost_leader is not None:
                        lost_leader.step()
                    down = supervisor.down_in_words()
                    is_sent = all(process.has_finished for process in frontends)
                    is_sent = is_sent and self._measures_no_more(supervisor)
                    return Moment(is_sent and (not lost_leader or lost_leader.is_over), down)

                sample = follow(
                    display,
                    look=look,
                    ask_audit=lambda final: http_json(f"{audit_url}/audit/summary?final={final:d}"),
                    stop_asked=lambda: self.is_stop_asked,
                    stall_timeout_s=self.config.stall_timeout_ms / 1000,
                )
        except GaveUp as error:
            display.say(str(error))
            return INTERRUPTED if self.is_stop_asked else 1

        display.show_phase(REPORTING, stays=True)
        status = supervisor.stop("loader", grace_s=30.0)
        if status != 0:
            display.say(f"loader: stopped with {describe_status(status or 0)}")
        report_status = self._report(display, supervisor)
        self._stop_all(supervisor, display)
        display.close()
        audit_status = self._audit()
        if self.is_stop_asked:
            display.say(STOPPED)
            return INTERRUPTED
        self._summary(sample, began, supervisor)
        is_readable = self._says_what_was_read(frontends)
        return 1 if report_status or audit_status or not is_readable else 0

    def _lost_leader(
        self, supervisor: Supervisor, display: Display, cleanup: ExitStack
    ) -> LostLeader | None:
        """The loss of a leader that a demo with replicas shows; None without replicas."""
        if self.config.replicas == 1:
            return None
        port = supervisor.processes["zookeeper-live"].spec.ports["client"]
        registry = ZooKeeperRegistry(f"{LOOPBACK}:{port}")
        cleanup.callback(registry.close)
        registry.start(REGISTRY_TIMEOUT_MS)
        return LostLeader(SupervisedSet(supervisor, registry), display.say)

    @staticmethod
    def _measures_no_more(supervisor: Supervisor) -> bool:
        """Ask the site to stop its measurements, which have no end; returns whether it has."""
        site = supervisor.processes.get("site")
        if site is None or not site.is_running:
            return True
        url = f"http://{LOOPBACK}:{site.spec.ports['metrics']}/measuring"
        return (http_json(url, {"on": False}) or {}).get("measuring") is False

    @staticmethod
    def _audit_url(supervisor: Supervisor) -> str:
        return f"http://127.0.0.1:{supervisor.processes['audit'].spec.ports['metrics']}"

    def _stay(self, supervisor: Supervisor, display: Display, _began: float) -> int:
        audit_url = self._audit_url(supervisor)
        samples = Samples()
        due_s = 0.0
        after_fault = AfterFault()
        while not self.is_stop_asked:
            supervisor.poll()
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + display.interval_s
                down = supervisor.down_in_words()
                answer = http_json(f"{audit_url}/audit/summary")
                display.show(samples.sample(answer, down, RUNNING))
                if after_fault.is_made_good(
                    bool(down),
                    int(time.time() * 1000),
                    lambda: http_json(f"{audit_url}/audit?verdict=pending&limit=10000"),
                ):
                    display.say(MADE_GOOD)
            time.sleep(POLL_S)
        return 0

    def _report(self, display: Display, supervisor: Supervisor) -> int:
        """Run the report job and print its output; meanwhile processes are polled and requests
        answered. Returns its exit status."""

        due_s = 0.0

        def stop_asked() -> bool:
            nonlocal due_s
            supervisor.poll()
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + display.interval_s
                display.show_phase(REPORTING)
            return self.is_stop_asked

        table = "access_log" if self.config.input_path else "page_view"
        if not (self.tables / table).exists():
            display.say(f"nothing to report on: no event of table {table} was sent (see the audit)")
            return 0
        command, settings = report_command(self.root, self.tables, table)
        log_path = self.root / "logs" / "report.log"
        with open(log_path, "wb") as log, tempfile.TemporaryFile() as printed:
            width = {"COLUMNS": str(self.console.width)} if self.console.is_terminal else {}
            environment = child_environment({**base_environment(), **width}, settings)
            status = run_to_end(command, environment, stop_asked, stdout=printed, stderr=log)
            printed.seek(0)
            display.say(printed.read().decode(errors="replace").rstrip())
        if status and not self.is_stop_asked:
            display.say(f"kafka2011: the report job ended with status {status}; see {log_path}")
        return status

    def _audit(self) -> int:
        """Recount every tier from the files, message by message. Returns the exit status.

        The service has balanced its counts already; the recount also compares guids, so that a
        redelivered message cannot hide a lost one.
        """
        sys.stdout.flush()
        command = command_of("audit", "--var", str(self.root), "--recount", "--final")
        environment = child_environment(base_environment(), {})
        return run_to_end(command, environment, lambda: self.is_stop_asked)

    def _says_what_was_read(self, frontends: Sequence[ManagedProcess]) -> bool:
        sent = Counter[str]()
        for process in frontends if self.config.input_path else ():
            sent.update(process.progress().get("sent", {}))
        return says_what_was_read(self.console, sent, self.config.tables(self.root))

    def _summary(self, sample: Sample, began: float, supervisor: Supervisor) -> None:
        print_summary(
            self.console,
            sample,
            supervisor.restarted_names,
            f"{time.monotonic() - began:.0f} s in all; {DELAYS}\n"
            f"data, logs and reports are in {self.config.root_dir}/"
            + (f", tables in {self.config.warehouse}" if self.config.warehouse else ""),
        )


def forget_earlier(supervisor: Supervisor) -> None:
    """Remove from the process registries what earlier runs on this data had and this one has not
    (CHAOS=on adds a link). A ZooKeeper that does not answer is skipped."""
    for process in supervisor.processes.values():
        if process.spec.kind != "zookeeper":
            continue
        registry = ZooKeeperRegistry(f"127.0.0.1:{process.spec.ports['client']}")
        try:
            registry.start(REGISTRY_TIMEOUT_MS)
            forget_others(registry, supervisor.processes)
        except CoordinationError as error:
            log.warning("earlier_processes_not_forgotten", reason=str(error))
        finally:
            registry.close()
