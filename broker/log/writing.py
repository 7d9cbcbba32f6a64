"""Writing many buffers at a position, whatever the system call takes at a time."""

import contextlib
import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from kafka2011.broker.log.file_layer import Buffer, FileLayer

# One pwritev takes at most this many buffers on Linux (IOV_MAX).
BUFFERS_PER_WRITE = 1024


def write_all(
    files: FileLayer, fd: int, buffers: list[Buffer], position: int
) -> tuple[int, OSError | None]:
    """Write every buffer. Unlike 0.7: a short write goes on where it stopped, not from the start.

    Returns bytes written and what ended the writing early.
    """
    written = 0
    for first in range(0, len(buffers), BUFFERS_PER_WRITE):
        chunk = buffers[first : first + BUFFERS_PER_WRITE]
        missing = sum(map(len, chunk))
        while missing:
            try:
                count = files.write_at(fd, chunk, position + written)
            except InterruptedError:
                continue
            except OSError as error:
                return written, error
            if count <= 0:
                return written, OSError(errno.EIO, "wrote nothing")
            written += count
            missing -= count
            if missing:
                chunk = _without(chunk, count)
    return written, None


def write_file(files: FileLayer, path: Path, data: bytes) -> None:
    """Make the file anew with `data`, durable except for its name. Raises OSError."""
    if files.exists(path):
        files.remove(path)
    fd = files.open(path, create=True)
    try:
        _, error = write_all(files, fd, [data], 0)
        if error is not None:
            raise error
        files.sync_file(fd)
    finally:
        files.close(fd)


def replace_file(
    files: FileLayer, path: Path, data: bytes, before: Callable[[], None] = lambda: None
) -> None:
    """Replace the file by `data`, durably; a crash leaves the old one or the new one. `before` is
    called when the new one is written, before it is renamed into place.

    Raises OSError; then the old one is still there, unless only its directory was not flushed.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        write_file(files, new, data)
        before()
        files.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(new)
        raise
    files.sync_directory(path.parent)


def _without(buffers: Sequence[Buffer], count: int) -> list[Buffer]:
    """The buffers less their first `count` bytes."""
    remaining = list(buffers)
    while count >= len(remaining[0]):
        count -= len(remaining.pop(0))
    remaining[0] = memoryview(remaining[0])[count:]
    return remaining
