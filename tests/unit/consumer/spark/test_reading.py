"""A range in a Spark task is read through a broker's restart."""

from collections.abc import Iterator

import pytest

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark import reading
from kafka2011.consumer.spark.reading import PATIENCE_S, read_patiently

ADDRESS = ("127.0.0.1", 9092)
RANGE = OffsetRange("t", 11, 0, 0, 100)


class Outage:
    """A `read_range` that breaks off; `monotonic` and `pause` are its own time."""

    def __init__(self, down_s: float) -> None:
        self.now_s = 0.0
        self.back_s = down_s
        self.starts: list[int] = []

    def monotonic(self) -> float:
        return self.now_s

    def pause(self, duration_s: float) -> None:
        self.now_s += duration_s

    def read_range(
        self, _address: object, _topic: str, _broker: int, _partition: int, start: int, *_: object
    ) -> Iterator[Chunk]:
        self.starts.append(start)
        if not self.starts[1:]:
            yield Chunk("t", 11, 0, 0, b"x" * 40, 40)
        if self.now_s < self.back_s:
            raise BrokerUnavailable("away")
        yield Chunk("t", 11, 0, start, b"x" * (100 - start), 100)


def read(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(reading, "read_range", lambda *args, **_: outage.read_range(*args))
    chunks = read_patiently(ADDRESS, RANGE, pause=outage.pause, monotonic=outage.monotonic)
    return [found.next_offset for found in chunks]


def test_reading_continues_where_it_stopped_when_the_broker_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outage = Outage(down_s=PATIENCE_S / 2)
    assert read(outage, monkeypatch) == [40, 100]
    assert outage.starts[0] == 0
    assert set(outage.starts[1:]) == {40}


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(down_s=PATIENCE_S * 10)
    with pytest.raises(BrokerUnavailable):
        read(outage, monkeypatch)
    assert PATIENCE_S <= outage.now_s < PATIENCE_S + 1
