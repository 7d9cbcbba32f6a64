"""A damaged chunk: what is good is counted once, the damage is fetched again, then left out."""

from collections.abc import Iterator
from typing import Any

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.errors import ConsumerTimeout, PartitionStuck
from kafka2011.protocol.message_set import encode
from kafka2011.services.online_consumer.core import EventCounter
from kafka2011.services.online_consumer.reader import READ_ATTEMPTS, StreamReader

NAME = TopicPartition("t", 1, 0)
GOOD = encode([b"a", b"b"])
BAD = encode([b"damaged"])[:-1] + b"!"
REST = encode([b"c"])


class OnePartition:
    """Stands in for connector and stream: a log of bytes read from a position that moves."""

    def __init__(self, log: bytes, heals_after: int | None = None) -> None:
        self._log = log
        self._heals_after = heals_after
        self.position = 0
        self.processed = 0
        self.seeks: list[int] = []
        self.troubles: list[Exception] = []

    def chunks(self) -> Iterator[Chunk]:
        while self.troubles:
            raise self.troubles.pop()
        while self.position < len(self._log):
            start = self.position
            self.position = len(self._log)
            data = self._log
            if self._heals_after is not None and len(self.seeks) >= self._heals_after:
                data = data.replace(BAD, encode([b"damaged"]))
            yield Chunk(*NAME, start, data[start:], len(self._log))
            self.processed = len(self._log)

    def seek(self, name: TopicPartition, offset: int) -> bool:
        assert name == NAME
        self.seeks.append(offset)
        self.position = self.processed = offset
        return True

    def skip_entry(self, name: TopicPartition, offset: int) -> int:
        assert name == NAME
        self.position = self.processed = offset + len(BAD)
        return self.position


def read(partition: OnePartition) -> EventCounter:
    counter = EventCounter()
    fake: Any = partition
    StreamReader(fake, fake, counter, lambda: 1_300_000_000_000).run()
    return counter


def messages(counter: EventCounter) -> int:
    found: int = counter.snapshot(0)["t"]["messages"]
    return found


def test_damage_on_the_way_is_healed_by_reading_again() -> None:
    partition = OnePartition(GOOD + BAD + REST, heals_after=1)
    counter = read(partition)
    assert messages(counter) == 4
    assert partition.seeks == [len(GOOD)]
    assert counter.damaged_chunks == 1


def test_damage_on_disk_is_left_out_after_some_attempts_and_the_rest_is_read() -> None:
    partition = OnePartition(GOOD + BAD + REST)
    counter = read(partition)
    assert messages(counter) == 3
    assert counter.damaged_chunks == READ_ATTEMPTS
    assert partition.processed == len(GOOD + BAD + REST)


def test_a_damaged_chunk_never_counts_as_processed() -> None:
    partition = OnePartition(GOOD + BAD + REST, heals_after=1)
    seen = []
    plain_seek = partition.seek

    def seek(name: TopicPartition, offset: int) -> bool:
        seen.append(partition.processed)
        return plain_seek(name, offset)

    partition.seek = seek  # type: ignore[method-assign]
    read(partition)
    assert seen == [0]


def test_timeouts_and_stuck_partitions_do_not_end_the_reading() -> None:
    partition = OnePartition(GOOD)
    partition.troubles = [ConsumerTimeout("nothing"), PartitionStuck("u", 1, 0, 7, "damaged")]
    assert messages(read(partition)) == 2
