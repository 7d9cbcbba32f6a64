"""What the tests of commands share."""

import functools
from collections.abc import Callable

import pytest

from tests.conftest import Run


@pytest.fixture
def run(run: Run) -> Run:
    """Runs `kafka2011 WORDS` in this process up to its exit; standard input is the test's."""
    return functools.partial(run, status=None, text=None)


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
