"""A batch of queued messages to the parts of a request: grouped and compressed, or by a handler.

A compressed set that would be above `max.message.size` is cut in two until it fits.
"""

from collections.abc import Sequence

from producer.batching import SetPart, encode_set
from producer.callbacks import Event, EventHandler
from producer.config import ProducerConfig
from producer.intake import QueuedEvent, group
from protocol.compression import Codec
from protocol.errors import MessageSizeTooLarge


class BatchEncoder:
    """`compression.codec` and `compressed.topics` say how; `handler` replaces all of it."""

    def __init__(self, config: ProducerConfig, handler: EventHandler | None = None) -> None:
        self._codec = config.compression_codec
        self._topics = frozenset(config.compressed_topics)
        self._message_bytes_max = config.max_message_bytes
        self._handler = handler

    def parts(self, batch: Sequence[QueuedEvent]) -> Sequence[SetPart]:
        """The parts of one request. Raises whatever a user's handler raises."""
        if self._handler is not None:
            return self._handler([Event(*event) for event in batch])
        parts: list[SetPart] = []
        for (topic, partition), payloads in group(batch).items():
            self._add(parts, topic, partition, payloads)
        return parts

    def _codec_of(self, topic: str) -> Codec:
        return self._codec if not self._topics or topic in self._topics else Codec.NONE

    def _add(self, parts: list[SetPart], topic: str, partition: int, payloads: list[bytes]) -> None:
        limit = self._message_bytes_max
        try:
            encoded = encode_set(payloads, self._codec_of(topic), limit)
        except MessageSizeTooLarge:
            if len(payloads) == 1:
                encoded = encode_set(payloads, Codec.NONE, limit)  # `send` checked it plain
            else:  # too much for one compressed message
                middle = len(payloads) // 2
                self._add(parts, topic, partition, payloads[:middle])
                self._add(parts, topic, partition, payloads[middle:])
                return
        parts.append(SetPart(topic, partition, encoded))
