"""The one style of tables on a terminal: bold titles, no lines, numbers to the right.

Three tiers fit into eighty columns without lines, and what is copied from a table is text.
"""

from collections.abc import Container
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

WIDE = 1 << 40  # characters: nothing is as wide


class _Table(Table):
    """A table whose rows are each one line, however long, where a console does not break lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.no_wrap and options.overflow == "ignore":  # as with `soft_wrap`
            wide = replace(options, max_width=WIDE)
            options = replace(options, max_width=Measurement.get(console, wide, self).maximum)
        yield from super().__rich_console__(console, options)


def new_table(*titles: str, numbers: Container[str] = (), title: str | None = None) -> Table:
    """An empty table; the columns titled `numbers` are aligned right and never broken."""
    table = _Table(
        title=title,
        title_justify="left",
        header_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for name in titles:
        is_number = name in numbers
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="ellipsis" if is_number else "fold",
        )
    return table
