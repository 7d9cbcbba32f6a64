"""Payloads of fetched or stored entries; damaged entries are reported and skipped. Pure."""

from collections.abc import Callable, Iterator

from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage

Note = Callable[[str], None]
Damaged = Callable[[int, int | None, str], None]


def damage_notes(where: str, note: Note) -> Damaged:
    """A `damaged` callback for `payloads_of` that makes a note of each entry."""

    def damaged(first: int, last: int | None, reason: str) -> None:
        if last is None:
            note(f"{where}: unreadable from offset {first} on: {reason}")
        else:
            note(f"{where}: the entry at offset {first} is damaged: {reason}")

    return damaged


def payloads_of(buffer: bytes | memoryview, offset: int, damaged: Damaged) -> Iterator[list[bytes]]:
    """Payloads of the complete entries at `offset`, without the damaged ones.

    `damaged(first, last, reason)` is called for each entry that cannot be read, in order; with
    `last` None nothing after `first` can be found, and this ends.
    """
    view = memoryview(buffer)
    while view:
        try:
            yield message_set.payloads(view)
            return
        except InvalidMessage as error:
            good = max(0, error.position)
            if good:
                yield message_set.payloads(view[:good])
            try:
                entry = next(message_set.entries(view[good:], offset + good))
            except (InvalidMessage, StopIteration):
                damaged(offset + good, None, str(error))
                return
            damaged(entry.offset, entry.next_offset, str(error))
            view = view[entry.next_offset - offset :]
            offset = entry.next_offset
