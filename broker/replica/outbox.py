"""What waits to be sent on one link, in an order that keeps memory small and lets logs take turns.

Of a log's bytes only the range is kept, however much was appended. The ranges that were put between
two frames form a round: their logs take turns, a chunk each. A mark goes after everything that was
put before it. At most two marks wait between two other frames: the first, so that one gets through
however slow the link is, and the newest, which stands for those in between.
"""

from collections import deque
from dataclasses import dataclass

from kafka2011.broker.replication.frames import Mark

Round = dict[str, tuple[int, int]]  # partition -> (start, end) not sent yet


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a log that are to be sent; tell `Outbox.sent` how far they were."""

    partition: str
    offset: int
    end: int


class Outbox:
    def __init__(self) -> None:
        self._items: deque[bytes | Mark | Round] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._items

    def put(self, frame: bytes) -> None:
        self._items.append(frame)

    def put_range(self, partition: str, offset: int, end: int) -> None:
        """Add a range; it must begin where the last one of its partition ended."""
        last = self._items[-1] if self._items else None
        if not isinstance(last, dict):
            last = {}
            self._items.append(last)
        _extend(last, partition, offset, end)

    def put_mark(self, mark: Mark) -> None:
        items = self._items
        marks = [at for at, item in enumerate(items) if isinstance(item, Mark)]
        if len(marks) > 1 and not any(isinstance(item, bytes) for item in _after(items, marks[-1])):
            self._forget(marks[-1])
        items.append(mark)

    def _forget(self, at: int) -> None:
        """Drop the last mark, which at most one round follows; two rounds become one."""
        items = self._items
        after = items.pop() if at < len(items) - 1 else {}
        items.pop()
        assert isinstance(after, dict)
        for partition, (offset, end) in after.items():
            self.put_range(partition, offset, end)

    def next(self) -> bytes | Mark | Range | None:
        """What to send now; a frame or mark is taken out, of a range only what `sent` says."""
        while self._items:
            item = self._items[0]
            if not isinstance(item, dict):
                self._items.popleft()
                return item
            for partition, (offset, end) in item.items():
                return Range(partition, offset, end)
            self._items.popleft()
        return None

    def sent(self, partition: str, end: int) -> None:
        """Note that the range from `next` was sent up to `end`; then the next log has its turn."""
        waiting = self._items[0]
        assert isinstance(waiting, dict)
        _, last = waiting.pop(partition)
        if end < last:
            waiting[partition] = (end, last)


def _extend(waiting: Round, partition: str, offset: int, end: int) -> None:
    start, before = waiting.get(partition, (offset, offset))
    assert before == offset, f"{partition}: {offset} behind {before}"
    waiting[partition] = (start, end)


def _after(items: deque[bytes | Mark | Round], at: int) -> list[bytes | Mark | Round]:
    return list(items)[at + 1 :]
