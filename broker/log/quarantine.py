"""Where a replica keeps what it cuts off its logs: beside the data, readable, and bounded.

Each cut is a directory of its own below `quarantine.dir`, numbered: `cut-000007/t-0/` has pieces of
partition `t-0`, each a file named by its first offset as a segment is, so that `kafka2011 dump-log`
reads it in its place. Only an unclean election cuts what was confirmed; an operator may look, and
produce it again.

The oldest cuts go when together they exceed the bound; the newest stays, whatever its size. A crash
while a cut is being copied leaves a part of it: then the log still has all.
"""

import contextlib
import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.writing import write_all
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

BYTES_MAX = 4 * 1024 * 1024 * 1024
_READ_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"cut-([0-9]{6,})", re.ASCII)
# A hard link is impossible here: another file system, or one without hard links.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class Piece:
    """`size_bytes` of a file from `position` to its end, to be kept as `name`. `goes`: the whole
    file is about to be removed."""

    path: Path
    position: int
    size_bytes: int
    name: str
    goes: bool


class Quarantine:
    """The cuts below `root`. Any thread, one at a time."""

    def __init__(self, files: FileLayer, root: Path, bytes_max: int = BYTES_MAX) -> None:
        self._files = files
        self._root = root
        self._bytes_max = bytes_max

    def keep(self, pieces: Sequence[Piece]) -> Path | None:
        """Copy `pieces`, durably, below a directory named as each one's own; returns where, or None
        if they are empty. Raises OSError, after removing the copies where it can."""
        pieces = [piece for piece in pieces if piece.size_bytes]
        if not pieces:
            return None
        self._files.make_directory(self._root, parents=True)
        number = self._make_room(sum(piece.size_bytes for piece in pieces))
        made = self._root / f"cut-{number:06d}"
        try:
            self._copy(pieces, made)
        except OSError:
            self.take_back(made)
            raise
        failpoint("after_cut_copied")
        return made

    def take_back(self, made: Path) -> None:
        """Remove what `keep` has just made, as far as the disk lets us."""
        with contextlib.suppress(OSError):
            self._remove(made)

    def _copy(self, pieces: Sequence[Piece], made: Path) -> None:
        files = self._files
        files.make_directory(made)
        places = {piece.path.parent.name: made / piece.path.parent.name for piece in pieces}
        for place in places.values():
            files.make_directory(place)
        for piece in pieces:
            self._copy_one(piece, places[piece.path.parent.name] / piece.name)
        for directory in (*places.values(), made, self._root):
            files.sync_directory(directory)

    def _copy_one(self, piece: Piece, to: Path) -> None:
        """Copy a piece. A file that goes gets a second name instead, and loses its first later. A
        crash in between leaves both, and a log that grows in it: the next cut keeps it again."""
        if piece.goes:
            try:
                self._files.link(piece.path, to)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
            else:
                return
        source = self._files.open_for_reading(piece.path)
        try:
            out = self._files.open(to, create=True)
            try:
                self._copy_bytes(source, out, piece)
                self._files.sync_file(out)
            finally:
                self._files.close(out)
        finally:
            self._files.close(source)

    def _copy_bytes(self, source: int, out: int, piece: Piece) -> None:
        done = 0
        while data := self._files.read_at(source, _READ_BYTES, piece.position + done):
            _, error = write_all(self._files, out, [data], done)
            if error is not None:
                raise error
            done += len(data)

    def _make_room(self, size_bytes: int) -> int:
        """Remove the oldest cuts until `size_bytes` more fit; returns the next cut's number."""
        cuts = self._cuts()
        sizes = {number: self._size_of(path) for number, path in cuts.items()}
        for number, path in cuts.items():
            if sum(sizes.values()) + size_bytes <= self._bytes_max:
                break
            bytes_removed = sizes.pop(number)
            if bytes_removed:  # else it is gone, except what is not ours
                _log.warning("cut_removed", path=str(path), bytes=bytes_removed)
                self._remove(path)
        return max(cuts, default=0) + 1

    def _cuts(self) -> dict[int, Path]:
        """The cuts by number, oldest first; also files with such names."""
        found = {}
        for name in self._files.list_directory(self._root):
            named = _NAME.fullmatch(name)
            if named is not None:
                found[int(named[1])] = self._root / name
        return dict(sorted(found.items()))

    # Anything else that an operator put beside the copies is ignored, and stays.

    def _places(self, cut: Path) -> list[Path]:
        """The directories of partitions in a cut."""
        return self._children(cut, True) if self._files.is_directory(cut) else []

    def _children(self, directory: Path, are_directories: bool) -> list[Path]:
        children = [directory / name for name in self._files.list_directory(directory)]
        return [one for one in children if self._files.is_directory(one) == are_directories]

    def _size_of(self, cut: Path) -> int:
        total = 0
        for place in self._places(cut):
            for path in self._children(place, False):
                with contextlib.suppress(OSError):  # a link, or unreadable
                    total += self._files.size_of(path)
        return total

    def _remove(self, cut: Path) -> None:
        for place in self._places(cut):
            for path in self._children(place, False):
                self._files.remove(path)
            self._remove_if_empty(place)
        self._remove_if_empty(cut)

    def _remove_if_empty(self, directory: Path) -> None:
        try:
            self._files.remove_directory(directory)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
