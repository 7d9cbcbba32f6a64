"""The part of a producer that a process uses for its own reports: counts, heartbeats, results.

Such a producer is made when it is needed and closed after a failure. What it had not confirmed by
then was named to its owner already, or is in the owner's journal.
"""

from typing import Protocol

from kafka2011.producer.errors import NotDurable
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)


class Sender(Protocol):
    """A `Producer`, or what stands for it in a test."""

    def send(self, topic: str, payloads: list[bytes], /) -> object: ...
    def flush(self, timeout_ms: int, /) -> object: ...
    def close(self, timeout_ms: int, /) -> object: ...


def disconnect(sender: Sender | None, timeout_ms: int = 0) -> None:
    """Close it, if there is one; what it has not confirmed within `timeout_ms` is logged only."""
    if sender is not None:
        try:
            sender.close(timeout_ms)
        except NotDurable as error:
            log.debug("closed", detail=str(error))
