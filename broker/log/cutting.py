"""Cuts the logs of a follower that joins: what its leader lacks goes, after a durable copy.

The order, each part durable before the next:

    copy to quarantine -> lower the marks of the flushed ends -> remove segments, the newest first
    -> cut the one that is left

A crash leaves the old log, or one cut to the end of some segment, or the new one: each is a prefix
of the old one, and joining again reaches the same result. The marks are lowered first, since a log
that ends below its mark counts as damaged.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from kafka2011.broker.log.disk_jobs import NO_DESCRIPTOR
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.flushed_mark import MarkJob
from kafka2011.broker.log.quarantine import Piece, Quarantine
from kafka2011.broker.log.segment import Segment, segment_name
from kafka2011.runtime.failpoints import failpoint


class CutKind(Enum):
    """What becomes of a log."""

    SHORTER = auto()  # it ends at an offset
    ANEW = auto()  # it is empty, and begins at an offset; made if it did not exist
    ASIDE = auto()  # it is gone


@dataclass(frozen=True, slots=True)
class LogCut:
    """The cut of one log. `segments`, used for SHORTER, are the log's, with names and sizes as they
    were once nothing was being written."""

    kind: CutKind
    directory: Path
    offset: int
    segments: tuple[Segment, ...] = ()


class CutJob:
    """Carries cuts out; `run` may be called in any thread. `marks` writes the marks that then hold.

    After an error each log is as it was, unless `has_begun`: then some are cut, some are not, and
    the state in memory is wrong. `is_postponed` afterwards: it has begun, and there was no
    descriptor for its next step; `run` it again later, which continues there.
    """

    def __init__(
        self, files: FileLayer, quarantine: Quarantine, cuts: Sequence[LogCut], marks: MarkJob
    ) -> None:
        self.cuts = cuts
        self.error: OSError | None = None
        self.has_begun = False
        self.is_postponed = False
        self.quarantined: Path | None = None
        self.cut_bytes = 0
        self._files = files
        self._quarantine = quarantine
        self._marks = marks
        self._left = list(cuts)

    def run(self) -> None:
        self.is_postponed = False
        try:
            if not self.has_begun:
                self._begin()
            while self._left:
                self._carry_out(self._left[0])
                del self._left[0]
        except OSError as error:
            self.is_postponed = self.has_begun and error.errno in NO_DESCRIPTOR
            if not self.is_postponed:
                self.error = error
                self._take_back()

    def _begin(self) -> None:
        pieces = [piece for cut in self.cuts for piece in self._pieces(cut)]
        self.cut_bytes = sum(piece.size_bytes for piece in pieces)
        self.quarantined = self._quarantine.keep(pieces)
        self._marks.run()
        if self._marks.error is not None:
            raise self._marks.error
        self.has_begun = True

    def _take_back(self) -> None:
        """Remove what this attempt put into quarantine, if nothing was cut: the log still has it,
        and a copy of each attempt would push out what is nowhere else."""
        if not self.has_begun and self.quarantined is not None:
            self._quarantine.take_back(self.quarantined)
            self.quarantined = None

    def _pieces(self, cut: LogCut) -> list[Piece]:
        if cut.kind is not CutKind.SHORTER:
            paths = self._all_files(cut)
            return [Piece(path, 0, self._size(path), path.name, goes=True) for path in paths]
        kept = kept_segments(cut.segments, cut.offset)
        pieces = []
        for segment in cut.segments:
            start = max(cut.offset, segment.start)
            if segment.end > start:
                pieces.append(
                    Piece(
                        segment.path,
                        start - segment.start,
                        segment.end - start,
                        segment_name(start),
                        goes=segment not in kept,
                    )
                )
        return pieces

    def _all_files(self, cut: LogCut) -> list[Path]:
        """The directory's files, newest segment first; none if it is a symbolic link: the partition
        was not loaded from it, and what it points to stays."""
        if not self._files.exists(cut.directory) or self._files.is_link(cut.directory):
            return []
        names = reversed(self._files.list_directory(cut.directory))
        paths = [cut.directory / name for name in names]
        return [path for path in paths if not self._files.is_directory(path)]

    def _size(self, path: Path) -> int:
        if self._files.is_link(path):
            return 0  # what it points to stays
        return self._files.size_of(path)

    def _carry_out(self, cut: LogCut) -> None:
        """Each step may have been done before: by a run that was postponed behind it."""
        if cut.kind is CutKind.SHORTER:
            kept = kept_segments(cut.segments, cut.offset)
            for segment in reversed(cut.segments[len(kept) :]):
                self._remove(segment.path)
            self._shorten(kept[-1], cut.offset)
            return
        for path in self._all_files(cut):
            self._remove(path)
        if self._files.is_link(cut.directory):
            self._remove(cut.directory)
        if cut.kind is CutKind.ASIDE:
            if self._files.exists(cut.directory):
                try:
                    self._files.remove_directory(cut.directory)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:  # a directory that an operator put there
                        raise
        else:
            self._files.make_directory(cut.directory)
            path = cut.directory / segment_name(cut.offset)
            self._files.close(self._files.open(path, create=True))
            self._files.sync_directory(cut.directory)
        self._files.sync_directory(cut.directory.parent)

    def _remove(self, path: Path) -> None:
        failpoint("before_cut_removes")
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_directory(path.parent)

    def _shorten(self, segment: Segment, end: int) -> None:
        """Cut to `end`, keeping the file's time, which lookups and retention use."""
        if segment.end <= end:
            return
        failpoint("before_cut_shortens")
        fd = self._files.open(segment.path)
        try:
            modified_ms = self._files.modified_ms(fd)
            self._files.truncate(fd, end - segment.start)
            self._files.set_modified_ms(fd, modified_ms)
            self._files.sync_file(fd)
        finally:
            self._files.close(fd)


def kept_segments(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """What a log keeps when cut to `offset`, at least one. A segment that begins there goes: the
    leader may not have rolled there, and if it has, the follower is sent the roll."""
    return [one for one in segments if one.start < offset] or segments[:1]
