"""A producer's counters."""

from dataclasses import dataclass


@dataclass(slots=True)
class ProducerStats:
    """A producer's counters since it was created."""

    sends: int = 0  # produce parts written to a connection
    messages: int = 0
    set_bytes: int = 0
    refused_too_large: int = 0  # calls with a payload above max.message.size
    lost_sends: int = 0  # parts not known to be durable after a broken connection
    reconnects: int = 0  # planned (reconnect.interval, reconnect.time.interval.ms)
    # Asynchronous producer only, in messages:
    dropped: int = 0  # found no room in the queue
    failed: int = 0  # not sent after all retries
    rerouted: int = 0  # sent to a broker other than the queue's
