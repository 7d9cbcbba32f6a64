"""A use's checkpoint: its state and the offsets that it contains, in one file replaced whole.

    line 1   CRC-32 of the rest, in hexadecimal, and the format's number
    line 2   JSON: {"positions": [...], "state": {...}}

The file is on the disk before the rename, and the rename before `save` returns; so a process killed
at any moment, and a machine that loses its power, finds the old file or the new one.
"""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.storage_paths import sync_directory

FORMAT = 1


class CheckpointDamaged(Exception):
    """The file is not what `save` wrote. The text says which, and what to do."""


def save(file: Path, positions: Any, state: Mapping[str, Any]) -> int:
    """Replace the checkpoint; returns its bytes. Raises OSError."""
    content = {"positions": positions, "state": state}
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()
    unfinished = file.with_name(f".{file.name}.unfinished")
    with open(unfinished, "wb") as out:
        out.write(b"%08x %d\n" % (zlib.crc32(body), FORMAT))
        out.write(body)
        out.flush()
        os.fsync(out.fileno())
    failpoint("site_checkpoint_before_rename")
    unfinished.replace(file)
    sync_directory(file.parent)
    return len(body)


def load(file: Path) -> tuple[Any, Mapping[str, Any]] | None:
    """Positions and state of the last `save`; None where there was none.

    Raises CheckpointDamaged, and OSError when the file cannot be read.
    """
    try:
        head, _, body = file.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    try:
        crc, number = head.split(b" ")
        if int(number) == FORMAT and int(crc, 16) == zlib.crc32(body):
            found = json.loads(body)
            return found["positions"], found["state"]
    except (ValueError, KeyError, TypeError):
        pass
    raise CheckpointDamaged(
        f"{file} is damaged, or of another version; to count anew from where its "
        f"group stands, delete the directory {file.parent}"
    )
