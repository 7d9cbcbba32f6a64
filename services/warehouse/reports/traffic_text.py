"""The traffic report for people: tables for a terminal or a file, and a picture of the hours."""

import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from html import escape

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka2011.runtime.safe_text import visible
from kafka2011.runtime.tables import new_table
from kafka2011.services.warehouse.reports.traffic import HourTraffic, Report, Traffic

# On a terminal; the report's files have all.
HOURS_SHOWN_MAX = 10
PATHS_SHOWN_MAX = 10
PATH_SHOWN_MAX = 80

GAP = "..."  # between two hours that do not follow each other

_WIDTH, _HEIGHT, _MARGIN_LEFT, _MARGIN = 960, 320, 70, 40
_LABEL_WIDTH = 100  # of an hour with its year
_LABELS_MAX = 8


def tables(report: Report, whole_in: str = "") -> Iterable[Table | str]:
    """The report's tables in order, with lines of text between them. With `whole_in`, the file that
    has all rows: the first rows of each, and a last line that names it."""
    is_whole = not whole_in
    totals = report.totals
    yield (
        f"Report on {report.table}: {totals.page_views:,} page views of "
        f"{totals.visitors:,} visitors (different hosts)"
    )
    yield (
        f"{'sizes are unknown' if totals.bytes is None else f'{totals.bytes:,} bytes'}, "
        f"{totals.errors:,} errors (answers of status 400 and above: "
        f"{totals.error_share:.2%})"
    )
    repeated = report.rows - totals.page_views
    if repeated:
        yield f"{repeated:,} rows were delivered again and count once"
    sizes = () if totals.bytes is None else ("bytes",)
    numbers = ("page views", "visitors", *sizes, "errors", "error share")
    hours_shown = report.hours if is_whole else report.hours[:HOURS_SHOWN_MAX]
    title = "\nTraffic per hour (UTC)"
    if None in with_gaps(hours_shown):
        title += f"; {GAP} are hours without page views"
    hours = new_table("hour", *numbers, numbers=numbers, title=title)
    for hour in with_gaps(hours_shown):
        if hour is None:
            hours.add_row(GAP)
        else:
            hours.add_row(_hour_text(hour), *_cells(hour))
    hours.add_section()
    hours.add_row("all", *_cells(totals))
    yield hours
    counts = ("#", "page views")
    shown = report.top_paths if is_whole else report.top_paths[:PATHS_SHOWN_MAX]
    title = f"\nTop {len(shown)} paths"
    paths = new_table(*counts, "path", numbers=counts, title=title)
    for rank, path in enumerate(shown, 1):
        paths.add_row(str(rank), f"{path.page_views:,}", _path_text(path.path))
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
        yield f"and {' and '.join(left)} in {whole_in}"


def with_gaps(hours: Sequence[HourTraffic]) -> Iterator[HourTraffic | None]:
    """The hours in order, with None where hours between two of them have no page views."""
    before: datetime | None = None
    for hour in hours:
        begin = datetime.strptime(hour.hour, "%Y-%m-%d-%H")
        if before is not None and begin - before > timedelta(hours=1):
            yield None
        yield hour
        before = begin


def _hour_text(hour: HourTraffic) -> str:
    return f"{hour.hour[:10]} {hour.hour[11:]}:00"


def _path_text(path: str | None) -> Text:
    if not path:
        return Text("(no path)" if path is None else "(empty path)", style="dim")
    return Text(visible(path, PATH_SHOWN_MAX))


def _cells(traffic: Traffic) -> list[str]:
    return [
        f"{traffic.page_views:,}",
        f"{traffic.visitors:,}",
        *(() if traffic.bytes is None else (f"{traffic.bytes:,}",)),
        f"{traffic.errors:,}",
        f"{traffic.error_share:.2%}",
    ]


def as_text(report: Report) -> str:
    """The whole report as plain text."""
    written = io.StringIO()
    console = Console(file=written, width=120, color_system=None, highlight=False)
    for part in tables(report):
        console.print(part, markup=False)
    return written.getvalue()


def as_svg(report: Report) -> str:
    """An SVG of page views per hour as bars, errors in their own colour."""
    plot_width, plot_height = _WIDTH - _MARGIN_LEFT - _MARGIN, _HEIGHT - 2 * _MARGIN
    highest = max((hour.page_views for hour in report.hours), default=0) or 1
    slots = list(with_gaps(report.hours))
    step = plot_width / (len(slots) or 1)
    bottom = _MARGIN + plot_height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_MARGIN_LEFT}" y="22" font-size="14">Page views per hour, '
        f"{escape(report.table)} (errors in red"
        + (f"; {GAP} hours without page views)</text>" if None in slots else ")</text>"),
    ]
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * plot_height
        parts.append(
            f'<line x1="{_MARGIN_LEFT}" x2="{_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="#ddd"/><text x="{_MARGIN_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{round(share * highest):,}</text>"
        )
    width = max(0.5, step * 0.85)
    for number, hour in enumerate(slots):
        x = _MARGIN_LEFT + number * step
        if hour is None:
            parts.append(_gap(x + width / 2, bottom))
            continue
        for value, colour in ((hour.page_views, "#4477aa"), (hour.errors, "#cc3311")):
            height = plot_height * value / highest
            if value:
                parts.append(
                    f'<rect x="{x:.2f}" y="{bottom - height:.2f}" width="{width:.2f}" '
                    f'height="{height:.2f}" fill="{colour}"><title>{hour.hour}: {value:,}</title>'
                    "</rect>"
                )
    for x, label in _labels(slots, step):
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}">{label}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def _gap(x: float, bottom: float) -> str:
    """A dashed line and dots, which say that time is left out here."""
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_MARGIN}" y2="{bottom}" stroke="#999" '
        f'stroke-dasharray="3 4"/><text x="{x:.1f}" y="{bottom - 6}" text-anchor="middle" '
        f'font-size="20" fill="#666">{GAP}</text>'
    )


def _labels(slots: Sequence[HourTraffic | None], step: float) -> Iterator[tuple[float, str]]:
    """The labels of the axis with the place of each: those of hours after a gap first, then as many
    others as there is room for; with the year where there is more than one."""
    hours = {number: hour.hour for number, hour in enumerate(slots) if hour is not None}
    cut = 0 if len({hour[:4] for hour in hours.values()}) > 1 else len("2011-")
    apart = max(_LABEL_WIDTH, len(slots) * step / _LABELS_MAX)
    after_gaps = [number for number in hours if number == 0 or slots[number - 1] is None]
    chosen: dict[int, float] = {}
    for number in (*after_gaps, *hours):
        x = min(_MARGIN_LEFT + number * step, _WIDTH - _LABEL_WIDTH)
        if all(abs(x - other) >= apart for other in chosen.values()):
            chosen[number] = x
    for number, x in sorted(chosen.items()):
        yield x, f"{hours[number][cut:10]} {hours[number][11:]}h"
