"""The data directory of a test, closed at its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker.data_directory import DataDirectory


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DataDirectory]:
    made = DataDirectory(tmp_path)
    yield made
    made.files.fault = None
    made.close()
    assert made.files.paths == {}, "descriptors are left open"
