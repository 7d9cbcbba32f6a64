from pathlib import Path

import pytest

from tests.unit.services.warehouse.load.deployment import Deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)
