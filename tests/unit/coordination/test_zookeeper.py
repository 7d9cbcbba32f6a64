"""The registry's own nodes when an answer is late or lost, over a client in kazoo's place."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState

from kafka2011.coordination.errors import NodeConflict, SessionLost
from kafka2011.coordination.zookeeper import ZooKeeperRegistry

BEFORE, SESSION, RENEWED, ANOTHER = 1, 2, 3, 8
OWNER = "/consumers/g/owners/t/0-0"


class Server:
    """A client in kazoo's place, with the tree that it would reach: path -> (value, session).

    `then` is called once a request is carried out, before its answer is there; what it raises is
    the answer.
    """

    def __init__(self, **_: Any) -> None:
        self._connection = SimpleNamespace(_connect=None, _invoke=None)
        self._session_id = BEFORE
        self.chroot = ""
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.then: Callable[[str], None] = lambda _request: None
        self.tell: Callable[[str], object] = lambda _state: None

    def add_listener(self, listener: Callable[[str], object]) -> None:
        self.tell = listener

    def start_async(self) -> None:
        self.tell(KazooState.CONNECTED)

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def exists_async(self, _path: str) -> Any:
        return SimpleNamespace(rawlink=lambda _answered: None)

    def _answer(self, request: str, carry_out: Callable[[], Any]) -> Any:
        def get(timeout: float) -> Any:
            del timeout
            found = carry_out()
            self.then(request)
            return found

        return SimpleNamespace(get=get)

    def get_async(self, path: str) -> Any:
        def carry_out() -> Any:
            if path not in self.nodes:
                raise NoNodeError
            value, session = self.nodes[path]
            return value, SimpleNamespace(ephemeralOwner=session, version=0)

        return self._answer("get", carry_out)

    def create_async(self, path: str, value: bytes, ephemeral: bool) -> Any:
        def carry_out() -> None:
            if path in self.nodes:
                raise NodeExistsError
            self.nodes[path] = value, self._session_id if ephemeral else 0

        return self._answer("create", carry_out)

    def delete_async(self, path: str, version: int) -> Any:
        def carry_out() -> None:
            if version != 0:
                raise BadVersionError
            if self.nodes.pop(path, None) is None:
                raise NoNodeError

        return self._answer("delete", carry_out)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr("kafka2011.coordination.zookeeper_session.KazooClient", lambda **_: made)
    return made


@pytest.fixture
def registry(server: Server) -> ZooKeeperRegistry:
    """In its second session."""
    made = ZooKeeperRegistry("127.0.0.1:1", operation_timeout_ms=2000)
    made._session.start(1)
    server._session_id = SESSION
    server.tell(KazooState.CONNECTED)
    return made


def taken_by_another(server: Server, lost: str) -> Callable[[str], None]:
    """The answer to the first request of that kind is lost, and before it is repeated another
    member has the node."""

    def then(request: str) -> None:
        if request == lost:
            server.then = lambda _request: None
            server.nodes[OWNER] = b"other-0", ANOTHER
            raise ConnectionLoss

    return then


def test_a_deletion_that_is_repeated_spares_what_another_has_made_since(
    server: Server, registry: ZooKeeperRegistry
) -> None:
    server.nodes[OWNER] = b"mine-0", SESSION
    server.then = taken_by_another(server, "delete")
    assert registry.delete_own(OWNER, b"mine-0")
    assert server.nodes == {OWNER: (b"other-0", ANOTHER)}


def test_a_leftover_that_is_replaced_spares_what_another_has_made_since(
    server: Server, registry: ZooKeeperRegistry
) -> None:
    server.nodes[OWNER] = b"mine-0", BEFORE
    server.then = taken_by_another(server, "delete")
    with pytest.raises(NodeConflict):
        registry.create_ephemeral(OWNER, b"mine-1")
    assert server.nodes == {OWNER: (b"other-0", ANOTHER)}


def renewed_while_it_waits(
    server: Server, after: str, error: type[Exception] | None = None
) -> None:
    """The connection ends with the answer to that request (or with `error` in its place), and what
    is asked next waits for one: that of a new session. Another member has the node by then."""

    def renew() -> None:
        server.nodes[OWNER] = b"other-0", ANOTHER
        server._session_id = RENEWED
        server.tell(KazooState.CONNECTED)

    def then(request: str) -> None:
        if request == after:
            server.then = lambda _request: None
            server.nodes.clear()
            server.tell(KazooState.SUSPENDED)
            threading.Timer(0.2, renew).start()
            if error is not None:
                raise error

    server.then = then


def test_what_was_owned_in_an_earlier_session_is_not_deleted_in_the_next(
    server: Server, registry: ZooKeeperRegistry
) -> None:
    server.nodes[OWNER] = b"mine-0", SESSION
    renewed_while_it_waits(server, "get")
    with pytest.raises(SessionLost):
        registry.delete_own(OWNER, b"mine-0")
    assert server.nodes == {OWNER: (b"other-0", ANOTHER)}


def test_a_node_for_one_session_is_not_made_in_the_next(
    server: Server, registry: ZooKeeperRegistry
) -> None:
    elsewhere = "/consumers/g/ids/mine"
    renewed_while_it_waits(server, "create", ConnectionLoss)
    with pytest.raises(SessionLost):
        registry.create_ephemeral(elsewhere, b"", SESSION)
    assert elsewhere not in server.nodes


def test_a_connection_that_ends_behind_an_answer_leaves_a_node_its_owner(
    server: Server, registry: ZooKeeperRegistry
) -> None:
    server.nodes[OWNER] = b"mine-0", SESSION

    def then(request: str) -> None:
        if request == "get":
            server.tell(KazooState.SUSPENDED)

    server.then = then
    found = registry.get(OWNER)
    assert found is not None
    assert found.owned
