"""Decides what is registered, refused and deleted; independent of HTTP.

Each decision to write is made inside its transaction, under one lock: equal schemas that arrive
together get one id, and no version is given twice, also where a second process has the file.
Queries take no lock, so no reader waits while a schema is compared with a long history. Ids are
never reused, since the rows of `schemas` are never deleted; a schema whose last version was deleted
for good is not found any more, and gets its old id when it is registered again. A version's number
is not reused either, unless its subject was deleted for good.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from kafka2011.services.schema_registry import errors
from kafka2011.services.schema_registry.avro import Limits
from kafka2011.services.schema_registry.compatibility import LEVELS, check
from kafka2011.services.schema_registry.errors import RequestRejected
from kafka2011.services.schema_registry.store import RegistryStore, StoredVersion
from kafka2011.services.schema_registry.views import (
    EVERYTHING,
    Candidate,
    Json,
    Shared,
    Submitted,
    View,
    version_number,
)

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
HIGHEST = "version"  # setting: the highest version that a subject ever had

Found = TypeVar("Found")


class RegistryCore:
    """The registry's decisions, for any thread. Methods raise RequestRejected and sqlite3.Error."""

    def __init__(self, store: RegistryStore, limits: Limits, level: str = "BACKWARD") -> None:
        self._store = store
        self._shared = Shared(limits, level)
        self._view = View(store, self._shared)  # the writer's, under the lock
        self._lock = threading.Lock()

    def query(self, function: Callable[[View], Found]) -> Found:
        """The result of `function` on one snapshot of the file."""
        with self._store.reading() as queries:
            return function(View(queries, self._shared))

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[None]:
        """What is read inside stays as it is until what is written inside is committed."""
        with self._lock, self._store.transaction():
            yield

    # --- registering -------------------------------------------------------------------------

    def register(self, subject: str, schema: Submitted, normalize: bool = False) -> Json:
        """Give the schema an id and a version in `subject`, or find those that it has."""
        with self._deciding():
            mode = self._view.mode_of(subject)
            self._check_writable(subject, mode)
            candidate = self._view.candidate(schema, normalize)
            versions = self._store.versions(subject)
            known_id = self._store.id_by_digest(candidate.digest)
            if mode == "IMPORT" or schema.id is not None:
                return self._import(subject, mode, schema, candidate, known_id)
            present = [v for v in versions if not v.is_deleted]
            for version in present:
                if version.schema_id == known_id:
                    return {"id": known_id, "version": version.version}
            messages = check(
                self._view.level_of(subject),
                candidate.parsed.root,
                [(v.version, self._view.parse_stored(v.schema_id).root) for v in reversed(present)],
            )
            if messages:
                raise RequestRejected(
                    409,
                    409,
                    "Schema being registered is incompatible with an earlier schema for subject "
                    f'"{subject}", details: [{", ".join(messages)}]',
                )
            number = self._next_version(subject, versions)
            return self._write(subject, number, candidate, known_id)

    def _next_version(self, subject: str, versions: list[StoredVersion]) -> int:
        """One above the highest number ever given, as clients may still refer to that version."""
        highest = int(self._store.setting(HIGHEST, subject) or 0)
        return max([highest, *(v.version for v in versions)]) + 1

    def _import(
        self,
        subject: str,
        mode: str,
        schema: Submitted,
        candidate: Candidate,
        known_id: int | None,
    ) -> Json:
        if mode != "IMPORT":
            raise errors.operation_not_permitted(f"Subject {subject} is not in import mode")
        if schema.id is None:
            raise errors.operation_not_permitted(f"Subject {subject} is not in read-write mode")
        if known_id not in (None, schema.id):
            raise RequestRejected(
                422,
                42207,
                f"Schema already registered with id {known_id} instead of input id {schema.id}",
            )
        if known_id is None and self._store.schema(schema.id) is not None:
            raise errors.operation_not_permitted(
                f"Overwrite new schema with id {schema.id} is not permitted."
            )
        versions = self._store.versions(subject)
        number = schema.version or self._next_version(subject, versions)
        for version in versions:
            if version.version == number and not version.is_deleted:
                if version.schema_id == known_id:
                    return {"id": known_id, "version": number}
                raise errors.operation_not_permitted(
                    f"Version {number} of subject {subject} is another schema"
                )
        return self._write(subject, number, candidate, known_id, schema.id)

    def _write(
        self,
        subject: str,
        number: int,
        candidate: Candidate,
        known_id: int | None,
        wanted_id: int | None = None,
    ) -> Json:
        schema_id = known_id
        if schema_id is None:
            schema_id = self._store.add_schema(
                candidate.digest,
                candidate.text,
                json.dumps([r.as_json() for r in candidate.references]),
                [(r.subject, r.version) for r in candidate.references],
                wanted_id,
            )
        self._store.add_version(subject, number, schema_id)
        return {"id": schema_id, "version": number}

    def _check_writable(self, subject: str, mode: str) -> None:
        if mode.startswith("READONLY"):
            raise errors.operation_not_permitted(f"Subject {subject} is in read-only mode")

    # --- deleting ----------------------------------------------------------------------------

    def delete_version(self, subject: str, version: str, permanent: bool = False) -> int:
        with self._deciding():
            self._check_writable(subject, self._view.mode_of(subject))
            versions = self._view.present(subject, deleted=True)
            if version in ("latest", "-1"):
                found = self._view.find(subject, version, allow_deleted=permanent)
            else:
                number = version_number(version)
                matching = [v for v in versions if v.version == number]
                if not matching:
                    raise errors.version_not_found(number)
                found = matching[0]
            name = f"Subject '{subject}' Version {found.version}"
            if permanent and not found.is_deleted:
                raise RequestRejected(
                    404, 40407, f"{name} was not deleted first before being permanently deleted"
                )
            if found.is_deleted and not permanent:
                raise RequestRejected(
                    404,
                    40406,
                    f"{name} was soft deleted. Set permanent=true to delete permanently",
                )
            self._check_unused([found])
            if permanent:
                highest = self._next_version(subject, versions) - 1
                self._store.set(HIGHEST, subject, str(highest))
                self._store.remove(subject, [found.version])
            else:
                self._store.mark_deleted(subject, [found.version])
            return found.version

    def delete_subject(self, subject: str, permanent: bool = False) -> list[int]:
        with self._deciding():
            self._check_writable(subject, self._view.mode_of(subject))
            versions = self._view.present(subject, deleted=True)
            present = [v for v in versions if not v.is_deleted]
            if permanent and present:
                raise RequestRejected(
                    404,
                    40405,
                    f"Subject '{subject}' was not deleted first before being permanently deleted",
                )
            if not permanent and not present:
                raise RequestRejected(
                    404,
                    40404,
                    f"Subject '{subject}' was soft deleted. "
                    "Set permanent=true to delete permanently",
                )
            concerned = versions if permanent else present
            self._check_unused(concerned)
            numbers = [version.version for version in concerned]
            if permanent:
                self._store.remove(subject, numbers)
                self._store.unset(HIGHEST, subject)
            else:
                self._store.mark_deleted(subject, numbers)
            for kind in ("level", "mode"):
                self._store.unset(kind, subject)
            return numbers

    def _check_unused(self, versions: list[StoredVersion]) -> None:
        for version in versions:
            if self._store.users_of(version.subject, version.version):
                raise RequestRejected(
                    422,
                    42206,
                    "One or more references exist to the schema "
                    f"{{subject={version.subject},version={version.version}}}.",
                )

    # --- levels and modes --------------------------------------------------------------------

    def set_level(self, subject: str, level: object) -> str:
        if not isinstance(level, str) or level.upper() not in LEVELS:
            raise RequestRejected(
                422,
                42203,
                "Invalid compatibility level. Valid values are none, backward, forward, full, "
                "backward_transitive, forward_transitive, and full_transitive",
            )
        with self._deciding():
            self._check_writable(subject, self._view.mode_of(subject))
            self._store.set("level", subject, level.upper())
        return level.upper()

    def unset_level(self, subject: str) -> str:
        """Return to the registry's level (for everything: to the default). Returns the old one."""
        with self._deciding():
            self._check_writable(subject, self._view.mode_of(subject))
            old = self._view.level(subject)
            self._store.unset("level", subject)
            return old

    def set_mode(self, subject: str, mode: object, force: bool = False) -> str:
        if not isinstance(mode, str) or mode.upper() not in MODES:
            raise RequestRejected(422, 42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
        mode = mode.upper()
        with self._deciding():
            if mode == "IMPORT" and not force:
                found = self._store.all_versions() if subject == EVERYTHING else None
                if found is None:
                    found = self._store.versions(subject)
                if any(not version.is_deleted for version in found):
                    raise errors.operation_not_permitted(
                        "Cannot import since found existing subjects"
                    )
            self._store.set("mode", subject, mode)
        return mode

    def unset_mode(self, subject: str) -> str:
        """Return a subject to the registry's mode. Refused while the whole registry is read-only:
        the subject's mode may be an exception from that. Returns the old one."""
        with self._deciding():
            if subject != EVERYTHING:
                self._check_writable(subject, self._view.mode_of(EVERYTHING))
            old = self._view.mode(subject)
            self._store.unset("mode", subject)
            return old
