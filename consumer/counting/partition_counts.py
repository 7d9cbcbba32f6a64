"""What a group has read of one partition, by window and server, and its stored form. Pure.

The counts cover one piece of the log, from `start` up to `end`, without a hole and each entry once:
what lies below `end` and comes again, after a rebalance or a crash, is not counted again. Where
there would be a hole (a seek, an offset moved by hand, a log that was cut), counting begins anew
behind it.

From `since_ms` on everything is counted: windows that begin before it may have messages below
`start`, or were dropped. It is 0 where the counts begin at the beginning of the log.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kafka2011.events.header import UNREADABLE

CELLS_MAX = 300  # (window, server) pairs kept; above that the oldest windows are dropped
FUTURE_MS_MAX = 86_400_000  # a time further ahead cannot be right: counted as unreadable
# When counting begins within a log, messages before its start may have a time that is later by as
# much as two clocks differ.
CLOCKS_DIFFER_MS = 60_000
NUMBERS = ("from", "to", "since_ms", "window_ms", "again")

Cells = dict[tuple[int, str], int]  # (window's start in ms, server) -> messages


@dataclass
class PartitionCounts:
    """Counts of the entries from `start` up to `end`, in windows of `window_ms`.

    `again` is the number of messages that were read once more, and not counted.
    """

    start: int
    end: int
    since_ms: int
    window_ms: int
    again: int = 0
    cells: Cells = field(default_factory=dict)

    @classmethod
    def begun(cls, offset: int, window_ms: int, now_ms: int, *, is_first: bool = True) -> Self:
        """Empty counts from `offset` on; `is_first`: the log's first, so complete from offset 0."""
        is_whole = is_first and not offset
        return cls(offset, offset, 0 if is_whole else now_ms + CLOCKS_DIFFER_MS, window_ms)

    def add(self, end: int, cells: Mapping[tuple[int, str], int], now_ms: int) -> None:
        """Count the entries from the present end up to `end`."""
        self.end = end
        for cell, count in cells.items():
            key = cell if cell[0] <= now_ms + FUTURE_MS_MAX else UNREADABLE
            self.cells[key] = self.cells.get(key, 0) + count
        if len(self.cells) > CELLS_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        windows = sorted({start for start, _ in self.cells if start >= 0})
        while len(self.cells) > CELLS_MAX and windows:
            oldest = windows.pop(0)
            self.cells = {cell: n for cell, n in self.cells.items() if cell[0] != oldest}
            self.since_ms = max(self.since_ms, oldest + self.window_ms)

    def encode(self) -> bytes:
        """The value of the partition's node in the registry."""
        cells = [[start, server, count] for (start, server), count in sorted(self.cells.items())]
        return json.dumps(
            {
                "from": self.start,
                "to": self.end,
                "since_ms": self.since_ms,
                "window_ms": self.window_ms,
                "again": self.again,
                "cells": cells,
            },
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode()

    @classmethod
    def decode(cls, value: bytes | None) -> Self | None:
        """What `encode` made; None for anything else."""
        try:
            found = json.loads(value or b"")
            start, end, since_ms, window_ms, again = (found[name] for name in NUMBERS)
            cells = {(at, server): count for at, server, count in found["cells"]}
            numbers = [start, end, since_ms, window_ms, again, *cells.values()]
            numbers += [at for at, _ in cells]
            is_whole = all(type(number) is int for number in numbers) and window_ms > 0
            if not is_whole or not all(type(server) is str for _, server in cells):
                return None
            return cls(start, end, since_ms, window_ms, again, cells)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
