"""The copies that a replica set has of a broker's partitions: which is read, and up to where.

What is above a copy's watermark may never have been confirmed, and another copy may have other
bytes there. So of each partition the copy with the highest watermark is read, up to that watermark;
but none that an unclean election led away from the set: its lineage (which epoch wrote which bytes)
is another than that of the copy with the newest epoch, below its own watermark.
Like `segment_files`, this reads the files by their format and uses none of the broker's code.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kafka2011.protocol.lineage import Lineage, epoch_at, known_from
from kafka2011.services.audit.recount.segment_files import (
    LogDirectory,
    PartitionFiles,
    partition_directories,
)

IDENTITY = ".kafka2011_replica"
MARKS = ".kafka2011_flushed"


def broker_of(root: Path) -> int | None:
    """The broker id of the set whose copy the directory is; None if the broker is no replica."""
    try:
        first_line = (root / IDENTITY).read_bytes().partition(b"\n")[0]
        return int(json.loads(first_line)["broker_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def watermarks_in(root: Path) -> dict[str, int]:
    """The watermarks that a copy knows, by the name of the partition's directory; none when their
    file is missing or cannot be read."""
    try:
        data = (root / MARKS).read_bytes()
        body, _, checksum = data.rpartition(b"crc ")
        if int(checksum, 16) != zlib.crc32(body):
            return {}
        clock, *lines = body.decode("utf-8", "surrogateescape").split("\n")[:-1]
        if not clock.endswith(" watermarks"):
            return {}
        found = {}
        for line in lines:
            name, _end, _time, watermark = line.rsplit(" ", 3)
            found[name] = int(watermark)
    except (OSError, ValueError):
        return {}
    return found


def lineages_in(root: Path) -> dict[str, Lineage]:
    """The lineages of a copy's logs, by the name of the partition's directory; none when the
    journal cannot be read."""
    try:
        first_line = (root / IDENTITY).read_bytes().partition(b"\n")[0]
        return {
            str(name): tuple((int(epoch), int(start)) for epoch, start in entries)
            for name, entries in json.loads(first_line)["lineages"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


class _Copy(NamedTuple):
    """One copy of a partition, with its watermark as `end`."""

    files: PartitionFiles
    end: int
    lineage: Lineage

    @property
    def newest_epoch(self) -> int:
        return self.lineage[-1][0] if self.lineage else 0

    def was_led_away(self, newest: "_Copy") -> bool:
        """Whether some confirmed byte is of another epoch than the newest copy's there."""
        # What a log has let go, its lineage no longer tells.
        logs = ((copy.lineage, copy.files.segments[0][0]) for copy in (self, newest))
        start = max(known_from(*each) for each in logs)
        edges = {start, *(offset for _, offset in (*self.lineage, *newest.lineage))}
        return any(
            start <= edge < self.end
            and epoch_at(self.lineage, edge) != epoch_at(newest.lineage, edge)
            for edge in edges
        )


def confirmed_partitions(roots: Sequence[Path]) -> list[PartitionFiles]:
    """Each partition's copy to read, as above; its watermark is its `end`."""
    found: dict[tuple[str, int], list[_Copy]] = {}
    for root in roots:
        watermarks, lineages = watermarks_in(root), lineages_in(root)
        for files in partition_directories(root):
            name = f"{files.topic}-{files.partition}"
            end = watermarks.get(name, 0)
            copy = _Copy(replace(files, end=end), end, lineages.get(name, ()))
            found.setdefault((files.topic, files.partition), []).append(copy)
    return [_best(copies).files for _, copies in sorted(found.items())]


def _best(copies: Sequence[_Copy]) -> _Copy:
    """The copy of a partition to read."""
    newest = max(copies, key=lambda copy: (copy.newest_epoch, copy.end))
    known = [copy for copy in copies if not copy.was_led_away(newest)]
    return max(known, key=lambda copy: copy.end)


def in_sets(directories: Sequence[LogDirectory]) -> list[LogDirectory]:
    """The directories; those of one replica set are joined, in the place of the first."""
    found: dict[object, LogDirectory] = {}
    for directory in directories:
        broker_id = broker_of(directory.path)
        if broker_id is None:
            found[directory.path] = directory
            continue
        key = directory.tier, broker_id
        name = f"broker-{broker_id}"
        before = found.get(key, LogDirectory(directory.tier, name, directory.path))
        found[key] = replace(before, copies=(*before.copies, directory.path))
    return list(found.values())
