"""The marker of a clean stop, really durable, and what makes it trustworthy.

`.kafka_cleanshutdown` is 0.7's: an empty file whose presence says that every log was flushed and
closed. Beside it `.kafka2011_ends` says where each log ended and where its last set began, so that
on start a segment that is not as it was left is examined all the same. Marker and
ends are removed, durably, before anything is appended again. Unlike 0.7, which syncs neither
file nor directory, so that a power loss may bring an old marker back.

Form of `.kafka2011_ends`: one line per log, `<directory> <segment start> <last set> <end>`, offsets
in decimal, ended by the line `complete`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.segment import Segment
from kafka2011.broker.log.writing import write_file
from kafka2011.runtime.failpoints import failpoint

if TYPE_CHECKING:
    from kafka2011.broker.log.log import Log

MARKER = ".kafka_cleanshutdown"
ENDS = ".kafka2011_ends"
_COMPLETE = "complete"
_ENDS_BYTES_MAX = 64 * 1024 * 1024


class Ends:
    """Where each log ended at a clean stop: directory -> (segment start, last set, end)."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, int, int]] = {}

    def add(self, log: "Log") -> None:
        active = log.segments[-1]
        self._ends[log.directory.name] = (active.start, log.last_set_offset, active.end)

    def trusted_start(self, directory: str, segment: Segment) -> int | None:
        """The position from which to examine `segment` when it is as it was left; None when it is
        not, and must be examined whole."""
        start, last_set, end = self._ends.get(directory, (-1, -1, -1))
        if start != segment.start or end != segment.end or not start <= last_set <= end:
            return None
        return last_set - start

    def to_text(self) -> str:
        lines = [
            f"{name} {start} {last_set} {end}"
            for name, (start, last_set, end) in sorted(self._ends.items())
        ]
        return "\n".join([*lines, _COMPLETE, ""])

    @classmethod
    def from_text(cls, text: str) -> "Ends":
        """Parse `text`. What cannot be read is left out: its logs are examined whole."""
        ends = cls()
        lines = text.split("\n")
        if lines[-2:] != [_COMPLETE, ""]:
            return ends
        for line in lines[:-2]:
            # A topic of the 0.7 rule may hold spaces: the numbers are the last three words.
            words = line.rsplit(" ", 3)
            if len(words) == 4 and all(word.isdecimal() for word in words[1:]):
                ends._ends[words[0]] = (int(words[1]), int(words[2]), int(words[3]))
        return ends


def read(files: FileLayer, root: Path) -> Ends | None:
    """What the last clean stop left; None after an unclean one. Raises OSError."""
    if not files.exists(root / MARKER):
        return None
    if not files.exists(root / ENDS):
        return Ends()  # the original's marker: trust no segment for it
    fd = files.open_for_reading(root / ENDS)
    try:
        data = files.read_at(fd, min(files.size(fd), _ENDS_BYTES_MAX), 0)
    finally:
        files.close(fd)
    return Ends.from_text(data.decode("utf-8", "surrogateescape"))


def leave(files: FileLayer, root: Path, ends: Ends) -> None:
    """Write the ends, then the marker, each durable before the next. Raises OSError."""
    write_file(files, root / ENDS, ends.to_text().encode("utf-8", "surrogateescape"))
    files.sync_directory(root)
    failpoint("before_clean_marker")
    write_file(files, root / MARKER, b"")
    files.sync_directory(root)


def withdraw(files: FileLayer, root: Path) -> None:
    """Remove the marker and the ends, durably. Raises OSError."""
    found = [name for name in (MARKER, ENDS) if files.exists(root / name)]
    for name in found:
        files.remove(root / name)
    if found:
        files.sync_directory(root)
