"""What the tests of commands share."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from kafka2011.cli.main import main


class Ran(NamedTuple):
    status: object
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `kafka2011 WORDS` in this process up to its exit."""

    def ran(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["kafka2011", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Ran(ended.value.code, *capsys.readouterr())

    return ran


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Calls a function that exits with status 2, and returns the one line it printed."""

    def call(function: Callable[..., object], *arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            function(*arguments)
        assert ended.value.code == 2
        [line] = capsys.readouterr().err.splitlines()
        return line

    return call
