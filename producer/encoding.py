"""A batch of queued messages to requests: grouped and compressed, or by a handler.

A compressed set that would be above `max.message.size` is cut in two until it fits; what would be
too much for one request goes in several (`producer.batching`).
"""

from collections.abc import Sequence

from kafka2011.producer.batching import SetPart, cut_set, encode_sets, packed, payload_bytes
from kafka2011.producer.callbacks import Event, EventHandler
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.intake import QueuedEvent, group
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import MessageSizeTooLarge


class BatchEncoder:
    """`compression.codec` and `compressed.topics` say how; `handler` replaces all of it."""

    def __init__(self, config: ProducerConfig, handler: EventHandler | None = None) -> None:
        self._codec = config.compression_codec
        self._topics = frozenset(config.compressed_topics)
        self._limits = config.request_limits
        self._handler = handler

    def requests(self, batch: Sequence[QueuedEvent]) -> list[Sequence[SetPart]]:
        """The parts of each request, mostly of one. Raises whatever a user's handler raises."""
        parts: list[SetPart] = []
        unpacked: list[int] = []
        if self._handler is not None:
            for topic, partition, message_set in self._handler([Event(*event) for event in batch]):
                plain = message_set if type(message_set) is bytes else payload_bytes(message_set)
                for piece in cut_set(plain, self._limits.set_bytes_max):
                    parts.append(SetPart(topic, partition, piece))
                    unpacked.append(0)  # only the handler knows
        else:
            for (topic, partition), payloads in group(batch).items():
                self._add(parts, unpacked, topic, partition, payloads)
        return packed(parts, unpacked, self._limits)

    def _codec_of(self, topic: str) -> Codec:
        return self._codec if not self._topics or topic in self._topics else Codec.NONE

    def _add(
        self,
        parts: list[SetPart],
        unpacked: list[int],
        topic: str,
        partition: int,
        payloads: list[bytes],
    ) -> None:
        try:
            sets = encode_sets(payloads, self._codec_of(topic), self._limits)
        except MessageSizeTooLarge:
            if len(payloads) == 1:
                sets = encode_sets(payloads, Codec.NONE, self._limits)  # `send` checked it plain
            else:  # too much for one compressed message
                middle = len(payloads) // 2
                self._add(parts, unpacked, topic, partition, payloads[:middle])
                self._add(parts, unpacked, topic, partition, payloads[middle:])
                return
        for message_set, unpacked_bytes in sets:
            parts.append(SetPart(topic, partition, message_set))
            unpacked.append(unpacked_bytes)
