from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.registries import DirectRegistry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DirectRegistry]:
    found = DirectRegistry(tmp_path / "registry")
    yield found
    found.close()
