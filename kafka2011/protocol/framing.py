"""Frames of a connection: a size (i32, not counting itself) and that many bytes."""

from struct import Struct
from typing import Final

from kafka2011.protocol.errors import FrameTooLarge, RemoteProtocolError

FRAME_SIZE: Final = Struct(">i")
FRAME_SIZE_BYTES: Final = FRAME_SIZE.size


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
