"""Sends a connection's responses: header bytes from memory, message sets by sendfile.

The only caller of sendfile. Everything is resumable: a full socket, a short count, half a header.
A header that a region follows is sent with MSG_MORE, so it leaves in one segment with the first
bytes of the set, and old clients that read a header in one call see all of it.
"""

import errno
import os
import socket
from collections import deque

from broker.handlers import Piece, Reply
from broker.log.log import FileRegion
from broker.metrics import BrokerMetrics

# One connection may not keep the loop for itself: after this much it waits for its next turn.
SEND_BYTES_PER_TURN = 4 * 1024 * 1024
_COPY_BYTES = 256 * 1024
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class SegmentEndsEarly(OSError):
    """The file holds less than its log says: the response cannot be completed."""


class Sender:
    """The responses of one socket that have not left yet, in order."""

    __slots__ = ("_metrics", "_pieces", "_socket", "progress_bytes")

    def __init__(self, sock: socket.socket, metrics: BrokerMetrics) -> None:
        self._socket = sock
        self._metrics = metrics
        self._pieces: deque[Piece] = deque()
        self.progress_bytes = 0  # all that ever left; the send deadline watches it

    def put(self, reply: Reply) -> None:
        self._pieces.extend(reply.pieces)

    def send(self) -> bool:
        """Send what the socket takes. True when everything left; False: call again when the
        socket is writable. Raises OSError: close the connection."""
        pieces = self._pieces
        before = self.progress_bytes
        try:
            while pieces:
                if self.progress_bytes - before >= SEND_BYTES_PER_TURN:
                    return False
                piece = pieces[0]
                if isinstance(piece, FileRegion):
                    self._send_region(piece)
                else:
                    more = len(pieces) > 1 and isinstance(pieces[1], FileRegion)
                    count = self._socket.send(piece, socket.MSG_MORE if more else 0)
                    self.progress_bytes += count
                    if count == len(piece):
                        pieces.popleft()
                    else:
                        pieces[0] = piece[count:]
            return True
        except (BlockingIOError, InterruptedError):
            return False
        finally:
            self._metrics.bytes_sent += self.progress_bytes - before

    def _send_region(self, region: FileRegion) -> None:
        """Send once from the region; take it off when it is done."""
        try:
            count = os.sendfile(
                self._socket.fileno(),
                region.fd,
                region.position,
                min(region.count, SEND_BYTES_PER_TURN),
            )
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            count = self._send_copy(region)
        if count == 0:
            raise SegmentEndsEarly(errno.EIO, f"{region.segment.path} ends early")
        self.progress_bytes += count
        region.position += count
        region.count -= count
        if region.count == 0:
            self._pieces.popleft()
            region.release()

    def _send_copy(self, region: FileRegion) -> int:
        """For a file system that sendfile cannot read from; counted, since it copies."""
        self._metrics.fetch_without_sendfile += 1
        data = os.pread(region.fd, min(region.count, _COPY_BYTES), region.position)
        return self._socket.send(data) if data else 0

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    def drop(self) -> None:
        """Forget what has not left, and let go of its files."""
        while self._pieces:
            piece = self._pieces.popleft()
            if isinstance(piece, FileRegion):
                piece.release()
