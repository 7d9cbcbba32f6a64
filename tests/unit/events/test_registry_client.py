"""The client against the registry's own decisions, with the registry up, down and replaced."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.events.registry_client import (
    RegistryClient,
    RegistryRefused,
    RegistryUnavailable,
    http_requester,
)
from kafka2011.events.schema_cache import RegisteredSchema, SchemaCache
from tests.support.registries import URL, DirectRegistry

INT = json.dumps("int")


def record(*fields: str, default: bool = False) -> str:
    made = [{"name": f, "type": "int", **({"default": 0} if default else {})} for f in fields]
    return json.dumps({"type": "record", "name": "R", "fields": made})


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DirectRegistry]:
    found = DirectRegistry(tmp_path / "registry")
    yield found
    found.close()


def test_each_question_is_asked_once(registry: DirectRegistry) -> None:
    client = registry.client()
    number = client.id_of("a/b-value", INT)
    assert client.id_of("a/b-value", INT) == number
    assert client.schema(number).text == INT
    assert registry.questions == ["POST /subjects/a%2Fb-value/versions"]
    other = registry.client()
    assert other.schema(number) == other.schema(number)
    assert registry.questions[1:] == [f"GET /schemas/ids/{number}"]


def test_what_is_known_outlives_registry_and_process(
    registry: DirectRegistry, tmp_path: Path
) -> None:
    cache = tmp_path / "var" / "schemas.json"
    number = registry.client(cache).id_of("s", INT)
    registry.is_down = True
    started_again = registry.client(cache)
    assert started_again.id_of("s", INT) == number
    assert started_again.schema(number).text == INT
    with pytest.raises(RegistryUnavailable, match=r"is unavailable.*refused") as caught:
        started_again.schema(number + 1)
    assert caught.value.retriable
    with pytest.raises(RegistryUnavailable):
        started_again.id_of("other", INT)


def test_a_cache_of_another_registry_is_not_believed(
    registry: DirectRegistry, tmp_path: Path
) -> None:
    cache = tmp_path / "schemas.json"
    SchemaCache(cache, "http://elsewhere").write({1: RegisteredSchema("x")}, {("s", INT): 1})
    registry.is_down = True
    with pytest.raises(RegistryUnavailable):
        registry.client(cache).id_of("s", INT)


def test_a_replaced_registry_is_believed_more_than_the_cache(
    registry: DirectRegistry, tmp_path: Path
) -> None:
    cache = tmp_path / "schemas.json"
    SchemaCache(cache, URL).write({1: RegisteredSchema("old")}, {("s", INT): 77})
    client = registry.client(cache)
    assert client.id_of("s", INT) == 1
    assert client.schema(1).text == INT
    assert SchemaCache(cache, URL).read().ids == {("s", INT): 1}


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 1}', '{"format": 9, "registry": "http://registry:8081"}',
     '{"format": 1, "registry": "http://registry:8081", "schemas": {"x": 1}, "ids": []}'],
)  # fmt: skip
def test_a_damaged_cache_is_no_cache(
    registry: DirectRegistry, tmp_path: Path, content: str
) -> None:
    cache = tmp_path / "schemas.json"
    cache.write_text(content)
    assert registry.client(cache).id_of("s", INT) == 1
    assert SchemaCache(cache, URL).read().ids == {("s", INT): 1}


def test_a_disk_that_refuses_costs_only_the_cache(registry: DirectRegistry, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = registry.client(tmp_path / "file" / "schemas.json")
    assert client.schema(client.id_of("s", INT)).text == INT


def test_a_refusal_is_told_and_not_retriable(registry: DirectRegistry) -> None:
    client = registry.client()
    client.id_of("s", record("a"))
    with pytest.raises(RegistryRefused, match="incompatible") as caught:
        client.id_of("s", record("a", "b"))
    assert (caught.value.status, caught.value.code, caught.value.retriable) == (409, 409, False)
    assert client.id_of("s", record("a", "b", default=True)) == 2


def test_an_unknown_id_is_not_asked_for_again_at_once(registry: DirectRegistry) -> None:
    now = [0.0]
    client = RegistryClient(URL, ask=registry.ask, monotonic=lambda: now[0])
    for _ in range(3):
        with pytest.raises(RegistryRefused, match="no schema with id 9"):
            client.schema(9)
    assert len(registry.questions) == 1
    now[0] += 6
    with pytest.raises(RegistryRefused):
        client.schema(9)
    assert len(registry.questions) == 2


def test_a_registry_that_is_away_is_left_alone_for_longer_and_longer() -> None:
    now, tries = [0.0], [0]

    def ask(*_: object) -> tuple[int, bytes]:
        tries[0] += 1
        return 503, b'{"message": "starting"}'

    client = RegistryClient(URL, ask=ask, monotonic=lambda: now[0])
    pauses = []
    for expected in range(1, 9):
        with pytest.raises(RegistryUnavailable, match="503: starting"):
            client.schema(1)
        assert tries[0] == expected
        with pytest.raises(RegistryUnavailable, match="next request in"):
            client.schema(2)
        assert tries[0] == expected
        pauses.append(client.retry_in_s)
        now[0] += client.retry_in_s
    assert [round(pause, 6) for pause in pauses] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_references_come_with_the_schema_in_the_order_of_need(registry: DirectRegistry) -> None:
    registry.ask("POST", "/subjects/a/versions", json.dumps({"schema": record("n")}).encode())
    second = {
        "schema": json.dumps(
            {"type": "record", "name": "S", "fields": [{"name": "r", "type": "R"}]}
        ),
        "references": [{"name": "R", "subject": "a", "version": 1}],
    }
    registry.ask("POST", "/subjects/b/versions", json.dumps(second).encode())
    third = {
        "schema": json.dumps(
            {"type": "record", "name": "T", "fields": [{"name": "s", "type": "S"}]}
        ),
        "references": [{"name": "S", "subject": "b", "version": 1}],
    }
    status, content = registry.ask("POST", "/subjects/c/versions", json.dumps(third).encode())
    assert status == 200
    found = registry.client().schema(json.loads(content)["id"])
    assert found.referenced == (record("n"), second["schema"])


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'"x"', b'{"schema": 5}', b"{}"])
def test_what_is_no_answer_of_a_registry_is_an_error_not_a_schema(answer: bytes) -> None:
    client = RegistryClient(URL, ask=lambda *_: (200, answer))
    with pytest.raises((RegistryUnavailable, RegistryRefused)):
        client.schema(1)


@pytest.mark.parametrize("url", ["", "registry:8081", "ftp://x", "http://", "http://x?y=1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be http"):
        http_requester(url, 1.0)


def test_over_http_with_a_path_in_front(tmp_path: Path) -> None:
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers["Content-Type"], json.loads(body)))
            answer = b'{"id": 7}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        client = RegistryClient(f"http://127.0.0.1:{server.server_address[1]}/base/")
        assert client.id_of("s", INT) == 7
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    kind = "application/vnd.schemaregistry.v1+json"
    assert seen == [("/base/subjects/s/versions", kind, {"schema": INT})]
    with pytest.raises(RegistryUnavailable):
        client.id_of("t", INT)
