"""Sends a connection's responses: header bytes from memory, message sets by sendfile.

The only caller of sendfile. Everything is resumable: a full socket, a short count, half a header.
A header that a region follows is sent with MSG_MORE, so it leaves in one segment with the first
bytes of the set, and old clients that read a header in one call see all of it.

Bytes that are not in memory are read by a thread first (`WarmUp`), a piece at a time, so that
a consumer of old data never makes the loop wait for the disk.
"""

import errno
import os
import socket
from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TypeAlias

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.log.file_region import FileRegion

__all__ = [
    "CannotReadSegment",
    "FileRegion",
    "Piece",
    "Progress",
    "Reply",
    "SegmentEndsEarly",
    "Sender",
    "WarmUp",
]

Piece: TypeAlias = bytes | FileRegion

# One connection may not keep the loop for itself: after this much it waits for its next turn.
SEND_BYTES_PER_TURN = 4 * 1024 * 1024
# Or after so many pieces, each of which is a call of the system.
SEND_PIECES_PER_TURN = 256
# How much is looked up, and read ahead, at a time.
WARM_BYTES = 1024 * 1024
# A client that reads old data reads on: this much is read ahead of what it waits for.
AHEAD_BYTES = 8 * 1024 * 1024
_COPY_BYTES = 256 * 1024
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
# What sendfile says of the file; everything else is of the socket.
_FILE_ERRORS = frozenset({errno.EIO, errno.ESTALE})


@dataclass(slots=True)
class Reply:
    """A whole response. Send it, or release its regions."""

    pieces: list[Piece]
    close_after: bool = False


class Progress(Enum):
    ALL_SENT = "all sent"
    SOCKET_FULL = "socket full"  # or this turn's share is used up: go on when it is writable
    COLD = "cold"  # the next bytes are on the disk only: run `next_warm_up` in a thread


class SegmentEndsEarly(OSError):
    """The file holds less than its log says: the response cannot be completed."""


class CannotReadSegment(OSError):
    """A segment's file cannot be opened or read: the response cannot be completed."""


def _cannot_read(region: FileRegion, position: int, error: OSError) -> CannotReadSegment:
    """The error with what the system leaves out: which partition, offset and file."""
    segment = region.segment
    return CannotReadSegment(
        error.errno,
        f"{segment.path.parent.name} cannot be read at offset {segment.start + position}: "
        f"{segment.path}: {error.strerror}",
    )


class Sender:
    """The responses of one socket that are not sent yet, in order."""

    __slots__ = ("_metrics", "_pieces", "_socket", "progress_bytes")

    def __init__(self, sock: socket.socket, metrics: BrokerMetrics) -> None:
        self._socket = sock
        self._metrics = metrics
        self._pieces: deque[Piece] = deque()
        self.progress_bytes = 0  # bytes sent in all; the send deadline watches it

    def put(self, reply: Reply) -> None:
        self._pieces.extend(reply.pieces)

    def send(self) -> Progress:
        """Send what the socket takes. Raises OSError: close the connection. It is SegmentEndsEarly
        or CannotReadSegment if the file is to blame."""
        pieces = self._pieces
        before = self.progress_bytes
        sends = 0
        try:
            while pieces:
                if (
                    self.progress_bytes - before >= SEND_BYTES_PER_TURN
                    or sends == SEND_PIECES_PER_TURN
                ):
                    return Progress.SOCKET_FULL
                sends += 1
                piece = pieces[0]
                region = self._next_region()
                if region is not None:
                    self._open(region)
                    if region.position >= region.warm_until and not _is_warm(region):
                        return Progress.COLD
                if isinstance(piece, FileRegion):
                    self._send_region(piece)
                else:
                    more = region is not None
                    count = self._socket.send(piece, socket.MSG_MORE if more else 0)
                    self.progress_bytes += count
                    if count == len(piece):
                        pieces.popleft()
                    else:
                        pieces[0] = piece[count:]
            return Progress.ALL_SENT
        except (BlockingIOError, InterruptedError):
            return Progress.SOCKET_FULL
        finally:
            self._metrics.bytes_sent += self.progress_bytes - before

    @staticmethod
    def _open(region: FileRegion) -> None:
        try:
            region.open()
        except OSError as error:
            raise _cannot_read(region, region.position, error) from error

    def _send_region(self, region: FileRegion) -> None:
        """Send once from the region; take it off when it is done."""
        try:
            count = os.sendfile(
                self._socket.fileno(),
                region.fd,
                region.position,
                min(region.count, region.warm_until - region.position),
            )
        except OSError as error:
            if error.errno in _FILE_ERRORS:
                raise _cannot_read(region, region.position, error) from error
            if error.errno not in _NO_SENDFILE:
                raise
            count = self._send_copy(region)
        if count == 0:
            segment = region.segment
            raise SegmentEndsEarly(
                errno.EIO,
                f"{segment.path.parent.name} ends early, at offset "
                f"{segment.start + region.position}: {segment.path}",
            )
        self.progress_bytes += count
        region.position += count
        region.count -= count
        if region.count == 0:
            self._pieces.popleft()
            region.release()

    def _send_copy(self, region: FileRegion) -> int:
        """Send by copying: sendfile cannot read from the file system. The metrics count it."""
        self._metrics.fetch_without_sendfile += 1
        try:
            data = os.pread(region.fd, min(region.count, _COPY_BYTES), region.position)
        except OSError as error:
            raise _cannot_read(region, region.position, error) from error
        return self._socket.send(data) if data else 0

    def next_warm_up(self) -> "WarmUp":
        """After COLD: the job of reading the next piece into memory; its file is open."""
        region = self._next_region()
        assert region is not None
        return WarmUp(region)

    def _next_region(self) -> FileRegion | None:
        """The region at the front, or right behind the header at the front."""
        for piece in islice(self._pieces, 2):
            if isinstance(piece, FileRegion):
                return piece
        return None

    def drop(self) -> None:
        """Forget what is not sent, and release its files."""
        while self._pieces:
            piece = self._pieces.popleft()
            if isinstance(piece, FileRegion):
                piece.release()


def _is_warm(region: FileRegion) -> bool:
    """Whether the next piece of the region is in memory, judged by its last byte; notes how far."""
    end = region.position + min(region.count, WARM_BYTES)
    try:
        os.preadv(region.fd, [bytearray(1)], end - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass  # the file system cannot tell: send, even if it blocks
    region.warm_until = end
    return True


class WarmUp:
    """Reads the next piece of a region, so that it is in memory; `run` in a thread, then
    `finish` on the loop. A lease of its own keeps the file open if the client leaves."""

    def __init__(self, region: FileRegion) -> None:
        self._region = region
        self._own = region.again()
        self._end = region.position + min(region.count, WARM_BYTES)
        self.error: OSError | None = None

    def run(self) -> None:
        scratch = bytearray(_COPY_BYTES)
        position = self._own.position
        try:
            ahead = self._end - position + AHEAD_BYTES
            os.posix_fadvise(self._own.fd, position, ahead, os.POSIX_FADV_WILLNEED)
            while position < self._end:
                count = os.preadv(self._own.fd, [scratch], position)
                if count <= 0:
                    break  # the file ends early: sendfile will say so
                position += count
        except OSError as error:
            self.error = _cannot_read(self._own, position, error)

    def finish(self) -> None:
        self._own.release()
        self._region.warm_until = self._end
