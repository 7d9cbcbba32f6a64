"""The access log that a demo sends: looked at before anything is started or removed.

Standard input is kept as a file first: a frontend that is killed goes on from where it was, and
only a file can be read from there again.
"""

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kafka2011.runtime.clock import now_ms
from kafka2011.services.embedded.running import MARK
from kafka2011.services.embedded.supervisor import StartFailed
from kafka2011.services.frontend.input_file import check_whole, described, examine

STANDARD_INPUT = "-"
KEPT_NAME = "standard-input"  # in the deployment's directory


def check_input(input_path: str, log_format: str) -> str:
    """A line about what the access log is; empty for no input.

    Raises StartFailed when it cannot be read, InputRefused when there is nothing to send: it is
    empty or damaged, or under half of its first lines can be read.
    """
    if not input_path:
        return ""
    path = Path(input_path)
    try:
        sample = examine(path, log_format)
        check_whole(path)
    except IsADirectoryError:
        files = f"{shlex.quote(input_path)}/*"
        raise StartFailed(
            f"input {input_path} is a directory: give a file, or several by "
            f"zcat -f {files} | kafka2011 embedded demo --input - (make: INPUT=-)"
        ) from None
    except OSError as error:
        raise StartFailed(f"input {input_path}: {error.strerror}") from None
    return f"input {input_path}: {described(sample, now_ms())}"


def is_stream(input_path: str) -> bool:
    """Whether the input can be read only once: standard input, or a pipe."""
    return input_path == STANDARD_INPUT or Path(input_path).is_fifo()


def keep(stream: BinaryIO, root: Path) -> str:
    """Copy a stream to its end into a file under `root`; returns its path. Raises StartFailed."""
    path = root / KEPT_NAME
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StartFailed(f"{path}: standard input cannot be kept: {error.strerror}") from None
    return str(path)


def discard(root: Path, *, is_new: bool) -> None:
    """Remove what `keep` has kept; with `is_new`, the directory that was made for it."""
    (root / KEPT_NAME).unlink(missing_ok=True)
    if is_new:
        (root / MARK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else is there by now
            root.rmdir()


def inputs_under(root: Path, input_path: str) -> Iterator[Path]:
    """The entries of `root` that are the input, hold it, or lead to it: emptying must leave them
    there."""
    if not input_path:
        return
    given = Path(os.path.abspath(input_path))
    for path in (given, given.parent.resolve() / given.name, given.resolve()):
        if path.is_relative_to(root) and path != root:
            yield root / path.relative_to(root).parts[0]
