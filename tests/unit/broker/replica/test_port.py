"""The replica port: whom it lets in, and what it does when it cannot."""

import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from kafka2011.broker.replica.port import ReplicaPort


class Poller:
    """What is watched, by descriptor."""

    def __init__(self) -> None:
        self.watched: dict[int, Any] = {}

    def watch(self, fd: int, _events: int, call: Any) -> None:
        assert fd not in self.watched
        self.watched[fd] = call

    def forget(self, fd: int) -> None:
        del self.watched[fd]


class Loop:
    """`later` has what was to be called later."""

    def __init__(self) -> None:
        self.later: list[Any] = []

    def call_later(self, _s: float, call: Any, *arguments: Any) -> Any:
        self.later.append(lambda: call(*arguments))
        return SimpleNamespace(cancel=lambda: None)

    def call_soon_threadsafe(self, call: Any, *arguments: Any) -> None:
        self.later.append(lambda: call(*arguments))


class Listener:
    """A listening socket of which `accept` fails with the errors in turn."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def fileno(self) -> int:
        return 7

    def accept(self) -> tuple[socket.socket, Any]:
        number = self.errors.pop(0)
        raise OSError(number, "refused")

    def close(self) -> None: ...


def port_with(listener: Listener) -> tuple[ReplicaPort, Poller, Loop]:
    loop, poller = Loop(), Poller()
    port = ReplicaPort(loop, poller, None, "cluster", 1)  # type: ignore[arg-type]
    port._listener = listener  # type: ignore[assignment]
    port.start()
    return port, poller, loop


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_without_a_descriptor_no_connection_is_accepted_for_a_while(number: int) -> None:
    """A connection that waits would else be looked at again without a break."""
    port, poller, loop = port_with(Listener(number, errno.EAGAIN))
    poller.watched[7]()
    assert poller.watched == {}
    loop.later.pop()()
    assert list(poller.watched) == [7]
    poller.watched[7]()
    assert list(poller.watched) == [7], "no connection is waiting"
    port.close()
    assert poller.watched == {}


def test_a_port_that_is_closed_while_it_lets_nobody_in_stays_closed() -> None:
    port, poller, loop = port_with(Listener(errno.EMFILE))
    poller.watched[7]()
    port.close()
    loop.later.pop()()
    assert poller.watched == {}


def test_to_let_nobody_in_is_logged_once_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    port, poller, loop = port_with(Listener(*[errno.EMFILE] * 3))
    for _ in range(3):
        poller.watched[7]()
        loop.later.pop()()
    assert caplog.text.count("replica_accept_failed") == 1
    port.close()
