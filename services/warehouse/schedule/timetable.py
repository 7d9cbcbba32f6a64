"""Parses a schedule: its jobs and their start times. Pure; `scheduler` starts them.

A schedule is a text file. Each line has a time, and a command of `kafka2011` with its arguments:

    every 10m    reports
    hourly :05   load --set warehouse.dir=var/warehouse
    daily 02:30  report --table access_log

Units are s, m and h; hours and days are UTC; `#` begins a comment. A job whose time comes while it
still runs is not started twice: it starts once when it has ended, however many times were missed.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


class ScheduleError(ValueError):
    """A line cannot be parsed; the text names it."""


@dataclass(frozen=True, slots=True)
class Job:
    """Starts at every time t with t % period_ms == phase_ms (ms since the epoch, UTC)."""

    line: int
    period_ms: int
    phase_ms: int
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.line}:{self.command[0]}"

    def next_after(self, at_ms: int) -> int:
        """The first start time that is later than `at_ms`."""
        behind = (at_ms - self.phase_ms) // self.period_ms
        return (behind + 1) * self.period_ms + self.phase_ms


def parse_schedule(text: str, commands: Iterable[str]) -> list[Job]:
    """The jobs of a schedule file. Raises ScheduleError for a bad line, or when there is no job.

    `commands` are those that may be scheduled.
    """
    known = set(commands)
    jobs = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            words = shlex.split(line, comments=True)
            if words:
                jobs.append(_job(number, words, known))
        except ValueError as error:
            raise ScheduleError(f"line {number}: {error}") from None
    if not jobs:
        raise ScheduleError("there is no job in it")
    return jobs


def _job(number: int, words: list[str], known: set[str]) -> Job:
    if len(words) < 3:
        raise ValueError("must be: every|hourly|daily WHEN COMMAND [WORD]...")
    kind, when, *command = words
    if kind == "every":
        period_ms, phase_ms = _duration_ms(when), 0
    elif kind == "hourly":
        period_ms, phase_ms = _HOUR_MS, _clock_ms(when, r":(\d{2})")
    elif kind == "daily":
        period_ms, phase_ms = _DAY_MS, _clock_ms(when, r"(\d{2}):(\d{2})")
    else:
        raise ValueError(f"{kind!r} must be every, hourly or daily")
    if command[0] not in known:
        raise ValueError(
            f"{command[0]!r} cannot be scheduled (these can: {', '.join(sorted(known))})"
        )
    return Job(number, period_ms, phase_ms, tuple(command))


def _duration_ms(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,5})([smh])", text)
    if found is None:
        raise ValueError(f"{text!r} must be a duration such as 30s, 10m or 2h")
    return int(found[1]) * _UNITS_MS[found[2]]


def _clock_ms(text: str, form: str) -> int:
    found = re.fullmatch(form, text)
    parts = [int(part) for part in found.groups()] if found else []
    if not parts or parts[-1] > 59 or (len(parts) == 2 and parts[0] > 23):
        raise ValueError(f"{text!r} must be :MM after hourly, or HH:MM after daily")
    return sum(part * unit for part, unit in zip(reversed(parts), (60_000, _HOUR_MS), strict=False))
