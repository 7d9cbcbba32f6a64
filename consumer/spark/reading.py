"""How a Spark task reads a range: through a broker's restart.

Used by the data source (`spark_source`) and by the warehouse's load tasks, which skip the way
through the JVM. Imports neither Spark nor ZooKeeper.
"""

import time
from collections.abc import Callable, Iterator

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.ranges.reading import FETCH_SIZE, read_range

PATIENCE_S = 15.0  # a broker that is started again serves well within this
PAUSE_S = 0.25


def read_patiently(
    address: tuple[str, int],
    planned: OffsetRange,
    *,
    fetch_size: int = FETCH_SIZE,
    socket_timeout_ms: int = 30_000,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Chunk]:
    """`read_range`, going on where it stopped when the broker is away for less than `patience_s`.

    Raises what `read_range` raises; BrokerUnavailable only after the patience without progress.
    """
    offset = planned.start
    deadline = monotonic() + patience_s
    while True:
        try:
            for chunk in read_range(
                address,
                planned.topic,
                planned.broker_id,
                planned.partition,
                offset,
                planned.end,
                fetch_size,
                socket_timeout_ms=socket_timeout_ms,
            ):
                yield chunk
                offset = chunk.next_offset
                deadline = monotonic() + patience_s
            return
        except BrokerUnavailable:
            if monotonic() >= deadline:
                raise
            pause(PAUSE_S)
