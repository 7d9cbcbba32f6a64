"""When a queue's messages are sent: as soon as they make a batch, or are old enough. Pure."""


class BatchTrigger:
    """Whether a queue is due to be sent.

    `queue_time` counts from the last dispatch, in the unit of the caller's times.
    """

    def __init__(self, batch_size: int, queue_time: float, now: float) -> None:
        self._batch_size = batch_size
        self._queue_time = queue_time
        self._last_dispatch = now

    def wait(self, now: float) -> float:
        """The time until the queue is due by age; 0 when it is."""
        return max(0.0, self._last_dispatch + self._queue_time - now)

    def is_due(self, message_count: int, now: float) -> bool:
        return message_count >= self._batch_size or (
            message_count > 0 and now >= self._last_dispatch + self._queue_time
        )

    def dispatched(self, now: float) -> None:
        self._last_dispatch = now
