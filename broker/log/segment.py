"""One file of a partition's log, named by its start offset, and the bound on how many are open.

A segment knows its file and how many bytes of it are written; what is flushed is the log's
business. `OpenFiles` keeps descriptors of the segments used last and closes the others; a segment
in use (a response is being sent from it, a flush runs) keeps its descriptor, so deleting or
evicting it never hurts a fetch in progress.
"""

import errno
import os
import re
from collections import OrderedDict
from pathlib import Path

from kafka2011.broker.log.file_layer import FileLayer

SUFFIX = ".kafka"
_NAME = re.compile(r"[0-9]{20}\.kafka", re.ASCII)
_OFFSET_MAX = 2**63 - 1  # what a request or response can name


def segment_name(start_offset: int) -> str:
    """A segment's file name: 20 decimal digits and `.kafka`."""
    return f"{start_offset:020d}{SUFFIX}"


def start_of_name(name: str) -> int | None:
    """The start offset in a segment's file name; None for any other name."""
    if _NAME.fullmatch(name) is None or int(name[:20]) > _OFFSET_MAX:
        return None
    return int(name[:20])


class Segment:
    """One segment file.

    `size` is bytes written, `time_ms` when the last of them was written by the clock for ages,
    `file_ms` when by the wall clock, as a file shows it. `users` counts the leases on the
    descriptor: it is closed only at zero.
    """

    __slots__ = ("fd", "file_ms", "path", "removed", "size", "start", "time_ms", "users")

    def __init__(self, path: Path, start: int, size: int, time_ms: int) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.time_ms = self.file_ms = time_ms
        self.fd = -1
        self.users = 0
        self.removed = False

    @property
    def end(self) -> int:
        return self.start + self.size

    def __repr__(self) -> str:
        return f"Segment({self.path.name}, {self.size} bytes)"


class OpenFiles:
    """The descriptors of segments, at most about `limit` of them.

    Segments in use may exceed the limit, since they are never closed; beyond it a segment is closed
    as soon as it is not in use. Not thread-safe: the loop's thread only.
    """

    def __init__(self, files: FileLayer, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._count = 0
        self._idle: OrderedDict[Segment, None] = OrderedDict()  # not in use; used last at the end

    def __len__(self) -> int:
        return self._count

    @property
    def is_crowded(self) -> bool:
        """Whether more are open than the limit: then all of them are in use."""
        return self._count > self._limit

    def lease(self, segment: Segment) -> int:
        """The descriptor, kept open until `release`. Raises OSError when it cannot be opened."""
        if segment.fd < 0:
            if segment.removed:  # its path may be another file's
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(segment.path))
            self._open(segment)
        elif segment.users == 0:
            del self._idle[segment]
        segment.users += 1
        return segment.fd

    def release(self, segment: Segment) -> None:
        segment.users -= 1
        if segment.users == 0:
            self._let_go(segment)

    def create(self, segment: Segment) -> None:
        """Create the segment's file, which must not exist."""
        self._open(segment, create=True)
        self._let_go(segment)

    def forget(self, segment: Segment) -> None:
        """Close the file when its last lease ends: it was deleted, or its log closed."""
        segment.removed = True
        if segment.users == 0 and segment.fd >= 0:
            del self._idle[segment]
            self._close(segment)

    def _open(self, segment: Segment, *, create: bool = False) -> None:
        if self._count >= self._limit and self._idle:
            self._close(self._idle.popitem(last=False)[0])
        segment.fd = self._files.open(segment.path, create=create)
        self._count += 1

    def _let_go(self, segment: Segment) -> None:
        """Keep the segment, which is not in use, open for the next one, if it may be."""
        if segment.removed or self.is_crowded:
            self._close(segment)
        else:
            self._idle[segment] = None

    def _close(self, segment: Segment) -> None:
        self._count -= 1
        fd, segment.fd = segment.fd, -1
        self._files.close(fd)
