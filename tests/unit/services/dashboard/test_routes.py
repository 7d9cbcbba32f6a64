"""The pages over a real HTTP client, without a deployment: headers, hosts, snapshot, refusals."""

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
    """What Routes needs of a sampler, with a picture of its own."""

    def __init__(self) -> None:
        self.changes = ChangeLog()
        self.changes.advance({"topics": {"live/x": {"topic": "<script>alert(1)</script>"}}})
        self.changed = asyncio.Event()
        self.cluster_samplers: dict[str, Any] = {}
        self.processes: dict[str, Any] = {}

    def first_of(self, kind: str) -> None:
        return None


def pages(**settings: Any) -> tuple[Routes, FakeSampler]:
    sampler = FakeSampler()
    config = DashboardConfig(live_zk_connect="127.0.0.1:1", **settings)
    return Routes(config, sampler), sampler  # type: ignore[arg-type]


def ask(page: Routes, method: str, path: str, **more: Any) -> httpx.Response:
    @contextlib.asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        yield

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=page.application(lifespan))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **more)

    return asyncio.run(run())


def test_every_answer_forbids_what_is_foreign() -> None:
    page, _ = pages()
    for path in ("/", "/app.js", "/views/audit.js", "/api/snapshot", "/nothing"):
        headers = ask(page, "GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path


def test_no_file_of_the_page_names_a_foreign_address_or_parses_html() -> None:
    for path in STATIC.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_paths_are_looked_up_and_never_opened() -> None:
    page, _ = pages()
    for path in ("/../pages.py", "/..%2fpages.py", "/static/index.html", "/index.html%00"):
        assert ask(page, "GET", path).status_code == 404, path


def test_other_host_names_are_refused() -> None:
    page, _ = pages()
    assert ask(page, "GET", "/", headers={"host": "evil.example"}).status_code == 421
    assert ask(page, "GET", "/", headers={"host": "localhost:8088"}).status_code == 200
    named, _ = pages(hosts="wall.example")
    assert ask(named, "GET", "/", headers={"host": "wall.example:80"}).status_code == 200


def test_snapshot_holds_the_wanted_sections_only_and_data_as_data() -> None:
    page, _ = pages()
    told = json.loads(ask(page, "GET", "/api/snapshot?sections=topics").text)
    assert told == {
        "id": 1,
        "sections": {"topics": {"live/x": {"topic": "<script>alert(1)</script>"}}},
    }


def test_stream_begins_with_a_snapshot_then_brings_changes() -> None:
    page, sampler = pages()

    async def run() -> list[str]:
        found = []
        async for text in page._changes(["topics"], -1):
            found.append(text)
            if len(found) == 2:
                sampler.changes.advance({"topics": {}})
                sampler.changed.set()
            if len(found) == 3:
                page.end_streams()
        return found

    _, snapshot, change = asyncio.run(run())
    assert snapshot.startswith("id: 1\nevent: snapshot\ndata: {")
    assert json.loads(change.split("data: ")[1]) == {
        "id": 2,
        "changes": {"topics": {"gone": ["live/x"]}},
    }
    assert page.clients == 0


def test_breaking_is_refused_unless_chaos_is_on(tmp_path: Path) -> None:
    page, _ = pages()
    body = {"action": "kill", "name": "broker-1"}
    assert ask(page, "POST", "/api/chaos", json=body).status_code == 403
    broken, _ = pages(chaos="on", chaos_dir=tmp_path)
    form = ask(broken, "POST", "/api/chaos", content=json.dumps(body))
    assert form.status_code == 415
    foreign = ask(broken, "POST", "/api/chaos", json=body, headers={"origin": "http://evil"})
    assert foreign.status_code == 403
    unknown = ask(broken, "POST", "/api/chaos", json=body)
    assert unknown.status_code == 409
    assert "no process" in unknown.json()["error"]


def test_questions_that_make_no_sense_are_answered_with_one_line() -> None:
    page, _ = pages()
    assert ask(page, "GET", "/api/messages?offset=x").status_code == 400
    assert ask(page, "GET", "/api/messages?dc=live&broker=1&topic=a").status_code == 404
    assert ask(page, "GET", "/api/cells?topic=a").status_code == 503


def test_sections_are_known_names_in_a_fixed_order() -> None:
    assert wanted_sections("topics,meta,nonsense") == ["meta", "topics"]
    assert len(wanted_sections(None)) > 10


def test_all_static_files_are_served() -> None:
    assert {"index.html", "app.js", "page.css", "views/topology.js"} <= set(load_static())


def test_nothing_to_show_is_a_bad_setting() -> None:
    with pytest.raises(ValueError, match="nothing to show"):
        DashboardConfig()
