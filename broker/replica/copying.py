"""What a follower makes of the chunks of a link: whole entries, in order.

A chunk ends where a mebibyte does, maybe inside an entry. Nothing but whole entries is written,
acknowledged or shown, so what is cut waits here for its rest.
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
    """One link's. `entry_bytes_max`: a longer entry is refused before its rest is kept."""

    def __init__(self, entry_bytes_max: int) -> None:
        self._entry_bytes_max = entry_bytes_max
        self._cut: dict[str, Chunk] = {}

    def take(self, chunk: Chunk) -> Entries | None:
        """What is whole now; None when nothing is.

        Raises RemoteProtocolError: the chunks do not follow each other. CopyDamaged: an entry's
        CRC does not fit. Close the link.
        """
        data, offset = chunk.data, chunk.offset
        cut = self._cut.pop(chunk.partition, None)
        if cut is not None:
            if (cut.offset + len(cut.data), cut.segment_start) != (offset, chunk.segment_start):
                raise RemoteProtocolError(
                    f"{chunk.partition}: a chunk at {offset} behind a cut entry at {cut.offset}"
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
