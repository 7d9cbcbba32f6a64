"""Cuts what a socket delivered into frames: for scripted brokers and for tests of frames made."""

from enum import Enum
from typing import Final, Literal

from kafka2011.protocol.errors import RemoteProtocolError
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES, check_frame_size


class _Signal(Enum):
    NEED_DATA = "need data"


NEED_DATA: Final = _Signal.NEED_DATA
NeedData = Literal[_Signal.NEED_DATA]


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
