"""Reads a range in a Spark task, through a broker's restart.

For the data source (`source`) and the warehouse's load tasks. Imports neither Spark nor ZooKeeper.
"""

import time
from collections.abc import Callable, Iterator

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.ranges.reading import FETCH_SIZE, Check, read_range

PATIENCE_S = 15.0  # a restarted broker serves well within this time
PAUSE_S = 0.25


def read_patiently(
    address: tuple[str, int],
    planned: OffsetRange,
    *,
    fetch_size: int = FETCH_SIZE,
    socket_timeout_ms: int = 30_000,
    check: Check | None = None,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Chunk]:
    """`read_range`, continued where it stopped if the broker is away for less than `patience_s`.

    Raises the errors of `read_range`; BrokerUnavailable only after `patience_s` without progress,
    and where the broker hangs when two answers (a request is repeated once) have been awaited for
    `socket_timeout_ms` each.
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
                attempts=1,  # what is tried again here need not be there: one that hangs takes long
                check=check,
            ):
                yield chunk
                offset = chunk.next_offset
                deadline = monotonic() + patience_s
            return
        except BrokerUnavailable:
            if monotonic() >= deadline:
                raise
            pause(PAUSE_S)
