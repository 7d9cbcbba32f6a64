"""A producer's counters."""

from dataclasses import dataclass


@dataclass(slots=True)
class ProducerStats:
    """A producer's counters since it was created; a copy, which does not change any more.

    `sends`: produce parts (one message set for one partition) that were written to a connection.
    `messages`: messages written; of an asynchronous producer those accepted.
    `set_bytes`: bytes of the message sets written, compressed as they were.
    `refused_too_large`: calls with a payload above max.message.size.
    `lost_sends`: parts not known to be durable after a broken connection; the next flush names
        them. A connection that breaks with nothing in flight loses none.
    `reconnects`: planned ones (reconnect.interval, reconnect.time.interval.ms) of a synchronous
        producer; a new connection after a broken one is none.

    Of an asynchronous producer only, in messages:

    `dropped`: found no room in the queue.
    `failed`: not sent after all retries.
    `rerouted`: sent to another broker than the queue's, in a retry.
    """

    sends: int = 0
    messages: int = 0
    set_bytes: int = 0
    refused_too_large: int = 0
    lost_sends: int = 0
    reconnects: int = 0
    dropped: int = 0
    failed: int = 0
    rerouted: int = 0
