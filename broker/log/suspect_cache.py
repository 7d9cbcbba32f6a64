"""The mark that this machine's page cache may hold what its disk does not.

After a failed write to the disk the kernel keeps the bytes as if they had been written, and
the next fsync succeeds. After such a failure the log leaves the mark; the next start then drops
cached pages before it examines a segment. Without the mark it does not, since reading everything
from the disk takes many times as long. The mark itself is not flushed: it is needed no longer
than the page cache lasts.
"""

import contextlib
from pathlib import Path

from kafka2011.broker.log.file_layer import FileLayer

NOTE = ".kafka2011_distrust"


def mark(files: FileLayer, root: Path) -> None:
    """Leave the mark. Never raises: a disk that cannot take it is not served after a restart."""
    with contextlib.suppress(OSError):
        files.close(files.open(root / NOTE, create=True))


def is_marked(files: FileLayer, root: Path) -> bool:
    return files.exists(root / NOTE)


def clear(files: FileLayer, root: Path) -> None:
    """Remove the mark: all segments were examined from the disk. Raises OSError."""
    if files.exists(root / NOTE):
        files.remove(root / NOTE)
