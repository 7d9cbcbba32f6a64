"""The replica port: the links that others open and those that this replica opens, by number.

A caller must greet first. One of another broker or cluster is turned away here; whether a member
may follow is for the machine to decide.
"""

import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.core.worker_threads import Job, WorkerThreads
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.network.poller import READABLE, Poller
from kafka2011.broker.network.sender import Sender
from kafka2011.broker.network.server import listening_socket
from kafka2011.broker.replica.frames import Chunk, Greeting, Kind, Purpose, Wire
from kafka2011.broker.replica.link import Link
from kafka2011.broker.replica.peer_calls import Dial, PeerCall
from kafka2011.broker.replication.machine import Canvassing
from kafka2011.coordination.paths import BrokerAddress
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

BACKLOG = 64
LINKS_MAX = 64
ACCEPTS_PER_TURN = 16
ACCEPT_PAUSE_S = 0.2  # after an error, such as running out of descriptors
GREETING_S = 5.0
CALLING_THREADS = 4


class Caller(Protocol):
    """What the port needs of its replica."""

    def greeted(self, link: int, greeting: Greeting) -> None:
        """A replica of this set wants to follow."""

    def told(self, epoch: int) -> None:
        """The leader of `epoch` asks for a look at the state."""

    def canvassed(self) -> Canvassing | None: ...
    def verify(self, link: int) -> None:
        """Compute `Sums`, send them on the link, and finish it."""

    def begin_anew(self, directory: str) -> None:
        """An operator says that the directory is damaged."""

    def connected(self, link: int) -> None: ...
    def frame(self, link: int, frame: Wire) -> None: ...
    def closed(self, link: int, refused: bool) -> None: ...
    def read_chunk(self, partition: str, offset: int, size_max: int) -> tuple[Chunk, FileRegion]:
        """See `link.Host`."""

    def warm_up(self, job: Job, done: Callable[[Any], None]) -> None: ...


class ReplicaPort:
    """A replica's listener and links; after `listen`, for the loop's thread only."""

    def __init__(
        self, loop: Any, poller: Poller, caller: Caller, cluster_id: str, broker_id: int
    ) -> None:
        self.loop = loop
        self.poller = poller
        self.metrics = BrokerMetrics()  # the senders' own: clients are counted elsewhere
        self.port = 0
        self._caller = caller
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._listener: socket.socket | None = None
        self._calls: WorkerThreads | None = None
        self._links: dict[int, Link] = {}
        self._dialling: set[int] = set()
        self._accepted = 0
        self._is_accepting = False
        self._pause: Any = None  # since the last error, until a connection is accepted

    # --- being called --------------------------------------------------------------------------

    def listen(self, host: str, port: int) -> None:
        """Take the port; callers are answered after `start`. Raises OSError."""
        self._listener = listening_socket(host, port, BACKLOG)
        self.port = self._listener.getsockname()[1]

    def start(self) -> None:
        assert self._listener is not None
        self._calls = WorkerThreads(self.loop, "replica-call", CALLING_THREADS)
        self._accept_on()

    def close(self) -> None:
        """Close the listener and all links. Idempotent."""
        self._accept_no_more()
        if self._pause is not None:
            self._pause.cancel()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for link in list(self._links.values()):
            link.close()
        self._links.clear()
        self._dialling.clear()
        if self._calls is not None:
            self._calls.close()
            self._calls = None

    def _accept_on(self) -> None:
        if self._listener is not None and not self._is_accepting:
            self._is_accepting = True
            self.poller.watch(self._listener.fileno(), READABLE, self._accept)

    def _accept_no_more(self) -> None:
        if self._listener is not None and self._is_accepting:
            self._is_accepting = False
            with contextlib.suppress(OSError):
                self.poller.forget(self._listener.fileno())

    def _accept(self, _: int = READABLE) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._listener is None:
                return
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Connections that wait would wake the loop again at once, while the error lasts.
                if self._pause is None:  # the first time in a row
                    _log.error("replica_accept_failed", reason=str(error))
                self._accept_no_more()
                self._pause = self.loop.call_later(ACCEPT_PAUSE_S, self._accept_on)
                return
            self._pause = None
            if len(self._links) >= LINKS_MAX:
                sock.close()
                continue
            self._accepted += 1
            link = self._add(self._accepted, sock, Kind.GREETING)
            if link is not None:
                self.loop.call_later(GREETING_S, self._check_greeted, link)

    def _check_greeted(self, link: Link) -> None:
        if not link.is_greeted:
            self._drop(link)

    def _add(self, number: int, sock: socket.socket, first: Kind) -> Link | None:
        try:
            link = Link(number, sock, self, Sender(sock, self.metrics), frozenset({first}))
        except OSError:
            sock.close()  # it went away meanwhile
            return None
        self._links[number] = link
        return link

    def _greeted(self, link: Link, greeting: Greeting) -> None:
        link.is_greeted = True
        if (greeting.cluster_id, greeting.broker_id) != (self._cluster_id, self._broker_id):
            _log.warning(
                "replica_link_refused",
                reason=f"{greeting.name!r} is of broker {greeting.broker_id} of cluster "
                f"{greeting.cluster_id!r}, this is {self._broker_id} of {self._cluster_id!r}",
            )
            self._drop(link)
        elif greeting.purpose is Purpose.FOLLOW:
            self._caller.greeted(link.number, greeting)
        elif greeting.purpose is Purpose.TELL:
            self._drop(link)
            self._caller.told(greeting.accepted)
        elif greeting.purpose is Purpose.BEGIN_ANEW:
            self._drop(link)
            self._caller.begin_anew(greeting.directory)
        elif greeting.purpose is Purpose.VERIFY:
            self._caller.verify(link.number)
        else:
            answer = self._caller.canvassed()
            if answer is not None:
                link.send(answer, answer.accepted)
            self.finish(link.number)

    # --- calling -------------------------------------------------------------------------------

    def connect(self, number: int, address: BrokerAddress) -> None:
        """Open a link with that number; the caller's `connected` or `closed` is called."""
        self._dialling.add(number)
        assert self._calls is not None
        self._calls.put(Dial(address), lambda dial: self._dialled(number, dial))

    def _dialled(self, number: int, dial: Dial) -> None:
        is_wanted = number in self._dialling
        self._dialling.discard(number)
        if not is_wanted:
            if dial.socket is not None:
                dial.socket.close()
            return
        link = self._add(number, dial.socket, Kind.WELCOME) if dial.socket else None
        if link is None:
            self._caller.closed(number, dial.is_refused)
            return
        link.is_greeted = True
        self._caller.connected(number)

    def ask(
        self, address: BrokerAddress, greeting: Greeting, answered: Callable[[Canvassing], None]
    ) -> None:
        """Canvass or tell, by the greeting's purpose; without an answer nothing is called."""
        if self._calls is not None:
            self._calls.put(PeerCall(address, greeting, answered), PeerCall.finish)

    # --- links ---------------------------------------------------------------------------------

    def get(self, number: int) -> Link | None:
        return self._links.get(number)

    def finish(self, number: int) -> None:
        """Close the link, as `Link.finish` does; nothing more from it is handed in."""
        self._dialling.discard(number)
        link = self._links.pop(number, None)
        if link is not None:
            link.finish()

    def check_progress(self) -> None:
        """End the links that are stuck; to be called now and then."""
        now_s = self.loop.time()
        for link in list(self._links.values()):
            link.check_progress(now_s)

    def _drop(self, link: Link) -> None:
        self._links.pop(link.number, None)
        link.close()

    def received(self, link: Link, frame: Wire) -> None:
        if self._links.get(link.number) is not link:
            return
        if isinstance(frame, Greeting):
            if link.is_greeted:
                self.link_closed(link)
                link.close()
            else:
                self._greeted(link, frame)
        else:
            self._caller.frame(link.number, frame)

    def link_closed(self, link: Link) -> None:
        if self._links.pop(link.number, None) is link:
            self._caller.closed(link.number, False)

    def read_chunk(self, partition: str, offset: int, size_max: int) -> tuple[Chunk, FileRegion]:
        return self._caller.read_chunk(partition, offset, size_max)

    def warm_up(self, job: Job, done: Callable[[Any], None]) -> None:
        self._caller.warm_up(job, done)
