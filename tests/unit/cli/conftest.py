"""What the tests of commands share."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka2011.cli import connections
from kafka2011.coordination.errors import CoordinationUnavailable
from tests.conftest import Run
from tests.support.memory_deployment import Deployment
from tests.support.memory_zookeeper import InMemoryRegistry


@pytest.fixture
def run(run: Run) -> Run:
    """Runs `kafka2011 WORDS` in this process up to its exit; standard input is the test's."""
    return functools.partial(run, status=None, text=None)


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """What every command finds at `--zookeeper zk:1`, or any other address."""
    made = Deployment()

    def client(*_: object, **__: object) -> InMemoryRegistry:
        return made.zookeeper.client()

    monkeypatch.setattr(connections, "ZooKeeperRegistry", client)
    yield made
    made.close()


@pytest.fixture
def lost() -> Iterator[Callable[[str, int], pytest.MonkeyPatch]]:
    """`lost("put", 3)`: ZooKeeper is away from the third such request on; `undo` of what that
    returns ends it."""

    def away_from(name: str, number: int) -> pytest.MonkeyPatch:
        request: Callable[..., Any] = getattr(InMemoryRegistry, name)
        made = 0

        def asked(*words: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            if made >= number:
                raise CoordinationUnavailable("no answer from ZooKeeper")
            return request(*words, **options)

        patch = pytest.MonkeyPatch()
        patch.setattr(InMemoryRegistry, name, asked)
        patches.append(patch)
        return patch

    patches: list[pytest.MonkeyPatch] = []
    yield away_from
    for patch in patches:
        patch.undo()


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
