"""Logs in memory for the planner of the data source."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.spark import planning
from kafka2011.protocol import message_set
from tests.unit.services.warehouse.samples import chunks_of


class Logs:
    """Partitions' logs in memory, as the client and the reader of the planner."""

    def __init__(self) -> None:
        self.data: dict[TopicPartition, bytes] = {}
        self.first: dict[TopicPartition, int] = {}
        self.segments: dict[TopicPartition, list[int]] = {}
        self.by_time: dict[int, int] = {}

    def append(self, name: TopicPartition, payloads: list[bytes], codec: int = 0) -> int:
        encode = message_set.encode_compressed if codec else message_set.encode
        self.data[name] = self.data.get(name, b"") + encode(payloads, *[codec] * bool(codec))
        return len(self.data[name])

    def client(self, *_: Any, **__: Any) -> Any:
        return self

    def earliest(self, topic: str, partition: int) -> int:
        return self.first.get(TopicPartition(topic, 11, partition), 0)

    def latest(self, topic: str, partition: int) -> int:
        return len(self.data.get(TopicPartition(topic, 11, partition), b""))

    def get_offsets_before(self, topic: str, partition: int, time_ms: int, count: int) -> list[int]:
        if time_ms >= 0:
            return [self.by_time[time_ms]] if time_ms in self.by_time else []
        return self.segments.get(TopicPartition(topic, 11, partition), [])[:count]

    def close(self) -> None:
        pass

    def read_range(
        self,
        _address: object,
        topic: str,
        broker: int,
        partition: int,
        start: int,
        end: int,
        **_: Any,
    ) -> Iterator[Chunk]:
        data = self.data[TopicPartition(topic, broker, partition)]
        return chunks_of(data, (topic, broker, partition), start, end, 100)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs()
    monkeypatch.setattr(planning, "SimpleConsumer", made.client)
    monkeypatch.setattr(planning, "read_range", made.read_range)
    return made
