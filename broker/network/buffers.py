"""Memory for incoming requests: every buffer of every connection, and what the logs hold of
requests that were read, within one budget.

Bytes are read into a buffer of the pool; small remainders are copied aside, so an idle or slow
connection holds almost nothing. A request larger than a pool buffer gets one of its own that grows
as its bytes arrive, not as its header announces. When the budget is used up, a connection reads
into a small buffer: small requests are served all the same, larger ones wait for room.
"""

import mmap
from collections.abc import Callable, Hashable

POOL_BUFFER_BYTES = 256 * 1024
# Free buffers kept; each is the memory of one connection that is being read at this moment.
POOL_FREE_MAX = 16


def new_buffer(size: int) -> memoryview:
    """A buffer of zeros. A large one has pages of its own: those that nothing was read into cost
    nothing, and all go back to the system with the buffer."""
    return memoryview(mmap.mmap(-1, size) if size >= POOL_BUFFER_BYTES else bytearray(size))


class RequestMemory:
    """All buffers: those of connections, lent ones and free ones.

    A holder is a connection with a buffer. The one that has held its buffer longest may always have
    a larger one, so that with the budget used up one request after the other is still completed
    (or ends at its deadline). What the logs hold counts too, but has no holder: the disk releases
    it, without more memory. A connection whose buffer would exceed the budget together with it
    waits for that, so that never more than twice the budget is used.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes_held = 0
        self._log_bytes = 0  # of these, sets that the logs hold
        self._free: list[memoryview] = []
        self._holders: dict[Hashable, None] = {}
        self._waiting: dict[Hashable, Callable[[], None]] = {}

    def has_room(self, holder: Hashable, size: int) -> bool:
        """Whether `holder` may take a buffer of `size` bytes; free ones of the pool make room."""
        missing = self.bytes_held + size - self._bytes_max
        if missing <= 0 or (self._free and size == POOL_BUFFER_BYTES):
            return True
        while self._free and missing > 0:
            self._free.pop()
            self.bytes_held -= POOL_BUFFER_BYTES
            missing -= POOL_BUFFER_BYTES
        if missing <= 0:
            return True
        # Else each in turn would be the oldest, and leave its set to a log.
        is_within = not self._log_bytes or self._log_bytes + size <= self._bytes_max
        return is_within and next(iter(self._holders), holder) is holder

    def take(self, holder: Hashable, size: int = POOL_BUFFER_BYTES) -> memoryview:
        """A buffer, whether there is room for it or not. `give` it back when nothing needs it."""
        self._holders[holder] = None
        if size == POOL_BUFFER_BYTES and self._free:
            return self._free.pop()
        self.bytes_held += size
        return new_buffer(size)

    def keep(self, data: memoryview) -> bytes:
        """A copy of a small remainder, counted until `forget`."""
        self.bytes_held += len(data)
        return bytes(data)

    def forget(self, data: bytes) -> None:
        """Release what `keep` returned."""
        self.bytes_held -= len(data)

    def count_held(self, size_bytes: int) -> None:
        """Count a change of what the logs hold. After a decrease, `wake` once they are done."""
        self.bytes_held += size_bytes
        self._log_bytes += size_bytes

    def give(self, buffer: memoryview) -> None:
        """Return a buffer to the pool, or to the system."""
        if len(buffer) == POOL_BUFFER_BYTES and len(self._free) < POOL_FREE_MAX:
            self._free.append(buffer)
        else:
            self.bytes_held -= len(buffer)

    def wait(self, holder: Hashable, on_room: Callable[[], None]) -> None:
        """Call `on_room`, once, when it is worth asking for room again."""
        self._waiting[holder] = on_room

    def leave(self, holder: Hashable) -> None:
        """Note that `holder` has no buffer any more, and no wait; it may have had none."""
        self._waiting.pop(holder, None)
        self._holders.pop(holder, None)
        self.wake()

    def wake(self) -> None:
        """Have all that wait ask again, if there is room; else the oldest holder, if it waits."""
        if not self._waiting:
            return
        if self._free or not self._holders or self.bytes_held < self._bytes_max:
            waiting, self._waiting = self._waiting, {}
            for on_room in waiting.values():
                on_room()
        else:
            oldest = next(iter(self._holders))
            if oldest in self._waiting:
                self._waiting.pop(oldest)()
