"""The live table of the demo: rates per tier, lag, delay, and processes that are down.

On a terminal it is one table that is redrawn; elsewhere (a file, CI) one line every few seconds.
"""

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka2011.runtime.tables import new_table

PLAIN_INTERVAL_S = 5.0
SAME_INTERVAL_S = 60.0  # of a line that says what the one before does: it still runs
TABLE_INTERVAL_S = 0.5
# The first row, named as in the audit and the summary. It counts what producers have reported so
# far, which may be less than they have sent: then a line says so.
PRODUCED = "produced"
REPORTED_LATER = "produced: what producers have reported so far"
BEHIND = "behind: reported and not in the tier, also of windows that are not judged yet"
DELAYS = "p50 and p99: from a message's time to the tier, since the audit's books began"


@dataclass(frozen=True)
class Sample:
    """The state of the run at one moment. Counts are messages; delays ms, None while unknown.
    `is_counted`: whether the audit has given counts; else they mean nothing. What is of this moment
    alone, `lacking` and `rates`, is empty while the audit does not answer."""

    produced: int
    tiers: dict[str, int]
    lacking: dict[str, int]  # reported, and not in the tier (yet)
    delay_p50_ms: dict[str, float | None]
    delay_p99_ms: dict[str, float | None]
    verdicts: dict[str, int]
    down: tuple[str, ...]
    phase: str
    is_counted: bool = True
    # messages a second, None or absent while not known
    rates: dict[str, float | None] = field(default_factory=dict)


NOTHING_YET = Sample(0, {}, {}, {}, {}, {}, (), "", is_counted=False)


@dataclass
class Display:
    """Shows samples until closed. Use as a context manager."""

    console: Console
    clock: Callable[[], float] = time.monotonic  # seconds
    _shown: Sample = NOTHING_YET
    _live: Live | None = None
    _printed_at: float = 0.0
    _printed: str = ""
    _started_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._started_at = self.clock()

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            # Called at each refresh, so that the seconds advance while nothing else changes.
            self._live = Live(
                get_renderable=lambda: self._table(self._shown),
                console=self.console,
                refresh_per_second=1,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the live table; printed lines stay. May be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def interval_s(self) -> float:
        """Time after which another sample is shown."""
        return PLAIN_INTERVAL_S / 2 if self._live is None else TABLE_INTERVAL_S

    def say(self, line: str) -> None:
        """Print one line that stays, as it is. It is lost if the output goes to a file on a full
        disk."""
        try:
            self.console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def show(self, sample: Sample, *, stays: bool = False) -> None:
        """Show a sample. `stays`: where it is a line, print it however recent the last one is."""
        now = self.clock()
        self._shown = sample
        if self._live is not None:
            self._live.refresh()
            return
        words = _words(sample)
        interval_s = SAME_INTERVAL_S if words == self._printed else PLAIN_INTERVAL_S
        if stays or now - self._printed_at >= interval_s:
            self._printed_at, self._printed = now, words
            self.say(f"  {now - self._started_at:5.0f} s  {words}")

    def show_phase(self, phase: str, *, stays: bool = False) -> None:
        """Show the last sample, or an empty one, under another phase, without its rates."""
        self.show(replace(self._shown, phase=phase, rates={}), stays=stays)

    def _table(self, sample: Sample) -> Group:
        numbers = ("messages", "a second", "behind", "p50", "p99")
        table = new_table("tier", *numbers, numbers=numbers)
        for tier in (PRODUCED, *sample.tiers):
            table.add_row(
                tier,
                f"{_count(sample, tier):,}",
                _shown_number(sample.rates.get(tier)),
                _shown_number(sample.lacking.get(tier)),
                format_delay(sample.delay_p50_ms.get(tier)),
                format_delay(sample.delay_p99_ms.get(tier)),
            )
        # As on the page, one for each cell and tier.
        verdicts = ", ".join(
            f"{count:,} {verdict}" for verdict, count in sample.verdicts.items() if count
        )
        state = Text(f"audit verdicts: {verdicts or 'none yet'}", style="dim")
        state.append(f"\n{BEHIND}\n{DELAYS}")
        if is_more_to_report(sample):
            state.append(f"\n{REPORTED_LATER}")
        phase = Text(f"{sample.phase}  ({self.clock() - self._started_at:.0f} s)", style="bold")
        lines: list[Text | Table] = [phase, *((table, state) if sample.is_counted else ())]
        if sample.down:
            lines.append(Text(f"down: {', '.join(sample.down)}", style="bold red"))
        return Group(*lines)


def is_more_to_report(sample: Sample) -> bool:
    """Whether a tier has more than the frontends have reported."""
    return sample.produced < max(sample.tiers.values(), default=0)


def _words(sample: Sample) -> str:
    """The line of a sample, but for the time."""
    down = f"; down: {', '.join(sample.down)}" if sample.down else ""
    return f"{sample.phase}{_counts(sample)}{down}"


def _counts(sample: Sample) -> str:
    """`: produced 12 reported, live 14, ...`; empty while they are not known."""
    if not sample.is_counted:
        return ""
    if not (sample.produced or any(sample.tiers.values())):
        return ": nothing is counted yet"
    parts = [f"{name} {_count(sample, name):,}" for name in (PRODUCED, *sample.tiers)]
    if is_more_to_report(sample):
        parts[0] += " reported"
    return ": " + ", ".join(parts)


def _count(sample: Sample, tier: str) -> int:
    return sample.produced if tier == PRODUCED else sample.tiers.get(tier, 0)


def _shown_number(value: float | None) -> str:
    """`1,234`; empty while unknown."""
    return "" if value is None else f"{value:,.0f}"


def format_delay(delay_ms: float | None) -> str:
    """`12 ms` or `3.4 s`; empty while unknown."""
    if delay_ms is None:
        return ""
    return f"{delay_ms:.0f} ms" if delay_ms < 1000 else f"{delay_ms / 1000:.1f} s"
