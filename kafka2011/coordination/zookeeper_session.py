"""One session with ZooKeeper, through kazoo: connecting, single requests, and the session's lease.

kazoo queues requests for as long as there is no connection. So here a request is made only while
connected, within a deadline, and its error is `NoNode` or one of coordination.errors; a heartbeat
measures how long the session is certain to live.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState

from kafka2011.coordination.errors import (
    CoordinationError,
    CoordinationUnavailable,
    NodeExists,
    NotEmpty,
    RegistryClosed,
    SessionLost,
    VersionConflict,
)
from kafka2011.coordination.lease import Lease, now_s
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

log = get_logger(__name__)

RECONNECT_DELAY_MAX_S = 1.0
HEARTBEATS_PER_SESSION = 4
WAITS_PER_SESSION = 3  # as long as kazoo waits for the answer to a ping

_UNAVAILABLE = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionDropped,
    kazoo_errors.SessionExpiredError,  # ConnectionClosedError is one of these
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.ThrottledOpError,
    kazoo_errors.CancelledError,
    KazooTimeoutError,
)


def _reason(error: Exception) -> str:
    """Why ZooKeeper gave no answer, in words: kazoo's errors have mostly a name alone."""
    if isinstance(error, KazooTimeoutError):
        return "ZooKeeper did not answer in time"
    return f"ZooKeeper did not answer ({type(error).__name__.removesuffix('Error')})"


class NoNode(CoordinationError):
    """Inside the registry: the node does not exist."""


class Answers:
    """Several requests as one: `get` has their answers, None where there is no node."""

    def __init__(self, asked: Sequence[Any]) -> None:
        self._asked = asked

    def get(self, timeout: float) -> list[Any]:
        """The answers, within `timeout` seconds in all. Raises what the first failed one raises."""
        until_s = time.monotonic() + timeout
        found = []
        for one in self._asked:
            try:
                found.append(one.get(timeout=max(0.01, until_s - time.monotonic())))
            except kazoo_errors.NoNodeError:
                found.append(None)
        return found


class ZooKeeperSession:
    """One session. `on_state` gets each of kazoo's states on kazoo's thread, and must not block."""

    def __init__(
        self, connect_text: str, timeout_ms: int, on_state: Callable[[str], object]
    ) -> None:
        self.connect_text = connect_text
        self.client: Any = None
        self.closed = threading.Event()
        self.ids: set[int] = set()  # of this session and the ones before it
        self.lease = Lease(timeout_ms / 1000)
        self._timeout_ms = timeout_ms
        self._on_state = on_state
        self._connected = threading.Event()
        self._beat = threading.Event()
        self._heart = Worker(self._heartbeat, "zookeeper-heartbeat", restarts=True)

    def start(self, timeout_ms: int) -> None:
        """Connect. Raises CoordinationUnavailable; it may be called again then."""
        client: Any = KazooClient(
            hosts=self.connect_text,
            timeout=self._timeout_ms / 1000,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": RECONNECT_DELAY_MAX_S},
            command_retry={"max_tries": 0},
        )
        self._note_negotiated_timeout(client)
        self._shorten_wait_to_reconnect(client)
        client.add_listener(self._on_kazoo_state)
        self.client = client
        client.start_async()
        if not self._connected.wait(timeout_ms / 1000):
            # Should it connect now, its end would look like that of the next attempt's session.
            client.remove_listener(self._on_kazoo_state)
            self.disconnect()
            self._connected.clear()
            raise CoordinationUnavailable(
                f"no answer from ZooKeeper at {self.connect_text} within {timeout_ms} ms"
            )

    def start_heartbeat(self) -> None:
        self._heart.start()

    def close(self) -> None:
        """End the session; calls that wait for a connection end now."""
        self._close()
        self.disconnect()
        self._heart.join()

    def end_calls(self) -> None:
        """As `close`, but nothing is said to the server."""
        self._close()
        self._heart.join()

    def _close(self) -> None:
        self.closed.set()
        self._beat.set()
        self._connected.set()

    def disconnect(self) -> None:
        if self.client is None:
            return
        try:
            self.client.stop()
            self.client.close()
        except (kazoo_errors.KazooException, OSError) as error:
            # The session ends on the server by itself: not worth a warning to a console that ends.
            log.info("zookeeper_close", reason=repr(error))

    def _note_negotiated_timeout(self, client: Any) -> None:
        """Read the session timeout that the server grants, which kazoo does not publish.

        kazoo's read timeout is two thirds of it.
        """
        connection = client._connection
        plain_connect = connection._connect

        def connect(*arguments: Any) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = plain_connect(*arguments)
            self.lease.seconds = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect

    def _shorten_wait_to_reconnect(self, client: Any) -> None:
        """Have kazoo ask for a session again when the answer is late, while the session lives.

        A restarted server accepts connections before it has loaded its data, and does not answer
        those made then. kazoo waits for that answer for the session timeout divided by the number
        of addresses: with one, the session ends meanwhile. As long as for a ping is enough; asking
        for an existing session costs the server nothing, and prolongs it.
        """
        connection = client._connection
        plain_invoke = connection._invoke

        def invoke(timeout_s: float, request: Any, xid: Any = None) -> Any:
            if isinstance(request, Connect) and client._session_id:
                timeout_s = min(timeout_s, self.lease.seconds / WAITS_PER_SESSION)
            return plain_invoke(timeout_s, request, xid)

        connection._invoke = invoke

    def _on_kazoo_state(self, state: str) -> None:
        """Note a state of kazoo's, on its connection thread."""
        if self.closed.is_set():
            return
        if state == KazooState.CONNECTED:
            self.ids.add(self.client._session_id)
            self._connected.set()
            self._beat.set()
        else:
            self._connected.clear()
        self._on_state(state)

    def wait_connected(self, timeout_s: float) -> bool:
        """Whether there is a connection now, or within `timeout_s`."""
        return self._connected.wait(timeout_s)

    @property
    def id(self) -> int | None:
        """The live session's id; None while there is no connection."""
        if self.closed.is_set() or not self._connected.is_set() or self.client is None:
            return None
        session: int | None = self.client._session_id
        return session

    @property
    def last_id(self) -> int | None:
        """The last session's id, which may have ended since; as `id` while there is a connection.

        An answer that came just before the connection ended is still one of that session.
        """
        session: int | None = self.client._session_id if self.client is not None else None
        return session

    def _renew_lease(self, session: int | None, sent_s: float) -> None:
        if session is not None and session == self.id:
            self.lease.renew(session, sent_s)

    def _heartbeat(self) -> None:
        while not self.closed.is_set():
            session, sent_s = self.id, now_s()
            if session is not None:

                def answered(result: Any, session: int = session, sent_s: float = sent_s) -> None:
                    if result.successful():
                        self._renew_lease(session, sent_s)

                self.client.exists_async("/").rawlink(answered)
            self._beat.wait(self.lease.seconds / HEARTBEATS_PER_SESSION)
            self._beat.clear()

    def once(
        self, request: Callable[[Any], Any], deadline_s: float, only_in: int | None = None
    ) -> Any:
        """Make one request on the live client. Raises NoNode or one of coordination.errors.

        `only_in`: the session that it is meant for; SessionLost in any other.
        """
        if self.closed.is_set():
            raise RegistryClosed("the registry is closed")
        if not self._connected.wait(max(0.0, deadline_s - time.monotonic())):
            raise CoordinationUnavailable("not connected to ZooKeeper")
        if self.closed.is_set():
            raise RegistryClosed("the registry is closed")
        session, sent_s = self.id, now_s()
        if only_in is not None and session != only_in:
            if session is None:  # the connection ended again
                raise CoordinationUnavailable("not connected to ZooKeeper")
            raise SessionLost("the session changed before the request was sent")
        try:
            answer = request(self.client).get(timeout=max(0.01, deadline_s - time.monotonic()))
        except kazoo_errors.NoNodeError as error:
            raise NoNode(str(error)) from None
        except kazoo_errors.NodeExistsError as error:
            raise NodeExists(str(error)) from None
        except kazoo_errors.BadVersionError as error:
            raise VersionConflict(str(error)) from None
        except kazoo_errors.NotEmptyError as error:
            raise NotEmpty(str(error)) from None
        except _UNAVAILABLE as error:
            raise CoordinationUnavailable(_reason(error)) from None
        except kazoo_errors.KazooException as error:
            raise CoordinationError(f"ZooKeeper refused: {error!r}") from error
        self._renew_lease(session, sent_s)
        return answer
