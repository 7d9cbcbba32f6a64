"""Calls to another replica: one question and at most one answer, on a connection of its own.

They wait for the network, so threads make them: `Dial` and `PeerCall` are jobs of
`core.worker_threads`.
"""

import socket
from collections.abc import Callable

from kafka2011.broker.replica import frames
from kafka2011.broker.replica.frames import FrameReader, Greeting, Kind, Purpose, Sums, Wire
from kafka2011.broker.replication.machine import Canvassing
from kafka2011.coordination.paths import BrokerAddress
from kafka2011.protocol.errors import ProtocolError

TIMEOUT_S = 2.0
READ_BYTES = 64 * 1024


def canvass(address: BrokerAddress, greeting: Greeting) -> Canvassing | None:
    """Ask a member what it has; None when its copy must not count, or it does not answer."""
    frame = _answer(address, greeting, Kind.CANVASSING, TIMEOUT_S)
    return frame if isinstance(frame, Canvassing) else None


def verify(address: BrokerAddress, greeting: Greeting, timeout_s: float) -> Sums | None:
    """Ask a member for its copy's checksums, for which it reads all of it; None when it does not
    answer in time, or cannot read its disk."""
    frame = _answer(address, greeting, Kind.SUMS, timeout_s)
    return frame if isinstance(frame, Sums) else None


def _answer(
    address: BrokerAddress, greeting: Greeting, kind: Kind, timeout_s: float
) -> Wire | None:
    try:
        with _greeted(address, greeting) as sock:
            sock.settimeout(timeout_s)
            reader = FrameReader(frozenset({kind}))
            while (frame := reader.next()) is None:
                data = sock.recv(READ_BYTES)
                if not data:
                    return None
                reader.feed(data)
            return frame
    except (OSError, ProtocolError):
        return None


def tell(address: BrokerAddress, greeting: Greeting) -> None:
    """Send what is not answered: look at the state, or begin anew. A member that cannot be reached
    is passed over."""
    try:
        with _greeted(address, greeting):
            pass
    except OSError:
        pass


def _greeted(address: BrokerAddress, greeting: Greeting) -> socket.socket:
    sock = socket.create_connection((address.host, address.port), TIMEOUT_S)
    try:
        sock.sendall(frames.encode(greeting, greeting.accepted))
    except OSError:
        sock.close()
        raise
    return sock


class Dial:
    """A job that connects to a replica; then `socket` or `error` is set."""

    def __init__(self, address: BrokerAddress) -> None:
        self._address = address
        self.socket: socket.socket | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self.socket = socket.create_connection(
                (self._address.host, self._address.port), TIMEOUT_S
            )
        except OSError as error:
            self.error = error

    @property
    def is_refused(self) -> bool:
        """Whether no process listens there."""
        return isinstance(self.error, ConnectionRefusedError)


class PeerCall:
    """A job: `canvass` or `tell`, by the greeting's purpose."""

    def __init__(
        self, address: BrokerAddress, greeting: Greeting, done: Callable[[Canvassing], None]
    ) -> None:
        self._address = address
        self._greeting = greeting
        self._done = done
        self._answer: Canvassing | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        if self._greeting.purpose is Purpose.CANVASS:
            self._answer = canvass(self._address, self._greeting)
        else:
            tell(self._address, self._greeting)

    def finish(self) -> None:
        """Hand in the answer, if there is one; called on the loop after `run`."""
        if self._answer is not None:
            self._done(self._answer)
