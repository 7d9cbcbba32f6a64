"""The parts of storage work that wait for the disk, to be run in any thread.

The loop makes a job from a log's present state, a thread runs it, the loop takes the result back. A
job touches only descriptors and paths that it was given.
"""

import contextlib
import errno
import time
from collections.abc import Sequence
from pathlib import Path

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.segment import Segment
from kafka2011.runtime.failpoints import failpoint

# No descriptor was free, which only the opening of a directory can meet: nothing was asked of the
# disk, so nothing is known to have failed.
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


class FlushJob:
    """The part of a flush that waits for the disk. `run` may be called in any thread.

    `target` is the offset up to which the log is durable once it has run without an error.
    `is_postponed` afterwards: no descriptor was free for one of `directories`, which then holds
    those that are not durable yet; the file was not flushed. Try again later.
    """

    def __init__(
        self, segment: Segment, target: int, files: FileLayer, directories: Sequence[Path]
    ) -> None:
        self.segment = segment
        self.target = target
        self.error: OSError | None = None
        self.is_postponed = False
        self.elapsed_s = 0.0
        self.directories = list(directories)
        self._fd = segment.fd
        self._files = files

    def run(self) -> None:
        began = time.perf_counter()
        try:
            while self.directories:
                try:
                    self._files.sync_directory(self.directories[0])
                except OSError as error:
                    if error.errno not in NO_DESCRIPTOR:
                        raise
                    self.is_postponed = True
                    return
                del self.directories[0]
            failpoint("before_flush")
            self._files.sync_data(self._fd)
            failpoint("after_flush")
        except OSError as error:
            self.error = error
        finally:
            self.elapsed_s = time.perf_counter() - began


class Retirement:
    """Removes the files of retired segments, oldest first, each durably before the next, so that
    no crash leaves a gap in the middle. `run` may be called in any thread.

    Segments move from `segments` to `removed`; those an error leaves are for the next round.
    """

    def __init__(self, segments: list[Segment], directory: Path, files: FileLayer) -> None:
        self.segments = segments
        self.removed: list[Segment] = []
        self.error: OSError | None = None
        self._directory = directory
        self._files = files

    @property
    def bytes_removed(self) -> int:
        return sum(segment.size for segment in self.removed)

    def run(self) -> None:
        try:
            # The new segment must be durable before the old ones go: else a power loss could
            # leave an empty directory, and offsets would start again at 0.
            self._files.sync_directory(self._directory)
            while self.segments:
                failpoint("before_remove_segment")
                with contextlib.suppress(FileNotFoundError):  # an earlier round removed it
                    self._files.remove(self.segments[0].path)
                self._files.sync_directory(self._directory)
                self.removed.append(self.segments.pop(0))
        except OSError as error:
            self.error = error
