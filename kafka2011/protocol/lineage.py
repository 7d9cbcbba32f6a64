"""Which epoch wrote which bytes of a log.

A lineage is a list of (epoch, start offset), both ascending: an epoch wrote from its start up to
the next one's. Within an epoch one process appends and never writes an offset twice, so two logs
whose lineages have the same epoch at an offset have the same bytes up to there. That makes the
comparison of two logs a comparison of two short lists.

A reader that keeps the lineage of what it read beside its offset compares the same way: `parted`.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

Lineage = tuple[tuple[int, int], ...]


def epoch_at(lineage: Lineage, offset: int) -> int:
    """The epoch that wrote the byte at `offset`; 0, the epoch of a broker that was never a
    replica, below the first entry."""
    index = bisect_right(lineage, offset, key=_start_of)
    return lineage[index - 1][0] if index else 0


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]


def cut(lineage: Lineage, end: int) -> Lineage:
    """The lineage of a log cut to end at `end`. An epoch that wrote nothing is left out."""
    return tuple(entry for entry in lineage if entry[1] < end)


def begun(lineage: Lineage, epoch: int, end: int) -> Lineage:
    """The lineage of a log that ends at `end`, once `epoch` begins there."""
    return (*cut(lineage, end), (epoch, end))


LEAST = 64  # entries that always stay: a reader's newest ones may be from a while ago


def pruned(lineage: Lineage, start: int, least: int = LEAST) -> Lineage:
    """A lineage without what it says of bytes below `start`, which the log has dropped, except the
    last of them: a log that ends there is compared by it. At least `least` entries stay."""
    kept = bisect_left(lineage, start, key=_start_of) - 1
    return lineage[max(0, min(kept, len(lineage) - least)) :]


def known_from(lineage: Lineage, start: int) -> int:
    """The first offset that the lineage of a log that begins at `start` covers, 0 if nothing is
    left out. It always covers the byte below `start`."""
    return lineage[0][1] if lineage and lineage[0][1] < start else 0


def spliced(older: Lineage, newer: Lineage) -> Lineage:
    """`newer`, preceded by what `older` says of the bytes before it."""
    return (*(entry for entry in older if not newer or entry[1] < newer[0][1]), *newer)


def divergence(ours: Lineage, our_end: int, theirs: Lineage, their_end: int, start: int) -> int:
    """The first offset from `start` on where two logs may differ, at most the lower end.

    Both lineages are compared whole. A comparison by the last common epoch, which is all that the
    epochs of one side allow, keeps different bytes after two short leaderships in a row.
    """
    end = min(our_end, their_end)
    edges = {entry[1] for entry in (*ours, *theirs) if start < entry[1] < end}
    for edge in sorted(edges | {start}):
        if edge < end and epoch_at(ours, edge) != epoch_at(theirs, edge):
            return edge
    return end


# --- readers --------------------------------------------------------------------------------------

HISTORY_MAX = 4  # newest entries that a reader keeps


class OlderLeader(Exception):
    """The log is of an earlier leadership than what was read: its leader was deposed and does not
    know it yet, or the set was made anew. Read nothing from it."""


class PartedTooEarly(Exception):
    """The log and what was read differ already before the newest HISTORY_MAX epochs."""


@dataclass(frozen=True, slots=True)
class Parted:
    """What was read from `first` up to `last` is not in the log any more: a leader without it began
    `epoch`, by an unclean election."""

    first: int
    last: int
    epoch: int

    @property
    def text(self) -> str:
        return (
            f"what was read from {self.first} to {self.last} is not in the log any more: "
            f"lost by the unclean election that began epoch {self.epoch}"
        )


def history(log: Lineage) -> Lineage:
    """What a reader keeps of the lineage of the log that it reads."""
    return log[-HISTORY_MAX:]


def parted(read: Lineage, offset: int, log: Lineage) -> Parted | None:
    """What was read below `offset` and is not in the log any more; None: all is there.

    `read` is the reader's history, as far as it is below `offset`. If it or `log` is (), nothing is
    known: None. All of it is compared, not its last epoch alone: a leader that was
    away for several leaderships may have earlier bytes that were confirmed nowhere else.

    Raises OlderLeader, PartedTooEarly.
    """
    known = cut(read, offset)
    if not known or not log:
        return None
    if log[-1][0] < known[-1][0]:
        raise OlderLeader(f"its epoch is {log[-1][0]}, and {known[-1][0]} was read from")
    is_all = len(read) < HISTORY_MAX
    # The log's lineage may not cover what it has dropped.
    start = max(0 if is_all else known[0][1], log[0][1])
    first = divergence(known, offset, log, offset, start)
    if first == offset:
        return None
    if not is_all and first == known[0][1]:
        raise PartedTooEarly(f"the log differs at {first} already, and before is not known")
    later = (entry[0] for entry in log if entry[0] > known[-1][0])
    return Parted(first, offset, next(later, log[-1][0]))
