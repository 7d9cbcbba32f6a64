"""Audit windows, whole multiples of a length since the epoch, and counts by window. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

WINDOW_MS_DEFAULT = 600_000  # LinkedIn's ten minutes


def window_start(time_ms: int, window_ms: int) -> int:
    """The start of the window that holds `time_ms`; `window_ms` > 0."""
    return time_ms - time_ms % window_ms


@dataclass(frozen=True, slots=True, order=True)
class WindowCount:
    """`count` messages of `topic` with `bytes` payload bytes in the window from `window_start`."""

    topic: str
    window_start: int
    count: int
    bytes: int


class WindowCounts:
    """Message and byte counts by (topic, window).

    Not thread-safe: one owner adds the counts and takes them.
    """

    def __init__(self, window_ms: int = WINDOW_MS_DEFAULT) -> None:
        if window_ms <= 0:
            raise ValueError("window_ms must be above 0")
        self.window_ms = window_ms
        self._cells: dict[tuple[str, int], list[int]] = {}

    def add(self, topic: str, time_ms: int, count: int, size_bytes: int) -> None:
        """Count `count` messages of `topic` whose header.time is `time_ms`."""
        self.add_window(topic, time_ms - time_ms % self.window_ms, count, size_bytes)

    def add_window(self, topic: str, start_ms: int, count: int, size_bytes: int) -> None:
        cell = self._cells.get((topic, start_ms))
        if cell is None:
            self._cells[(topic, start_ms)] = [count, size_bytes]
        else:
            cell[0] += count
            cell[1] += size_bytes

    def merge(self, counts: Iterable[WindowCount]) -> None:
        for cell in counts:
            self.add_window(cell.topic, cell.window_start, cell.count, cell.bytes)

    def remove(self, cell: WindowCount) -> None:
        """Remove counted messages. Raises ValueError for more than were counted."""
        key = (cell.topic, cell.window_start)
        held = self._cells.get(key, [0, 0])
        left = [held[0] - cell.count, held[1] - cell.bytes]
        if min(left) < 0:
            raise ValueError(f"{cell} is more than {held}")
        if any(left):
            self._cells[key] = left
        else:
            self._cells.pop(key, None)

    def as_list(self) -> list[WindowCount]:
        """The counts, sorted by topic and window."""
        return [WindowCount(*key, *cell) for key, cell in sorted(self._cells.items())]

    def take(self) -> list[WindowCount]:
        """`as_list`, then reset."""
        taken = self.as_list()
        self._cells = {}
        return taken

    def __bool__(self) -> bool:
        return bool(self._cells)
