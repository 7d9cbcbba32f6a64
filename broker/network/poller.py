"""Which sockets are ready: one epoll of our own, which the loop watches as a single descriptor.

uvloop (0.23) loses the reset of a connection whose data was still unread when it came: its reader
is never called again, and the connection is kept for ever (see docs/decisions). With one epoll the
events are the kernel's own, on uvloop and on asyncio alike, and a turn has an end: after all ready
sockets were called, `end_of_turn` is.
"""

import select
import time
from collections.abc import Callable
from typing import Any

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
ENDED = select.EPOLLRDHUP  # the other side sends no more, even if what it sent is not read yet
# Reported whether watched or not: the connection is gone.
BROKEN = select.EPOLLERR | select.EPOLLHUP
EVENTS_PER_TURN = 256
# A pause is for what follows closely: a turn that comes later than this begins at once.
PAUSED_AFTER_MAX_S = 0.001


class Poller:
    """Calls what watches a ready descriptor. The loop's thread only."""

    def __init__(self, loop: Any, end_of_turn: Callable[[], None]) -> None:
        self._loop = loop
        self._end_of_turn = end_of_turn
        self._epoll = select.epoll()
        self._watchers: dict[int, Callable[[int], object]] = {}
        self.in_turn = False
        self.pause_s = 0.0  # the next turn gathers for so long before it looks
        self._ended_s = 0.0
        loop.add_reader(self._epoll.fileno(), self._turn)

    def watch(self, fd: int, events: int, ready: Callable[[int], object]) -> None:
        """Call `ready(events)` whenever one of `events` or of BROKEN is there; it replaces what was
        watched on this descriptor. It is called again for as long as that is there: a `ready` that
        reads or sends nothing must end the connection, or watch for less."""
        if fd in self._watchers:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._watchers[fd] = ready

    def forget(self, fd: int) -> None:
        """Stop watching `fd`; call it before the descriptor is closed."""
        if self._watchers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _turn(self) -> None:
        if self.pause_s and time.perf_counter() - self._ended_s < PAUSED_AFTER_MAX_S:
            time.sleep(self.pause_s)
        self.in_turn = True
        watchers = self._watchers
        try:
            for fd, events in self._epoll.poll(0, EVENTS_PER_TURN):
                # An earlier call of this turn may have closed it; and when its number was given
                # to a new connection, that one is called for nothing, which is harmless.
                ready = watchers.get(fd)
                if ready is not None:
                    ready(events)
        finally:
            self.in_turn = False
            self._end_of_turn()
            self._ended_s = time.perf_counter()

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
