"""The choice between the twins."""

import subprocess
import sys
from types import ModuleType

import pytest

from kafka2011.protocol import _hot_pure, hot

ASK = "from kafka2011.protocol import hot; print(hot.COMPILED, hot.scan.__module__)"


def run(code: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_pure_can_be_forced() -> None:
    import os

    environment = {**os.environ, "KAFKA2011_PURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    assert run(ASK, **environment) == "False kafka2011.protocol._hot_pure"


@pytest.mark.parametrize(("asked", "is_pure"), [("1", True), ("0", False), ("no", False)])
def test_all_pairs_of_twins_go_by_one_rule(compiled: ModuleType, asked: str, is_pure: bool) -> None:
    import os

    environment = {**os.environ, "KAFKA2011_PURE": asked, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = (
        "from kafka2011.protocol import hot\nfrom kafka2011.producer.asynchronous import intake\n"
        "from kafka2011.events import peek\n"
        "print(hot.COMPILED, intake.COMPILED, peek.COMPILED)"
    )
    assert run(code, **environment) == " ".join([str(not is_pure)] * 3)


def test_pure_is_used_where_the_compiled_twin_is_missing() -> None:
    import os

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("KAFKA2011_PURE", None)
    missing = "import sys; sys.modules['kafka2011.protocol._hot_compiled'] = None\n"
    assert run(missing + ASK, **environment) == "False kafka2011.protocol._hot_pure"


def test_both_twins_offer_what_hot_offers(twin: ModuleType) -> None:
    for name in hot.__all__:
        assert hasattr(twin, name)
        if callable(getattr(_hot_pure, name)) and name != "ConsumedMessage":
            assert getattr(twin, name).__doc__ == getattr(_hot_pure, name).__doc__


def test_twins_say_which_they_are(compiled: ModuleType) -> None:
    assert compiled.COMPILED is True
    assert _hot_pure.COMPILED is False
    if sys.platform == "linux":
        assert compiled.CRC_FOLDS in (True, False)


def test_crc_falls_back_to_zlib_without_isal() -> None:
    import os

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = (
        "import sys; sys.modules['isal'] = None; sys.modules['isal.isal_zlib'] = None\n"
        "from kafka2011.protocol import checksum, _hot_pure; import zlib\n"
        "print(checksum.crc32 is zlib.crc32, _hot_pure.payloads(_hot_pure.encode([b'x'])))"
    )
    assert run(code, **environment) == "True [b'x']"


@pytest.mark.parametrize("name", ["scan", "messages", "encode"])
def test_the_callers_functions_are_those_of_the_chosen_twin(name: str) -> None:
    expected = (
        "kafka2011.protocol._hot_compiled" if hot.COMPILED else "kafka2011.protocol._hot_pure"
    )
    assert getattr(hot, name).__module__ == expected
