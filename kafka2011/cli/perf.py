"""Shared by the perf commands: 0.7's options, rows and date formats, and the threads that count.

MB is 1048576 bytes; bytes are those of payloads alone.
"""

import datetime
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import typer

from kafka2011.cli.output import complain, fail
from kafka2011.coordination.errors import CoordinationError
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.workers import Worker

MB = 1048576
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"
MESSAGES_MAX = 2**63 - 1

ReportingInterval = Annotated[
    int, typer.Option("--reporting-interval", min=1, help="messages between two detailed rows")
]
DatePattern = Annotated[
    str, typer.Option("--date-format", help="pattern of the dates, in Java's letters")
]
ShowsDetailedStats = Annotated[
    bool, typer.Option("--show-detailed-stats", help="print a row for each thread and interval")
]
HidesHeader = Annotated[bool, typer.Option("--hide-header", help="omit the header")]
PrintsJson = Annotated[bool, typer.Option("--json", help="print one JSON object for each row")]

# The letters of Java's date patterns that are supported; runs of them are replaced.
_FIELDS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


class DateFormat:
    """A Java date pattern of yyyy MM dd HH mm ss SSS and what stands between; local time.

    Exits with status 2 for another pattern.
    """

    def __init__(self, pattern: str) -> None:
        self._pieces: list[str] = []
        position = 0
        while position < len(pattern):
            letter = pattern[position]
            end = position
            while end < len(pattern) and pattern[end] == letter:
                end += 1
            run = pattern[position:end]
            if run != "SSS" and run not in _FIELDS and letter.isascii() and letter.isalpha():
                fail(f"--date-format {pattern!r}: {run!r} is not one of yyyy MM dd HH mm ss SSS", 2)
            self._pieces.append(run)
            position = end

    def text(self, time_ms: int) -> str:
        moment = datetime.datetime.fromtimestamp(time_ms / 1000)
        return "".join(
            f"{time_ms % 1000:03}"
            if piece == "SSS"
            else moment.strftime(_FIELDS[piece])
            if piece in _FIELDS
            else piece
            for piece in self._pieces
        )


class Rows:
    """Prints rows of fields, comma and blank between them, or JSON objects; for any thread."""

    def __init__(self, *, hides_header: bool, as_json: bool) -> None:
        self._lock = threading.Lock()
        self._shows_header = not hides_header and not as_json
        self._as_json = as_json

    def header(self, titles: Sequence[str]) -> None:
        if self._shows_header:
            print(", ".join(titles), flush=True)

    def row(self, fields: Sequence[str], record: Mapping[str, object]) -> None:
        """`fields` in the original's format; `record` is the same for --json."""
        with self._lock:
            print(json.dumps(record) if self._as_json else ", ".join(fields), flush=True)


def per_second(amount: float, elapsed_ms: float) -> float:
    """A rate; 0 when no time has passed."""
    return amount * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0


class PerfThread(ABC):
    """One thread of a measurement: `work` calls `counted` for what it has sent or received.

    `report(thread, messages, bytes, since_ms)` is called for every `interval` messages, if given.
    """

    def __init__(self, number: int, interval: int | None, report: "Report") -> None:
        self.number = number
        self.count = self.data_bytes = 0
        self.end_ms = 0
        self.failure = ""
        self.thread = Worker(self._run, f"perf-{number}", restarts=False, on_failure=self._failed)
        self._interval = interval
        self._report = report
        self._reported = (0, 0, 0)  # messages, bytes, ms

    @abstractmethod
    def work(self) -> int:
        """Do all the work; returns for how long nothing came at the end, ms."""

    def counted(self, messages: int, data_bytes: int) -> None:
        self.count += messages
        self.data_bytes += data_bytes
        count, size, since_ms = self._reported
        if self._interval and self.count // self._interval > count // self._interval:
            self._report(self, self.count - count, self.data_bytes - size, since_ms)
            self._reported = (self.count, self.data_bytes, now_ms())

    def _run(self) -> None:
        self._reported = (0, 0, now_ms())
        quiet_ms = 0
        try:
            quiet_ms = self.work()
        except (KafkaError, CoordinationError) as error:
            self.failure = str(error)
        self.end_ms = now_ms() - quiet_ms

    def _failed(self, error: BaseException) -> None:
        self.failure, self.end_ms = repr(error), now_ms()


Report = Callable[[PerfThread, int, int, int], None]


def run_threads(threads: Sequence[PerfThread]) -> tuple[int, int]:
    """Run all threads to their ends; returns start and end, ms since the epoch."""
    start_ms = now_ms()
    for one in threads:
        one.thread.start()
    for one in threads:
        one.thread.join()
    return start_ms, max([start_ms, *(one.end_ms for one in threads)])


def exit_with_failures(threads: Sequence[PerfThread]) -> None:
    """Exit with status 1 and one line for each thread that failed, if one has."""
    failures = [one for one in threads if one.failure]
    for one in failures:
        complain(f"thread {one.number}, after {one.count} messages: {one.failure}")
    if failures:
        raise SystemExit(1)
