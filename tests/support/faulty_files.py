"""A disk that fails on purpose: `FaultyFileLayer` puts faults between the log and real files.

Faults injected, each because the log must survive it (docs/guarantees.md):

 - the Nth operation of a kind raises an errno, once or from then on (full disk, dying disk);
 - a write takes only a part of what it was given;
 - an operation calls back before it happens (to delay it, or to look at the world);
 - power loss: whatever no fsync covered is gone, in part, out of order. Contents go by sectors of
   512 bytes, each kept or zero; the size is anything between the flushed and the written one;
   names that no directory fsync covered exist or not; removed names may come back. Flushed bytes
   and flushed names always survive: that is what fsync means, and all that the log relies on.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka2011.broker.log.file_layer import Buffer, FileLayer

SECTOR_BYTES = 512
# The operations whose errors name a path; the others know only a descriptor.
NAMING = {"open"}


@dataclass
class Fault:
    """Fail the `nth` (from 1) operation among `kinds` (default: all) on paths of which a
    name begins with `within` ("t-0" is in pytest-0); `persistent`: and every later one."""

    nth: int
    error: int = errno.EIO
    kinds: tuple[str, ...] = ()
    persistent: bool = False
    within: str = ""
    count: int = 0
    hits: int = 0

    def applies(self, kind: str, path: Path) -> bool:
        is_within = any(part.startswith(self.within) for part in path.parts)
        if (self.kinds and kind not in self.kinds) or not is_within:
            return False
        self.count += 1
        applies = self.count == self.nth or (self.persistent and self.count > self.nth)
        self.hits += applies
        return applies


def _may_fail(kind: str) -> Callable[..., Any]:
    """The operation `kind` of a real disk, counted and with faults before it."""

    def operation(files: "FaultyFileLayer", *arguments: Any, **options: Any) -> Any:
        what = arguments[0]
        files._step(kind, files.paths[what] if isinstance(what, int) else what)
        return getattr(FileLayer, kind)(files, *arguments, **options)

    return operation


@dataclass
class FaultyFileLayer(FileLayer):
    """Real files below `root`, with faults and a memory of what is durable."""

    root: Path
    fault: Fault | None = None
    # Given the bytes of a write, how many of them are taken.
    short_write: Callable[[int], int] | None = None
    before: Callable[[str], None] | None = None
    paths: dict[int, Path] = field(default_factory=dict)
    durable_contents: dict[Path, bytes] = field(default_factory=dict)
    durable_names: set[Path] = field(default_factory=set)
    operations: list[str] = field(default_factory=list)
    # After a failed writeback: what the disk holds while the kernel's cache says something else.
    on_disk: dict[Path, bytes] = field(default_factory=dict)
    # What a name held on the disk before a replacement that no directory fsync covered.
    replaced: dict[Path, bytes | None] = field(default_factory=dict)

    def _step(self, kind: str, path: Path) -> None:
        self.operations.append(kind)
        if self.before is not None:
            self.before(kind)
        if self.fault is not None and self.fault.applies(kind, path):
            name = str(path) if kind in NAMING else None
            raise OSError(self.fault.error, os.strerror(self.fault.error), name)

    # --- the operations ------------------------------------------------------------------------

    read_at = _may_fail("read_at")
    truncate = _may_fail("truncate")
    set_modified_ms = _may_fail("set_modified_ms")
    make_directory = _may_fail("make_directory")
    remove = _may_fail("remove")
    remove_directory = _may_fail("remove_directory")

    def open(self, path: Path, *, create: bool = False) -> int:
        self._step("open", path)
        fd = super().open(path, create=create)
        self.paths[fd] = path
        return fd

    def open_for_reading(self, path: Path) -> int:
        fd = super().open_for_reading(path)
        self.paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        del self.paths[fd]
        super().close(fd)

    def write_at(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._step("write_at", self.paths[fd])
        if self.short_write is not None:
            data = b"".join(buffers)
            buffers = [data[: self.short_write(len(data))]]
        return super().write_at(fd, buffers, position)

    def drop_cached(self, fd: int) -> None:
        self._step("drop_cached", self.paths[fd])
        held = self.on_disk.pop(self.paths[fd], None)
        if held is not None:
            self.paths[fd].write_bytes(held)
        super().drop_cached(fd)

    def sync_data(self, fd: int) -> None:
        self._step("sync_data", self.paths[fd])
        self._made_durable(fd)

    def sync_file(self, fd: int) -> None:
        self._step("sync_file", self.paths[fd])
        self._made_durable(fd)

    def replace(self, path: Path, with_name: Path) -> None:
        self._step("replace", path)
        held = self.durable_contents.get(with_name) if with_name in self.durable_names else None
        self.replaced.setdefault(with_name, held)
        self.durable_contents[with_name] = self.durable_contents.pop(path, b"")
        super().replace(path, with_name)

    def link(self, path: Path, with_name: Path) -> None:
        self._step("link", path)
        super().link(path, with_name)
        self.durable_contents[with_name] = self.durable_contents.get(path, b"")

    def _made_durable(self, fd: int) -> None:
        path = self.paths[fd]
        if path.exists():
            self.durable_contents[path] = path.read_bytes()

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory", path)
        here = {child for child in self.durable_names if child.parent == path}
        now = set(path.iterdir())
        self.durable_names -= here - now
        self.durable_names |= now
        self.replaced = {name: held for name, held in self.replaced.items() if name.parent != path}

    # --- what happens to the machine -----------------------------------------------------------

    def close_all(self) -> None:
        """The process is gone: its descriptors with it."""
        for fd in list(self.paths):
            os.close(fd)
        self.paths.clear()

    def power_loss(self, rng: random.Random) -> None:
        """Turn the files below `root` into what a machine finds after the power came back."""
        self.close_all()
        for path, held in self.replaced.items():
            if held is not None and rng.random() < 0.5:
                path.write_bytes(held)
                self.durable_contents[path] = held
        self.replaced.clear()
        present = sorted(path for path in self.root.rglob("*") if path.is_file())
        for path in present:
            if path not in self.durable_names and rng.random() < 0.5:
                path.unlink()
                continue
            path.write_bytes(self._after_power_loss(path, path.read_bytes(), rng))
        for path in sorted(self.durable_names - set(present)):
            if path in self.durable_contents and rng.random() < 0.5 and path.parent.is_dir():
                path.write_bytes(self.durable_contents[path])  # its removal was never flushed
        for path in sorted(self.root.rglob("*"), reverse=True):
            gone = path.is_dir() and path not in self.durable_names and rng.random() < 0.5
            if gone and not any(path.iterdir()):
                path.rmdir()
        # What survived is on the disk.
        self.durable_names = set(self.root.rglob("*"))
        self.durable_contents = {
            path: path.read_bytes() for path in self.durable_names if path.is_file()
        }

    def _after_power_loss(self, path: Path, written: bytes, rng: random.Random) -> bytes:
        flushed = self.durable_contents.get(path, b"")
        if len(written) < len(flushed):  # a truncation that was not flushed
            return rng.choice([written, flushed])
        size = rng.choice([len(flushed), len(written), rng.randint(len(flushed), len(written))])
        found = bytearray(size)
        found[: len(flushed)] = flushed
        start = len(flushed)
        while start < size:
            end = min(size, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < 0.5:
                found[start:end] = written[start:end]
            start = end
        return bytes(found)
