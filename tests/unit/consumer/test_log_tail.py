"""The bytes before an offset show whether a log is the one that was read."""

import pytest

from kafka2011.consumer.fetched_set import FetchedSet
from kafka2011.consumer.log_tail import (
    TAIL_BYTES,
    TailAt,
    bytes_before,
    is_another_log,
    tail_of,
)
from kafka2011.protocol.errors import OffsetOutOfRange

LOG = bytes(range(256)) * 4


class Segments:
    """A log from `start` on, of which a fetch returns no more than is in one segment."""

    def __init__(self, data: bytes, *, start: int = 0, segment_bytes: int = 100) -> None:
        self.data = data
        self.start = start
        self.segment_bytes = segment_bytes

    def fetch(self, topic: str, partition: int, offset: int, size_max: int) -> FetchedSet:
        if not self.start <= offset <= len(self.data):
            raise OffsetOutOfRange(str(offset))
        end = min(offset + size_max, offset - offset % self.segment_bytes + self.segment_bytes)
        return FetchedSet(topic, partition, offset, memoryview(self.data[offset:end]))


@pytest.mark.parametrize("segment_bytes", [1, 100, 5000])
def test_the_bytes_are_found_over_the_edges_of_segments(segment_bytes: int) -> None:
    client = Segments(LOG, segment_bytes=segment_bytes)
    assert bytes_before(client, "t", 0, 600, 256) == LOG[344:600]


@pytest.mark.parametrize(
    ("present", "is_another"),
    [
        pytest.param(Segments(LOG), False, id="the same log"),
        pytest.param(Segments(LOG[:700] + b"more" * 100), False, id="the same, other messages"),
        pytest.param(Segments(bytes(2000)), True, id="another that reaches so far"),
        pytest.param(Segments(LOG[:599] + b"x" * 500), True, id="another, by its last byte"),
        pytest.param(Segments(bytes(599)), False, id="too short to tell"),
        pytest.param(Segments(bytes(2000), start=500), False, id="a part was deleted"),
        pytest.param(Segments(b""), False, id="an empty one"),
    ],
)
def test_another_log_is_told_only_where_all_bytes_are_there(
    present: Segments, is_another: bool
) -> None:
    known = TailAt(600, tail_of(LOG[:600]))
    assert known.tail.size == TAIL_BYTES
    assert is_another_log(present, "t", 0, known) is is_another
