"""Age of events when their copy is durable, by their headers: one per partition and 100 ms at most.

The mirror decodes no other message. A set whose first entry is a compressed wrapper, or not an
event of ours, gives no sample.
"""

import time

from kafka2011.consumer.chunk import Chunk
from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.events.origin import origin_of
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.message_set import entries
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy

SAMPLE_INTERVAL_S = 0.1  # per partition


class AgeSampler:
    """Keeps the sampled event's time from `sent` until `confirmed`."""

    def __init__(self, forms: Forms = FORMS_2011) -> None:
        self._forms = forms
        self._sampled_s: dict[str, float] = {}
        self._event_ms: dict[str, int] = {}

    def sent(self, copy: PartitionCopy, chunk: Chunk) -> None:
        key = str(copy.name)
        now_s = time.monotonic()
        if now_s - self._sampled_s.get(key, 0.0) < SAMPLE_INTERVAL_S:
            return
        self._sampled_s[key] = now_s
        try:
            first = next(entries(chunk.data), None)
            if first is not None and first.codec == Codec.NONE:
                time_ms = origin_of(self._forms, copy.name.topic).time_ms(first.payload)
                if time_ms is not None:  # else not an event of ours: nothing to measure
                    self._event_ms[key] = time_ms
        except KafkaError:
            pass

    def confirmed(self, copy: PartitionCopy) -> None:
        event_ms = self._event_ms.pop(str(copy.name), None)
        if event_ms is not None:
            copy.latency_ms = max(0, time.time_ns() // 1_000_000 - event_ms)
