"""What a command that reads topics to their ends has left unread, for which it fails."""

import threading
from collections.abc import Iterable

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.connector import ConsumerConnector


def unread(
    connector: ConsumerConnector, owned_before: Iterable[TopicPartition], stop: threading.Event
) -> list[str]:
    """One line for each partition that was not delivered to its end, or whose broker does not say
    where that is, or has less than was delivered, also of those in `owned_before` that the member
    has lost. Asks the brokers.

    Empty when `stop` is set before or meanwhile: then not all was to be read.
    """
    found: list[str] = []
    if stop.is_set():
        return found
    if not connector.is_settled:
        found.append("not all partitions could be taken: their owners have not given them up")
    lag = connector.lag()
    for name in sorted({*owned_before, *lag}):
        left_bytes = lag.get(name)
        if left_bytes is None:
            found.append(
                f"{name} is not known to be read to its end: its broker does not answer, or its "
                "log ends before what was read"
            )
        elif left_bytes:
            found.append(f"{name} was not read to its end: {left_bytes:,} bytes are left")
    return [] if stop.is_set() else found
