"""Samples of processes that fail in unforeseen ways, beside others that serve."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kafka2011.coordination.processes import ProcessRecord
from kafka2011.services.dashboard.config import DashboardConfig
from kafka2011.services.dashboard.sampling import sampler
from kafka2011.services.dashboard.sampling.http_client import (
    AnswerLate,
    HttpClient,
    RequestFailed,
    StatusNotOk,
)
from kafka2011.services.dashboard.sampling.observations import ObservedCluster
from kafka2011.services.dashboard.sampling.sampler import Sampler


class FakeClusterSampler:
    """A ZooKeeper that answers; `expect` registers processes in it."""

    def __init__(self, name: str, address: str, **_settings: Any) -> None:
        self.observed = ObservedCluster(name, address, is_answering=True, at_ms=1)

    def expect(self, **kinds_and_metrics: tuple[str, str]) -> None:
        """Processes by name: kind and registered address of the metrics server."""
        self.observed = ObservedCluster(
            "live",
            self.observed.address,
            is_answering=True,
            at_ms=1,
            expected={f"live/{name}": kind for name, (kind, _) in kinds_and_metrics.items()},
            alive={
                f"live/{name}": ProcessRecord("live", name, kind, metrics, metrics)
                for name, (kind, metrics) in kinds_and_metrics.items()
            },
        )

    def hurry(self) -> None:
        """It has no pauses."""

    def close(self) -> None:
        """It has no thread."""


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sampler]:
    """A sampler of one datacenter, whose requests may take a minute."""
    monkeypatch.setattr(sampler, "ClusterSampler", FakeClusterSampler)
    monkeypatch.setattr(sampler, "SCRAPE_TIMEOUT_S", 60.0)
    with contextlib.closing(Sampler(DashboardConfig(live_zk_connect="127.0.0.1:1"))) as made:
        yield made


def cluster_of(sampled: Sampler) -> FakeClusterSampler:
    found = sampled.cluster_samplers["live"]
    assert isinstance(found, FakeClusterSampler)
    return found


def beside_a_server(sampled: Sampler, run: Callable[[str], Awaitable[None]]) -> None:
    """Run it with the address of a process that serves empty metrics, and close the sampler."""
    connections: list[asyncio.Task[Any] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def started() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            await run(f"{host}:{port}")
        finally:
            await asyncio.gather(*sampled._slow)
            sampled.close()
            server.close()
            await asyncio.gather(*(task for task in connections if task is not None))

    asyncio.run(started())


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "a..b:9301", "h:" + "9" * 5000])
@pytest.mark.parametrize("kind", ["thing", "zookeeper"])
def test_an_address_that_cannot_be_used_is_a_failure_of_its_process_alone(
    sampled: Sampler, kind: str, address: str
) -> None:
    metrics = "" if kind == "zookeeper" else address  # that is probed at its own address

    async def run(serving: str) -> None:
        cluster_of(sampled).expect(good=("thing", serving), bad=(kind, metrics))
        cluster_of(sampled).observed.alive["live/bad"] = ProcessRecord(
            "live", "bad", kind, address, metrics
        )
        await sampled.sample()
        await sampled.sample()
        rows = sampled.changes.rows("processes")
        assert rows["live/good"]["state"] == "up"
        assert sampled.is_fresh
        assert rows["live/bad"]["state"] != "up"

    beside_a_server(sampled, run)


def test_a_bug_that_one_process_meets_ends_no_sample_and_is_logged_with_its_name(
    sampled: Sampler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(serving: str) -> None:
        cluster_of(sampled).expect(good=("thing", serving), bad=("thing", "127.0.0.1:1"))
        get = HttpClient.get

        async def failing(client: HttpClient, path: str, timeout_s: float) -> bytes:
            if client.port == 1:
                raise ZeroDivisionError
            return await get(client, path, timeout_s)

        monkeypatch.setattr(HttpClient, "get", failing)
        for _ in range(3):
            await sampled.sample()
        rows = sampled.changes.rows("processes")
        assert (rows["live/good"]["state"], rows["live/bad"]["state"]) == ("up", "down")
        assert "ZeroDivisionError" in rows["live/bad"]["reason"]

    beside_a_server(sampled, run)
    assert "live/bad" in caplog.text


@pytest.mark.parametrize("kind", ["site", "audit", "loader"])
@pytest.mark.parametrize(
    "answer", [{"uses": 1}, {"uses": {"trending": {"shown": 1}}}, {"tiers": {"live": 1}}]
)
def test_an_answer_of_another_form_ends_no_sample(
    sampled: Sampler, monkeypatch: pytest.MonkeyPatch, kind: str, answer: dict[str, Any]
) -> None:
    async def run(serving: str) -> None:
        cluster_of(sampled).expect(good=("thing", serving), bad=(kind, serving))

        async def get_json(_client: HttpClient, _path: str, _timeout_s: float) -> dict[str, Any]:
            return answer

        monkeypatch.setattr(HttpClient, "get_json", get_json)
        await sampled.sample()
        await asyncio.gather(*sampled._slow)
        before = sampled.changes.id
        await sampled.sample()
        assert sampled.changes.id > before
        assert sampled.changes.rows("processes")["live/good"]["state"] == "up"

    beside_a_server(sampled, run)


def test_the_connection_to_a_process_that_is_gone_is_closed(sampled: Sampler) -> None:
    async def run(serving: str) -> None:
        cluster_of(sampled).expect(old=("thing", serving))
        await sampled.sample()
        client = sampled.client_of("live/old")
        assert client is not None
        assert client._streams is not None
        cluster_of(sampled).expect(new=("thing", serving))
        await sampled.sample()
        assert client._streams is None
        assert list(sampled._clients) == ["live/new"]

    beside_a_server(sampled, run)


def test_whether_a_page_is_open_may_be_asked_from_the_first_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[bool] = []

    class Asking(FakeClusterSampler):
        def __init__(self, *place: str, is_unseen: Callable[[], bool], **settings: Any) -> None:
            super().__init__(*place, **settings)
            answers.append(is_unseen())

    monkeypatch.setattr(sampler, "ClusterSampler", Asking)
    Sampler(DashboardConfig(live_zk_connect="127.0.0.1:1")).close()
    assert answers == [False]


def test_what_is_read_slowly_is_logged_when_it_fails_and_tried_again(
    sampled: Sampler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Commits that cannot be read do not hide the reports, either."""

    class Jobs:
        def commits(self) -> None:
            raise ZeroDivisionError("of commits")

        def reports(self) -> dict[str, Any]:
            return {"traffic": {"name": "traffic"}}

    sampled._jobs = Jobs()  # type: ignore[assignment]
    monkeypatch.setattr(sampler, "JOBS_EVERY_S", 0.0)

    async def run(_serving: str) -> None:
        for _ in range(2):
            await sampled.sample()
            await asyncio.gather(*sampled._slow)
        await sampled.sample()
        assert list(sampled.changes.rows("reports")) == ["traffic"]

    beside_a_server(sampled, run)
    assert caplog.text.count("ZeroDivisionError: of commits") >= 2


def test_a_proxy_that_does_not_answer_hides_no_faults_of_another(
    sampled: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(serving: str) -> None:
        asked: dict[str, Any] = {
            "live/a": RequestFailed("no answer"),
            "live/b": {"routes": 5},
            "live/c": {"routes": {"r": {"faults": {"cut": True}}}},
        }

        async def get_json(client: HttpClient, path: str, timeout_s: float) -> dict[str, Any]:
            [found] = (asked[key] for key in asked if sampled.client_of(key) is client)
            if isinstance(found, Exception):
                raise found
            assert isinstance(found, dict)
            return found

        monkeypatch.setattr(HttpClient, "get_json", get_json)
        cluster_of(sampled).expect(a=("proxy", serving), b=("proxy", serving), c=("proxy", serving))
        await sampled.sample()
        await asyncio.gather(*sampled._slow)
        assert sampled.processes["live/c"].faults == ["cut"]

    beside_a_server(sampled, run)


def test_a_zookeeper_that_registers_itself_is_one_process(sampled: Sampler) -> None:
    """Before its registration was read it is shown by its answers alone, under a name of its own:
    that row stayed beside the registered one."""
    shown = []

    async def run(address: str) -> None:
        await sampled.sample()
        shown.append(sorted(sampled.processes))
        cluster_of(sampled).expect(zk_a=("zookeeper", address))
        await sampled.sample()
        shown.append(sorted(sampled.processes))

    beside_a_server(sampled, run)
    assert shown == [["live/zookeeper-live"], ["live/zk_a"]]


def test_a_process_whose_metrics_take_long_is_up_and_read_apart(
    sampled: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of 10,000 partitions on a busy machine was *no answer*, after 30 s *down*."""
    needs_s, hangs = 4.0, False

    async def get(_client: HttpClient, path: str, timeout_s: float) -> bytes:
        if hangs or (path == "/metrics" and timeout_s < needs_s):
            raise AnswerLate("no answer in time")
        return b"kafka2011_broker_connections 7" if path == "/metrics" else b"ok"

    monkeypatch.setattr(sampler, "SCRAPE_TIMEOUT_S", 0.8)
    monkeypatch.setattr(sampler, "LARGE_S", -1.0)  # every answer takes longer
    monkeypatch.setattr(HttpClient, "get", get)

    async def states(number: int) -> list[str]:
        found = []
        for _ in range(number):
            await sampled.sample()
            await asyncio.gather(*sampled._slow)
            found.append(sampled.changes.rows("processes")["live/large"]["state"])
        return found

    async def run(serving: str) -> None:
        nonlocal hangs, needs_s
        cluster_of(sampled).expect(large=("broker", serving))
        assert await states(3) == ["starting", "up", "up"]
        process = sampled.processes["live/large"]
        assert process.samples == {"kafka2011_broker_connections": [({}, 7.0)]}
        assert process.samples_ms
        hangs = True
        assert await states(2) == ["slow", "silent"]
        hangs, needs_s = False, 0.0
        monkeypatch.setattr(sampler, "LARGE_S", 60.0)
        sampled._due.clear()
        assert await states(2) == ["up", "up"]
        assert not process.is_large, "it answers within the usual time again"

    beside_a_server(sampled, run)


def test_figures_that_could_not_be_read_for_long_are_unknown(
    sampled: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(_client: HttpClient, path: str, _timeout_s: float) -> bytes:
        if path == "/metrics":
            raise AnswerLate("no answer in time")
        raise StatusNotOk("status 503: not serving")

    monkeypatch.setattr(HttpClient, "get", get)

    async def run(serving: str) -> None:
        cluster_of(sampled).expect(large=("broker", serving))
        await sampled.sample()
        process = sampled.processes["live/large"]
        process.samples, process.samples_ms = {"kafka2011_broker_connections": [({}, 7.0)]}, 1
        await sampled.sample()
        assert process.samples == {}

    beside_a_server(sampled, run)
