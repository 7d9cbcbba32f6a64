"""The fixtures of several rooms of the warehouse."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.events import codec_source, registry_client
from kafka2011.events.registry_client import RegistryClient
from tests.support.registries import URL, DirectRegistry
from tests.unit.services.warehouse.load.deployment import Deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with contextlib.closing(Deployment(tmp_path)) as made:
        yield made


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectRegistry]:
    """The schema registry of every client that is created in this process; no shipped schema has
    the id 1."""
    made = DirectRegistry(tmp_path / "registry")
    made.client().id_of("another", '"int"')

    def client(_url: str, cache: Any = None, **_: Any) -> RegistryClient:
        return RegistryClient(URL, cache=cache, ask=made.ask)

    for module in (codec_source, registry_client):
        monkeypatch.setattr(module, "RegistryClient", client)
    codec_source._codec.cache_clear()
    yield made
    codec_source._codec.cache_clear()
    made.close()
