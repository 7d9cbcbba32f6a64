"""Joins the chunks that a follower receives on a link into whole entries, in order.

A chunk has at most a mebibyte and may end inside an entry. Only whole entries are written,
acknowledged or shown, so a partial entry waits here for its rest.
"""

from dataclasses import dataclass

from kafka2011.broker.log.copy_check import Checked, check_copied
from kafka2011.broker.replica.frames import Chunk
from kafka2011.protocol.errors import RemoteProtocolError


@dataclass(frozen=True, slots=True)
class Entries:
    """Whole entries of one segment from `offset` on."""

    partition: str
    offset: int
    data: bytes
    checked: Checked
    segment_start: int
    segment_time_ms: int

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Copying:
    """One link's entries; one above `entry_bytes_max` is refused before its rest is kept."""

    def __init__(self, entry_bytes_max: int) -> None:
        self._entry_bytes_max = entry_bytes_max
        self._cut: dict[str, Chunk] = {}

    def take(self, chunk: Chunk) -> Entries | None:
        """Return the entries that are whole now; None when none is.

        Raises RemoteProtocolError: the chunks do not follow each other. CopyDamaged: an entry is
        wrong, or too large. Close the link.
        """
        data, offset = chunk.data, chunk.offset
        cut = self._cut.pop(chunk.partition, None)
        if cut is not None:
            if (cut.offset + len(cut.data), cut.segment_start) != (offset, chunk.segment_start):
                raise RemoteProtocolError(
                    f"{chunk.partition}: a chunk at {offset} after a partial entry at {cut.offset}"
                )
            data, offset = cut.data + data, cut.offset
        checked = check_copied(data, self._entry_bytes_max)
        rest = data[checked.whole_bytes :]
        if rest:
            self._cut[chunk.partition] = Chunk(
                chunk.partition,
                offset + checked.whole_bytes,
                chunk.segment_start,
                chunk.segment_time_ms,
                rest,
            )
        if not checked.whole_bytes:
            return None
        return Entries(
            chunk.partition,
            offset,
            data[: checked.whole_bytes] if rest else data,
            checked,
            chunk.segment_start,
            chunk.segment_time_ms,
        )
