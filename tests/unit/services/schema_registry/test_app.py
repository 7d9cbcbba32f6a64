"""The registry as a web application: what is counted of its failures."""

import asyncio
import sqlite3
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest

from kafka2011.runtime.http_access import HttpAccess
from kafka2011.services.schema_registry.app import RegistryApplication, RegistryMetrics
from kafka2011.services.schema_registry.avro import Limits
from kafka2011.services.schema_registry.registration import RegistryCore
from kafka2011.services.schema_registry.store import RegistryStore


def test_failures_are_counted_from_nothing_so_that_the_first_is_an_increase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RegistryStore(tmp_path / "registry.sqlite")
    core = RegistryCore(store, Limits())
    metrics = RegistryMetrics(core)
    application = RegistryApplication(core, metrics, 1000).asgi(HttpAccess("127.0.0.1"))

    def failures() -> list[str]:
        lines = generate_latest(metrics.registry).decode().splitlines()
        return [line for line in lines if line.startswith("kafka2011_registry_failures_total")]

    async def ask() -> int:
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/subjects")).status_code

    def failing(*_question: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    assert asyncio.run(ask()) == 200
    assert failures() == ["kafka2011_registry_failures_total 0.0"]
    with monkeypatch.context() as patched:
        patched.setattr(core, "query", failing)
        assert asyncio.run(ask()) == 500
    assert failures() == ["kafka2011_registry_failures_total 1.0"]
    store.close()
