"""A range in a Spark task is read through a broker's restart."""

from collections.abc import Iterator

import pytest

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark import reading

RANGE = OffsetRange("t", 11, 0, 0, 100)


class Outage:
    """A `read_range` that breaks off after 40 bytes, for `down_s` of its own time."""

    def __init__(self, down_s: float) -> None:
        self.now_s = 0.0
        self.back_s = down_s
        self.starts: list[int] = []

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


def test_reading_continues_where_it_stopped_until_its_patience_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(outage: Outage) -> list[int]:
        """The next offset of each chunk."""
        monkeypatch.setattr(reading, "read_range", lambda *args, **_: outage.read_range(*args))
        clock = {"pause": outage.pause, "monotonic": lambda: outage.now_s}
        chunks = reading.read_patiently(("127.0.0.1", 9092), RANGE, **clock)
        return [found.next_offset for found in chunks]

    short, long = Outage(down_s=reading.PATIENCE_S / 2), Outage(down_s=reading.PATIENCE_S * 10)
    assert read(short) == [40, 100]
    assert (short.starts[0], set(short.starts[1:])) == (0, {40})
    with pytest.raises(BrokerUnavailable):
        read(long)
    assert reading.PATIENCE_S <= long.now_s < reading.PATIENCE_S + 1
