"""Compares the checksums of a set's replicas: what differs, and whose copy is the damaged one.

A copy is damaged for certain when its own entries do not check, when a file of it is gone, or when
it differs from most of the others. Two copies that differ, with entries that all check, do not say
which is right: a message's checksum covers its payload alone.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kafka2011.broker.log.segment_sums import BLOCK_BYTES, SegmentSums

Sums = Mapping[str, tuple[SegmentSums, ...]]  # by partition


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged or differing segment; `offset` is where it begins, or up to a mebibyte before."""

    member: str
    partition: str
    segment_start: int
    offset: int
    reason: str
    is_certain: bool


def compared_bytes(sums: Mapping[str, Sums]) -> int:
    """How many bytes of each copy were compared: the shortest copy of each shared segment."""
    total = 0
    for partition in _partitions(sums):
        for found in _segments(sums, partition).values():
            if len(found) > 1:
                total += min(one.size_bytes for one in found.values())
    return total


def damages(sums: Mapping[str, Sums], leader: str) -> list[Damage]:
    """All damages and differences; `sums` has the members by name, `leader` among them."""
    found: list[Damage] = []
    for partition in sorted(_partitions(sums)):
        for start, segments in sorted(_segments(sums, partition).items()):
            broken = {
                name: Damage(
                    name,
                    partition,
                    start,
                    start + one.damaged_at,
                    "its file is gone" if one.is_gone else "an entry fails its check",
                    True,
                )
                for name, one in segments.items()
                if one.damaged_at >= 0
            }
            found += broken.values()
            sound = {name: one for name, one in segments.items() if name not in broken}
            found += _odd(partition, start, sound, leader)
        found += _lacking(sums, partition, leader)
    return found


def _lacking(sums: Mapping[str, Sums], partition: str, leader: str) -> list[Damage]:
    """Segments of the leader that a member lacks, although they lie within its log."""
    led = sums.get(leader, {}).get(partition, ())
    found = []
    for name, one in sums.items():
        own = one.get(partition, ())
        end = own[-1].start + own[-1].size_bytes if own else 0
        starts = {segment.start for segment in own}
        for segment in led:
            is_inside = bool(own) and own[0].start < segment.start < end
            if is_inside and segment.start not in starts:
                reason = "lacks the segment that begins here on the leader"
                found.append(Damage(name, partition, segment.start, segment.start, reason, False))
    return found


def _odd(
    partition: str, start: int, segments: Mapping[str, SegmentSums], leader: str
) -> list[Damage]:
    """The copies of a segment that differ from others, each at its first differing block."""
    odd: dict[str, Damage] = {}
    count = max((len(one.blocks) for one in segments.values()), default=0)
    for number in range(count):
        blocks = _comparable(segments, number)
        votes = Counter(blocks.values())
        if len(votes) < 2:
            continue
        crc, most = votes.most_common(1)[0]
        is_certain = 2 * most > len(blocks)
        right = crc if is_certain else blocks.get(leader)
        reason = "differs from most others" if is_certain else "differs from the leader's copy"
        for name, one in blocks.items():
            if one != right and name not in odd:
                at = start + number * BLOCK_BYTES
                odd[name] = Damage(name, partition, start, at, reason, is_certain)
    return list(odd.values())


def _comparable(segments: Mapping[str, SegmentSums], number: int) -> dict[str, int]:
    """The checksums of one block, by member; only of members that have the most of it."""
    sizes = {
        name: min(BLOCK_BYTES, one.size_bytes - number * BLOCK_BYTES)
        for name, one in segments.items()
        if number < len(one.blocks)
    }
    size = max(sizes.values(), default=0)
    return {name: segments[name].blocks[number] for name in sizes if sizes[name] == size}


def _partitions(sums: Mapping[str, Sums]) -> set[str]:
    return {partition for one in sums.values() for partition in one}


def _segments(sums: Mapping[str, Sums], partition: str) -> dict[int, dict[str, SegmentSums]]:
    """A partition's segments, by start and then by member."""
    found: dict[int, dict[str, SegmentSums]] = {}
    for name, one in sums.items():
        for segment in one.get(partition, ()):
            found.setdefault(segment.start, {})[name] = segment
    return found
