"""The parts of storage work that wait for the disk, to be run in any thread.

The loop makes a job from a log's present state, a thread runs it, the loop takes the result back. A
job touches only descriptors and paths that it was given.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker.log.file_layer import FileLayer
from broker.log.segment import Segment
from runtime.failpoints import failpoint

if TYPE_CHECKING:
    from broker.log.log import Log


class FlushJob:
    """The part of a flush that waits for the disk. `run` may be called in any thread."""

    def __init__(
        self, log: "Log", segment: Segment, files: FileLayer, directories: Sequence[Path]
    ) -> None:
        self.log = log
        self.segment = segment
        self.target = log.written_end
        self.error: OSError | None = None
        self.elapsed_s = 0.0
        self._fd = segment.fd
        self._files = files
        self._directories = directories

    def run(self) -> None:
        began = time.perf_counter()
        try:
            for directory in self._directories:
                self._files.sync_directory(directory)
            failpoint("before_flush")
            self._files.sync_data(self._fd)
            failpoint("after_flush")
        except OSError as error:
            self.error = error
        self.elapsed_s = time.perf_counter() - began


class Retirement:
    """Removes the files of retired segments, oldest first, each durably before the next, so that
    no crash leaves a gap in the middle. `run` may be called in any thread."""

    def __init__(
        self, log: "Log", segments: list[Segment], directory: Path, files: FileLayer
    ) -> None:
        self.log = log
        self.segments = segments
        self.bytes_removed = sum(segment.size for segment in segments)
        self.error: OSError | None = None
        self._directory = directory
        self._files = files

    def run(self) -> None:
        try:
            # The new segment must be durable before the old ones go: else a power loss could
            # leave an empty directory, and offsets would start again at 0 (G2).
            self._files.sync_directory(self._directory)
            for segment in self.segments:
                failpoint("before_remove_segment")
                self._files.remove(segment.path)
                self._files.sync_directory(self._directory)
        except OSError as error:
            self.error = error
