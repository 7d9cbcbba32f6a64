"""The choice between the twins."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

from kafka2011.protocol import _hot_pure, hot

ASK = "from kafka2011.protocol import hot; print(hot.COMPILED, hot.scan.__module__)"
ASK_ALL = """\
from kafka2011.protocol import hot
from kafka2011.producer.asynchronous import intake
from kafka2011.events import peek
print(hot.COMPILED, intake.COMPILED, peek.COMPILED)"""
NO_TWIN = "import sys; sys.modules['kafka2011.protocol._hot_compiled'] = None\n"
NO_ISAL = """\
import sys; sys.modules['isal'] = None; sys.modules['isal.isal_zlib'] = None
from kafka2011.protocol import checksum, _hot_pure; import zlib
print(checksum.crc32 is zlib.crc32, _hot_pure.payloads(_hot_pure.encode([b'x'])))"""


def printed(code: str, pure: str = "") -> str:
    """What `code` prints in a process of its own, with KAFKA2011_PURE set to `pure`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KAFKA2011_PURE": pure}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("code", "pure"), [(ASK, "1"), (NO_TWIN + ASK, "")])
def test_pure_is_used_where_it_is_forced_or_the_compiled_twin_is_missing(
    code: str, pure: str
) -> None:
    assert printed(code, pure) == "False kafka2011.protocol._hot_pure"


@pytest.mark.parametrize(("asked", "is_pure"), [("1", True), ("0", False), ("no", False)])
def test_all_pairs_of_twins_go_by_one_rule(compiled: ModuleType, asked: str, is_pure: bool) -> None:
    assert printed(ASK_ALL, asked) == " ".join([str(not is_pure)] * 3)


def test_crc_falls_back_to_zlib_without_isal() -> None:
    assert printed(NO_ISAL) == "True [b'x']"


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


@pytest.mark.parametrize("name", ["scan", "messages", "encode"])
def test_the_callers_functions_are_those_of_the_chosen_twin(name: str) -> None:
    chosen = "_hot_compiled" if hot.COMPILED else "_hot_pure"
    assert getattr(hot, name).__module__ == f"kafka2011.protocol.{chosen}"
