"""A stream's checkpoint in an object store, beside the directory that Spark writes it to.

Spark needs a file system for offsets and state. It has a local directory here, and `publish` copies
what is new in it, always before a batch hands out its results. So a batch that has results is only
run again with the same offsets from the same state; and since results carry the batch's number
(`store_results`), it then adds nothing.

<stream.dir>/checkpoints/<job>/objects/<name>   files, under names of their own, and lists of them
<stream.dir>/checkpoints/<job>/_delta_log       a Delta table without rows: each commit names a list

A commit is whole, and of two from one version one fails. A job that is started makes a commit
first: one that runs elsewhere with the same checkpoint can publish nothing from then on, and ends.
"""

import contextlib
import json
import threading
import uuid
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka2011.runtime import object_store
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse import delta_log, storage
from kafka2011.services.warehouse.delta_table import CommitUncertain, publish
from kafka2011.services.warehouse.errors import DamagedLog

LIST_KEY = "kafka2011.checkpoint"  # in a commit's metadata: the object with the list of files
APP_ID = "checkpoint"
OBJECTS = "objects"
# Each batch is a commit, and only the newest is of use.
LOG_KEPT = {"delta.logRetentionDuration": "interval 1 hours"}
_NO_ROWS = pa.schema([("none", pa.int64())])

# Time and size, by which a change of a file is seen.
Stamp = tuple[int, int]


class CheckpointLost(Exception):
    """The checkpoint is another process's now, or the store does not take or give it. One line."""


class StoreCheckpoint:
    """The checkpoint of one job; `local` is an empty directory."""

    def __init__(self, place: ObjectPath, local: Path) -> None:
        self._place = place
        self.local = local
        self._table: DeltaTable | None = None
        self._objects: dict[str, str] = {}  # file, from `local` on -> its object
        self._stamps: dict[str, Stamp] = {}
        self._list = ""
        self._publishing = threading.Lock()

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever published."""
        return not self._list

    def restore(self) -> None:
        """Take the checkpoint over, and fill `local` with it. Raises CheckpointLost."""
        try:
            self._table = self._open()
            self._list = self._newest_list()
            if self._list:
                self._objects = json.loads(self._object(self._list).read_text())
            self._commit()  # from here on no other process can publish
            jobs = [lambda name=name: self._download(name) for name in self._objects]
            storage.all_done(self._place, jobs, lambda _: None)
            self._stamps = self._local_files()
            kept = {self._list, *self._objects.values()}
            self._remove(set(_names(self._place / OBJECTS)) - kept)
        except (DeltaError, DamagedLog, OSError) as error:
            raise CheckpointLost(f"{self._place}: {first_line(error)}") from error

    def publish(self) -> None:
        """Copy the changes in `local` to the store. Raises CheckpointLost; the store then has what
        it had before. Thread-safe: a query that is stopped may be in its last call."""
        with self._publishing:
            self._publish()

    def _publish(self) -> None:
        try:
            found = self._local_files()
            changed = [name for name, stamp in found.items() if self._stamps.get(name) != stamp]
            objects = {name: self._objects[name] for name in found if name not in changed}
            jobs = [lambda name=name: (name, self._upload(name)) for name in changed]

            def note(done: tuple[str, str]) -> None:
                name, uploaded = done
                if uploaded:
                    objects[name] = uploaded

            storage.all_done(self._place, jobs, note)
            before = {self._list, *self._objects.values()} - {""}
            listed = uuid.uuid4().hex
            object_store.write(self._object(listed).address, json.dumps(objects).encode())
            self._list = listed
            self._commit()
            self._objects, self._stamps = objects, found
            self._remove(before - {listed, *objects.values()})
        except (DeltaError, DamagedLog, OSError) as error:
            raise CheckpointLost(f"{self._place}: {first_line(error)}") from error

    def _open(self) -> DeltaTable:
        try:
            return storage.open_table(self._place)
        except TableNotFoundError:
            return DeltaTable.create(
                str(self._place),
                _NO_ROWS,
                mode="ignore",
                configuration=LOG_KEPT,
                storage_options=storage.options(self._place),
            )

    def _newest_list(self) -> str:
        """The list that the newest commit names; empty where none does."""
        for version in reversed(delta_log.versions(self._place)):
            for action in delta_log.actions(self._place, version):
                if listed := action.get("commitInfo", {}).get(LIST_KEY):
                    return str(listed)
        return ""

    def _commit(self) -> None:
        assert self._table is not None
        number = (self._table.transaction_version(APP_ID) or 0) + 1
        try:
            reason = publish(
                self._place,
                self._table,
                [],
                partition_by=[],
                metadata={LIST_KEY: self._list} if self._list else {},
                transactions=[Transaction(APP_ID, number)],
            )
        except CommitUncertain as error:
            raise CheckpointLost(f"{self._place}: {first_line(error)}") from error
        if reason:
            raise CheckpointLost(f"{self._place} was taken over by another process")

    def _object(self, name: str) -> ObjectPath:
        return self._place / OBJECTS / name

    def _download(self, name: str) -> None:
        data = self._object(self._objects[name]).read_bytes()
        path = self.local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def _upload(self, name: str) -> str:
        """The name of the new object; empty where Spark has removed the file meanwhile."""
        uploaded = uuid.uuid4().hex
        try:
            data = (self.local / name).read_bytes()
        except FileNotFoundError:
            return ""
        object_store.write(self._object(uploaded).address, data)
        return uploaded

    def _local_files(self) -> dict[str, Stamp]:
        """Spark's files, without checksums and unfinished ones, whose names begin with a dot."""
        found = {}
        for path in self.local.rglob("[!.]*"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if path.is_file():
                    stamp = (status.st_mtime_ns, status.st_size)
                    found[path.relative_to(self.local).as_posix()] = stamp
        return found

    def _remove(self, names: set[str]) -> None:
        """Delete objects that no list names any more; what cannot be is left to the next start."""
        jobs = [
            lambda name=name: object_store.remove(self._object(name).address, missing_ok=True)
            for name in names
        ]
        with contextlib.suppress(OSError):
            if jobs:
                storage.all_done(self._place, jobs, lambda _: None)


def _names(directory: ObjectPath) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
