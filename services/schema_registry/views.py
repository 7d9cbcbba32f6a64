"""Reads the registry at one snapshot of its file; independent of HTTP, writes nothing.

`RegistryCore` makes a view for each query, over a reader's connection of its own, and for each
decision to write, over the writer's.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from kafka2011.services.schema_registry import errors
from kafka2011.services.schema_registry.avro import Limits, ParsedSchema, parse
from kafka2011.services.schema_registry.compatibility import check
from kafka2011.services.schema_registry.errors import RequestRejected, SchemaInvalid
from kafka2011.services.schema_registry.store import Queries, StoredSchema, StoredVersion

EVERYTHING = ""  # the subject of settings that hold for the whole registry
NEWEST: tuple[str | int, ...] = ("latest", "-1", -1)  # in the place of a version's number
NUMBER_MAX = 2**31 - 1
PARSED_KEPT = 1000

Json = dict[str, Any]


@dataclass(frozen=True)
class Reference:
    """A reference: `name` as the schema uses it; `subject` and `version` of the schema it means."""

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
class Candidate:
    """A submitted schema, parsed. `digest` is its identity, `text` what will be kept."""

    parsed: ParsedSchema
    references: tuple[Reference, ...]
    digest: str
    text: str


@dataclass
class Shared:
    """What all views of a registry have in common. Safe to use from any thread."""

    limits: Limits
    level: str  # until another is set
    parsed: dict[int, ParsedSchema] = field(default_factory=dict)


class View:
    """One snapshot. Methods raise RequestRejected and sqlite3.Error."""

    def __init__(self, queries: Queries, shared: Shared) -> None:
        self._queries = queries
        self._shared = shared

    # --- schemas ---------------------------------------------------------------------------------

    def candidate(self, schema: Submitted, normalize: bool) -> Candidate:
        references = tuple(
            Reference(r.name, r.subject, self._resolve(r).version) for r in schema.references
        )
        if normalize:
            references = tuple(sorted(references, key=lambda r: (r.name, r.subject, r.version)))
        parsed = parse(schema.text, self._texts_of(references), self._shared.limits)
        named = sorted([r.name, r.subject, r.version] for r in references)
        identity = json.dumps([parsed.canonical, named])
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
        return Candidate(parsed, references, digest, parsed.canonical if normalize else schema.text)

    def _resolve(self, reference: Reference) -> StoredVersion:
        by_number = reference.version not in NEWEST
        try:
            return self.find(reference.subject, reference.version, allow_deleted=by_number)
        except RequestRejected as error:
            raise SchemaInvalid(
                f"the reference {reference.name!r} is to {reference.subject!r} version "
                f"{reference.version}: {error.message}"
            ) from None

    def _texts_of(self, references: tuple[Reference, ...]) -> list[str]:
        """Texts of all schemas referred to, each once, dependencies first."""
        texts: list[str] = []
        seen: set[int] = set()

        def visit(references: tuple[Reference, ...], depth: int) -> None:
            for reference in references:
                version = self._resolve(reference)
                if version.schema_id in seen:
                    continue
                seen.add(version.schema_id)
                if len(seen) > self._shared.limits.references or depth > self._shared.limits.depth:
                    raise SchemaInvalid(
                        f"it needs more than {self._shared.limits.references} references"
                    )
                stored = self._stored(version.schema_id)
                visit(_references_of(stored), depth + 1)
                texts.append(stored.text)

        visit(references, 0)
        return texts

    def parse_stored(self, schema_id: int) -> ParsedSchema:
        found = self._shared.parsed.get(schema_id)
        if found is None:
            stored = self._stored(schema_id)
            # what was accepted stays readable, even if the limits have been narrowed since
            wide = Limits(
                2**31, 10 * self._shared.limits.depth, 10 * self._shared.limits.references
            )
            found = parse(stored.text, self._texts_of(_references_of(stored)), wide)
            if len(self._shared.parsed) >= PARSED_KEPT:
                self._shared.parsed.clear()
            self._shared.parsed[schema_id] = found
        return found

    def _stored(self, schema_id: int) -> StoredSchema:
        stored = self._queries.schema(schema_id)
        assert stored is not None  # rows of schemas are never deleted
        return stored

    # --- compatibility ---------------------------------------------------------------------------

    def compatibility(
        self, subject: str, version: str | None, schema: Submitted, normalize: bool = False
    ) -> list[str]:
        """Why the schema may not follow, as messages; empty: it may. `version`: the one to compare
        with; None: those that the level says."""
        candidate = self.candidate(schema, normalize)
        level = self.level_of(subject)
        if version is None:
            present = [v for v in self._queries.versions(subject) if not v.is_deleted]
        else:
            present = [self.find(subject, version)]
        older = [(v.version, self.parse_stored(v.schema_id).root) for v in reversed(present)]
        return check(level, candidate.parsed.root, older)

    # --- lookups ---------------------------------------------------------------------------------

    def lookup(
        self, subject: str, schema: Submitted, *, normalize: bool = False, deleted: bool = False
    ) -> Json:
        """The version of `subject` that is this schema. 40401 and 40403 when there is none."""
        versions = self.present(subject, deleted)
        known_id = self._queries.id_by_digest(self.candidate(schema, normalize).digest)
        for version in reversed(versions):
            if version.schema_id == known_id:
                return self._version_json(version)
        raise errors.schema_not_found()

    def subjects(self, prefix: str = "", *, deleted: bool = False, only: bool = False) -> list[str]:
        """Names, sorted. `deleted`: softly deleted ones too; `only`: only those."""
        present: set[str] = set()
        gone: set[str] = set()
        for version in self._queries.all_versions():
            (gone if version.is_deleted else present).add(version.subject)
        gone -= present
        found = gone if only else present | gone if deleted else present
        return sorted(name for name in found if name.startswith(prefix))

    def versions(self, subject: str, *, deleted: bool = False, only: bool = False) -> list[int]:
        versions = self.present(subject, deleted or only)
        return [v.version for v in versions if v.is_deleted or not only]

    def version(self, subject: str, version: str, deleted: bool = False) -> Json:
        return self._version_json(self.find(subject, version, allow_deleted=deleted))

    def referenced_by(self, subject: str, version: str) -> list[int]:
        found = self.find(subject, version, allow_deleted=version not in NEWEST)
        users = self._queries.users_of(subject, found.version)
        return sorted({user.schema_id for user in users})

    def schema_by_id(self, schema_id: int) -> Json:
        if not self._queries.versions_of_schema(schema_id):
            raise errors.schema_not_found(f"Schema {schema_id}")
        stored = self._stored(schema_id)
        references = json.loads(stored.references)
        found: Json = {"schema": stored.text}
        if references:
            found["references"] = references
        return found

    def versions_of_id(self, schema_id: int, deleted: bool = False) -> list[StoredVersion]:
        found = self._queries.versions_of_schema(schema_id)
        if not found:
            raise errors.schema_not_found(f"Schema {schema_id}")
        return [version for version in found if deleted or not version.is_deleted]

    def schemas(self, prefix: str, *, deleted: bool, latest_only: bool) -> list[Json]:
        found = [
            version
            for version in self._queries.all_versions()
            if version.subject.startswith(prefix) and (deleted or not version.is_deleted)
        ]
        if latest_only:
            found = list({version.subject: version for version in found}.values())
        return [self._version_json(version) for version in found]

    def id_max(self) -> int:
        return self._queries.id_max()

    def counts(self) -> tuple[int, int, int]:
        return self._queries.counts()

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

    def present(self, subject: str, deleted: bool) -> list[StoredVersion]:
        found = [v for v in self._queries.versions(subject) if deleted or not v.is_deleted]
        if not found:
            raise errors.subject_not_found(subject)
        return found

    def find(
        self, subject: str, version: str | int, *, allow_deleted: bool = False
    ) -> StoredVersion:
        versions = self.present(subject, allow_deleted)
        if version in NEWEST:
            return versions[-1]
        number = version_number(version)
        for found in versions:
            if found.version == number:
                return found
        raise errors.version_not_found(number)

    # --- levels and modes --------------------------------------------------------------------

    def level_of(self, subject: str) -> str:
        """The level that holds for a subject: its own, or the registry's."""
        own = self._queries.setting("level", subject)
        return own or self._queries.setting("level", EVERYTHING) or self._shared.level

    def mode_of(self, subject: str) -> str:
        # READONLY_OVERRIDE of the whole registry wins over a subject's own mode
        everywhere = self._queries.setting("mode", EVERYTHING) or "READWRITE"
        if everywhere == "READONLY_OVERRIDE":
            return everywhere
        return self._queries.setting("mode", subject) or everywhere

    def level(self, subject: str, default_to_global: bool = False) -> str:
        own = self._queries.setting("level", subject)
        if own is None and subject != EVERYTHING and not default_to_global:
            raise RequestRejected(
                404,
                40408,
                f"Subject '{subject}' does not have subject-level compatibility configured",
            )
        return own or self.level_of(EVERYTHING)

    def mode(self, subject: str, default_to_global: bool = False) -> str:
        own = self._queries.setting("mode", subject)
        if own is None and subject != EVERYTHING and not default_to_global:
            raise RequestRejected(
                404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
            )
        return own or self.mode_of(EVERYTHING)


def version_number(version: str | int) -> int:
    """A version of a path or a body. Raises RequestRejected 42202."""
    text = str(version)
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= NUMBER_MAX):
        raise errors.version_invalid(text[:100])
    return int(text)


def _references_of(stored: StoredSchema) -> tuple[Reference, ...]:
    found = json.loads(stored.references)
    return tuple(Reference(r["name"], r["subject"], r["version"]) for r in found)
