"""A registry's schemas and ids in one file, so that a process can start while the registry is down.

The file is replaced atomically (written beside it, flushed, renamed), so a crash leaves the old or
the new one. It names its registry, since another one's ids mean other schemas. One process per
file. The cache is optional: an unreadable file is ignored with a log line, as is a failed write.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.storage_paths import StoragePath, write_whole

FORMAT = 1
SCHEMAS_MAX = 10_000

log = get_logger(__name__)


class RegisteredSchema(NamedTuple):
    """A schema: its `text` as registered, `referenced`: the texts of all schemas that it refers to,
    dependencies first, and `subjects`: those of which it is known to be a version."""

    text: str
    referenced: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, *self.referenced)


@dataclass
class KnownSchemas:
    """What a client knows: `schemas` by id; `ids` by (subject, text)."""

    schemas: dict[int, RegisteredSchema] = field(default_factory=dict)
    ids: dict[tuple[str, str], int] = field(default_factory=dict)


class SchemaCache:
    """The file at `path` for the registry at `registry` (its URL)."""

    def __init__(self, path: StoragePath, registry: str) -> None:
        self._path = path
        self._registry = registry
        self._is_failing = False

    def read(self) -> KnownSchemas:
        """The file's content; empty if there is none, or it is unreadable or another registry's."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return KnownSchemas()
        except (OSError, ValueError, RecursionError) as error:
            log.warning("schema_cache_unreadable", path=str(self._path), detail=reason_of(error))
            return KnownSchemas()
        try:
            if stored["format"] != FORMAT or stored["registry"] != self._registry:
                log.info("schema_cache_of_another_registry", path=str(self._path))
                return KnownSchemas()
            return _known(stored)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("schema_cache_unusable", path=str(self._path), detail=repr(error))
            return KnownSchemas()

    def write(self, schemas: Mapping[int, RegisteredSchema], ids: Mapping[Any, int]) -> None:
        """Replace the file. Never raises; above SCHEMAS_MAX the oldest are omitted."""
        kept = dict(list(schemas.items())[-SCHEMAS_MAX:])
        stored = {
            "format": FORMAT,
            "registry": self._registry,
            "schemas": {
                str(number): {
                    "schema": found.text,
                    "referenced": list(found.referenced),
                    "subjects": list(found.subjects),
                }
                for number, found in kept.items()
            },
            "ids": [[*key, number] for key, number in list(ids.items())[-SCHEMAS_MAX:]],
        }
        try:
            write_whole(self._path, lambda file: file.write(json.dumps(stored).encode()))
        except OSError as error:
            if not self._is_failing:
                log.warning(
                    "schema_cache_not_written", path=str(self._path), detail=reason_of(error)
                )
            self._is_failing = True
        else:
            self._is_failing = False


def _known(stored: Any) -> KnownSchemas:
    """The file's JSON as KnownSchemas. Raises AttributeError, KeyError, TypeError, ValueError."""
    found = KnownSchemas()
    for number, entry in stored["schemas"].items():
        schema = RegisteredSchema(
            entry["schema"], tuple(entry["referenced"]), tuple(map(str, entry.get("subjects", ())))
        )
        if not all(isinstance(text, str) for text in schema.texts):
            raise TypeError("a schema is not text")
        found.schemas[int(number)] = schema
    for subject, text, number in stored["ids"]:
        if not isinstance(number, int):
            raise TypeError("an id is not a number")
        found.ids[(str(subject), str(text))] = number
    return found
