"""Decides what is registered, refused, found and deleted; knows no HTTP.

One lock around each decision and its transaction: equal schemas that arrive together get one id.
Ids are never reused, since the rows of `schemas` are never deleted; a schema whose last version
was deleted for good is not found any more, and has its old id when it is registered again.
"""

import hashlib
import json
import threading
from dataclasses import dataclass
from typing import Any

from services.schema_registry import errors
from services.schema_registry.avro import Limits, ParsedSchema, parse
from services.schema_registry.compatibility import LEVELS, check
from services.schema_registry.errors import RegistryError, SchemaInvalid
from services.schema_registry.store import RegistryStore, StoredSchema, StoredVersion

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
EVERYTHING = ""  # the subject of settings that hold for the whole registry
NUMBER_MAX = 2**31 - 1
PARSED_KEPT = 1000

Json = dict[str, Any]


@dataclass(frozen=True)
class Reference:
    """`name` is what the schema calls it; `subject` and `version` where it stands."""

    name: str
    subject: str
    version: int

    def as_json(self) -> Json:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class Submitted:
    """A schema as a request brings it. `id` and `version` are for IMPORT mode."""

    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True)
class _Candidate:
    parsed: ParsedSchema
    references: tuple[Reference, ...]
    digest: str
    text: str


class RegistryCore:
    """Every method may be called from any thread. Raises RegistryError, and sqlite3.Error."""

    def __init__(self, store: RegistryStore, limits: Limits, level: str = "BACKWARD") -> None:
        self._store = store
        self._limits = limits
        self._level = level
        self._lock = threading.RLock()
        self._parsed: dict[int, ParsedSchema] = {}

    # --- registering -------------------------------------------------------------------------

    def register(self, subject: str, schema: Submitted, normalize: bool = False) -> Json:
        """Give the schema an id and a version in `subject`, or find those that it has."""
        with self._lock:
            mode = self._mode_of(subject)
            self._check_writable(subject, mode)
            candidate = self._candidate(schema, normalize)
            versions = self._store.versions(subject)
            known_id = self._store.id_by_digest(candidate.digest)
            if mode == "IMPORT" or schema.id is not None:
                return self._import(subject, mode, schema, candidate, known_id)
            present = [v for v in versions if not v.is_deleted]
            for version in present:
                if version.schema_id == known_id:
                    return {"id": known_id, "version": version.version}
            messages = check(
                self.level_of(subject),
                candidate.parsed.root,
                [(v.version, self._parse_stored(v.schema_id).root) for v in reversed(present)],
            )
            if messages:
                raise RegistryError(
                    409,
                    409,
                    "Schema being registered is incompatible with an earlier schema for subject "
                    f'"{subject}", details: [{", ".join(messages)}]',
                )
            number = max((v.version for v in versions), default=0) + 1
            return self._write(subject, number, candidate, known_id)

    def _import(
        self,
        subject: str,
        mode: str,
        schema: Submitted,
        candidate: _Candidate,
        known_id: int | None,
    ) -> Json:
        if mode != "IMPORT":
            raise errors.operation_not_permitted(f"Subject {subject} is not in import mode")
        if schema.id is not None:
            taken = self._store.schema(schema.id)
            if (taken is not None and known_id != schema.id) or known_id not in (None, schema.id):
                raise RegistryError(
                    422, 42207, f"Overwrite new schema with id {schema.id} is not permitted."
                )
        versions = self._store.versions(subject)
        number = schema.version or max((v.version for v in versions), default=0) + 1
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
        candidate: _Candidate,
        known_id: int | None,
        wanted_id: int | None = None,
    ) -> Json:
        with self._store.transaction():
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

    def _candidate(self, schema: Submitted, normalize: bool) -> _Candidate:
        references = tuple(
            Reference(r.name, r.subject, self._resolve(r).version) for r in schema.references
        )
        if normalize:
            references = tuple(sorted(references, key=lambda r: (r.name, r.subject, r.version)))
        parsed = parse(schema.text, self._texts_of(references), self._limits)
        named = sorted([r.name, r.subject, r.version] for r in references)
        identity = json.dumps([parsed.canonical, named])
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
        return _Candidate(
            parsed, references, digest, parsed.canonical if normalize else schema.text
        )

    def _resolve(self, reference: Reference) -> StoredVersion:
        try:
            return self._version(reference.subject, reference.version, allow_deleted=True)
        except RegistryError as error:
            raise SchemaInvalid(
                f"the reference {reference.name!r} is to {reference.subject!r} version "
                f"{reference.version}: {error.message}"
            ) from None

    def _texts_of(self, references: tuple[Reference, ...]) -> list[str]:
        """Texts of all that is referred to, each once, what they need before them."""
        texts: list[str] = []
        seen: set[int] = set()

        def visit(references: tuple[Reference, ...], depth: int) -> None:
            for reference in references:
                version = self._resolve(reference)
                if version.schema_id in seen:
                    continue
                seen.add(version.schema_id)
                if len(seen) > self._limits.references or depth > self._limits.depth:
                    raise SchemaInvalid(f"it needs more than {self._limits.references} references")
                stored = self._stored(version.schema_id)
                visit(_references_of(stored), depth + 1)
                texts.append(stored.text)

        visit(references, 0)
        return texts

    def _parse_stored(self, schema_id: int) -> ParsedSchema:
        found = self._parsed.get(schema_id)
        if found is None:
            stored = self._stored(schema_id)
            # what was accepted stays readable when the limits were made narrower later
            wide = Limits(2**31, 10 * self._limits.depth, 10 * self._limits.references)
            found = parse(stored.text, self._texts_of(_references_of(stored)), wide)
            if len(self._parsed) >= PARSED_KEPT:
                self._parsed.clear()
            self._parsed[schema_id] = found
        return found

    def _stored(self, schema_id: int) -> StoredSchema:
        stored = self._store.schema(schema_id)
        assert stored is not None  # rows of schemas are never deleted
        return stored

    # --- compatibility -----------------------------------------------------------------------

    def compatibility(
        self, subject: str, version: str | None, schema: Submitted, normalize: bool = False
    ) -> list[str]:
        """Messages of why the schema may not follow; empty: it may. `version` None: by level."""
        with self._lock:
            candidate = self._candidate(schema, normalize)
            level = self.level_of(subject)
            if version is None:
                present = [v for v in self._store.versions(subject) if not v.is_deleted]
            else:
                present = [self._version(subject, version)]
            older = [(v.version, self._parse_stored(v.schema_id).root) for v in reversed(present)]
        return check(level, candidate.parsed.root, older)

    # --- looking -----------------------------------------------------------------------------

    def lookup(
        self, subject: str, schema: Submitted, *, normalize: bool = False, deleted: bool = False
    ) -> Json:
        """The version of `subject` that is this schema. 40401 and 40403 when there is none."""
        with self._lock:
            versions = self._subject(subject, deleted)
            known_id = self._store.id_by_digest(self._candidate(schema, normalize).digest)
            for version in reversed(versions):
                if version.schema_id == known_id:
                    return self._version_json(version)
            raise errors.schema_not_found()

    def subjects(self, prefix: str = "", *, deleted: bool = False, only: bool = False) -> list[str]:
        """Names, sorted. `deleted`: softly deleted ones too; `only`: none but those."""
        present: set[str] = set()
        gone: set[str] = set()
        with self._lock:
            for version in self._store.all_versions():
                (gone if version.is_deleted else present).add(version.subject)
        gone -= present
        found = gone if only else present | gone if deleted else present
        return sorted(name for name in found if name.startswith(prefix))

    def versions(self, subject: str, *, deleted: bool = False, only: bool = False) -> list[int]:
        with self._lock:
            versions = self._subject(subject, deleted or only)
        return [v.version for v in versions if v.is_deleted or not only]

    def version(self, subject: str, version: str, deleted: bool = False) -> Json:
        with self._lock:
            return self._version_json(self._version(subject, version, allow_deleted=deleted))

    def referenced_by(self, subject: str, version: str) -> list[int]:
        with self._lock:
            found = self._version(subject, version, allow_deleted=True)
            users = self._store.users_of(subject, found.version)
            return sorted({user.schema_id for user in users})

    def schema_by_id(self, schema_id: int) -> Json:
        with self._lock:
            if not self._store.versions_of_schema(schema_id):
                raise errors.schema_not_found(f"Schema {schema_id}")
            stored = self._stored(schema_id)
        references = json.loads(stored.references)
        found: Json = {"schema": stored.text}
        if references:
            found["references"] = references
        return found

    def versions_of_id(self, schema_id: int, deleted: bool = False) -> list[StoredVersion]:
        with self._lock:
            found = self._store.versions_of_schema(schema_id)
            if not found:
                raise errors.schema_not_found(f"Schema {schema_id}")
        return [version for version in found if deleted or not version.is_deleted]

    def schemas(self, prefix: str, *, deleted: bool, latest_only: bool) -> list[Json]:
        with self._lock:
            found = [
                version
                for version in self._store.all_versions()
                if version.subject.startswith(prefix) and (deleted or not version.is_deleted)
            ]
            if latest_only:
                found = list({version.subject: version for version in found}.values())
            return [self._version_json(version) for version in found]

    def id_max(self) -> int:
        with self._lock:
            return self._store.id_max()

    def counts(self) -> tuple[int, int, int]:
        with self._lock:
            return self._store.counts()

    def _version_json(self, version: StoredVersion) -> Json:
        stored = self._stored(version.schema_id)
        found: Json = {
            "subject": version.subject,
            "version": version.version,
            "id": version.schema_id,
            "schemaType": "AVRO",
            "schema": stored.text,
        }
        references = json.loads(stored.references)
        if references:
            found["references"] = references
        return found

    def _subject(self, subject: str, deleted: bool) -> list[StoredVersion]:
        found = [v for v in self._store.versions(subject) if deleted or not v.is_deleted]
        if not found:
            raise errors.subject_not_found(subject)
        return found

    def _version(
        self, subject: str, version: str | int, *, allow_deleted: bool = False
    ) -> StoredVersion:
        versions = self._subject(subject, allow_deleted)
        if version in ("latest", "-1", -1):
            return versions[-1]
        number = version_number(version)
        for found in versions:
            if found.version == number:
                return found
        raise errors.version_not_found(number)

    # --- deleting ----------------------------------------------------------------------------

    def delete_version(self, subject: str, version: str, permanent: bool = False) -> int:
        with self._lock:
            self._check_writable(subject, self._mode_of(subject))
            versions = self._subject(subject, deleted=True)
            if version in ("latest", "-1"):
                found = self._version(subject, version, allow_deleted=permanent)
            else:
                number = version_number(version)
                matching = [v for v in versions if v.version == number]
                if not matching:
                    raise errors.version_not_found(number)
                found = matching[0]
            name = f"Subject '{subject}' Version {found.version}"
            if permanent and not found.is_deleted:
                raise RegistryError(
                    404, 40407, f"{name} was not deleted first before being permanently deleted"
                )
            if found.is_deleted and not permanent:
                raise RegistryError(
                    404,
                    40406,
                    f"{name} was soft deleted. Set permanent=true to delete permanently",
                )
            self._check_unused([found])
            with self._store.transaction():
                if permanent:
                    self._store.remove(subject, [found.version])
                else:
                    self._store.mark_deleted(subject, [found.version])
            return found.version

    def delete_subject(self, subject: str, permanent: bool = False) -> list[int]:
        with self._lock:
            self._check_writable(subject, self._mode_of(subject))
            versions = self._subject(subject, deleted=True)
            present = [v for v in versions if not v.is_deleted]
            if permanent and present:
                raise RegistryError(
                    404,
                    40405,
                    f"Subject '{subject}' was not deleted first before being permanently deleted",
                )
            if not permanent and not present:
                raise RegistryError(
                    404,
                    40404,
                    f"Subject '{subject}' was soft deleted. "
                    "Set permanent=true to delete permanently",
                )
            concerned = versions if permanent else present
            self._check_unused(concerned)
            numbers = [version.version for version in concerned]
            with self._store.transaction():
                if permanent:
                    self._store.remove(subject, numbers)
                else:
                    self._store.mark_deleted(subject, numbers)
                for kind in ("level", "mode"):
                    self._store.unset(kind, subject)
            return numbers

    def _check_unused(self, versions: list[StoredVersion]) -> None:
        for version in versions:
            if self._store.users_of(version.subject, version.version):
                raise RegistryError(
                    422,
                    42206,
                    "One or more references exist to the schema "
                    f"{{subject={version.subject},version={version.version}}}.",
                )

    # --- levels and modes --------------------------------------------------------------------

    def level_of(self, subject: str) -> str:
        """The level that holds for a subject: its own, or the registry's."""
        own = self._store.setting("level", subject)
        return own or self._store.setting("level", EVERYTHING) or self._level

    def _mode_of(self, subject: str) -> str:
        # READONLY_OVERRIDE of the whole registry wins over a subject's own mode
        everywhere = self._store.setting("mode", EVERYTHING) or "READWRITE"
        if everywhere == "READONLY_OVERRIDE":
            return everywhere
        return self._store.setting("mode", subject) or everywhere

    def level(self, subject: str, default_to_global: bool = False) -> str:
        with self._lock:
            own = self._store.setting("level", subject)
            if own is None and subject != EVERYTHING and not default_to_global:
                raise RegistryError(
                    404,
                    40408,
                    f"Subject '{subject}' does not have subject-level compatibility configured",
                )
            return own or self.level_of(EVERYTHING)

    def set_level(self, subject: str, level: object) -> str:
        if not isinstance(level, str) or level.upper() not in LEVELS:
            raise RegistryError(
                422,
                42203,
                "Invalid compatibility level. Valid values are none, backward, forward, full, "
                "backward_transitive, forward_transitive, and full_transitive",
            )
        with self._lock, self._store.transaction():
            self._check_writable(subject, self._mode_of(subject))
            self._store.set("level", subject, level.upper())
        return level.upper()

    def unset_level(self, subject: str) -> str:
        """Back to the registry's level (or, for everything, to the default). Returns the old."""
        with self._lock:
            old = self.level(subject)
            with self._store.transaction():
                self._store.unset("level", subject)
            return old

    def mode(self, subject: str, default_to_global: bool = False) -> str:
        with self._lock:
            own = self._store.setting("mode", subject)
            if own is None and subject != EVERYTHING and not default_to_global:
                raise RegistryError(
                    404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
                )
            return own or self._mode_of(EVERYTHING)

    def set_mode(self, subject: str, mode: object, force: bool = False) -> str:
        if not isinstance(mode, str) or mode.upper() not in MODES:
            raise RegistryError(422, 42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
        mode = mode.upper()
        with self._lock:
            if mode == "IMPORT" and not force:
                found = self._store.all_versions() if subject == EVERYTHING else None
                if found is None:
                    found = self._store.versions(subject)
                if any(not version.is_deleted for version in found):
                    raise errors.operation_not_permitted(
                        "Cannot import since found existing subjects"
                    )
            with self._store.transaction():
                self._store.set("mode", subject, mode)
        return mode

    def unset_mode(self, subject: str) -> str:
        with self._lock:
            old = self.mode(subject)
            with self._store.transaction():
                self._store.unset("mode", subject)
            return old


def version_number(version: str | int) -> int:
    """A version of a path or a body. Raises RegistryError 42202."""
    text = str(version)
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= NUMBER_MAX):
        raise errors.version_invalid(text[:100])
    return int(text)


def _references_of(stored: StoredSchema) -> tuple[Reference, ...]:
    found = json.loads(stored.references)
    return tuple(Reference(r["name"], r["subject"], r["version"]) for r in found)
