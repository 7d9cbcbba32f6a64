"""The routes over a real HTTP client, without a deployment: headers, hosts, snapshot, refusals."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kafka2011.services.dashboard.changes import ChangeLog
from kafka2011.services.dashboard.config import DashboardConfig
from kafka2011.services.dashboard.routes import STATIC, Routes, load_static, wanted_sections


class FakeSampler:
    """What Routes needs of a sampler, with a state of its own."""

    def __init__(self) -> None:
        self.changes = ChangeLog()
        self.changes.advance({"topics": {"live/x": {"topic": "<script>alert(1)</script>"}}})
        self.changed = asyncio.Event()
        self.cluster_samplers: dict[str, Any] = {}
        self.processes: dict[str, Any] = {}

    def first_of(self, kind: str) -> None:
        return None


def routes_of(**settings: Any) -> tuple[Routes, FakeSampler]:
    sampler = FakeSampler()
    config = DashboardConfig(live_zk_connect="127.0.0.1:1", **settings)
    return Routes(config, sampler), sampler  # type: ignore[arg-type]


def request(routes: Routes, method: str, path: str, **more: Any) -> httpx.Response:
    @contextlib.asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        yield

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=routes.application(lifespan))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **more)

    return asyncio.run(run())


def test_every_response_forbids_foreign_sources() -> None:
    routes, _ = routes_of()
    for path in ("/", "/app.js", "/views/audit.js", "/api/snapshot", "/nothing"):
        headers = request(routes, "GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path


def test_no_static_file_names_a_foreign_address_or_parses_html() -> None:
    for path in STATIC.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_paths_are_looked_up_and_never_opened() -> None:
    routes, _ = routes_of()
    for path in ("/../routes.py", "/..%2froutes.py", "/static/index.html", "/index.html%00"):
        assert request(routes, "GET", path).status_code == 404, path


def test_other_host_names_are_refused() -> None:
    routes, _ = routes_of()
    assert request(routes, "GET", "/", headers={"host": "evil.example"}).status_code == 421
    assert request(routes, "GET", "/", headers={"host": "localhost:8088"}).status_code == 200
    named, _ = routes_of(hosts="wall.example")
    assert request(named, "GET", "/", headers={"host": "wall.example:80"}).status_code == 200


def test_snapshot_holds_the_wanted_sections_only_and_data_as_data() -> None:
    routes, _ = routes_of()
    rows = {"live/x": {"topic": "<script>alert(1)</script>"}}
    found = json.loads(request(routes, "GET", "/api/snapshot?sections=topics").text)
    assert found == {"id": 1, "sections": {"topics": rows}}


def test_stream_begins_with_a_snapshot_then_brings_changes() -> None:
    routes, sampler = routes_of()

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
    assert json.loads(change.split("data: ")[1]) == {"id": 2, "changes": changes}
    assert routes.clients == 0


def test_faults_are_refused_unless_chaos_is_on(tmp_path: Path) -> None:
    routes, _ = routes_of()
    body = {"action": "kill", "name": "broker-1"}
    assert request(routes, "POST", "/api/chaos", json=body).status_code == 403
    broken, _ = routes_of(chaos="on", chaos_dir=tmp_path)
    form = request(broken, "POST", "/api/chaos", content=json.dumps(body))
    assert form.status_code == 415
    foreign = request(broken, "POST", "/api/chaos", json=body, headers={"origin": "http://evil"})
    assert foreign.status_code == 403
    unknown = request(broken, "POST", "/api/chaos", json=body)
    assert unknown.status_code == 409
    assert "no process" in unknown.json()["error"]


def test_bad_queries_are_answered_with_one_line() -> None:
    routes, _ = routes_of()
    assert request(routes, "GET", "/api/messages?offset=x").status_code == 400
    assert request(routes, "GET", "/api/messages?dc=live&broker=1&topic=a").status_code == 404
    assert request(routes, "GET", "/api/cells?topic=a").status_code == 503


def test_sections_are_known_names_in_a_fixed_order() -> None:
    assert wanted_sections("topics,meta,nonsense") == ["meta", "topics"]
    assert len(wanted_sections(None)) > 10


def test_all_static_files_are_served() -> None:
    assert {"index.html", "app.js", "page.css", "views/topology.js"} <= set(load_static())


def test_nothing_to_show_is_a_bad_setting() -> None:
    with pytest.raises(ValueError, match="nothing to show"):
        DashboardConfig()
