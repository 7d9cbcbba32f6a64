"""Follows a run of the demo to its end, in local processes or in containers.

Decides from samples of the audit service; all effects are parameters. The exit status of a demo is
that of the audit: 0 only when every message arrived in every tier; 1 also for a run that could not
be finished.
"""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console

from kafka2011.events.topics import ACCESS_LOG, unreadable_topic
from kafka2011.runtime.clock import utc_text
from kafka2011.runtime.program import from_here, program
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.runtime.tables import new_table
from kafka2011.services.embedded.config import DEFAULT_DIRECTORY
from kafka2011.services.embedded.display import PRODUCED, Sample, format_delay
from kafka2011.services.frontend.input_file import mostly_unreadable
from kafka2011.services.rates import MessageRates

POLL_S = 0.25
UNREAD = unreadable_topic(ACCESS_LOG)
# Once the frontends are done and everything runs, counts that stand still for this long are final.
SETTLE_S = 30.0
RATE_WINDOW_MS = 3_000
UNANSWERED = "no answer of the audit"
STOPPED = "stopped by a signal before the end"
REPORTING = "reporting, by Spark"
DELAYS = "delays: event's time to the audit's reading or the load's commit"
INTERRUPTED = 130  # the exit status of a stopped run, as of every command
# DuckDB's own SQL, which shows unreadable lines as text, with escapes where they are not UTF-8.
UNREAD_LISTED = 20  # the limit in the statement
UNREAD_SQL = (
    "--engine",
    "duckdb",
    "select line_number, coalesce(try(decode(line)), line::varchar) as line "
    "from access_log_unreadable order by line_number limit 20",
)
TIERS = ("live", "offline", "warehouse")


class GaveUp(RuntimeError):
    """The run was stopped or stalled. The text is one line."""


class Moment(NamedTuple):
    """One look at a run: whether everything is sent; what should serve and does not."""

    is_sent: bool
    down: tuple[str, ...]


class Screen(Protocol):
    """The part of Display that `follow` uses."""

    def say(self, line: str) -> None: ...
    def show(self, sample: Sample) -> None: ...


@dataclass
class ProgressWatch:
    """Measures for how long the counts have not changed, by the given clock."""

    last: tuple[object, ...] | None = None
    since_s: float = 0.0

    def idle_s(self, sample: Sample, now_s: float) -> float:
        state = (sample.produced, *sample.tiers.values(), *sample.verdicts.values(), sample.down)
        if state != self.last:
            self.last, self.since_s = state, now_s
        return now_s - self.since_s


def sample_from(summary: dict[str, Any] | None, down: tuple[str, ...], phase: str) -> Sample:
    """The audit service's summary as a sample; without counts while it does not answer."""
    is_counted = summary is not None
    summary = summary or {}
    tiers = summary.get("tiers", {})
    return Sample(
        produced=int(summary.get("produced", 0)),
        tiers={tier: int(tiers.get(tier, {}).get("count", 0)) for tier in TIERS},
        lacking={tier: int(tiers.get(tier, {}).get("lacking", 0)) for tier in TIERS},
        delay_p50_ms={tier: tiers.get(tier, {}).get("delay_p50_ms") for tier in TIERS},
        delay_p99_ms={tier: tiers.get(tier, {}).get("delay_p99_ms") for tier in TIERS},
        verdicts={str(name): int(count) for name, count in summary.get("verdicts", {}).items()},
        down=down,
        phase=phase,
        is_counted=is_counted,
    )


class Samples:
    """Makes samples of the audit's answers. While it does not answer, its last counts stay (zeros
    would look like a loss), with the time that they are of and without what is of this moment."""

    def __init__(self) -> None:
        self._summary: dict[str, Any] | None = None
        self._rates = MessageRates(RATE_WINDOW_MS)

    def sample(self, answer: dict[str, Any] | None, down: tuple[str, ...], phase: str) -> Sample:
        """The sample of one look; `answer` is the audit service's summary, None without one."""
        if answer is not None:
            self._summary = answer
            return replace(sample_from(answer, down, phase), rates=self._rates.note(answer))
        if self._summary is None:
            return sample_from(None, down, f"{phase}, {UNANSWERED}")
        since = utc_text(self._summary["now_ms"])
        last = sample_from(self._summary, down, f"{phase}, {UNANSWERED} since {since}")
        return replace(last, lacking={})


def is_balanced(sample: Sample) -> bool:
    """Whether every message that was counted was reported and has arrived in every tier, and there
    is one."""
    good = ("complete", "redelivered", "not audited")
    is_open = any(count for state, count in sample.verdicts.items() if state not in good)
    return sample.produced > 0 and not is_open


def is_read_to(time_ms: int, summary: Mapping[str, Any]) -> bool:
    """Whether the audit has read every tier, and the reports, up to a time of its own clock, ms:
    before that, balanced counts may be those of the messages that it has read."""
    tiers = [tier["read_to_ms"] for tier in summary["tiers"].values()]
    return int(min(summary["reports_read_to_ms"], *tiers)) >= time_ms


@dataclass
class AllRead:
    """Finds out whether the audit has read all that was there when the last frontend ended, which
    does so only when what it sent, its last report included, is on the brokers' disks."""

    _was_sent: bool = False
    _sent_ms: int | None = None  # by the audit's clock

    def is_so(self, is_sent: bool, summary: Mapping[str, Any] | None) -> bool:
        """Asked at every look. `summary`: the audit's at this look, None while it does not answer,
        not older than the look before."""
        if not is_sent or not self._was_sent:
            self._was_sent, self._sent_ms = is_sent, None
            return False
        if summary is None:
            return False
        if self._sent_ms is None:
            self._sent_ms = int(summary["now_ms"])
        return is_read_to(self._sent_ms, summary)


@dataclass
class AfterFault:
    """Finds out when what was reported up to the end of a fault has arrived in every tier."""

    _ended_ms: int | None = None  # None: no fault, or all of its time has arrived

    def is_made_good(
        self, is_fault: bool, now_ms: int, ask_audit: Callable[[], dict[str, Any] | None]
    ) -> bool:
        """True once after each fault: when all has arrived. `ask_audit()` is the audit with its
        pending cells, None while it does not answer; called only from a fault's end until then."""
        if is_fault:
            self._ended_ms = now_ms
        if is_fault or self._ended_ms is None:
            return False
        report = ask_audit()
        if report is None or not has_arrived_up_to(self._ended_ms, report):
            return False
        self._ended_ms = None
        return True


def has_arrived_up_to(time_ms: int, report: dict[str, Any]) -> bool:
    """Whether nothing is missing, unknown, extra or behind in the audit, no log has lost anything
    of it, no report is awaited, everything is read up to `time_ms`, and no window up to then is
    among its pending cells."""
    wrong = ("missing", "unknown", "extra", "behind")
    is_wrong = report["exit_status"] or report["awaited"] or report["losses"]
    if is_wrong or any(report["verdicts"].get(state) for state in wrong):
        return False
    windows = [cell["window_start_ms"] for cell in report["cell_list"]]
    is_judged = all(start_ms > time_ms for start_ms in windows) and not report["cells_left_out"]
    # A window of which nothing is read yet has no cells.
    return is_judged and is_read_to(time_ms, report) and report["produced"] > 0


def follow(
    screen: Screen,
    *,
    look: Callable[[], Moment],
    ask_audit: Callable[[bool], dict[str, Any] | None],
    stop_asked: Callable[[], bool],
    stall_timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Sample:
    """Show the run until the audit has read everything and all has arrived, or the counts stand
    still. Returns the last sample.

    `ask_audit(is_final)` is the audit service's summary, None while it does not answer. Raises
    GaveUp on a request to stop, and when nothing changed for `stall_timeout_s`.
    """
    watch = ProgressWatch()
    all_read = AllRead()
    samples = Samples()
    while True:
        is_sent, down = look()
        # Once the frontends are done, the window that is still open may be judged too.
        summary = ask_audit(is_sent)
        phase = "mirror and loads catch up" if is_sent else "frontends send"
        sample = samples.sample(summary, down, phase)
        screen.show(sample)
        if stop_asked():
            raise GaveUp(STOPPED)
        is_read = all_read.is_so(is_sent, summary)
        if is_read and is_balanced(sample) and not down:
            return sample
        idle_s = watch.idle_s(sample, clock())
        if is_sent and not down and idle_s > SETTLE_S and summary is not None:
            screen.say(f"no change for {SETTLE_S:.0f} s: the audit as it is")
            return sample
        if idle_s > stall_timeout_s:
            suffix = f"; down: {', '.join(down)}" if down else ""
            raise GaveUp(f"no progress for {idle_s:.0f} s, giving up{suffix}")
        pause(POLL_S)


def print_summary(console: Console, sample: Sample, restarted: Sequence[str], last: str) -> None:
    """Print the table that ends a demo, and the line `last`."""
    numbers = ("messages", "delay p50", "delay p99")
    table = new_table("tier", *numbers, numbers=numbers, title="Summary")
    table.add_row(PRODUCED, f"{sample.produced:,}", "", "")
    for tier in TIERS:
        table.add_row(
            tier,
            f"{sample.tiers[tier]:,}",
            format_delay(sample.delay_p50_ms[tier]),
            format_delay(sample.delay_p99_ms[tier]),
        )
    console.print(table)
    if restarted:
        console.print(f"restarted during the run: {', '.join(restarted)}")
    console.print(last, markup=False, emoji=False)


def unread_text(count: int, tables: StoragePath | None) -> str:
    """How many lines of an access log could not be read, and the command that shows them; empty for
    no line. `tables` is where they are, None if they are gone."""
    if not count:
        return ""
    said = f"{count:,} line{'s' if count > 1 else ''} could not be read"
    if tables is None:
        return f"{said}; `make demo`, without containers, keeps them to be looked at"
    where = from_here(tables) if isinstance(tables, Path) else str(tables)
    place = () if where == f"{DEFAULT_DIRECTORY}/warehouse" else ("--warehouse", where)
    command = f"{program()} {shlex.join(['sql', *UNREAD_SQL, *place])}"
    shown = "them" if count <= UNREAD_LISTED else f"the first {UNREAD_LISTED}"
    return f"{said}; this shows {shown}:\n  {command}"


def says_what_was_read(
    console: Console, sent: Mapping[str, int], tables: StoragePath | None
) -> bool:
    """Whether most of an access log was readable; prints a line when any of it was not. `sent`:
    topic -> messages."""
    complaint = mostly_unreadable(sent)
    unread = unread_text(sent.get(UNREAD, 0), tables)
    for line in (unread, complaint and f"kafka2011: {complaint}"):
        if line:
            console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
    return not complaint
