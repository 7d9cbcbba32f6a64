"""A session's first connection, over a client in kazoo's place."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
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
