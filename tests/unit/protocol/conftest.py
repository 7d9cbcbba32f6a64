"""Both twins of the hot loops under the same tests."""

from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from kafka2011.protocol import _hot_pure

# Two busy cores: how long one example takes says nothing.
settings.register_profile("protocol", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("protocol")

try:
    from kafka2011.protocol import _hot_compiled
except ImportError:
    _hot_compiled = None

NOT_BUILT = "the compiled twin is not built (setup.py build_ext --inplace)"


@pytest.fixture(scope="session", params=["pure", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure":
        return _hot_pure
    if _hot_compiled is None:
        pytest.skip(NOT_BUILT)
    return _hot_compiled


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    if _hot_compiled is None:
        pytest.skip(NOT_BUILT)
    return _hot_compiled
