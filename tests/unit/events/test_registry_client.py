"""The client against the registry's own decisions, with the registry up, down and replaced."""

import http.server
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka2011.events.registry_client import (
    RegistryClient,
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    http_requester,
)
from kafka2011.events.schema_cache import RegisteredSchema, SchemaCache
from tests.support.registries import URL

INT = json.dumps("int")


def record(name: str, **types: Any) -> str:
    fields = [{"name": field, "type": type_} for field, type_ in types.items()]
    return json.dumps({"type": "record", "name": name, "fields": fields})


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "schemas.json"


def test_each_question_is_asked_once(registry) -> None:
    client = registry.client()
    number = client.id_of("a/b-value", INT)
    assert client.id_of("a/b-value", INT) == number
    assert client.schema(number).text == INT
    other = registry.client()
    assert other.schema(number) == other.schema(number)
    assert registry.questions == [
        "POST /subjects/a%2Fb-value/versions",
        f"GET /schemas/ids/{number}",
    ]


def test_what_is_known_outlives_registry_and_process(registry, tmp_path) -> None:
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


def test_why_it_is_unavailable_is_said_without_a_number() -> None:
    def ask(_method: str, _path: str, _body: bytes | None) -> tuple[int, bytes]:
        raise ConnectionRefusedError(111, "Connection refused")

    url = "http://registry:8081"
    with pytest.raises(RegistryUnavailable) as caught:
        RegistryClient(url, ask=ask).schema(1)
    assert str(caught.value) == f"the schema registry at {url} is unavailable: Connection refused"


def test_no_line_has_the_password_of_the_url() -> None:
    answers = {"/away": (503, b"{}"), "/refused": (404, b"{}"), "/list": (200, b"[]")}

    def ask(_method: str, path: str, _body: bytes | None) -> tuple[int, bytes]:
        return answers.get(path, answers["/list"])

    client = RegistryClient("http://me:secret@registry:8081/", ask=ask)
    for call in (
        lambda: client.request("GET", "/refused"),
        lambda: client.schema(1),
        lambda: client.request("GET", "/away"),
        lambda: client.request("GET", "/list"),  # too soon after that
    ):
        with pytest.raises(RegistryError, match=r"http://\*\*\*@registry:8081") as caught:
            call()
        assert "secret" not in str(caught.value)
    assert client.url == "http://***@registry:8081"


def test_a_cache_of_another_registry_is_not_believed(registry, cache) -> None:
    SchemaCache(cache, "http://elsewhere").write({1: RegisteredSchema("x")}, {("s", INT): 1})
    registry.is_down = True
    with pytest.raises(RegistryUnavailable):
        registry.client(cache).id_of("s", INT)


def test_a_replaced_registry_is_believed_more_than_the_cache(registry, cache) -> None:
    SchemaCache(cache, URL).write({1: RegisteredSchema("old")}, {("s", INT): 77})
    client = registry.client(cache)
    assert client.id_of("s", INT) == 1
    assert client.schema(1).text == INT
    assert SchemaCache(cache, URL).read().ids == {("s", INT): 1}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 9, "registry": "http://registry:8081"}',
        '{"format": 1, "registry": "http://registry:8081", "schemas": {"x": 1}, "ids": []}',
        '{"format": 1, "registry": "http://registry:8081", "schemas": [], "ids": []}',
        "[" * 100_000,
    ],
)
def test_a_damaged_cache_is_no_cache(registry, cache, content) -> None:
    cache.write_text(content)
    assert registry.client(cache).id_of("s", INT) == 1
    assert SchemaCache(cache, URL).read().ids == {("s", INT): 1}


def test_a_disk_that_refuses_costs_only_the_cache(registry, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    client = registry.client(tmp_path / "file" / "schemas.json")
    assert client.schema(client.id_of("s", INT)).text == INT


def test_a_refusal_is_reported_and_not_retriable(registry) -> None:
    client = registry.client()
    client.id_of("s", record("R", a="int"))
    with pytest.raises(RegistryRefused, match="incompatible") as caught:
        client.id_of("s", record("R", a="int", b="int"))
    assert (caught.value.status, caught.value.code, caught.value.retriable) == (409, 409, False)
    assert client.id_of("s", record("R")) == 2


def test_an_unknown_id_is_not_asked_for_again_at_once(registry) -> None:
    now = [0.0]
    client = RegistryClient(URL, ask=registry.ask, monotonic=lambda: now[0])
    for now_s, question_count in ((0, 1), (0, 1), (0, 1), (6, 2)):
        now[0] = now_s
        with pytest.raises(RegistryRefused, match="no schema with id 9"):
            client.schema(9)
        assert len(registry.questions) == question_count


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
        with pytest.raises(RegistryUnavailable, match="next request in"):
            client.schema(2)
        assert tries[0] == expected
        pauses.append(round(client.retry_in_s, 6))
        now[0] += client.retry_in_s
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_references_come_with_the_schema_in_the_order_of_need(registry) -> None:
    texts = [record("R", n="int"), record("S", r="R"), record("T", s="S")]
    references: list[dict[str, Any]] = []
    for name, text in zip("RST", texts, strict=True):
        body = json.dumps({"schema": text, "references": references}).encode()
        status, content = registry.ask("POST", f"/subjects/{name}/versions", body)
        assert status == 200
        references = [{"name": name, "subject": name, "version": 1}]
    found = registry.client().schema(json.loads(content)["id"])
    assert found.referenced == tuple(texts[:2])


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'"x"', b'{"schema": 5}', b"{}"])
def test_what_is_no_answer_of_a_registry_is_an_error_not_a_schema(answer) -> None:
    client = RegistryClient(URL, ask=lambda *_: (200, answer))
    with pytest.raises((RegistryUnavailable, RegistryRefused)):
        client.schema(1)


@pytest.mark.parametrize("url", ["", "registry:8081", "ftp://x", "http://", "http://x?y=1"])
def test_what_is_no_address_is_refused(url) -> None:
    with pytest.raises(ValueError, match="must be http"):
        http_requester(url, 1.0)


def test_over_http_with_a_path_in_front() -> None:
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"id": 7}')

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        client = RegistryClient(f"http://127.0.0.1:{server.server_port}/base/")
        assert client.id_of("s", INT) == 7
        thread.join()
    kind = "application/vnd.schemaregistry.v1+json"
    assert seen == [("/base/subjects/s/versions", kind, {"schema": INT})]
    with pytest.raises(RegistryUnavailable):
        client.id_of("t", INT)
