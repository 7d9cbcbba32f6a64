"""Lines for the operator that the audit has found while it read.

Some are of data that is not read again: the store keeps these. Pure and not thread-safe;
`state.AuditState` owns one `Notes` and locks.
"""

from collections.abc import Iterable

NOTES_MAX = 100


class Notes:
    """The newest NOTES_MAX lines, each once. `is_dirty`: those to keep have changed."""

    def __init__(self) -> None:
        self._is_kept: dict[str, bool] = {}  # by text, oldest first
        self.is_dirty = False

    def add(self, text: str, *, is_kept: bool = False, instead_of: str = "") -> None:
        """Add a line as the newest; `is_kept`: it outlives a restart of the service. `instead_of`:
        an earlier line, which goes."""
        self.is_dirty |= self._is_kept.pop(instead_of, False)
        self._is_kept.pop(text, None)
        self._is_kept[text] = is_kept
        self.is_dirty |= is_kept
        while len(self._is_kept) > NOTES_MAX:
            self.is_dirty |= self._is_kept.pop(next(iter(self._is_kept)))

    def texts(self) -> list[str]:
        """All lines, oldest first."""
        return list(self._is_kept)

    def kept(self) -> list[str]:
        """The lines that outlive a restart, oldest first."""
        return [text for text, is_kept in self._is_kept.items() if is_kept]

    def restore(self, kept: Iterable[str]) -> None:
        """Take the lines that an earlier run kept."""
        self._is_kept = dict.fromkeys(kept, True)
