"""Who waits for a log to be written or flushed up to an offset."""

from kafka2011.broker.log.barrier import Barrier


class OffsetWaiters:
    """Barriers by the offset that each waits for. The loop's thread only."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Barrier]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, barrier: Barrier) -> None:
        self._waiting.append((offset, barrier))

    def reached(self, offset: int) -> None:
        """Tell those that wait for `offset` or less that it is there."""
        if not self._waiting:
            return
        there = [barrier for target, barrier in self._waiting if target <= offset]
        self._waiting = [waiter for waiter in self._waiting if waiter[0] > offset]
        for barrier in there:
            barrier.arrive()

    def drop_beyond(self, offset: int) -> None:
        """Tell those that wait for more than `offset` that it will never be there."""
        lost = [barrier for target, barrier in self._waiting if target > offset]
        self._waiting = [waiter for waiter in self._waiting if waiter[0] <= offset]
        for barrier in lost:
            barrier.fail()
