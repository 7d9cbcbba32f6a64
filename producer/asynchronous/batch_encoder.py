"""A batch of queued messages to requests: grouped and compressed, or by an event handler.

A compressed set above `max.message.size` is halved until it fits; a batch too large for one request
goes in several (`producer.requests`).
"""

from collections.abc import Sequence

from kafka2011.producer.asynchronous.callbacks import Event, EventHandler
from kafka2011.producer.asynchronous.intake import QueuedEvent, group
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.requests import SetPart, cut_set, encode_sets, pack_requests
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.message_set import payload_bytes


class BatchEncoder:
    """Encodes by `compression.codec` and `compressed.topics`, or with `handler`."""

    def __init__(self, config: ProducerConfig, handler: EventHandler | None = None) -> None:
        self._codec = config.compression_codec
        self._topics = frozenset(config.compressed_topics)
        self._limits = config.request_limits
        self._handler = handler

    def requests(self, batch: Sequence[QueuedEvent]) -> list[Sequence[SetPart]]:
        """The parts of each request, usually one request. Raises what a user's handler raises."""
        parts: list[SetPart] = []
        unpacked: list[int] = []
        if self._handler is not None:
            for topic, partition, message_set in self._handler([Event(*event) for event in batch]):
                plain = message_set if type(message_set) is bytes else payload_bytes(message_set)
                for piece in cut_set(plain, self._limits.set_bytes_max):
                    parts.append(SetPart(topic, partition, piece))
                    unpacked.append(0)  # unknown: the handler encoded it
        else:
            for (topic, partition), payloads in group(batch).items():
                for message_set, size in encode_sets(payloads, self._codec_of(topic), self._limits):
                    parts.append(SetPart(topic, partition, message_set))
                    unpacked.append(size)
        return pack_requests(parts, unpacked, self._limits)

    def _codec_of(self, topic: str) -> Codec:
        return self._codec if not self._topics or topic in self._topics else Codec.NONE
