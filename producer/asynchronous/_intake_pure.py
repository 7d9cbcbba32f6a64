"""The asynchronous producer's per-message steps in plain Python; `_intake_compiled` is the twin."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

QueuedEvent = tuple[str, int, bytes, Any]  # a callbacks.Event, quicker to make

COMPILED = False


class Intake:
    """The bounded list between callers of `send` and the sender thread; see `intake`."""

    def __init__(
        self,
        size: int,
        batch_size: int,
        on_batch: Callable[[], object],
        on_full: Callable[[str, int, bytes, Any], object],
    ) -> None:
        self._size = size
        self._batch_size = batch_size
        self._on_batch = on_batch
        self._on_full = on_full
        self._events: list[QueuedEvent] = []
        self._lock = threading.Lock()

    def put_one(self, topic: str, partition: int, payload: bytes, key: Any = None) -> None:
        with self._lock:
            length = len(self._events) + 1
            has_room = length <= self._size
            if has_room:
                self._events.append((topic, partition, payload, key))
        if not has_room:
            self._on_full(topic, partition, payload, key)
        elif length == self._batch_size:
            self._on_batch()

    def offer(self, event: QueuedEvent) -> bool:
        with self._lock:
            has_room = len(self._events) < self._size
            if has_room:
                self._events.append(event)
        return has_room

    def take(self) -> list[QueuedEvent]:
        with self._lock:
            events, self._events = self._events, []
        return events

    def waiting(self) -> list[QueuedEvent]:
        with self._lock:
            return self._events.copy()

    def close(self) -> None:
        with self._lock:
            self._size = 0

    def __len__(self) -> int:
        return len(self._events)


def group(messages: Iterable[QueuedEvent]) -> dict[tuple[str, int], list[bytes]]:
    groups: dict[tuple[str, int], list[bytes]] = {}
    last_topic: str | None = None
    last_partition = 0
    found: list[bytes] = []
    for topic, partition, payload, _ in messages:
        if topic is not last_topic or partition != last_partition:  # mostly runs of one partition
            found = groups.setdefault((topic, partition), [])
            last_topic, last_partition = topic, partition
        found.append(payload)
    return groups
