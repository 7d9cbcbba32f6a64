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

from kafka2011.broker.log.file_layer import Buffer, FileLayer

SECTOR_BYTES = 512

OPERATIONS = (
    "open",
    "write_at",
    "read_at",
    "drop_cached",
    "sync_data",
    "sync_file",
    "sync_directory",
    "truncate",
    "set_modified_ms",
    "make_directory",
    "remove",
)


@dataclass
class Fault:
    """Fail the `nth` (from 1) operation among `kinds`; `persistent`: and every later one."""

    nth: int
    error: int = errno.EIO
    kinds: tuple[str, ...] = OPERATIONS
    persistent: bool = False
    count: int = 0
    hits: int = 0

    def applies(self, kind: str) -> bool:
        if kind not in self.kinds:
            return False
        self.count += 1
        if self.count == self.nth or (self.persistent and self.count > self.nth):
            self.hits += 1
            return True
        return False


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

    def _step(self, kind: str, path: Path | None = None) -> None:
        self.operations.append(kind)
        if self.before is not None:
            self.before(kind)
        if self.fault is not None and self.fault.applies(kind):
            raise OSError(self.fault.error, os.strerror(self.fault.error), path and str(path))

    # --- the operations ------------------------------------------------------------------------

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
        self._step("write_at")
        if self.short_write is not None:
            data = b"".join(buffers)
            return super().write_at(fd, [data[: self.short_write(len(data))]], position)
        return super().write_at(fd, buffers, position)

    def read_at(self, fd: int, count: int, position: int) -> bytes:
        self._step("read_at")
        return super().read_at(fd, count, position)

    def drop_cached(self, fd: int) -> None:
        self._step("drop_cached")
        held = self.on_disk.pop(self.paths[fd], None)
        if held is not None:
            self.paths[fd].write_bytes(held)
        super().drop_cached(fd)

    def sync_data(self, fd: int) -> None:
        self._step("sync_data")
        self._made_durable(fd)

    def sync_file(self, fd: int) -> None:
        self._step("sync_file")
        self._made_durable(fd)

    def _made_durable(self, fd: int) -> None:
        path = self.paths[fd]
        if path.exists():
            self.durable_contents[path] = path.read_bytes()

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory")
        here = {child for child in self.durable_names if child.parent == path}
        now = set(path.iterdir())
        self.durable_names -= here - now
        self.durable_names |= now

    def truncate(self, fd: int, size: int) -> None:
        self._step("truncate")
        super().truncate(fd, size)

    def set_modified_ms(self, fd: int, time_ms: int) -> None:
        self._step("set_modified_ms")
        super().set_modified_ms(fd, time_ms)

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        self._step("make_directory")
        super().make_directory(path, parents=parents)

    def remove(self, path: Path) -> None:
        self._step("remove")
        super().remove(path)

    # --- what happens to the machine -----------------------------------------------------------

    def close_all(self) -> None:
        """The process is gone: its descriptors with it."""
        for fd in list(self.paths):
            os.close(fd)
        self.paths.clear()

    def power_loss(self, rng: random.Random) -> None:
        """Turn the files below `root` into what a machine finds after the power came back."""
        self.close_all()
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
