"""An object store of a test's own, which the environment names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import object_store as stores
from tests.support.object_store import ObjectStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with stores.object_store(tmp_path / "store") as served:
        for name, value in stores.environment(served.url).items():
            monkeypatch.setenv(name, value)
        yield served
