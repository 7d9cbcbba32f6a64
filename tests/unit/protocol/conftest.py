"""Both twins of the hot loops under the same tests."""

from types import ModuleType

import pytest

from kafka2011.protocol import _hot_pure

try:
    from kafka2011.protocol import _hot_compiled
except ImportError:
    _hot_compiled = None


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    if _hot_compiled is None:
        pytest.skip("the compiled twin is not built (setup.py build_ext --inplace)")
    return _hot_compiled


@pytest.fixture(scope="session", params=["pure", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure":
        return _hot_pure
    chosen: ModuleType = request.getfixturevalue("compiled")
    return chosen
