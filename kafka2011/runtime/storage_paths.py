"""Paths of stored files: a directory, or a prefix in a bucket of an object store.

`StoragePath` is the protocol of both. A `pathlib.Path` fulfils it as it is, so that nothing stands
between a local warehouse and its files; `ObjectPath` sends requests to a store. What differs
between the two is a function here or in `services/warehouse/storage.py`.
"""

import fcntl
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self
from urllib.parse import urlsplit

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class StoragePath(Protocol):
    """A file or directory, or the place for one. Methods raise OSError; reading or listing what is
    not there, FileNotFoundError. Its text is what other programs open: a path or a URL."""

    @property
    def name(self) -> str: ...

    def __truediv__(self, name: str, /) -> Self: ...

    def __lt__(self, other: Self, /) -> bool: ...

    def resolve(self) -> Self: ...

    def is_dir(self) -> bool: ...

    def exists(self) -> bool: ...

    def iterdir(self) -> Iterator[Self]: ...

    def read_text(self, encoding: str | None = None) -> str: ...

    def mkdir(self, *, parents: bool = ..., exist_ok: bool = ...) -> None: ...

    def unlink(self, missing_ok: bool = False) -> None: ...


@dataclass(frozen=True, order=True, slots=True)
class ObjectPath:
    """An object of a store, or the beginning of objects' keys, which counts as a directory.

    `key` is without slashes at its ends; empty for the bucket itself. Each request is sent again
    where that may help, for half a minute (`object_store`).
    """

    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"s3://{self.address}"

    def __truediv__(self, name: str, /) -> "ObjectPath":
        return ObjectPath(self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def address(self) -> str:
        """BUCKET/KEY."""
        return f"{self.bucket}/{self.key}".rstrip("/")

    @property
    def parent(self) -> "ObjectPath":
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2] or self.bucket

    def resolve(self) -> "ObjectPath":
        return self

    def is_dir(self) -> bool:
        """Whether any object is below it."""
        from kafka2011.runtime import object_store

        return object_store.is_directory(self.address) is True

    def exists(self) -> bool:
        from kafka2011.runtime import object_store

        return object_store.is_directory(self.address) is not None

    def iterdir(self) -> Iterator["ObjectPath"]:
        from kafka2011.runtime import object_store

        return (self / name for name in object_store.names(self.address))

    def read_bytes(self) -> bytes:
        from kafka2011.runtime import object_store

        return object_store.read(self.address)

    def read_text(self, encoding: str | None = None) -> str:
        return self.read_bytes().decode(encoding or "utf-8")

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Do nothing: a store has no directories of its own."""

    def unlink(self, missing_ok: bool = False) -> None:
        from kafka2011.runtime import object_store

        object_store.remove(self.address, missing_ok=missing_ok)


def storage_path(text: str) -> Path | ObjectPath:
    """The place that a setting names: a path, or s3://bucket/prefix (s3a:// is read as that).

    Raises ValueError for any other URL, and for one with a user or password in it: those are read
    from the environment or from files, and never written in a setting.
    """
    if not text:
        raise ValueError("must be a path, or s3://bucket/prefix")
    if "://" not in text:
        return Path(text)
    url = urlsplit(text)
    if url.scheme not in ("s3", "s3a"):
        raise ValueError(f"{url.scheme}:// is not a known store: use s3://bucket/prefix")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError(
            "must be s3://bucket/prefix and no more: credentials are taken from AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, the files in ~/.aws or the machine's role"
        )
    if not _BUCKET.fullmatch(url.netloc):
        raise ValueError(f"{url.netloc!r} is not a bucket name: use s3://bucket/prefix")
    parts = [part for part in url.path.split("/") if part]
    if {".", ".."} & set(parts):
        raise ValueError("must not have . or .. in the prefix")
    return ObjectPath(url.netloc, "/".join(parts))


def make_directory(path: Path) -> None:
    """Make the directory, and those above it, where they are missing; that is durable on return.
    Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_directory(one.parent)


def sync_directory(path: Path) -> None:
    """Make the creation, renaming and removal of names in the directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(path: Path) -> int:
    """A descriptor that holds the lock on a file, which is made where it is missing, until it is
    closed or the process ends.

    Raises BlockingIOError when another process has the lock, else OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def write_whole(final: StoragePath, write: Callable[[BinaryIO], object]) -> int:
    """Have `write` fill a file that is seen whole or not at all; returns its size in bytes.

    It is durable on return. Directories are made. Raises OSError; then nothing is left of it, but
    for an object that a store has taken without an answer.
    """
    if isinstance(final, ObjectPath):
        from kafka2011.runtime import object_store

        buffer = io.BytesIO()
        write(buffer)
        object_store.write(final.address, buffer.getbuffer())
        return buffer.getbuffer().nbytes
    assert isinstance(final, Path)
    make_directory(final.parent)
    unfinished = final.with_name(f".{final.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            size_bytes = file.tell()
        unfinished.replace(final)
        sync_directory(final.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return size_bytes
