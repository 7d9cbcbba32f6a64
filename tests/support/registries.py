"""A schema registry without a socket: its own decisions and paths, called directly."""

import json
from pathlib import Path

from kafka2011.events.registry_client import RegistryClient
from kafka2011.events.schema_cache import SchemaCache
from kafka2011.services.schema_registry.api import answer_bytes, endpoint, request_of
from kafka2011.services.schema_registry.avro import Limits
from kafka2011.services.schema_registry.errors import RequestRejected
from kafka2011.services.schema_registry.registration import RegistryCore
from kafka2011.services.schema_registry.store import RegistryStore

URL = "http://registry:8081"


class DirectRegistry:
    """`ask` is what a RegistryClient takes. `is_down`: every question is refused like a port."""

    def __init__(self, directory: Path) -> None:
        self.store = RegistryStore(directory / "registry.sqlite")
        self.core = RegistryCore(self.store, Limits())
        self.is_down = False
        self.questions: list[str] = []

    def ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if self.is_down:
            raise ConnectionRefusedError(111, "Connection refused")
        self.questions.append(f"{method} {path}")
        raw_path, _, query = path.partition("?")
        pairs = dict(part.split("=") for part in query.split("&") if part)
        try:
            request = request_of(raw_path.encode(), pairs, body or b"")
            _, handler = endpoint(method, request.parts)
            return 200, answer_bytes(handler(self.core, request))
        except RequestRejected as error:
            answer = {"error_code": error.code, "message": error.message}
            return error.status, json.dumps(answer).encode()

    def client(self, cache: Path | None = None) -> RegistryClient:
        """A new client, as of a process that starts."""
        kept = SchemaCache(cache, URL) if cache is not None else None
        return RegistryClient(URL, cache=kept, ask=self.ask)

    def close(self) -> None:
        self.store.close()
