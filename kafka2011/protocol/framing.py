"""Frames of a connection: a size (i32, not counting itself) and that many bytes.

`FrameReader` is pull-style: give it what a socket delivered, ask it for frames until it wants more.
A bad size is refused as soon as its four bytes are there, before anything of the body is kept, and
memory grows with what has arrived, never with what was announced.
"""

from enum import Enum
from struct import Struct
from typing import Final, Literal

from kafka2011.protocol.errors import FrameTooLarge, RemoteProtocolError

FRAME_SIZE: Final = Struct(">i")
FRAME_SIZE_BYTES: Final = FRAME_SIZE.size


class _Signal(Enum):
    NEED_DATA = "need data"


NEED_DATA: Final = _Signal.NEED_DATA
NeedData = Literal[_Signal.NEED_DATA]


def check_frame_size(size: int, frame_bytes_max: int) -> int:
    """Return `size` when a frame may have it.

    Raises:
      FrameTooLarge: above `frame_bytes_max`; close the connection.
      RemoteProtocolError: zero or negative; close the connection.
    """
    if size <= 0:
        raise RemoteProtocolError(f"frame size {size}")
    if size > frame_bytes_max:
        raise FrameTooLarge(f"frame of {size} bytes is above the limit of {frame_bytes_max}")
    return size


class FrameReader:
    """Cuts a stream of bytes into frame bodies.

    The largest body accepted has `frame_bytes_max` bytes. After an error the stream is out of step:
    every further call raises the same error.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._error: RemoteProtocolError | None = None

    def receive_data(self, chunk: bytes | bytearray | memoryview) -> None:
        """Keep what the socket delivered. Ask for frames before receiving again.

        Raises:
          RemoteProtocolError: an earlier call found the stream out of step.
        """
        if self._error is not None:
            raise self._error
        self._buffer += chunk

    def next_frame(self) -> memoryview | NeedData:
        """The body of the next complete frame, or NEED_DATA.

        The view stays good after further calls.

        Raises:
          RemoteProtocolError: an impossible size (`FrameTooLarge` for one above the limit).
        """
        if self._error is not None:
            raise self._error
        if len(self._buffer) < FRAME_SIZE_BYTES:
            return NEED_DATA
        (size,) = FRAME_SIZE.unpack_from(self._buffer)
        try:
            check_frame_size(size, self._frame_bytes_max)
        except RemoteProtocolError as error:
            self._error = error
            self._buffer.clear()
            raise
        end = FRAME_SIZE_BYTES + size
        if len(self._buffer) < end:
            return NEED_DATA
        with memoryview(self._buffer) as view:
            body = bytes(view[FRAME_SIZE_BYTES:end])
        del self._buffer[:end]
        return memoryview(body)

    @property
    def pending_bytes(self) -> int:
        """Bytes received that are not yet part of a frame handed out."""
        return len(self._buffer)
