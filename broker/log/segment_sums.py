"""Checksums of a replica's segments as they are on its disk, to be compared with other replicas'.

Only what is confirmed is read: up to there replicas are equal byte for byte. A checksum covers a
mebibyte of a segment, so that copies with different watermarks can be compared as well.
"""

import errno
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka2011.broker.log import recovery
from kafka2011.broker.log.file_layer import FileLayer

BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The first `size_bytes` of a segment that begins at offset `start`."""

    path: Path
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentSums:
    """One segment's checksums: `blocks` are CRC-32s of its mebibytes, the last maybe shorter.
    `damaged_at` is the position of the first entry that is not whole or whose own checksum is
    wrong; -1: none. For a file that is gone both it and the size are 0."""

    start: int
    size_bytes: int
    damaged_at: int
    blocks: tuple[int, ...]

    @classmethod
    def of_gone(cls, start: int) -> "SegmentSums":
        return cls(start, 0, 0, ())

    @property
    def is_gone(self) -> bool:
        return self.size_bytes == self.damaged_at == 0


class SumsJob:
    """Computes the sums of segments by partition, in a thread. `cancel` ends it early, with an
    error. `gone` has those without a file, by partition and start: only their log knows whether
    they were removed meanwhile or are missing."""

    def __init__(self, files: FileLayer, segments: Mapping[str, Sequence[Confirmed]]) -> None:
        self._files = files
        self._segments = segments
        self._is_cancelled = False
        self.sums: dict[str, tuple[SegmentSums, ...]] = {}
        self.gone: list[tuple[str, int]] = []
        self.error: OSError | None = None

    def cancel(self) -> None:
        self._is_cancelled = True

    def run(self) -> None:
        try:
            for partition, segments in self._segments.items():
                found = [self._sums(segment) for segment in segments]
                pairs = zip(segments, found, strict=True)
                self.gone += [(partition, one.start) for one, sums in pairs if sums is None]
                self.sums[partition] = tuple(one for one in found if one is not None)
        except OSError as error:
            self.error = error

    def _sums(self, segment: Confirmed) -> SegmentSums | None:
        """The sums of one segment; None without a file."""
        try:
            fd = self._files.open_for_reading(segment.path)
        except FileNotFoundError:
            return None
        try:
            self._files.drop_cached(fd)  # the sums are of what is on the disk
            size = segment.size_bytes
            blocks = tuple(
                zlib.crc32(self._read(fd, min(BLOCK_BYTES, size - at), at))
                for at in range(0, size, BLOCK_BYTES)
            )
            found = recovery.examine(lambda count, at: self._read(fd, count, at), size)
        finally:
            self._files.close(fd)
        damaged_at = found.valid_bytes if found.valid_bytes < size else -1
        return SegmentSums(segment.start, size, damaged_at, blocks)

    def _read(self, fd: int, count: int, position: int) -> bytes:
        if self._is_cancelled:
            raise OSError(errno.ECANCELED, "the replica is stopping")
        return self._files.read_at(fd, count, position)
