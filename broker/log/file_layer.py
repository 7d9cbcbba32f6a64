"""Every disk operation of the log, behind one interface: the fault seam.

Production uses `FileLayer`; tests use a layer that fails, writes short, delays, or forgets what
was never flushed. The methods are thin, so a fault injected here is the fault the system call
would have. All of them raise OSError. Positions and sizes are bytes, times milliseconds since
the Unix epoch.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from kafka2011.runtime import storage_paths

Buffer = bytes | bytearray | memoryview

_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644


class FileLayer:
    """The real disk."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; `create` demands that the file does not exist yet."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(path, flags, _FILE_MODE)

    def open_for_reading(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write_at(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers one after the other; returns how many bytes were taken."""
        return os.pwritev(fd, buffers, position)

    def read_at(self, fd: int, count: int, position: int) -> bytes:
        return os.pread(fd, count, position)

    def drop_cached(self, fd: int) -> None:
        """Make later reads come from the disk, except what is still to be written to it."""
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_data(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_file(self, fd: int) -> None:
        os.fsync(fd)

    def sync_directory(self, path: Path) -> None:
        """Make the creation and removal of names in `path` durable."""
        storage_paths.sync_directory(path)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def size_of(self, path: Path) -> int:
        """The size of a file that is not open; a symbolic link is refused."""
        fd = self.open_for_reading(path)
        try:
            return self.size(fd)
        finally:
            self.close(fd)

    def modified_ms(self, fd: int) -> int:
        return os.fstat(fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        os.utime(fd, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Make a directory; nothing happens when it exists."""
        if parents:
            path.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        else:
            path.mkdir(_DIRECTORY_MODE, exist_ok=True)

    def list_directory(self, path: Path) -> list[str]:
        """The names in `path`, sorted."""
        return sorted(os.listdir(path))

    def is_directory(self, path: Path) -> bool:
        return path.is_dir() and not path.is_symlink()

    def is_link(self, path: Path) -> bool:
        return path.is_symlink()

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def replace(self, path: Path, with_name: Path) -> None:
        """Rename `path` to `with_name`, replacing a file of that name atomically."""
        os.replace(path, with_name)

    def link(self, path: Path, with_name: Path) -> None:
        """Give the file a second name, which must not exist yet."""
        os.link(path, with_name, follow_symlinks=False)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()
