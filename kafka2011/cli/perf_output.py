"""Shared by the perf commands: 0.7's options, rows and date formats.

MB is 1048576 bytes; bytes are those of payloads alone.
"""

import datetime
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from kafka2011.cli.output import fail

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
