"""The copies that a replica set has of a broker's partitions: which is read, and up to where.

What is above a copy's watermark may never have been confirmed, and another copy may have other
bytes there. So of each partition the copy with the highest watermark is read, up to that watermark.
Like `segment_files`, this reads the files by their format and uses none of the broker's code.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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


def confirmed_partitions(roots: Sequence[Path]) -> list[PartitionFiles]:
    """Each partition's copy with the highest watermark, which is its `end`."""
    best: dict[tuple[str, int], PartitionFiles] = {}
    for root in roots:
        known = watermarks_in(root)
        for files in partition_directories(root):
            key = files.topic, files.partition
            end = known.get(f"{files.topic}-{files.partition}", 0)
            if key not in best or end > (best[key].end or 0):
                best[key] = replace(files, end=end)
    return [best[key] for key in sorted(best)]


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
