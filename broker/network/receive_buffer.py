"""What one connection has received and not handled yet, in as little memory as that needs.

Message sets are appended as views of this buffer, so it must not change before the logs have
written them: the host's `turn` counts the writes, and a buffer lent in the present turn makes the
host write first. Between reads a small remainder is copied aside and the buffer given back, so that
an idle or slow connection holds almost nothing.
"""

from collections.abc import Callable
from typing import Protocol

from kafka2011.broker.network.buffers import POOL_BUFFER_BYTES, RequestMemory
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES

# A remainder up to this size is copied aside and its buffer given back.
TAIL_BYTES_MAX = 16 * 1024
# A larger remainder of a slow connection stays in its pool buffer: moving it is work for the loop.
TIDIED_BYTES_MAX = POOL_BUFFER_BYTES // 4


class BufferHost(Protocol):
    """What a receive buffer needs of the server."""

    memory: RequestMemory
    turn: int

    def write_turn(self) -> None: ...
    def give_back_after_turn(self, buffer: memoryview) -> None: ...


class ReceiveBuffer:
    """A connection's bytes from `start` to `end` of `buffer`; without one, what was copied aside.

    The connection reads behind `end` and moves `start` past what it has handled.
    """

    __slots__ = ("_host", "_is_released", "_tail", "buffer", "end", "lent_turn", "start")

    def __init__(self, host: BufferHost) -> None:
        self.buffer: memoryview | None = None
        self.start = self.end = 0
        self.lent_turn = -1  # the last turn in which a log may have been given views
        self._host = host
        self._tail = b""
        self._is_released = False

    def with_room(self) -> memoryview | None:
        """The buffer with room after `end`; what is not handled yet is at its beginning. None when
        there is no memory for it now, or a write has closed the connection."""
        if self.lent_turn == self._host.turn:
            self._host.write_turn()
            if self._is_released:
                return None
        buffer = self.buffer
        if buffer is None:
            size = self._size_now()
            if not size:
                return None
            memory, tail = self._host.memory, self._tail
            buffer = self.buffer = memory.take(self, size)
            self.start, self.end = 0, len(tail)
            if tail:
                buffer[: self.end] = tail
                memory.forget(tail)
                self._tail = b""
        elif self.start:
            rest = self.end - self.start
            buffer[:rest] = buffer[self.start : self.end]
            self.start, self.end = 0, rest
        if self.end == len(buffer):
            return self._grown(buffer)
        return buffer

    def wait_for_room(self, on_room: Callable[[], None]) -> None:
        """Call `on_room`, once, when `with_room` is worth another attempt."""
        self._host.memory.wait(self, on_room)

    def settle(self) -> None:
        """Give the buffer back if what is left, which cannot be handled yet, is small."""
        buffer = self.buffer
        assert buffer is not None
        rest = self.end - self.start
        if rest <= TAIL_BYTES_MAX:
            if rest:
                self._tail = self._host.memory.keep(buffer[self.start : self.end])
            self._drop(buffer)

    def tidy(self) -> None:
        """Release memory that is not needed while nothing is read."""
        buffer = self.buffer
        if buffer is None:
            return
        rest = self.end - self.start
        if rest == 0:
            self._drop(buffer)
        elif len(buffer) == POOL_BUFFER_BYTES and rest <= TIDIED_BYTES_MAX:
            # A frame's size fits: a buffer that is full grows by it.
            self._moved(buffer, max(rest, FRAME_SIZE_BYTES))

    def release(self) -> None:
        """Let go of all memory, and wait for none: the connection is closed. Idempotent."""
        self._is_released = True
        memory = self._host.memory
        memory.forget(self._tail)
        self._tail = b""
        if self.buffer is not None:
            self._drop(self.buffer)
        memory.leave(self)

    def _size_now(self) -> int:
        """How large a buffer to begin with; 0: there is no memory for one now."""
        if self._has_room(POOL_BUFFER_BYTES):
            return POOL_BUFFER_BYTES
        if self._is_released or len(self._tail) >= TAIL_BYTES_MAX:
            return 0
        return TAIL_BYTES_MAX

    def _grown(self, buffer: memoryview) -> memoryview | None:
        """A buffer for a frame that does not fit: four times the size, at most the frame's."""
        (size,) = FRAME_SIZE.unpack_from(buffer)
        capacity = min(FRAME_SIZE_BYTES + size, 4 * len(buffer))
        return self._moved(buffer, capacity) if self._has_room(capacity) else None

    def _moved(self, buffer: memoryview, capacity: int) -> memoryview:
        """A buffer of another size with what is not handled yet."""
        rest = self.end - self.start
        other = self._host.memory.take(self, capacity)
        other[:rest] = buffer[self.start : self.end]
        self.buffer = other
        self.start, self.end = 0, rest
        self._host.give_back_after_turn(buffer)
        return other

    def _has_room(self, size: int) -> bool:
        """Whether there is memory for a buffer of this size. If it is short, lent buffers are
        written first, which may close the connection."""
        memory = self._host.memory
        if memory.has_room(self, size):
            return True
        self._host.write_turn()
        return not self._is_released and memory.has_room(self, size)

    def _drop(self, buffer: memoryview) -> None:
        self.buffer = None
        self.start = self.end = 0
        self._host.give_back_after_turn(buffer)
        self._host.memory.leave(self)


assert TAIL_BYTES_MAX < POOL_BUFFER_BYTES
