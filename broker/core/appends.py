"""What one client appended, and so what must be durable before a promise is made of it."""

from collections.abc import Callable

from kafka2011.broker.log.errors import PartitionError
from kafka2011.broker.log.log import Log


class Appends:
    """One client's appends, in order. `Partitions.append` keeps it; it is the logs' `Appender`.

    `was_refused`: a set of this client was not kept, so that nothing can be promised of what it
    sent. `must_wait`: nothing more of this client may be appended before `Partitions.when_ready`
    has called back.
    """

    __slots__ = (
        "_failed",
        "ends",
        "flush_first",
        "last",
        "must_wait",
        "was_refused",
        "write_first",
    )

    def __init__(self, failed: Callable[[str, PartitionError, int], None]) -> None:
        """`failed(topic, error, set_count)` is called when sets that were taken over could not be
        written after all."""
        self.ends: dict[Log, int] = {}  # log -> end of this client's last set there
        self.last: Log | None = None
        self.was_refused = False
        self.must_wait = False
        self.flush_first: dict[Log, int] = {}
        self.write_first: dict[Log, int] = {}
        self._failed = failed

    def append_failed(self, topic: str, error: PartitionError, set_count: int = 1) -> None:
        self.was_refused = True
        self._failed(topic, error, set_count)

    def not_durable(self) -> dict[Log, int]:
        """The logs whose watermark is below the end of this client's sets, with that end."""
        return {log: end for log, end in self.ends.items() if log.high_watermark < end}

    def being_flushed(self) -> dict[Log, int]:
        """The logs being flushed in which this client's sets are written, with the sets' ends."""
        return {
            log: end
            for log, end in self.ends.items()
            if log.flushing and log.flushed_end < end <= log.written_end
        }


class Moved:
    """The appender of several sets of a client that were appended as one."""

    __slots__ = ("_appends", "_set_count")

    def __init__(self, appends: Appends, set_count: int) -> None:
        self._appends = appends
        self._set_count = set_count

    def append_failed(self, topic: str, error: PartitionError) -> None:
        self._appends.append_failed(topic, error, self._set_count)
