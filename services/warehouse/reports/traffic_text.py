"""The traffic report for people: tables for a terminal or a file, and a picture of the hours."""

import io
from collections.abc import Iterable
from html import escape

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka2011.runtime.tables import new_table
from kafka2011.services.warehouse.reports.traffic import Report, Traffic
from kafka2011.services.warehouse.safe_text import visible

# On a terminal; the report's files have all.
HOURS_SHOWN_MAX = 10
PATHS_SHOWN_MAX = 10
PATH_SHOWN_MAX = 80

_WIDTH, _HEIGHT, _MARGIN_LEFT, _MARGIN = 960, 320, 70, 40


def tables(report: Report, *, is_whole: bool = False) -> Iterable[Table | str]:
    """The report's tables in order, with lines of text between them; the first rows of each unless
    `is_whole`."""
    totals = report.totals
    yield (
        f"Report on {report.table}: {totals.page_views:,} page views of "
        f"{totals.visitors:,} visitors (different hosts)"
    )
    yield (
        f"{totals.bytes:,} bytes, {totals.errors:,} errors (answers of status 400 and above: "
        f"{totals.error_share:.2%})"
    )
    repeated = report.rows - totals.page_views
    if repeated:
        yield f"{repeated:,} rows were delivered again and count once"
    numbers = ("page views", "visitors", "bytes", "errors", "error share")
    hours = new_table("hour", *numbers, numbers=numbers, title="\nTraffic per hour (UTC)")
    for hour in report.hours if is_whole else report.hours[:HOURS_SHOWN_MAX]:
        hours.add_row(f"{hour.hour[:10]} {hour.hour[11:]}:00", *_cells(hour))
    hours.add_section()
    hours.add_row("all", *_cells(totals))
    yield hours
    counts = ("#", "page views")
    shown = report.top_paths if is_whole else report.top_paths[:PATHS_SHOWN_MAX]
    title = f"\nTop {len(shown)} paths"
    paths = new_table(*counts, "path", numbers=counts, title=title)
    for rank, path in enumerate(shown, 1):
        paths.add_row(str(rank), f"{path.page_views:,}", Text(visible(path.path, PATH_SHOWN_MAX)))
    yield paths
    left = [
        f"{count:,} more {what}{'' if count == 1 else 's'}"
        for count, what in (
            (len(report.hours) - HOURS_SHOWN_MAX, "hour"),
            (len(report.top_paths) - PATHS_SHOWN_MAX, "path"),
        )
        if count > 0 and not is_whole
    ]
    if left:
        yield f"and {' and '.join(left)} in the report's files"


def _cells(traffic: Traffic) -> list[str]:
    return [
        f"{traffic.page_views:,}",
        f"{traffic.visitors:,}",
        f"{traffic.bytes:,}",
        f"{traffic.errors:,}",
        f"{traffic.error_share:.2%}",
    ]


def as_text(report: Report) -> str:
    """The whole report as plain text."""
    written = io.StringIO()
    console = Console(file=written, width=120, color_system=None, highlight=False)
    for part in tables(report, is_whole=True):
        console.print(part, markup=False)
    return written.getvalue()


def as_svg(report: Report) -> str:
    """An SVG of page views per hour as bars, errors in their own colour."""
    plot_width, plot_height = _WIDTH - _MARGIN_LEFT - _MARGIN, _HEIGHT - 2 * _MARGIN
    highest = max((hour.page_views for hour in report.hours), default=0) or 1
    count = len(report.hours) or 1
    step = plot_width / count
    bottom = _MARGIN + plot_height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_MARGIN_LEFT}" y="22" font-size="14">Page views per hour, '
        f"{escape(report.table)} (errors in red)</text>",
    ]
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * plot_height
        parts.append(
            f'<line x1="{_MARGIN_LEFT}" x2="{_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="#ddd"/><text x="{_MARGIN_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{round(share * highest):,}</text>"
        )
    label_every = max(1, -(-count // 8))
    for number, hour in enumerate(report.hours):
        x = _MARGIN_LEFT + number * step
        width = max(0.5, step * 0.85)
        for value, colour in ((hour.page_views, "#4477aa"), (hour.errors, "#cc3311")):
            height = plot_height * value / highest
            if value:
                parts.append(
                    f'<rect x="{x:.2f}" y="{bottom - height:.2f}" width="{width:.2f}" '
                    f'height="{height:.2f}" fill="{colour}"><title>{hour.hour}: {value:,}</title>'
                    "</rect>"
                )
        if number % label_every == 0:
            label = f"{hour.hour[5:10]} {hour.hour[11:]}h"
            parts.append(f'<text x="{x:.1f}" y="{bottom + 18}">{label}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)
