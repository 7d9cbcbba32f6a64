"""The note that this machine's memory may hold what its disk does not.

After a write to the disk that failed the kernel keeps the bytes as if they had been written, and
the next fsync succeeds (fault S12). Whoever saw the failure leaves the note; the next start then
drops what is in memory before it examines a segment. Without the note it does not, for reading
everything from the disk takes many times as long. Nothing is flushed here: the note is needed no
longer than that memory lasts.
"""

import contextlib
from pathlib import Path

from kafka2011.broker.log.file_layer import FileLayer

NOTE = ".kafka2011_distrust"


def leave(files: FileLayer, root: Path) -> None:
    """Never raises: a disk that takes no name either is not served after the next start."""
    with contextlib.suppress(OSError):
        files.close(files.open(root / NOTE, create=True))


def is_there(files: FileLayer, root: Path) -> bool:
    return files.exists(root / NOTE)


def withdraw(files: FileLayer, root: Path) -> None:
    """Every segment was examined as the disk holds it. Raises OSError."""
    if files.exists(root / NOTE):
        files.remove(root / NOTE)
