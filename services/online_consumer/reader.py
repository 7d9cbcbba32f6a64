"""Reads a stream chunk by chunk into the counter; a corrupt entry is retried, then skipped.

A chunk counts as processed when the next one is requested, so a crash repeats at most what was read
since the last commit and loses nothing.
"""

from collections import Counter

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.errors import (
    BrokerUnavailable,
    ConsumerStateError,
    ConsumerTimeout,
    PartitionStuck,
)
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.stream import MessageStream
from kafka2011.protocol.errors import InvalidMessage
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.services.online_consumer.event_counter import EventCounter

READ_ATTEMPTS = 3  # of a chunk with a wrong CRC: corruption in transit is gone after another fetch

log = get_logger(__name__)


class StreamReader:
    """`run` reads until the connector shuts down."""

    def __init__(
        self,
        connector: ConsumerConnector,
        stream: MessageStream,
        counter: EventCounter,
        clock: Clock = now_ms,
    ) -> None:
        self._connector = connector
        self._stream = stream
        self._counter = counter
        self._clock = clock
        self._failures: Counter[TopicPartition] = Counter()

    def run(self) -> None:
        while True:
            try:
                found = self._read_until_damage()
            except ConsumerTimeout:
                continue
            except PartitionStuck as stuck:
                log.error("partition_stuck", detail=str(stuck))
                continue
            if found is None:
                return
            self._damaged(*found)

    def _read_until_damage(self) -> tuple[Chunk, InvalidMessage] | None:
        """Read on; returns the uncounted rest of the first damaged chunk, or None at shutdown.

        The iteration ends with that chunk, so that it does not count as processed.
        """
        for chunk in self._stream.chunks():
            rest = chunk
            while rest.data:
                try:
                    payloads, behind = rest.take_payloads()
                except InvalidMessage as error:
                    return rest, error
                rest = behind
                self._failures.pop(chunk.topic_partition, None)
                self._counter.count(chunk.topic, payloads, self._clock())
        return None

    def _damaged(self, chunk: Chunk, error: InvalidMessage) -> None:
        """Count what precedes the corrupt entry; refetch that, or skip it after READ_ATTEMPTS."""
        name = chunk.topic_partition
        good_bytes = max(0, error.position)
        bad_offset = chunk.offset + good_bytes
        self._counter.damaged_chunks += 1
        if good_bytes:
            self._failures.pop(name, None)
            good = chunk._replace(data=chunk.data[:good_bytes], next_offset=bad_offset)
            self._counter.count(chunk.topic, good.payloads(), self._clock())
        self._failures[name] += 1
        if self._failures[name] < READ_ATTEMPTS:
            self._connector.seek(name, bad_offset)
            return
        try:
            behind = self._connector.skip_entry(name, bad_offset)
            log.error("damaged_message_left_out", partition=str(name), offset=bad_offset, to=behind)
            self._failures.pop(name, None)
        except (BrokerUnavailable, ConsumerStateError) as failure:
            log.error("damaged_message", partition=str(name), offset=bad_offset, why=str(failure))
            self._connector.seek(name, bad_offset)
