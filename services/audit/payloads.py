"""Payloads of fetched or stored entries; damaged entries are reported and skipped. Pure."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage

Note = Callable[[str], None]
Damaged = Callable[[int, int | None, str], None]


def damage_notes(where: str, note: Note) -> Damaged:
    """A `damaged` callback for `pieces_of` that makes a note of each entry."""

    def damaged(first: int, last: int | None, reason: str) -> None:
        if last is None:
            note(f"{where}: unreadable from offset {first} on: {reason}")
        else:
            note(f"{where}: the entry at offset {first} is damaged: {reason}")

    return damaged


class Piece(NamedTuple):
    """Payloads of a partition, and the offset up to which everything is accounted for."""

    payloads: list[bytes]
    next_offset: int


def pieces_of(buffer: bytes | memoryview, offset: int, damaged: Damaged) -> Iterator[Piece]:
    """Payloads of the complete entries at `offset`, without the damaged ones, in pieces of bounded
    memory however much the entries unpack to.

    `damaged(first, last, reason)` is called for each entry that cannot be read, in order, before
    the piece that passes it; with `last` None nothing after `first` can be found, and this ends.
    """
    view = memoryview(buffer)
    while view:
        fault = None
        try:
            payloads, end = message_set.take_payloads(view)
        except InvalidMessage as error:
            fault, end = str(error), max(0, error.position)
            payloads = message_set.payloads(view[:end])
        view = view[end:]
        offset += end
        if end:
            yield Piece(payloads, offset)
        payloads = []  # never hold two pieces at once
        if fault is not None:
            try:
                entry = next(message_set.entries(view, offset))
            except (InvalidMessage, StopIteration):
                damaged(offset, None, fault)
                return
            damaged(entry.offset, entry.next_offset, fault)
            view = view[entry.next_offset - offset :]
            offset = entry.next_offset
            yield Piece([], offset)
