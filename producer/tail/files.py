"""The tailer's file access: finds files by patterns, reads windows of them, keeps the state file.

Paths that are not valid UTF-8 pass as Python writes them (surrogateescape).
"""

import fnmatch
import glob
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from kafka2011.producer.tail.messages import (
    BadState,
    FileId,
    Position,
    decode_positions,
    encode_positions,
)
from kafka2011.runtime.storage_paths import lock_file, make_directory, sync_directory


class OpenFile:
    """An open regular file; it stays readable when it is renamed or deleted."""

    def __init__(self, path: str) -> None:
        """Open it. Raises OSError."""
        # Not blocking: a pipe of that name must not hold everything up.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(self._descriptor)
        self.id = FileId(found.st_dev, found.st_ino)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError(f"{path} is not a regular file")

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on. Raises OSError."""
        return os.pread(self._descriptor, size, offset)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def is_deleted(self) -> bool:
        """Whether it has no name any more, in any directory."""
        return not os.fstat(self._descriptor).st_nlink

    def close(self) -> None:
        os.close(self._descriptor)


def literal_pattern(path: str) -> str:
    """A pattern for the file of exactly this path, whatever characters are in it."""
    return glob.escape(path)


class Files:
    """Files by names and patterns (`*`, `?`, `[...]`, `**`)."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = list(patterns)

    def scan(self) -> dict[FileId, str]:
        """The regular files that are there now, each with one path."""
        found: dict[FileId, str] = {}
        for pattern in self.patterns:
            is_pattern = glob.has_magic(pattern) and not os.path.lexists(pattern)
            paths = glob.glob(pattern, recursive=True) if is_pattern else [pattern]
            for path in sorted(paths):
                try:
                    about = os.stat(path)
                except OSError:
                    continue  # not there (any more)
                if stat.S_ISREG(about.st_mode):
                    found.setdefault(FileId(about.st_dev, about.st_ino), path)
        return found

    def absent(self) -> list[str]:
        """The names (not patterns) that do not exist now."""
        return [
            name for name in self.patterns if not (glob.has_magic(name) or os.path.exists(name))
        ]

    def directories(self) -> list[str]:
        """The names that are those of directories now."""
        return [name for name in self.patterns if os.path.isdir(name)]

    def names(self, path: str) -> bool:
        """Whether a name or pattern is that of this path, also if no file is there now."""
        return any(path == name or fnmatch.fnmatchcase(path, name) for name in self.patterns)

    def open(self, path: str) -> OpenFile:
        return OpenFile(path)

    def renamed(self, file: FileId, path: str) -> str | None:
        """Where `file`, last seen at `path`, is in the same directory now; None: it is not there.

        Raises OSError when that cannot be found out now.
        """
        try:
            entries = os.scandir(os.path.dirname(path) or ".")
        except (FileNotFoundError, NotADirectoryError):
            return None
        with entries:
            for entry in entries:
                if entry.inode() == file.inode and entry.is_file():
                    about = entry.stat()
                    if (about.st_dev, about.st_ino) == file:
                        return entry.path
        return None


class StateFile:
    """The positions on disk. It is locked while open: one process at a time."""

    def __init__(self, path: Path) -> None:
        """Open and lock it. Raises OSError, and BadState when another process uses it."""
        self.path = path
        make_directory(path.parent)
        try:
            self._lock = open(lock_file(path.with_name(path.name + ".lock")), "wb")  # noqa: SIM115
        except BlockingIOError:
            raise BadState(f"{path} is in use by another tail: give this one --state") from None
        self._written = b""

    def read(self) -> list[Position] | None:
        """The positions written last; None at the first start. Raises OSError or BadState."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decode_positions(data)
        except BadState as error:
            raise BadState(f"{self.path}: {error}; move it away to start over") from None

    def write(self, positions: Sequence[Position]) -> None:
        """Replace the content at once, or not at all. Raises OSError.

        The first time it is durable on return. Later a power failure may leave what was written
        before, from which lines are sent again; without a file they could be passed over.
        """
        data = encode_positions(positions)
        if data == self._written:
            return
        new = self.path.with_name(self.path.name + ".new")
        with new.open("wb") as output:
            output.write(data)
            output.flush()
            os.fsync(output.fileno())
        new.replace(self.path)
        if not self._written:
            sync_directory(self.path.parent)
        self._written = data

    def close(self) -> None:
        self._lock.close()
