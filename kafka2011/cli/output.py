"""How all commands print: safe text, tables, JSON, times, one-line errors."""

import datetime
import select
import sys
from collections.abc import Container, Iterable, Sequence
from typing import Any, BinaryIO, NoReturn

from kafka2011.runtime import strict_json
from kafka2011.runtime.safe_text import escaped, one_line


def fail(text: str, status: int = 1, *, command: str = "") -> NoReturn:
    """Print one line on standard error and exit. Status 1: the answer is no, or it failed; 2: the
    command was wrong."""
    complain(text, command=command)
    raise SystemExit(status)


def complain(text: str, *, command: str = "") -> None:
    """Print one line on standard error, after the program's name and `command`."""
    line = " ".join(text.split())
    program = f"kafka2011 {command}".rstrip()
    print(f"{program}: {one_line(line)}", file=sys.stderr)


def number_of(count: int, thing: str) -> str:
    """`1 message`, `3,000 messages`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def printable(payload: bytes) -> str:
    """A payload as text, with control characters and invalid UTF-8 as escapes."""
    return escaped(payload.decode("utf-8", "backslashreplace"))


def payload_bytes(payload: bytes, out: BinaryIO) -> bytes:
    """The bytes to write to `out` for a payload: unchanged, or printable for a terminal."""
    return printable(payload).encode() if out.isatty() else payload


def reader_has_gone(descriptor: int) -> bool:
    """Whether the reading end of the pipe `descriptor` is closed; False for a file or a terminal.
    Without a write there is no other sign of it."""
    poller = select.poll()
    poller.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def print_json(document: Any) -> None:
    print(strict_json.dumps(document, indent=1))


def print_lines(names: Iterable[str]) -> None:
    """Print one name a line; line ends in a name are escaped."""
    print("".join(f"{one_line(name)}\n" for name in names), end="")


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[str] = (),
    red_rows: Container[int] = (),
) -> None:
    """Print a table; the columns titled `numbers` are aligned right, `red_rows` are row numbers.

    To a pipe or a file, each row is one line, however long.
    """
    from rich.console import Console  # only where there is a table: it takes a tenth of a second
    from rich.text import Text

    from kafka2011.runtime.tables import new_table

    table = new_table(*titles, numbers=set(numbers))
    for number, row in enumerate(rows):
        cells = (Text(one_line(shown(cell))) for cell in row)
        table.add_row(*cells, style="red" if number in red_rows else None)
    wide = None if sys.stdout.isatty() else 10_000
    console = Console(soft_wrap=not sys.stdout.isatty(), width=wide)
    console.print(table)


def shown(cell: object) -> str:
    """A cell's text: numbers with separators, ? for None."""
    if cell is None:
        return "?"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell)


def duration(milliseconds: int) -> str:
    """A duration in words: 850 ms, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds // 1000
    for unit, length, smaller, smaller_length in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if seconds >= length:
            rest = seconds % length // smaller_length
            return f"{seconds // length} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds} s"


def utc(time_ms: int) -> str:
    """ISO 8601 to the millisecond, UTC; outside the years 1 to 9999 `253402300800000 ms`."""
    try:
        moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Milliseconds since the epoch of an ISO 8601 time, in UTC unless it names a zone.

    Raises ValueError with an example.
    """
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: 2011-06-12T09:30:00Z, for example") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)
