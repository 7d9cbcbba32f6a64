"""A schema registry's client: the id of a schema, the schema of an id, each remembered.

An id always means the same schema, so each is requested once; with a `cache` they outlive the
process, which can then start while the registry is down. Cached entries are confirmed when the
registry responds, since it may have been replaced by an empty one. A failure is followed by a pause
without requests (0.1 s, doubling up to 5 s); calls in it fail at once, instead of timing out again.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from kafka2011.events.schema_cache import RegisteredSchema, SchemaCache
from kafka2011.runtime.config import without_password
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of

TIMEOUT_S = 2.0
PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5.0
UNKNOWN_KEPT_S = 5.0  # until an unknown id is requested again
UNKNOWN_MAX = 1_000
ANSWER_BYTES_MAX = 4 * 1024 * 1024
REFERENCES_MAX = 100
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

log = get_logger(__name__)

# (method, path, body or None) -> (status, body). Raises OSError or HTTPException.
HttpRequest = Callable[[str, str, bytes | None], tuple[int, bytes]]


class RegistryError(Exception):
    """The registry gave no usable response. `retriable`: a later call may succeed."""

    retriable = False


class RegistryUnavailable(RegistryError):
    """The registry does not respond, or cannot at the moment: try again later."""

    retriable = True


class RegistryRefused(RegistryError):
    """The registry refused: retrying fails again. `status` is HTTP's, `code` the registry's."""

    def __init__(self, message: str, status: int, code: int) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryClient:
    """The client of one registry. Thread-safe; one request at a time.

    `url` is http://host:port or https://host:port, with the registry's base path if it has one.
    Raises ValueError for anything else.
    """

    def __init__(
        self,
        url: str,
        *,
        cache: SchemaCache | None = None,
        timeout_s: float = TIMEOUT_S,
        ask: HttpRequest | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = without_password(url.rstrip("/"))  # for logs and errors
        self._ask = ask or http_requester(url.rstrip("/"), timeout_s)
        self._cache = cache
        self._monotonic = monotonic
        self._lock = threading.Lock()
        stored = cache.read() if cache is not None else None
        self._stored_schemas = stored.schemas if stored else {}  # not confirmed yet
        self._stored_ids = stored.ids if stored else {}
        self._schemas: dict[int, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str], int] = {}
        # An unknown id, or an id and a subject that it is not in -> when to request it again.
        self._unknown: dict[int | tuple[int, str], float] = {}
        self._not_before_s = 0.0
        self._pause_s = PAUSE_S_MIN
        self._why_away = ""

    # --- ids and schemas ---------------------------------------------------------------------

    def id_of(self, subject: str, text: str) -> int:
        """The id of a schema, which is registered under `subject` if it was not yet.

        Raises RegistryUnavailable; RegistryRefused (409: it may not follow the subject's versions).
        """
        key = (subject, text)
        with self._lock:
            if key in self._ids:
                return self._ids[key]
            try:
                path = f"/subjects/{quote(subject, safe='')}/versions"
                answer = self._object("POST", path, {"schema": text})
            except RegistryUnavailable as error:
                if key not in self._stored_ids:
                    raise
                log.warning(
                    "registry_not_answering_id_from_cache", subject=subject, detail=str(error)
                )
                return self._stored_ids[key]
            schema_id = answer.get("id")
            if type(schema_id) is not int or not 0 <= schema_id < 2**32:
                raise RegistryRefused(f"{self.url} gave no id for {subject}", 200, 0)
            self._ids[key] = schema_id
            self._schemas.setdefault(schema_id, RegisteredSchema(text))
            self._keep()
            return schema_id

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id. Raises RegistryUnavailable; RegistryRefused (404: no such id)."""
        found = self._schemas.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            if self._unknown.get(schema_id, 0.0) > self._monotonic():
                raise _not_found(schema_id)
            stored = self._stored_schemas.get(schema_id)
            try:
                answer = self._object("GET", f"/schemas/ids/{schema_id}")
                found = RegisteredSchema(_text_of(answer), tuple(self._referenced(answer)))
                if stored is not None and stored.texts == found.texts:
                    found = stored
            except RegistryUnavailable:
                if stored is None:
                    raise
                return stored
            except RegistryRefused as error:
                if error.status != 404:
                    raise
                self._keep_unknown(schema_id)
                raise _not_found(schema_id) from None
            if stored is not None and stored.texts != found.texts:
                log.warning(
                    "cached_schema_differs",
                    hint="was the registry replaced?",
                    id=schema_id,
                    registry=self.url,
                )
            self._schemas[schema_id] = found
            self._keep()
            return found

    def is_of(self, schema_id: int, subject: str) -> bool:
        """Whether the schema is or was a version of `subject`. Raises as `schema` does."""
        known = self.schema(schema_id)
        with self._lock:
            if subject in known.subjects:
                return True
            if self._unknown.get((schema_id, subject), 0.0) > self._monotonic():
                return False
            answer = self._request("GET", f"/schemas/ids/{schema_id}/versions?deleted=true", None)
            found = _texts_of(answer, "subject")
            if subject not in found:
                self._keep_unknown((schema_id, subject))
                return False
            self._schemas[schema_id] = known._replace(subjects=tuple(sorted(found)))
            self._keep()
            return True

    def ids_of(self, subject: str) -> list[int]:
        """The ids of the subject's versions, oldest first; [] if there is no such subject.

        Raises RegistryUnavailable, RegistryRefused.
        """
        base = f"/subjects/{quote(subject, safe='')}/versions"
        with self._lock:
            try:
                versions = self._request("GET", base, None)
                numbers = [int(number) for number in versions if type(number) is int]
                answers = [self._object("GET", f"{base}/{number}") for number in numbers]
            except RegistryRefused as error:
                if error.status != 404:
                    raise
                return []
        return [answer["id"] for answer in answers if type(answer.get("id")) is int]

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The response's object or list, for any path of the registry; it is not remembered.

        Raises RegistryUnavailable, RegistryRefused.
        """
        with self._lock:
            return self._request(method, path, body)

    @property
    def retry_in_s(self) -> float:
        """Seconds until the next request can be made, after a RegistryUnavailable; else 0."""
        return max(0.0, self._not_before_s - self._monotonic())

    # --- known schemas -----------------------------------------------------------------------

    def known(self) -> dict[int, RegisteredSchema]:
        """All known schemas by id, including cached ones: for other processes."""
        with self._lock:
            return {**self._stored_schemas, **self._schemas}

    def learn(self, schemas: Mapping[int, RegisteredSchema]) -> None:
        """Add schemas from another client; they count as cached."""
        with self._lock:
            have = {**self._stored_schemas, **self._schemas}
            new = {n: s for n, s in schemas.items() if n not in have or _adds(s, have[n])}
            if new:
                self._stored_schemas = {**self._stored_schemas, **new}
                self._schemas = {n: new.get(n, s) for n, s in self._schemas.items()}
                self._keep()

    def _keep_unknown(self, key: int | tuple[int, str]) -> None:
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[key] = self._monotonic() + UNKNOWN_KEPT_S

    def _keep(self) -> None:
        if self._cache is not None:
            self._cache.write(
                {**self._stored_schemas, **self._schemas}, {**self._stored_ids, **self._ids}
            )

    # --- requests ------------------------------------------------------------------------------

    def _referenced(self, answer: Mapping[str, Any]) -> list[str]:
        """The texts of the schemas that a schema refers to, each once, dependencies first."""
        texts: list[str] = []
        seen: set[tuple[str, int]] = set()

        def visit(references: Any) -> None:
            for reference in references or ():
                place = (str(reference["subject"]), int(reference["version"]))
                if place in seen:
                    continue
                seen.add(place)
                if len(seen) > REFERENCES_MAX:
                    raise RegistryRefused(f"more than {REFERENCES_MAX} references", 200, 0)
                path = f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}?deleted=true"
                found = self._object("GET", path)
                visit(found.get("references"))
                texts.append(_text_of(found))

        try:
            visit(answer.get("references"))
        except (KeyError, TypeError, ValueError) as error:
            raise RegistryRefused(f"references that cannot be read: {error!r}", 200, 0) from None
        return texts

    def _object(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The response's object. Raises RegistryUnavailable, RegistryRefused."""
        found = self._request(method, path, body)
        if not isinstance(found, dict):
            text = f"{self.url} is no schema registry: it answers {method} {path} with no object"
            raise RegistryRefused(text, 200, 0)
        return found

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """The response's object or list. Raises RegistryUnavailable, RegistryRefused."""
        wait_s = self.retry_in_s
        if wait_s > 0:
            raise RegistryUnavailable(f"{self._why_away} (next request in {wait_s:.1f} s)")
        encoded = None if body is None else json.dumps(body).encode()
        try:
            status, content = self._ask(method, path, encoded)
            found = json.loads(content)
            if not isinstance(found, dict | list):
                raise ValueError("not a JSON object")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._away(reason_of(error)) from None
        error_body = found if isinstance(found, dict) else {}
        if status >= 500 or status in (408, 429):
            raise self._away(f"status {status}: {error_body.get('message', '')}")
        self._pause_s = PAUSE_S_MIN
        if status >= 400:
            code = error_body.get("error_code")
            raise RegistryRefused(
                f"{self.url} refuses {method} {path}: {error_body.get('message', status)}",
                status,
                code if isinstance(code, int) else status,
            )
        return found

    def _away(self, why: str) -> RegistryUnavailable:
        self._not_before_s = self._monotonic() + self._pause_s
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
        self._why_away = f"the schema registry at {self.url} is unavailable: {why}"
        return RegistryUnavailable(self._why_away)


def _text_of(answer: Mapping[str, Any]) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise RegistryRefused("a response without a schema", 200, 0)
    return text


def _adds(one: RegisteredSchema, other: RegisteredSchema) -> bool:
    """Whether `one` is the same schema and known to be in further subjects."""
    return one.texts == other.texts and not set(one.subjects) <= set(other.subjects)


def _texts_of(answer: Any, name: str) -> set[str]:
    """The texts under `name` in a list of objects."""
    rows = answer if isinstance(answer, list) else []
    return {str(row[name]) for row in rows if isinstance(row, dict) and name in row}


def _not_found(schema_id: int) -> RegistryRefused:
    return RegistryRefused(f"the registry has no schema with id {schema_id}", 404, 40403)


def http_requester(url: str, timeout_s: float) -> HttpRequest:
    """A function that makes HTTP requests, one connection each, since they are rare.

    Raises ValueError for an invalid `url`.
    """
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        host, port, base = parts.hostname, parts.port, parts.path.rstrip("/")
    except ValueError:  # its text may show a password given as the port
        raise ValueError(f"{shown!r} must be http://host:port") from None
    if parts.scheme not in ("http", "https") or not host or parts.query:
        raise ValueError(f"{shown!r} must be http://host:port")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection

    def ask(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = kind(host, port, timeout=timeout_s)
        try:
            headers = {"Accept": CONTENT_TYPE}
            if body is not None:
                headers["Content-Type"] = CONTENT_TYPE
            connection.request(method, base + path, body, headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES_MAX + 1)
            if len(content) > ANSWER_BYTES_MAX:
                raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
            return answer.status, content
        finally:
            connection.close()

    return ask
