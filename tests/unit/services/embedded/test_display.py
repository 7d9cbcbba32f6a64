"""The table of a run on a terminal."""

import errno
import io
import re
from typing import Any

import pytest
from rich.console import Console

from kafka2011.services.embedded.demo_progress import Samples, sample_from
from kafka2011.services.embedded.display import BEHIND, DELAYS, REPORTED_LATER, Display, Sample


def shown(sample: Sample) -> str:
    """What a terminal of 80 columns has after one sample."""
    written = io.StringIO()
    with Display(Console(file=written, width=80, force_terminal=True, color_system=None)) as one:
        one.show(sample)
    return written.getvalue()


def test_what_was_reported_later_than_it_arrived_is_called_so_and_makes_no_tier_ahead() -> None:
    tiers = {
        "live": {"count": 700, "lacking": 20},  # beside 220 that are not reported yet
        "offline": {"count": 600, "lacking": 100},
        "warehouse": {"count": 0, "lacking": 500},
    }
    text = shown(sample_from({"produced": 500, "tiers": tiers}, (), "running"))
    rows = dict(re.findall(r"^(\w+) +(\d.*?) *\r?$", text, re.M))
    assert rows["produced"].split()[0] == "500"
    behind = {tier: row.split()[1] for tier, row in rows.items() if tier in tiers}
    assert behind == {"live": "20", "offline": "100", "warehouse": "500"}
    assert REPORTED_LATER in text
    assert BEHIND in text
    assert DELAYS in text


def test_what_is_of_this_moment_is_empty_while_the_audit_does_not_answer() -> None:
    """It was 0 a second and 0 behind for the minute in which an audit was paused."""
    samples = Samples()

    def row(answer: dict[str, Any] | None) -> str:
        text = shown(samples.sample(answer, (), "running"))
        assert ("since 1970-01-01 00:00:06 UTC" in text) == (answer is None)
        return " ".join(re.findall(r"^live +(.*?) *\r?$", text, re.M)[-1].split())

    def answer(now_s: int) -> dict[str, Any]:
        live = {"count": now_s * 100, "lacking": 3, "read_to_ms": now_s * 1000, "delay_p50_ms": 7.0}
        times = {"now_ms": now_s * 1000, "reports_read_to_ms": now_s * 1000}
        return {**times, "produced": now_s * 100, "tiers": {"live": live}}

    assert row(answer(5)) == "500 3 7 ms"
    assert row(answer(6)) == "600 100 3 7 ms"
    assert row(None) == "600 7 ms"
    assert row(answer(66)) == "6,600 100 3 7 ms"


def lines(*samples: Sample, stays: bool = False) -> list[str]:
    """What a file has after these samples, without the seconds."""
    written = io.StringIO()
    with Display(Console(file=written, width=80)) as one:
        for sample in samples:
            one.show(sample, stays=stays)
    return re.findall(r"^ +\d+ s +(.*)$", written.getvalue(), re.M)


def test_before_the_audit_answers_no_counts_are_said_and_not_that_there_are_none() -> None:
    unheard = Samples().sample(None, ("audit",), "running")
    assert lines(unheard) == ["running, no answer of the audit; down: audit"]
    assert "produced" not in shown(unheard)
    assert lines(sample_from({"tiers": {}}, (), "running")) == ["running: nothing is counted yet"]


def test_the_line_that_ends_a_part_of_the_run_is_printed_however_soon() -> None:
    tiers = {"live": {"count": 7}, "offline": {"count": 7}, "warehouse": {"count": 7}}
    samples = [sample_from({"produced": 7, "tiers": tiers}, (), phase) for phase in ("a", "b")]
    counts = "produced 7, live 7, offline 7, warehouse 7"
    assert lines(*samples) == [f"a: {counts}"]
    assert lines(*samples, stays=True) == [f"a: {counts}", f"b: {counts}"]


def test_a_line_that_says_nothing_new_is_printed_once_a_minute() -> None:
    written, clock_s = io.StringIO(), 0.0
    with Display(Console(file=written, width=80), clock=lambda: clock_s) as one:
        for clock_s in range(5, 200, 5):
            counted = 7 if clock_s < 100 else 8
            summary = {"produced": counted, "tiers": {"live": {"count": counted}}}
            one.show(sample_from(summary, (), "running"))
    said = re.findall(r"^ +(\d+) s +running: produced (\d), live", written.getvalue(), re.M)
    assert said == [("5", "7"), ("65", "7"), ("100", "8"), ("160", "8")]


class Refusing(io.StringIO):
    """A file that fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, _text: str, /) -> int:
        raise OSError(self._number, "refused")


def test_output_into_a_file_on_a_full_disk_ends_nothing_and_a_reader_that_is_gone_does() -> None:
    Display(Console(file=Refusing(errno.ENOSPC))).say("one is down")
    with pytest.raises((BrokenPipeError, SystemExit)):
        Display(Console(file=Refusing(errno.EPIPE))).say("one is down")


def test_nothing_is_said_of_reports_that_are_not_late() -> None:
    tiers = {"live": {"count": 500}, "offline": {"count": 600}, "warehouse": {"count": 0}}
    assert REPORTED_LATER not in shown(
        sample_from({"produced": 600, "tiers": tiers}, (), "running")
    )


def test_a_line_is_printed_as_it_is_whatever_is_in_its_brackets() -> None:
    """The last lines of a log, a report's paths and directories are no markup."""
    said = [
        "see /a[old]/logs\n[main] WARN connection from [/127.0.0.1:2181] was closed",
        " 1  /items/:id:/x[/b]  7",
    ]
    for is_terminal in (False, True):
        written = io.StringIO()
        console = Console(file=written, width=80, force_terminal=is_terminal, color_system=None)
        for line in said:
            Display(console).say(line)
        assert written.getvalue().splitlines() == "\n".join(said).splitlines()
