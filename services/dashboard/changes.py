"""What changed between two samples, numbered, in one bounded log for all browsers.

There is no queue per browser: it sends the number of the last change that it received and gets
those after it. A browser that is further behind than the log gets a snapshot, so that a slow or
sleeping tab costs nothing and never shows a wrong state.

Every message gives the time of its sample, its age when sent, and the time since the sample before:
a browser whose server no longer samples knows that its values are old.
"""

import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from kafka2011.runtime import strict_json
from kafka2011.runtime.clock import now_ms

Rows = Mapping[str, Mapping[str, Any]]
Sections = Mapping[str, Rows]

KEPT = 60


class ChangeLog:
    """The present sections, and the last `kept` changes by section as ready text."""

    def __init__(self, kept: int = KEPT, first: int = 0) -> None:
        """`first`: above every number of an earlier run (the time in ms is), so that a browser
        that reconnects with one of those gets a snapshot."""
        self.id = self._first = first
        self._sections: dict[str, Rows] = {}
        # (number, head of its message, time.monotonic, changes)
        self._ring: deque[tuple[int, str, float, dict[str, str]]] = deque(maxlen=kept)

    def advance(self, sections: Sections) -> int:
        """Add the next sample; returns its number."""
        changed: dict[str, str] = {}
        for name, rows in sections.items():
            change = diff(self._sections.get(name, {}), rows)
            if change:
                changed[name] = dumps(change)
            self._sections[name] = rows
        self.id += 1
        at_s = time.monotonic()
        pause_ms = round((at_s - self._ring[-1][2]) * 1000) if self._ring else 0
        head = f'"id":{self.id},"at_ms":{now_ms()},"pause_ms":{pause_ms}'
        self._ring.append((self.id, head, at_s, changed))
        return self.id

    @property
    def samples(self) -> int:
        """Number of samples added."""
        return self.id - self._first

    def rows(self, name: str) -> Rows:
        """A section as it is now."""
        return self._sections.get(name, {})

    def snapshot(self, wanted: Collection[str]) -> str:
        """Everything of the wanted sections, as JSON."""
        rows = {name: self._sections.get(name, {}) for name in wanted}
        head = self._ring[-1][1:3] if self._ring else (f'"id":{self.id}', time.monotonic())
        return _message(*head, "sections", dumps(rows))

    def since(self, number: int, wanted: Collection[str]) -> list[tuple[int, str]] | None:
        """The changes after `number` as JSON; None when a snapshot is needed instead."""
        if number == self.id:
            return []
        if number > self.id or not self._ring or number < self._ring[0][0] - 1:
            return None
        found = []
        for at, head, at_s, changed in self._ring:
            if at > number:
                parts = ",".join(f'"{name}":{changed[name]}' for name in wanted if name in changed)
                found.append((at, _message(head, at_s, "changes", f"{{{parts}}}")))
        return found


def _message(head: str, at_s: float, name: str, content: str) -> str:
    age_ms = round((time.monotonic() - at_s) * 1000)
    return f'{{{head},"age_ms":{age_ms},"{name}":{content}}}'


def diff(old: Rows, new: Rows) -> dict[str, Any]:
    """What changed. `set`: rows that are new or different; `gone`: keys removed. Empty if equal."""
    if old is new:
        return {}
    changed = {
        key: row
        for key, row in new.items()
        if (before := old.get(key)) is not row and before != row  # most rows are the very same
    }
    gone = [key for key in old if key not in new]
    change: dict[str, Any] = {}
    if changed:
        change["set"] = changed
    if gone:
        change["gone"] = gone
    return change


def dumps(value: Any) -> str:
    return strict_json.dumps(value, separators=(",", ":"), ensure_ascii=True)
