"""Many messages of one partition at once, for applications that need no object for each.

Whatever costs more than the payloads is made only on request: the offset of each message, and the
payloads as an Arrow column over the fetched bytes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.message import (
    CODEC_MASK,
    LENGTH_BYTES,
    MAGIC1_HEADER,
    MAGIC1_OVERHEAD_BYTES,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

INLINE_BYTES = 12  # Arrow puts values up to this length into the view itself


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one partition, in order; their entries are the log from `offset` up to
    `next_offset`. `payloads` has at least one."""

    topic: str
    broker_id: int
    partition: int
    offset: int
    next_offset: int
    payloads: list[bytes]
    data: memoryview  # the entries, wrappers unopened

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.broker_id, self.partition)

    def __len__(self) -> int:
        return len(self.payloads)

    def next_offsets(self) -> list[int]:
        """The offset to store after each message, as `ConsumedMessage.next_offset`. Reads the
        entries again."""
        return [end for _, end in message_set.messages(self.data, self.offset)]

    def arrow(self) -> "pa.Array":
        """The payloads as a column of the type `binary_view`. Plain entries are not copied: the
        column keeps the fetched bytes; what was compressed is copied.

        Raises ImportError without pyarrow and NumPy.
        """
        import numpy as np
        import pyarrow as pa

        lengths = np.fromiter(map(len, self.payloads), np.int32, len(self.payloads))
        data = np.frombuffer(self.data, np.uint8)
        starts = _plain_starts(data, lengths)
        if starts is None:
            return pa.array(self.payloads, pa.binary_view())
        views = pa.py_buffer(_views(data, starts, lengths))
        buffers = [None, views, pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary_view(), len(self.payloads), buffers)


def _plain_starts(
    data: "np.ndarray[tuple[int], np.dtype[np.uint8]]",
    lengths: "np.ndarray[tuple[int], np.dtype[np.int32]]",
) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
    """Where the payloads begin in `data`; None unless it consists of plain magic-1 entries with
    payloads of these lengths."""
    import numpy as np

    entry_ends = np.cumsum(lengths.astype(np.int64) + MAGIC1_HEADER.size)
    if entry_ends[-1] != len(data):
        return None
    heads = entry_ends - lengths - MAGIC1_HEADER.size
    # Every length leads to the next entry, so these are the entries themselves.
    sizes = data[heads[:, None] + np.arange(LENGTH_BYTES)].view(">i4").ravel()
    magic, attributes = data[heads + LENGTH_BYTES], data[heads + LENGTH_BYTES + 1]
    is_plain = (
        (sizes == lengths + MAGIC1_OVERHEAD_BYTES)
        & (magic == 1)
        & (attributes & CODEC_MASK == Codec.NONE)
    )
    return heads + MAGIC1_HEADER.size if is_plain.all() else None


def _views(
    data: "np.ndarray[tuple[int], np.dtype[np.uint8]]",
    starts: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    lengths: "np.ndarray[tuple[int], np.dtype[np.int32]]",
) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    """Arrow's view of each value, 16 bytes: its length, then the value itself if it fits, else its
    first 4 bytes, the number of the buffer (0) and the position in it."""
    import numpy as np

    views = np.zeros((len(lengths), 16), np.uint8)
    views[:, :4] = lengths.astype("<i4")[:, None].view(np.uint8)
    is_long = lengths > INLINE_BYTES
    long_starts = starts[is_long]
    views[is_long, 4:8] = data[long_starts[:, None] + np.arange(4)]
    views[is_long, 12:] = long_starts.astype("<i4")[:, None].view(np.uint8)
    for row in np.flatnonzero(~is_long):
        value = data[starts[row] : starts[row] + lengths[row]]
        views[row, 4 : 4 + len(value)] = value
    return views
