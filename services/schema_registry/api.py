"""Confluent's REST paths: a request as plain values in, status and JSON out; no web server.

    GET    /  /schemas/types  /schemas  /contexts
    GET    /schemas/ids/{id}  /schemas/ids/{id}/schema  /subjects  /versions
    GET    /subjects  /subjects/{s}/versions  /subjects/{s}/versions/{v}  /schema  /referencedby
    POST   /subjects/{s} (is it there?)  /subjects/{s}/versions (register)
    DELETE /subjects/{s}  /subjects/{s}/versions/{v}  (?permanent=true)
    POST   /compatibility/subjects/{s}/versions  /compatibility/subjects/{s}/versions/{v}
    GET PUT DELETE /config  /config/{s}  /mode  /mode/{s}

Subjects stand in the path percent-encoded; a slash in one is %2F.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from kafka2011.services.schema_registry.errors import (
    RequestRejected,
    SchemaInvalid,
    not_understood,
    schema_not_found,
)
from kafka2011.services.schema_registry.registration import RegistryCore
from kafka2011.services.schema_registry.views import (
    EVERYTHING,
    Reference,
    Submitted,
    View,
    version_number,
)

NAME_CHARACTERS_MAX = 1000
REFERENCES_MAX = 1000


@dataclass(frozen=True)
class Request:
    """`parts` of the path, decoded; the last value of each name of the query; the body."""

    parts: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        try:
            return int(text[:12]) if text else default
        except ValueError:
            raise RequestRejected(404, 404, f"{name} is not a number") from None

    def json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
            json.dumps(found, ensure_ascii=False).encode()  # a lone surrogate is not text
        except (ValueError, RecursionError):
            raise RequestRejected(400, 400, "the body is not JSON") from None
        if not isinstance(found, dict):
            raise not_understood("the body is not a JSON object")
        return found

    def submitted(self) -> Submitted:
        """The schema in the body. Raises RequestRejected."""
        body = self.json()
        text = body.get("schema")
        if not isinstance(text, str) or not text:
            raise SchemaInvalid("the body has no schema")
        kind = body.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise SchemaInvalid(f"the type {str(kind)[:50]!r} is not kept here, only AVRO")
        schema_id, version = body.get("id"), body.get("version")
        return Submitted(
            text,
            _references(body.get("references") or []),
            None if schema_id in (None, -1) else _positive("id", schema_id),
            None if version in (None, -1, 0) else _positive("version", version),
        )


def _positive(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value < 2**31:
        raise not_understood(f"{name} must be a whole number from 1 to 2^31-1")
    return value


def _references(found: object) -> tuple[Reference, ...]:
    if not isinstance(found, list) or len(found) > REFERENCES_MAX:
        raise not_understood("references must be a list")
    references = []
    for part in found:
        if not isinstance(part, dict):
            raise not_understood("a reference must be an object")
        name, subject, version = part.get("name"), part.get("subject"), part.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not name or not subject:
            raise not_understood("a reference needs name, subject and version")
        number = -1 if version == -1 else _positive("version of a reference", version)
        references.append(Reference(name, subject, number))
    return tuple(references)


@dataclass(frozen=True)
class Query:
    """A handler that reads, without waiting for changes."""

    function: Callable[[View, Request], Any]
    is_change = False

    def __call__(self, core: RegistryCore, request: Request) -> Any:
        return core.query(lambda view: self.function(view, request))


@dataclass(frozen=True)
class Change:
    """A handler that writes; one runs at a time."""

    change: Callable[[RegistryCore, Request], Any]
    is_change = True

    def __call__(self, core: RegistryCore, request: Request) -> Any:
        return self.change(core, request)


Handler = Query | Change


def request_of(raw_path: bytes, query: Mapping[str, str], body: bytes) -> Request:
    """The request, its path decoded. Raises RequestRejected 404 for one that is not text."""
    try:
        parts = tuple(
            unquote(part, errors="strict") for part in raw_path.decode("ascii").split("/") if part
        )
    except UnicodeDecodeError:
        raise RequestRejected(404, 404, "HTTP 404 Not Found") from None
    if any(len(part) > NAME_CHARACTERS_MAX or "\0" in part for part in parts):
        raise not_understood("a name in the path is too long, or not a name")
    return Request(parts, query, body)


def endpoint(method: str, parts: tuple[str, ...]) -> tuple[str, Handler]:
    """The path's pattern (a metric's label) and handler. Raises RequestRejected 404 or 405."""
    allowed = False
    for pattern, handlers in ROUTES.items():
        wanted = pattern.split()
        if len(wanted) == len(parts) and all(
            w in ("*", p) for w, p in zip(wanted, parts, strict=True)
        ):
            if method in handlers:
                return f"/{'/'.join(wanted)}", handlers[method]
            allowed = True
    if allowed:
        raise RequestRejected(405, 405, "HTTP 405 Method Not Allowed")
    raise RequestRejected(404, 404, "HTTP 404 Not Found")


# --- handlers -------------------------------------------------------------------


def _schema_by_id(view: View, request: Request) -> Any:
    found = view.schema_by_id(_id(request))
    if request.flag("fetchMaxId"):
        found["maxId"] = view.id_max()
    return found


def _id(request: Request) -> int:
    text = request.parts[2]
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise schema_not_found(f"Schema {text[:100]}")
    return int(text)


def _subjects_of_id(view: View, request: Request) -> Any:
    found = view.versions_of_id(_id(request), request.flag("deleted"))
    return _page(request, sorted({version.subject for version in found}))


def _versions_of_id(view: View, request: Request) -> Any:
    found = view.versions_of_id(_id(request), request.flag("deleted"))
    return _page(request, [{"subject": v.subject, "version": v.version} for v in found])


def _page(request: Request, found: list[Any]) -> list[Any]:
    offset = max(0, request.number("offset", 0))
    limit = request.number("limit", -1)
    return found[offset:] if limit < 0 else found[offset : offset + limit]


def _schemas(view: View, request: Request) -> Any:
    found = view.schemas(
        request.query.get("subjectPrefix", ""),
        deleted=request.flag("deleted"),
        latest_only=request.flag("latestOnly"),
    )
    return _page(request, found)


def _subjects(view: View, request: Request) -> Any:
    found = view.subjects(
        request.query.get("subjectPrefix", ""),
        deleted=request.flag("deleted"),
        only=request.flag("deletedOnly"),
    )
    return _page(request, found)


def _lookup(view: View, request: Request) -> Any:
    return view.lookup(
        request.parts[1],
        request.submitted(),
        normalize=request.flag("normalize"),
        deleted=request.flag("deleted"),
    )


def _versions(view: View, request: Request) -> Any:
    found = view.versions(
        request.parts[1], deleted=request.flag("deleted"), only=request.flag("deletedOnly")
    )
    return _page(request, found)


def _version(view: View, request: Request) -> Any:
    return view.version(request.parts[1], request.parts[3], request.flag("deleted"))


def _register(core: RegistryCore, request: Request) -> Any:
    return core.register(request.parts[1], request.submitted(), request.flag("normalize"))


def _delete_subject(core: RegistryCore, request: Request) -> Any:
    return core.delete_subject(request.parts[1], request.flag("permanent"))


def _delete_version(core: RegistryCore, request: Request) -> Any:
    return core.delete_version(request.parts[1], request.parts[3], request.flag("permanent"))


def _compatibility(view: View, request: Request) -> Any:
    version = request.parts[4] if len(request.parts) == 5 else None
    if version not in (None, "latest"):
        version_number(str(version))
    messages = view.compatibility(
        request.parts[2], version, request.submitted(), request.flag("normalize")
    )
    found: dict[str, Any] = {"is_compatible": not messages}
    if request.flag("verbose"):
        found["messages"] = messages
    return found


def _subject(request: Request) -> str:
    return request.parts[1] if len(request.parts) == 2 else EVERYTHING


def _get_level(view: View, request: Request) -> Any:
    return {"compatibilityLevel": view.level(_subject(request), request.flag("defaultToGlobal"))}


def _put_level(core: RegistryCore, request: Request) -> Any:
    level = request.json().get("compatibility")
    return {"compatibility": core.set_level(_subject(request), level)}


def _delete_level(core: RegistryCore, request: Request) -> Any:
    return {"compatibilityLevel": core.unset_level(_subject(request))}


def _get_mode(view: View, request: Request) -> Any:
    return {"mode": view.mode(_subject(request), request.flag("defaultToGlobal"))}


def _put_mode(core: RegistryCore, request: Request) -> Any:
    mode = request.json().get("mode")
    return {"mode": core.set_mode(_subject(request), mode, request.flag("force"))}


def _delete_mode(core: RegistryCore, request: Request) -> Any:
    return {"mode": core.unset_mode(_subject(request))}


_LEVEL: dict[str, Handler] = {
    "GET": Query(_get_level),
    "PUT": Change(_put_level),
    "DELETE": Change(_delete_level),
}
_MODE: dict[str, Handler] = {
    "GET": Query(_get_mode),
    "PUT": Change(_put_mode),
    "DELETE": Change(_delete_mode),
}

ROUTES: dict[str, dict[str, Handler]] = {
    "": {"GET": Query(lambda _view, _request: {})},
    "contexts": {"GET": Query(lambda _view, _request: ["."])},
    "schemas": {"GET": Query(_schemas)},
    "schemas types": {"GET": Query(lambda _view, _request: ["AVRO"])},
    "schemas ids *": {"GET": Query(_schema_by_id)},
    "schemas ids * schema": {
        "GET": Query(lambda view, request: _Text(view.schema_by_id(_id(request))["schema"]))
    },
    "schemas ids * subjects": {"GET": Query(_subjects_of_id)},
    "schemas ids * versions": {"GET": Query(_versions_of_id)},
    "subjects": {"GET": Query(_subjects)},
    "subjects *": {"POST": Query(_lookup), "DELETE": Change(_delete_subject)},
    "subjects * versions": {"GET": Query(_versions), "POST": Change(_register)},
    "subjects * versions *": {"GET": Query(_version), "DELETE": Change(_delete_version)},
    "subjects * versions * schema": {
        "GET": Query(lambda view, request: _Text(_version(view, request)["schema"]))
    },
    "subjects * versions * referencedby": {
        "GET": Query(lambda view, request: view.referenced_by(request.parts[1], request.parts[3]))
    },
    "compatibility subjects * versions": {"POST": Query(_compatibility)},
    "compatibility subjects * versions *": {"POST": Query(_compatibility)},
    "config": _LEVEL,
    "config *": _LEVEL,
    "mode": _MODE,
    "mode *": _MODE,
}


class _Text(str):
    """An answer that is JSON text already."""


def answer_bytes(found: Any) -> bytes:
    """The body of an answer."""
    return (found if isinstance(found, _Text) else json.dumps(found)).encode()
