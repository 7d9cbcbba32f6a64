"""A session's first connection, over a client in kazoo's place."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.zookeeper_session import ZooKeeperSession

SESSION = 7


class LateClient:
    """Connects, while it is stopped, when the session has given up waiting for it."""

    connects_at_once = False

    def __init__(self, **_: Any) -> None:
        self._connection = SimpleNamespace(_connect=None, _invoke=None)
        self._session_id = SESSION
        self._listeners: list[Callable[[str], object]] = []

    def add_listener(self, listener: Callable[[str], object]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[str], object]) -> None:
        self._listeners.remove(listener)

    def start_async(self) -> None:
        if self.connects_at_once:
            self._tell(KazooState.CONNECTED)

    def stop(self) -> None:
        self._tell(KazooState.CONNECTED)
        self._tell(KazooState.LOST)

    def close(self) -> None: ...

    def _tell(self, state: str) -> None:
        for listener in self._listeners[:]:
            listener(state)


def test_a_connection_that_comes_too_late_is_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka2011.coordination.zookeeper_session.KazooClient", LateClient)
    states: list[str] = []
    session = ZooKeeperSession("127.0.0.1:1", 6000, states.append)
    with pytest.raises(CoordinationUnavailable):
        session.start(1)
    assert (states, session.id) == ([], None)
    monkeypatch.setattr(LateClient, "connects_at_once", True)
    session.start(1)
    assert (states, session.id) == ([KazooState.CONNECTED], SESSION)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KazooTimeoutError(), "ZooKeeper did not answer in time"),
        (ConnectionLoss(), "ZooKeeper did not answer (ConnectionLoss)"),
        (SessionExpiredError(), "ZooKeeper did not answer (SessionExpired)"),
    ],
)
def test_why_there_is_no_answer_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    monkeypatch.setattr("kafka2011.coordination.zookeeper_session.KazooClient", LateClient)
    monkeypatch.setattr(LateClient, "connects_at_once", True)
    session = ZooKeeperSession("127.0.0.1:1", 6000, lambda _: None)
    session.start(1)

    def request(_: Any) -> Any:
        raise error

    with pytest.raises(CoordinationUnavailable) as raised:
        session.once(request, time.monotonic() + 1)
    assert str(raised.value) == reason
