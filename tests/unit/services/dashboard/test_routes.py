"""The routes over a real HTTP client, without a deployment: headers, hosts, snapshot, refusals."""

import asyncio
import contextlib
import json
import math
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from kafka2011.coordination.paths import BrokerAddress
from kafka2011.events.forms import Form, Forms
from kafka2011.services.dashboard.changes import ChangeLog
from kafka2011.services.dashboard.config import DashboardConfig
from kafka2011.services.dashboard.routes import STATIC, Routes, load_static, wanted_sections
from kafka2011.services.dashboard.sampling.observations import ObservedCluster
from tests.support.scripted_server import ScriptedBroker

ROWS = {"live/x": {"topic": "<script>alert(1)</script>"}}


class FakeSampler:
    """What Routes needs of a sampler, with a state of its own."""

    def __init__(self) -> None:
        self.changes = ChangeLog()
        self.changes.advance({"topics": ROWS})
        self.changed = asyncio.Event()
        self.cluster_samplers: dict[str, Any] = {}
        self.processes: dict[str, Any] = {}

    def first_of(self, kind: str) -> None:
        return None

    def seen(self) -> None:
        """Sampling at full speed has no part here."""


def routes_of(sampler: FakeSampler | None = None, **settings: Any) -> Routes:
    config = DashboardConfig(live_zk_connect="127.0.0.1:1", **settings)
    return Routes(config, sampler or FakeSampler())  # type: ignore[arg-type]


def request(path: str, *, method: str = "GET", routes: Routes, **more: Any) -> httpx.Response:
    @contextlib.asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        yield

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=routes.application(lifespan))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **more)

    return asyncio.run(run())


def get(path: str, host: str = "127.0.0.1", **settings: Any) -> httpx.Response:
    return request(path, routes=routes_of(**settings), headers={"host": host})


def test_every_response_forbids_foreign_sources() -> None:
    for path in ("/", "/app.js", "/views/audit.js", "/api/snapshot", "/nothing"):
        headers = get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path


def test_no_static_file_names_a_foreign_address_or_parses_html() -> None:
    for path in filter(Path.is_file, STATIC.rglob("*")):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_bad_requests_are_refused_and_paths_are_looked_up_and_never_opened() -> None:
    for path, status in {
        "/../routes.py": 404,
        "/..%2froutes.py": 404,
        "/static/index.html": 404,
        "/index.html%00": 404,
        "/api/messages?offset=x": 400,
        "/api/messages?dc=live&broker=1&topic=a": 404,
        "/api/trace?topic=a&partition=1-0&offset=x": 400,
        "/api/trace?topic=a&partition=1&offset=0": 400,
        "/api/trace?topic=a&partition=1-0&offset=0&number=x": 400,
        "/api/trace?topic=a&partition=1-0&offset=0": 404,
        "/api/cells?topic=a": 503,
    }.items():
        assert get(path).status_code == status, path


@pytest.mark.parametrize("broker", ["2", "9" * 5000, "\u0663", "-1", "x"])
def test_a_broker_that_is_not_registered_has_no_messages(broker: str) -> None:
    sampler = FakeSampler()
    observed = ObservedCluster("live", "zk", brokers={3: BrokerAddress("h", 1)})
    sampler.cluster_samplers["live"] = SimpleNamespace(observed=observed)
    path = f"/api/messages?dc=live&broker={broker}&topic=a"
    assert request(path, routes=routes_of(sampler)).status_code == 404


def test_a_message_that_is_not_unicode_keeps_no_other_from_the_page() -> None:
    with ScriptedBroker() as broker:
        broker.append("t", 0, [b'{"half": "\\ud800"}', b'{"n": 1}'])
        sampler = FakeSampler()
        observed = ObservedCluster("live", "zk", brokers={3: BrokerAddress(*broker.address)})
        sampler.cluster_samplers["live"] = SimpleNamespace(observed=observed)
        routes = routes_of(sampler, event_forms=Forms(Form.ID, {"t": Form.JSON}))
        answer = request("/api/messages?dc=live&broker=3&number=0&topic=t", routes=routes)
    assert answer.status_code == 200
    messages = json.loads(answer.text)["messages"]
    assert [each["record"] for each in messages] == [{"half": "\ud800"}, {"n": 1}]


@pytest.mark.parametrize(
    ("given", "status"),
    [({}, 502), ({"cell_list": [{"produced": math.nan}], "cells_left_out": 0}, 200)],
)
def test_an_answer_of_any_form_of_what_calls_itself_an_audit_is_answered(
    given: dict[str, Any], status: int
) -> None:
    async def get_json(_path: str, _timeout_s: float) -> dict[str, Any]:
        return given

    sampler = FakeSampler()
    sampler.first_of = lambda _: SimpleNamespace(key="live/audit")  # type: ignore[assignment]
    sampler.client_of = lambda _: SimpleNamespace(get_json=get_json)  # type: ignore[attr-defined]
    assert request("/api/cells?topic=t", routes=routes_of(sampler)).status_code == status


def test_other_host_names_are_refused() -> None:
    assert get("/", "evil.example").status_code == 421
    assert get("/", "localhost:8088").status_code == 200
    assert get("/", "wall.example:80", http_hosts=("wall.example",)).status_code == 200


def test_snapshot_holds_the_wanted_sections_only_and_data_as_data() -> None:
    found = json.loads(get("/api/snapshot?sections=topics").text)
    assert (found["id"], found["sections"]) == (1, {"topics": ROWS})


def test_stream_begins_with_a_snapshot_then_brings_changes() -> None:
    sampler = FakeSampler()
    routes = routes_of(sampler)

    async def run() -> list[str]:
        found = []
        async for text in routes._changes(["topics"], -1):
            found.append(text)
            if len(found) == 2:
                sampler.changes.advance({"topics": {}})
                sampler.changed.set()
            if len(found) == 3:
                routes.end_streams()
        return found

    _, snapshot, change = asyncio.run(run())
    assert snapshot.startswith("id: 1\nevent: snapshot\ndata: {")
    changes = {"topics": {"gone": ["live/x"]}}
    message = json.loads(change.split("data: ")[1])
    assert (message["id"], message["changes"]) == (2, changes)
    assert routes.clients == 0


def test_faults_are_refused_unless_chaos_is_on(tmp_path: Path) -> None:
    def refused(chaos: str, **asked: Any) -> tuple[int, str]:
        routes = routes_of(chaos=chaos, chaos_dir=tmp_path)
        answer = request("/api/chaos", method="POST", routes=routes, **asked)
        return answer.status_code, answer.json()["error"]

    body = {"action": "kill", "name": "broker-1"}
    assert refused("off", json=body)[0] == 403
    assert refused("on", content=json.dumps(body))[0] == 415
    status, error = refused("on", json=body)
    assert (status, "no process" in error) == (409, True)
    status, error = refused("on", json={"action": "lose-disk", "name": "broker-1"})
    assert (status, error) == (409, "broker-1 does not lead a replica set")


def test_sections_are_known_names_in_a_fixed_order() -> None:
    assert wanted_sections("topics,meta,nonsense") == ["meta", "topics"]
    assert len(wanted_sections(None)) > 10


def test_all_static_files_are_served() -> None:
    assert {"index.html", "app.js", "page.css", "views/topology.js"} <= set(load_static())


def test_nothing_to_show_is_a_bad_setting() -> None:
    with pytest.raises(ValueError, match="nothing to show"):
        DashboardConfig()
