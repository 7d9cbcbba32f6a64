"""Which epoch wrote which bytes of a log.

A lineage is a list of (epoch, start offset), both ascending: an epoch wrote from its start up to
the next one's. Within an epoch one process appends and never writes an offset twice, so two logs
whose lineages have the same epoch at an offset have the same bytes up to there. That makes the
comparison of two logs a comparison of two short lists.
"""

from bisect import bisect_right

Lineage = tuple[tuple[int, int], ...]


def epoch_at(lineage: Lineage, offset: int) -> int:
    """The epoch that wrote the byte at `offset`; 0, the epoch of a broker that was never a
    replica, below the first entry."""
    index = bisect_right(lineage, offset, key=_start_of)
    return lineage[index - 1][0] if index else 0


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]


def cut(lineage: Lineage, end: int) -> Lineage:
    """What a lineage says of a log that ends at `end`. An epoch that wrote nothing is left out."""
    return tuple(entry for entry in lineage if entry[1] < end)


def begun(lineage: Lineage, epoch: int, end: int) -> Lineage:
    """The lineage of a log that ends at `end`, once `epoch` begins there."""
    return (*cut(lineage, end), (epoch, end))


def divergence(ours: Lineage, our_end: int, theirs: Lineage, their_end: int, start: int) -> int:
    """The first offset from `start` on where two logs may differ, at most either end.

    All of both lineages is compared. A comparison by the last common epoch, as the epochs of
    only one side allow, keeps different bytes after two short leaderships in a row.
    """
    end = min(our_end, their_end)
    edges = {entry[1] for entry in (*ours, *theirs) if start < entry[1] < end}
    for edge in sorted(edges | {start}):
        if edge < end and epoch_at(ours, edge) != epoch_at(theirs, edge):
            return edge
    return end
