"""Memory for incoming requests: a pool for the common case, a budget for the large ones.

Bytes are read into a buffer of the pool; small remainders are copied aside, so an idle or slow
connection holds almost nothing. A request larger than a pool buffer gets one of its own that grows
as its bytes arrive, never as its header announces, within one budget for all connections.
"""

from collections.abc import Callable, Hashable

POOL_BUFFER_BYTES = 256 * 1024
# Free buffers kept; each is the memory of one connection that is being read at this moment.
POOL_FREE_MAX = 16


class BufferPool:
    """Buffers of one size. What is lent may be kept for as long as it is needed."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def take(self) -> memoryview:
        return self._free.pop() if self._free else memoryview(bytearray(POOL_BUFFER_BYTES))

    def give(self, buffer: memoryview) -> None:
        if len(buffer) == POOL_BUFFER_BYTES and len(self._free) < POOL_FREE_MAX:
            self._free.append(buffer)


class BufferBudget:
    """How much memory requests in progress may hold together.

    The request that has held some for the longest time may always have more, so that with the
    budget used up one request after the other is still completed (or ends at its deadline).
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes_held = 0
        self._holders: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, Callable[[], None]] = {}

    def take(self, holder: Hashable, size: int, on_room: Callable[[], None]) -> bool:
        """Let `holder` have `size` bytes in all. False: not now, `on_room` is called (once) when
        it is worth asking again."""
        held = self._holders.get(holder, 0)
        oldest = next(iter(self._holders), holder)
        if self.bytes_held - held + size > self._bytes_max and oldest is not holder:
            self._waiting[holder] = on_room
            return False
        self._holders[holder] = size
        self.bytes_held += size - held
        return True

    def give_back(self, holder: Hashable) -> None:
        """`holder` needs nothing any more; nothing happens when it held nothing."""
        self._waiting.pop(holder, None)
        held = self._holders.pop(holder, None)
        if held is None:
            return
        self.bytes_held -= held
        waiting, self._waiting = self._waiting, {}
        for on_room in waiting.values():
            on_room()
