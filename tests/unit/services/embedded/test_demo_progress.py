"""Following a run to its end: what ends it, and what does not."""

import io
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from kafka2011.services.embedded import demo_progress
from kafka2011.services.embedded.demo_progress import GaveUp, Moment, sample_from
from kafka2011.services.embedded.display import Sample
from tests.support import commands

STALL_S = 120.0
SENDING = Moment(False, ())
SENT = Moment(True, ())

Step = tuple[Moment, dict[str, Any] | None]


def summary(
    produced: int, arrived: int, *, now_ms: int = 9_000, read_to_ms: int = 9_000, **verdicts: int
) -> dict[str, Any]:
    tier = {"count": arrived, "read_to_ms": 9_000}
    return {
        "now_ms": now_ms,
        "reports_read_to_ms": read_to_ms,
        "produced": produced,
        "tiers": dict.fromkeys(("live", "offline", "warehouse"), tier),
        "verdicts": verdicts,
    }


class Run:
    """A run and its screen: one (moment, summary) at each look, the last one for ever. A pause
    takes 10 s. It is asked to stop at the look `stop_at`."""

    def __init__(self, *steps: Step, stop_at: int = 0) -> None:
        self.steps = steps
        self.stop_at = stop_at
        self.looks = 0
        self.now_s = 0.0
        self.finals: list[bool] = []
        self.shown: list[Sample] = []
        self.said: list[str] = []
        self.show = self.shown.append
        self.say = self.said.append

    def _look(self) -> Moment:
        self.looks += 1
        return self.steps[min(self.looks, len(self.steps)) - 1][0]

    def _ask_audit(self, is_final: bool) -> dict[str, Any] | None:
        self.finals.append(is_final)
        return self.steps[min(self.looks, len(self.steps)) - 1][1]

    def _pause(self, _seconds: float) -> None:
        self.now_s += 10.0

    def follow(self) -> Sample:
        return demo_progress.follow(
            self,
            look=self._look,
            ask_audit=self._ask_audit,
            stop_asked=lambda: self.looks == self.stop_at,
            stall_timeout_s=STALL_S,
            clock=lambda: self.now_s,
            pause=self._pause,
        )


def test_it_ends_when_all_is_sent_and_the_audit_balances() -> None:
    run = Run(
        (SENDING, summary(10, 10, complete=3)),
        (SENT, summary(20, 15, pending=1, missing=1)),
        (SENT, summary(20, 20, complete=4)),
    )
    assert run.follow().tiers["warehouse"] == 20
    assert run.finals == [False, True, True]


def test_it_does_not_end_before_the_audit_has_read_what_was_there_when_all_was_sent() -> None:
    """The service's first answer may be of the moment before the last frontend ended."""
    run = Run(
        (SENT, summary(10, 10, now_ms=4_000, read_to_ms=4_000, complete=4)),
        (SENT, None),
        (SENT, summary(10, 10, now_ms=5_000, read_to_ms=4_999, complete=4)),
        (SENT, summary(10, 10, now_ms=7_000, read_to_ms=4_999, complete=4)),
        (SENT, summary(20, 15, now_ms=7_500, read_to_ms=7_100, complete=4, behind=1)),
        (SENT, summary(20, 20, now_ms=8_000, read_to_ms=7_100, complete=5)),
    )
    assert run.follow().tiers["warehouse"] == 20
    slow = summary(10, 10, now_ms=5_000, complete=4)
    slow["tiers"] = slow["tiers"] | {"live": {"count": 10, "read_to_ms": 4_000}}
    run = Run((SENT, slow), (SENT, slow), (SENT, summary(20, 20, now_ms=8_000, complete=5)))
    assert run.follow().tiers["live"] == 20, "a tier that is not read has messages to come"
    run = Run(
        *[(moment, summary(10, 10, now_ms=4_000, complete=4)) for moment in (SENT, SENDING)],
        (SENT, summary(20, 20, now_ms=8_000, complete=5)),
    )
    assert run.follow().tiers["live"] == 20, "something is sent again"


def test_what_was_not_reported_is_waited_for() -> None:
    """Counts above the reports, of windows that are judged before they are over."""
    run = Run(
        *[(SENT, summary(10, 20, complete=3, **{state: 2})) for state in ("extra", "unknown")],
        (SENT, summary(20, 20, complete=4, redelivered=1, **{"not audited": 1})),
    )
    assert run.follow().produced == 20


def test_a_process_that_is_down_is_waited_for() -> None:
    balanced = summary(5, 5, complete=1)
    run = Run((Moment(True, ("mirror-1",)), balanced), (SENT, balanced))
    run.follow()
    assert [sample.down for sample in run.shown] == [("mirror-1",), ()]


@pytest.mark.parametrize(
    "final", [summary(20, 19, missing=1), summary(0, 0)], ids=["missing", "nothing produced"]
)
def test_a_run_that_does_not_balance_ends_after_a_while(final: dict[str, Any]) -> None:
    run = Run((SENT, final))
    assert run.follow().verdicts == final["verdicts"]
    assert run.now_s > demo_progress.SETTLE_S
    assert "no change for" in run.said[0]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ((Moment(True, ("broker-1",)), summary(20, 19, missing=1)), "down: broker-1"),
        ((Moment(True, ("audit",)), summary(0, 0)), "down: audit"),
        ((SENT, None), "no progress"),
    ],
    ids=["something is down", "nothing was produced", "the audit does not answer"],
)
def test_it_gives_up_when_nothing_moves(step: Step, reason: str) -> None:
    run = Run(step)
    with pytest.raises(GaveUp, match=reason):
        run.follow()
    assert run.now_s > STALL_S


def test_it_stops_when_asked() -> None:
    run = Run((SENDING, summary(1, 0, pending=1)), stop_at=2)
    with pytest.raises(GaveUp, match="signal"):
        run.follow()
    assert run.looks == 2


def test_any_change_counts_as_progress() -> None:
    watch = demo_progress.ProgressWatch()
    first = sample_from(summary(1, 0, pending=1), (), "a")
    assert watch.idle_s(first, 5.0) == 0.0
    assert watch.idle_s(sample_from(summary(1, 0, pending=1), (), "b"), 9.0) == 4.0
    assert watch.idle_s(sample_from(summary(1, 1, pending=1), (), "b"), 9.5) == 0.0


def test_lines_that_could_not_be_read_come_with_the_command_that_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is run as a shell would, over a table as the load makes it."""
    assert demo_progress.unread_text(0, tmp_path) == ""
    with monkeypatch.context() as changed:
        changed.chdir(tmp_path)
        assert demo_progress.unread_text(1, tmp_path / "var/warehouse").endswith(" limit 20'")
    lines = [b'1.2.3.4 - "GET /\xc3\xa4"', b"\xff\x00junk", b""]
    rows = {"line_number": [7, 8, 9], "line": lines, "hour": ["2015-05-17-12"] * 3}
    tables = tmp_path / "my tables"
    write_deltalake(str(tables / "access_log_unreadable"), pa.table(rows), partition_by=["hour"])
    assert "; this shows the first 20:\n" in demo_progress.unread_text(21, tables)
    told = demo_progress.unread_text(6, tables)
    said, _, command = told.partition(":\n")
    assert said == "6 lines could not be read; this shows them"
    words = shlex.split(command)
    assert words[-2:] == ["--warehouse", str(tables)]
    done = commands.run(*words[words.index("sql") :], "--format", "csv", status=0)
    assert done.stdout.splitlines() == [
        "line_number,line",
        '7,"1.2.3.4 - ""GET /ä"""',
        "8,\\xFF\\x00junk",
        "9,",
    ]


@pytest.mark.parametrize(
    ("sent", "is_readable", "lines"),
    [
        ({"access-log": 9}, True, []),
        ({"access-log": 9, demo_progress.UNREAD: 2}, True, ["2 lines could not be read"]),
        (
            {"access-log": 1, demo_progress.UNREAD: 2},
            False,
            ["2 lines could not be read", "kafka2011: only 1 of 3 lines"],
        ),
        ({}, True, []),
    ],
)
def test_what_could_not_be_read_is_said_and_most_of_it_is_a_failure(
    sent: dict[str, int], is_readable: bool, lines: list[str]
) -> None:
    written = io.StringIO()
    said = demo_progress.says_what_was_read(Console(file=written, width=80), sent, None)
    found = written.getvalue().splitlines()
    assert (said, len(found)) == (is_readable, len(lines))
    for line, begin in zip(found, lines, strict=True):
        assert line.startswith(begin)


def test_the_summary_names_the_tiers_as_the_audit_does() -> None:
    written = io.StringIO()
    sample = sample_from(summary(7, 7), (), "")
    demo_progress.print_summary(Console(file=written, width=80), sample, (), "over in var[1]/")
    words = [line.split()[0] for line in written.getvalue().splitlines()]
    assert words == ["Summary", "tier", "produced", *demo_progress.TIERS, "over"]
    assert written.getvalue().endswith("over in var[1]/\n")


PENDING = {
    "cell_list": [{"window_start_ms": 3_000}],
    "cells_left_out": 0,
    "awaited": [],
    "losses": [],
}
ARRIVED = summary(9, 9, complete=5, pending=1, redelivered=2) | PENDING | {"exit_status": 0}


@pytest.mark.parametrize(
    "otherwise",
    [
        {"cell_list": [{"window_start_ms": 3_000}, {"window_start_ms": 2_000}]},
        {"cells_left_out": 1},
        {"verdicts": {"complete": 5, "behind": 1}},
        {"exit_status": 1},
        {"awaited": [{"what": "a report"}]},
        {"losses": [{"what": "an unclean election lost a range of a log of live"}]},
        {"produced": 0},
        {"reports_read_to_ms": 1_999},
        {"tiers": ARRIVED["tiers"] | {"live": {"read_to_ms": 1_999}}},
    ],
)
def test_the_end_of_a_fault_is_said_once_and_only_when_its_time_has_arrived(
    otherwise: dict[str, Any],
) -> None:
    after = demo_progress.AfterFault()
    assert not after.is_made_good(False, 1_000, pytest.fail), "nothing was wrong"
    assert not after.is_made_good(True, 1_500, pytest.fail)
    assert not after.is_made_good(True, 2_000, pytest.fail)
    assert not after.is_made_good(False, 4_000, lambda: None)
    assert not after.is_made_good(False, 5_000, lambda: ARRIVED | otherwise)
    assert after.is_made_good(False, 6_000, lambda: ARRIVED)
    assert not after.is_made_good(False, 7_000, pytest.fail)
