"""`kafka2011 registry` as a real process: over HTTP, through SIGKILL, against bad requests."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.commands import RunningProcess, start_command
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.integration

TYPE = "application/vnd.schemaregistry.v1+json"


def schema(number: int) -> dict[str, str]:
    fields = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(number)]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}


def start(tmp_path: Path) -> RunningProcess:
    settings = {"registry.port": 0, "data.dir": tmp_path / "data", "metrics.port": 0}
    return start_command("registry", settings, tmp_path / "log")


def client_of(registry: RunningProcess) -> httpx.Client:
    address = registry.wait_for_event("serving")["address"]
    return httpx.Client(
        base_url=f"http://{address}", headers={"Content-Type": TYPE}, timeout=DEADLINE_S
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a registry that each test uses with subjects of its own."""
    with start(tmp_path_factory.mktemp("registry")) as registry, client_of(registry) as found:
        yield found
        assert registry.stop() == 0


def put(client: httpx.Client, subject: str, body: dict[str, Any]) -> int:
    answer = client.post(f"/subjects/{subject}/versions", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def test_what_was_answered_survives_sigkill_and_ids_are_not_reused(tmp_path: Path) -> None:
    with start(tmp_path) as registry, client_of(registry) as client:
        first = put(client, "s", schema(1))
        second = put(client, "s", schema(2))
        assert client.delete("/subjects/s/versions/2").json() == 2
        assert client.delete("/subjects/s/versions/2?permanent=true").json() == 2
        assert client.get(f"/schemas/ids/{second}").json()["error_code"] == 40403
        registry.kill()
    with start(tmp_path) as registry, client_of(registry) as client:
        assert json.loads(client.get(f"/schemas/ids/{first}").json()["schema"])["name"] == "R"
        third = put(client, "s", schema(3))
        assert third not in (first, second)
        assert put(client, "s", schema(2)) == second
        metrics = registry.wait_for_event("serving")["metrics"]
        assert httpx.get(f"http://{metrics}/healthz").status_code == 200
        assert "kafka2011_registry_requests_total{" in httpx.get(f"http://{metrics}/metrics").text
        assert registry.stop() == 0


def test_the_same_schema_from_many_at_once_has_one_id(client: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda n: put(client, f"s{n % 3}", schema(4)), range(24)))
    assert len(ids) == 1
    assert [client.get(f"/subjects/s{n}/versions").json() for n in range(3)] == [[1], [1], [1]]


def test_an_incompatible_schema_is_refused_with_the_field_and_tested_without_registering(
    client: httpx.Client,
) -> None:
    put(client, "a%2Fb", schema(1))
    bad = {
        "schema": json.dumps(
            {"type": "record", "name": "R", "fields": [{"name": "must", "type": "int"}]}
        )
    }
    answer = client.post("/subjects/a%2Fb/versions", json=bad)
    assert (answer.status_code, answer.json()["error_code"]) == (409, 409)
    assert "'must' at path '/fields/0'" in answer.json()["message"]
    asked = client.post("/compatibility/subjects/a%2Fb/versions/latest?verbose=true", json=bad)
    assert asked.json()["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in asked.json()["messages"][0]
    client.put("/config/a%2Fb", json={"compatibility": "NONE"})
    put(client, "a%2Fb", bad)
    assert "a/b" in client.get("/subjects").json()


def test_bad_requests_are_refused_and_the_registry_goes_on(client: httpx.Client) -> None:
    path = "/subjects/bad/versions"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for content, headers, status, code in [
        (b"{}", form, 415, 415),
        (b"x" * 3_000_000, {}, 413, 413),
        (b"[" * 100_000, {}, 400, 400),
        (b"[]", {}, 422, 422),
        (b"{}", {}, 422, 42201),
        (b'{"schema": "\\ud800"}', {}, 400, 400),
        (json.dumps({"schema": "[" * 50_000}).encode(), {}, 422, 42201),
        (json.dumps({**schema(1), "schemaType": "PROTOBUF"}).encode(), {}, 422, 42201),
        (json.dumps({**schema(1), "references": [{}]}).encode(), {}, 422, 422),
        (json.dumps({**schema(1), "id": 7}).encode(), {}, 422, 42205),
    ]:
        answer = client.post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (status, code), content[:50]
    for where, status, code in [
        ("/nothing", 404, 404),
        ("/subjects/bad/versions", 404, 40401),
        ("/schemas/ids/999999999999", 404, 40403),
        ("/config/bad", 404, 40408),
        ("/subjects/%ff/versions", 404, 404),
    ]:
        answer = client.get(where)
        assert (answer.status_code, answer.json()["error_code"]) == (status, code), where
    assert client.put("/subjects").json()["error_code"] == 405
    assert client.delete("/subjects").json()["error_code"] == 405
    assert put(client, "bad", schema(1)) > 0


def test_references_and_modes(client: httpx.Client) -> None:
    put(client, "base", schema(1))
    user = {
        "schema": '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}',
        "references": [{"name": "R", "subject": "base", "version": 1}],
    }
    number = put(client, "user", user)
    assert client.get("/subjects/base/versions/1/referencedby").json() == [number]
    assert client.delete("/subjects/base").json()["error_code"] == 42206
    client.put("/mode", json={"mode": "READONLY"})
    refused = client.post("/subjects/new/versions", json=schema(5))
    assert refused.json()["error_code"] == 42205
    client.put("/mode/new", json={"mode": "IMPORT"})
    imported = client.post("/subjects/new/versions", json={**schema(5), "id": 50, "version": 3})
    assert imported.json() == {"id": 50, "version": 3}
    other = client.post("/subjects/new/versions", json={**schema(6), "id": 50})
    assert other.json()["error_code"] == 42205
    again = client.post("/subjects/new/versions", json={**schema(5), "id": 51})
    assert again.json()["error_code"] == 42207
    client.put("/mode", json={"mode": "READWRITE"})
