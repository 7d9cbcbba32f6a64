"""Rows of a report as a table for people, and as a picture: horizontal bars in SVG. Pure."""

import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka2011.runtime.safe_text import visible
from kafka2011.runtime.tables import new_table

Row = Mapping[str, Any]

LABEL_SHOWN_MAX = 60
CELL_SHOWN_MAX = 80
MS = "_ms"  # ends the names of columns of milliseconds
_WIDTH, _LABELS, _MARGIN, _BAR, _STEP, _TOP = 960, 420, 20, 16, 22, 44


def figure(value: Any) -> str:
    """A cell's text: whole numbers with thousands, shares and means to four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return visible(str(value), CELL_SHOWN_MAX)


def duration(ms: float) -> str:
    """A duration to three digits, with its unit."""
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.3g} ms"


def cell(name: str, value: Any) -> str:
    """The text of a column's cell; a column of milliseconds is of durations with their unit."""
    return duration(value) if name.endswith(MS) and value is not None else figure(value)


def rows_table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> Table:
    shown = {name: name.removesuffix(MS).replace("_", " ") for name in columns}
    numbers = [
        shown[name] for name in columns if all(isinstance(row[name], int | float) for row in rows)
    ]
    table = new_table(*shown.values(), numbers=numbers, title=title)
    for row in rows:
        table.add_row(*(Text(cell(name, row[name])) for name in columns))
    return table


def rows_text(title: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    written = io.StringIO()
    console = Console(file=written, width=120, color_system=None, highlight=False)
    console.print(rows_table(title, columns, rows), markup=False)
    return written.getvalue()


def rows_svg(title: str, label: Sequence[str], value: str, unit: str, rows: Sequence[Row]) -> str:
    """An SVG with one bar a row, in the rows' order, each followed by its figure."""
    highest = max((float(row[value]) for row in rows), default=0.0) or 1.0
    height = _TOP + _STEP * max(1, len(rows)) + _MARGIN
    room = _WIDTH - _LABELS - _MARGIN - 90  # the figure follows the longest bar
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_MARGIN}" y="24" font-size="14">{escape(title)} ({escape(unit)})</text>',
    ]
    if not rows:
        parts.append(f'<text x="{_MARGIN}" y="{_TOP + _BAR}">nothing</text>')
    for number, row in enumerate(rows):
        y = _TOP + number * _STEP
        names = ("" if row[part] is None else str(row[part]) for part in label)
        name = visible(" + ".join(names), LABEL_SHOWN_MAX)
        width = max(0.0, float(row[value])) / highest * room
        parts.append(
            f'<text x="{_LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="#4477aa"/>'
            f'<text x="{_LABELS + width + 6:.1f}" y="{y + 12}">{figure(row[value])}</text>'
        )
    parts.append("</svg>\n")
    return "\n".join(parts)
