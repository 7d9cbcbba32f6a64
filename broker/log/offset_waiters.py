"""What waits for a log to be written, flushed or readable up to an offset."""

from collections.abc import Callable
from typing import Protocol


class Waiter(Protocol):
    """Gets one call of either method, during which it may add and remove waiters."""

    def arrive(self) -> None: ...
    def fail(self) -> None: ...


class OffsetWaiters:
    """Waiters, each with the offset that it waits for. The loop's thread only."""

    __slots__ = ("_targets",)

    def __init__(self) -> None:
        self._targets: dict[Waiter, int] = {}

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, offset: int, waiter: Waiter) -> None:
        assert waiter not in self._targets
        self._targets[waiter] = offset

    def remove(self, waiter: Waiter) -> None:
        """Remove `waiter`, if it is there."""
        self._targets.pop(waiter, None)

    def reached(self, offset: int) -> None:
        """Call and drop the waiters for `offset` or less."""
        if self._targets:
            for waiter in self._taken(lambda target: target <= offset):
                waiter.arrive()

    def drop_beyond(self, offset: int) -> None:
        """Fail and drop the waiters for more than `offset`: it will never be there."""
        for waiter in self._taken(lambda target: target > offset):
            waiter.fail()

    def _taken(self, is_due: Callable[[int], bool]) -> list[Waiter]:
        taken = [waiter for waiter, target in self._targets.items() if is_due(target)]
        for waiter in taken:
            del self._targets[waiter]
        return taken
