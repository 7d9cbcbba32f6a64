"""What a replica must remember of itself, in a file of its data directory: `.kafka2011_replica`.

It holds the directory's identity, which never changes; how often it was started; the highest epoch
that it has accepted; which epoch wrote which bytes of each log; and whether it is whole. It also
marks the directory as a replica's: a broker that is no replica refuses it, since it would write
bytes that belong to no epoch.

It is replaced as a whole, durably: after a crash there is the old one or the new one. So one that
cannot be read is not the effect of a crash. It is refused with an error, never made anew, since
what it says must not be guessed.

Form: a line of JSON, then `crc`, a space and its CRC-32 in 8 hexadecimal digits.
"""

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.writing import replace_file
from kafka2011.runtime.failpoints import failpoint

NAME = ".kafka2011_replica"
VERSION = 1
DIRECTORY_ID_BYTES = 16
_BYTES_MAX = 256 * 1024 * 1024
_FORM = re.compile(rb"(\{.*\})\ncrc ([0-9a-f]{8})\n", re.DOTALL)

# As in `protocol.lineage`: (epoch, start offset), both ascending.
Lineage = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Which replica a process is, by its settings."""

    broker_id: int
    name: str


@dataclass(frozen=True, slots=True)
class ReplicaJournal:
    """The content of the file. `directory` is 32 hexadecimal digits. `starts` is how many runs took
    part in the set, `accepted` the highest epoch accepted; `lineages` are by partition directory.
    `whole` False: something that was once flushed here is missing."""

    identity: ReplicaIdentity
    directory: str
    starts: int = 0
    accepted: int = 0
    whole: bool = True
    lineages: Mapping[str, Lineage] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        content = {
            "version": VERSION,
            "broker_id": self.identity.broker_id,
            "name": self.identity.name,
            "directory": self.directory,
            "starts": self.starts,
            "accepted": self.accepted,
            "whole": self.whole,
            "lineages": self.lineages,
        }
        data = json.dumps(content).encode("ascii")
        return data + f"\ncrc {zlib.crc32(data):08x}\n".encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "ReplicaJournal":
        """Parse a file. Raises ValueError with what is wrong."""
        form = _FORM.fullmatch(data)
        if form is None or int(form[2], 16) != zlib.crc32(form[1]):
            raise ValueError("it is damaged (its checksum does not match)")
        content = json.loads(form[1])
        version = content.get("version")
        if version != VERSION:
            raise ValueError(f"its version is {version!a}, and this kafka2011 reads {VERSION}")
        try:
            return cls._from(content)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its content is not a journal's ({error!r})") from None

    @classmethod
    def _from(cls, content: dict[str, Any]) -> "ReplicaJournal":
        lineages = {
            name: tuple((int(epoch), int(start)) for epoch, start in entries)
            for name, entries in content["lineages"].items()
        }
        return cls(
            ReplicaIdentity(content["broker_id"], content["name"]),
            content["directory"],
            content["starts"],
            content["accepted"],
            content["whole"],
            lineages,
        )


def is_stamped(files: FileLayer, root: Path) -> bool:
    """Whether `root` is a replica's directory."""
    return files.exists(root / NAME)


def refuse_stamped(files: FileLayer, root: Path) -> None:
    """Raise DataDirectoryError if `root` is a replica's: this broker is not one."""
    if is_stamped(files, root):
        raise DataDirectoryError(
            f"log.dir {root} belongs to a replica (see {NAME} in it): give this broker its "
            "replica.name, or a directory of its own"
        )


def begin(
    files: FileLayer, root: Path, identity: ReplicaIdentity, new_id: Callable[[], bytes]
) -> ReplicaJournal:
    """The directory's journal; made when there is none, whatever the directory holds.

    Raises DataDirectoryError when it is another replica's or cannot be read, and OSError.
    """
    path = root / NAME
    if is_stamped(files, root):
        journal = _read(files, path)
        if journal.identity != identity:
            there = journal.identity
            raise DataDirectoryError(
                f"log.dir {root} is of replica {there.name!a} of broker {there.broker_id}, not of "
                f"{identity.name!a} of {identity.broker_id}: start that one, or use another"
            )
    else:
        journal = ReplicaJournal(identity, new_id().hex())
        write(files, root, journal)
    return journal


def note_loss(files: FileLayer, root: Path) -> bool:
    """Note, durably, that a replica's directory is about to lose what was flushed there; no process
    may be using it. False if it is not a replica's. Raises DataDirectoryError, OSError."""
    if not is_stamped(files, root):
        return False
    journal = _read(files, root / NAME)
    if journal.whole:
        write(files, root, changed(journal, whole=False))
    return True


def counted(journal: ReplicaJournal, known: int) -> ReplicaJournal:
    """`journal` with one more start. `known` is how many ZooKeeper knows of this directory: one
    with fewer is an older copy of itself, and not whole. Count only with that known, both in one
    write: else a copy that is started often enough would pass for the newest."""
    return changed(
        journal,
        starts=max(journal.starts, known) + 1,
        whole=journal.whole and journal.starts >= known,
    )


def _read(files: FileLayer, path: Path) -> ReplicaJournal:
    fd = files.open_for_reading(path)
    try:
        data = files.read_at(fd, min(files.size(fd), _BYTES_MAX), 0)
    finally:
        files.close(fd)
    try:
        return ReplicaJournal.from_bytes(data)
    except ValueError as error:
        raise DataDirectoryError(
            f"{path} cannot be used: {error}; while another replica has all data, move log.dir "
            "away and start with an empty one"
        ) from None


def write(files: FileLayer, root: Path, journal: ReplicaJournal) -> None:
    """Replace the journal, durably. Raises OSError: then the old one stands, or the new one."""
    replace_file(
        files, root / NAME, journal.to_bytes(), lambda: failpoint("before_replica_journal")
    )


class JournalJob:
    """Writes a journal; `run` may be called in any thread, one job at a time."""

    def __init__(self, files: FileLayer, root: Path, journal: ReplicaJournal) -> None:
        self.journal = journal
        self.error: OSError | None = None
        self._files = files
        self._root = root

    def run(self) -> None:
        try:
            write(self._files, self._root, self.journal)
        except OSError as error:
            self.error = error
