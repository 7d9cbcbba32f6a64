"""A piece of a segment file that a response may send: bytes handed out without reading them."""

from kafka2011.broker.log.segment import OpenFiles, Segment


class FileRegion:
    """Bytes of a segment that a response may send; the descriptor stays open until `release`.

    `count` is positive, at most what was asked for, and never beyond the watermark or the
    segment's end.
    """

    __slots__ = ("_open_files", "count", "fd", "position", "segment", "warm_until")

    def __init__(
        self, open_files: OpenFiles, segment: Segment, fd: int, position: int, count: int
    ) -> None:
        self._open_files = open_files
        self.segment = segment
        self.fd = fd
        self.position = position
        self.count = count
        self.warm_until = position  # how far the bytes are known to be in memory

    def again(self) -> "FileRegion":
        """The same region with a lease of its own, for a thread that reads it."""
        fd = self._open_files.lease(self.segment)
        return FileRegion(self._open_files, self.segment, fd, self.position, self.count)

    def yield_room(self) -> None:
        """Give the descriptor back if too many are open, for as long as nothing is sent: the
        segment may be deleted meanwhile."""
        if self._open_files.is_crowded:
            self.release()

    def open(self) -> None:
        """Have a descriptor again. Raises OSError when the file is gone, or cannot be opened."""
        if self.fd < 0:
            self.fd = self._open_files.lease(self.segment)

    def release(self) -> None:
        if self.fd >= 0:
            self.fd = -1
            self._open_files.release(self.segment)
