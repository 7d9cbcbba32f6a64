"""Finds where an entry begins in a partition: near an offset, or near a time.

0.7 has no index and serves bytes from any offset, so a boundary is recognised by its CRC, and a
time is found by bisection.
"""

import time
from collections.abc import Callable

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage, KafkaError
from kafka2011.protocol.message import LENGTH_BYTES, MAGIC1_OVERHEAD_BYTES

NEAR_BYTES = 256 * 1024  # bisection ends here
RESYNC_BYTES = 1_100_000  # more than the largest message that a broker accepts
TIMED_MAX = 100  # messages that are searched for a time at one place

# The time of a payload, ms since the epoch; None for one that has none.
TimeOf = Callable[[bytes], int | None]


class NoBoundary(KafkaError):
    """No entry to begin at was found before the deadline."""


class Boundaries:
    """Boundaries between `earliest` and `latest` of one partition, until `deadline` (monotonic, s).

    Each method raises NoBoundary after the deadline, and the KafkaErrors of a fetch.
    """

    def __init__(
        self,
        client: SimpleConsumer,
        topic: str,
        partition: int,
        *,
        earliest: int,
        latest: int,
        deadline: float,
    ) -> None:
        self._client = client
        self._name = topic, partition
        self._earliest = earliest
        self._latest = latest
        self._deadline = deadline

    def behind(self, near: int) -> int:
        """The first entry that begins at `near` or after it; `latest` when none is found."""
        if near <= self._earliest:
            return self._earliest
        data = self._client.fetch(*self._name, near, RESYNC_BYTES).data
        position = first_entry(data, lambda: time.monotonic() > self._deadline)
        return self._latest if position is None else near + position

    def before(self, time_ms: int, time_of: TimeOf) -> int:
        """An entry at most NEAR_BYTES in front of the first message of `time_ms` or later, if the
        partition's times rise."""
        low, high = self._earliest, self._latest
        while high - low > NEAR_BYTES:
            middle = (low + high) // 2
            at = self.behind(middle)
            found = self._time_at(at, time_of) if at < self._latest else None
            if found is None or found >= time_ms:
                high = middle
            else:
                low = at
        return self.behind(low)

    def _time_at(self, offset: int, time_of: TimeOf) -> int | None:
        """The time of the first message at `offset` or after it that has one."""
        data = self._client.fetch(*self._name, offset, RESYNC_BYTES).data
        try:
            payloads, _ = message_set.take_payloads(data, unpacked_bytes_max=1)
        except InvalidMessage:
            return None
        times = map(time_of, payloads[:TIMED_MAX])
        return next((found for found in times if found is not None), None)


def first_entry(data: bytes | memoryview, is_late: Callable[[], bool]) -> int | None:
    """The position of the first entry in bytes that begin anywhere; None when there is none.

    Four bytes of CRC do not match by chance. But payloads can consist of what looks like headers of
    large entries, each of which must be checksummed: so a search that `is_late` raises NoBoundary.
    """
    for position in range(max(0, len(data) - LENGTH_BYTES - MAGIC1_OVERHEAD_BYTES)):
        if data[position + LENGTH_BYTES] > 1:  # not a magic byte, as nearly everywhere
            continue
        if is_late():
            raise NoBoundary(
                "no message to begin at was found in time; it takes longest where payloads look "
                "like headers of messages: begin at an offset"
            )
        if message_set.is_entry(data, position):
            return position
    return None
