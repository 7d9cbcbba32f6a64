"""A damaged chunk: what is good is counted once, the damage is fetched again, then left out."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.errors import ConsumerTimeout, PartitionStuck
from kafka2011.protocol.message_set import encode
from kafka2011.services.online_consumer.event_counter import EventCounter
from kafka2011.services.online_consumer.reader import READ_ATTEMPTS, StreamReader
from tests.support.bombs import BOMBS_COUNT, bombs, bounded_memory

NAME = TopicPartition("t", 1, 0)
GOOD = encode([b"a", b"b"])
BAD = encode([b"damaged"])[:-1] + b"!"
LOG = GOOD + BAD + encode([b"c"])


class OnePartition:
    """Stands in for connector and stream: a log read from a position that moves. The damage heals
    after so many seeks; `seeks` are (what was processed before, the offset)."""

    def __init__(self, log: bytes, heals_after: int = READ_ATTEMPTS) -> None:
        self._log = log
        self._heals_after = heals_after
        self.position = 0
        self.processed = 0
        self.seeks: list[tuple[int, int]] = []
        self.troubles: list[Exception] = []

    def chunks(self) -> Iterator[Chunk]:
        while self.troubles:
            raise self.troubles.pop()
        while self.position < len(self._log):
            start = self.position
            self.position = len(self._log)
            data = self._log
            if len(self.seeks) >= self._heals_after:
                data = data.replace(BAD, encode([b"damaged"]))
            yield Chunk(*NAME, start, data[start:], len(self._log))
            self.processed = len(self._log)

    def seek(self, name: TopicPartition, offset: int) -> bool:
        assert name == NAME
        self.seeks.append((self.processed, offset))
        self.position = self.processed = offset
        return True

    def skip_entry(self, name: TopicPartition, offset: int) -> int:
        assert name == NAME
        self.position = self.processed = offset + len(BAD)
        return self.position


def read(partition: Any) -> tuple[int, int]:
    """Reads it to its end; returns the numbers of messages and of damaged chunks."""
    counter = EventCounter()
    StreamReader(partition, partition, counter, lambda: 1_300_000_000_000).run()
    return counter.snapshot(0)["t"]["messages"], counter.damaged_chunks


@pytest.mark.parametrize(
    ("heals_after", "messages", "damaged"),
    [(1, 4, 1), (READ_ATTEMPTS, 3, READ_ATTEMPTS)],
    ids=["damage on the way", "damage on disk"],
)
def test_damage_is_read_again_and_left_out_after_some_attempts(
    heals_after: int, messages: int, damaged: int
) -> None:
    partition = OnePartition(LOG, heals_after)
    assert read(partition) == (messages, damaged)
    assert partition.seeks[0] == (0, len(GOOD))  # a damaged chunk never counts as processed
    assert partition.processed == len(LOG)


def test_bombs_before_damage_are_counted_once_in_bounded_memory() -> None:
    with bounded_memory():
        assert read(OnePartition(bombs() + LOG)) == (BOMBS_COUNT + 3, READ_ATTEMPTS)


def test_timeouts_and_stuck_partitions_do_not_end_the_reading() -> None:
    partition = OnePartition(GOOD)
    partition.troubles = [ConsumerTimeout("nothing"), PartitionStuck("u", 1, 0, 7, "damaged")]
    assert read(partition) == (2, 0)
