"""One broker per data directory: an flock on a dot-file of its root."""

import fcntl
import os
from pathlib import Path

from kafka2011.broker.log.errors import DataDirectoryError

LOCK_FILE = ".kafka2011_lock"


class DirectoryLock:
    """The lock on `root`; the kernel releases it when the process ends, however it ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fd = -1

    def take(self) -> None:
        """Take the lock. Raises DataDirectoryError when another process has it, else OSError."""
        fd = os.open(self._root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise DataDirectoryError(
                f"log.dir {self._root} is in use by another broker (see {LOCK_FILE})"
            ) from None
        self._fd = fd

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
