"""One broker per data directory: an flock on a dot-file of its root."""

import os
from pathlib import Path

from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.runtime.storage_paths import lock_file

LOCK_FILE = ".kafka2011_lock"


class DirectoryLock:
    """The lock on `root`; the kernel releases it when the process ends, however it ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fd = -1

    def take(self) -> None:
        """Take the lock. Raises DataDirectoryError when another process has it, else OSError."""
        try:
            self._fd = lock_file(self._root / LOCK_FILE)
        except BlockingIOError:
            raise DataDirectoryError(
                f"log.dir {self._root} is in use by another broker (see {LOCK_FILE})"
            ) from None

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
