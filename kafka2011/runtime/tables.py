"""The one style of tables on a terminal: bold titles, no lines, numbers to the right.

Three tiers fit into eighty columns without lines, and what is copied from it is text.
"""

from collections.abc import Container

from rich.table import Table


def new_table(*titles: str, numbers: Container[str] = (), title: str | None = None) -> Table:
    """An empty table; the columns titled `numbers` are aligned right and never broken."""
    table = Table(
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
