"""Accepts connections within limits, ends each turn of the loop with the writes, keeps deadlines,
starts and stops.

A turn: the loop calls the readable connections, whose sessions append; then `write_turn` has the
disk scheduler write once per log. All of it is one thread.
"""

import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from kafka2011.broker.config import BrokerConfig, plain_address
from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.core.disk_scheduler import DiskScheduler
from kafka2011.broker.core.worker_threads import Job, WorkerThreads
from kafka2011.broker.network.buffers import RequestMemory
from kafka2011.broker.network.channel import Channel, Session
from kafka2011.broker.network.connection import BROKEN_READS, LAST_READS, Connection
from kafka2011.broker.network.gathering import Gathering
from kafka2011.broker.network.poller import READABLE, Poller
from kafka2011.broker.network.sender import WarmUp
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 0.2  # after a failure, mostly for want of descriptors
SWEEP_INTERVAL_S = 0.5
# A flood of bad clients must not become a flood of log lines; of refused ones, one for each reason.
CLOSINGS_LOGGED_PER_SWEEP = 5
STOP_GRACE_S = 5.0  # for responses on their way when the broker stops
KEEPALIVE_IDLE_S = 60

# Ordinary ends, not worth a line.
_QUIET_ENDS = frozenset({"end", "reset", "stop"})


class BrokerServer:
    """Serves one port. Construct, `listen`, `start`, and at the end `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: Any,
        disk: DiskScheduler,
        metrics: BrokerMetrics,
        session_for: Callable[[Channel], Session],
    ) -> None:
        """`session_for` makes the protocol's side of a new connection."""
        self.loop = loop
        self.poller = Poller(loop, self._end_of_turn)
        self.metrics = metrics
        self.session_for = session_for
        self.memory = RequestMemory(config.buffered_request_bytes_max)
        self.turn = 0
        self.read_deadline_s = config.read_deadline_ms / 1000
        self.send_deadline_s = config.send_deadline_ms / 1000
        self.is_serving = False
        self.is_paused = False
        self.port = 0
        self._config = config
        self._disk = disk
        # One thread: what sets unpack to while they are checked takes memory, too.
        self._checkers = WorkerThreads(loop, "check", 1)
        disk.wake = self._schedule_write
        disk.watch_held(self._held_changed)
        self._listener: socket.socket | None = None
        self._is_accepting = False
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._write_scheduled = False
        self._turn_began_s = 0.0
        self._turn_produced = 0
        self._produced = 0
        self._gathering = Gathering()
        self._lent: list[memoryview] = []
        self._is_room_made = False
        self._closings_logged = 0
        self._refusals_logged: set[str] = set()
        self._has_accept_failed = False
        self._timers: dict[str, Any] = {}

    # --- starting and accepting ----------------------------------------------------------------

    def listen(self) -> None:
        """Take the port. Clients may connect from here on; they are served after `start`.

        Raises OSError when the address cannot be used.
        """
        config = self._config
        self._listener = listening_socket(
            config.listen_address,
            config.port,
            BACKLOG,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        self.port = self._listener.getsockname()[1]

    def start(self) -> None:
        """Serve, on the loop that runs or will run."""
        self.is_serving = True
        self._accept_on()
        self._disk.start()
        self._sweep_later()

    def _accept_on(self) -> None:
        if not self._is_accepting and self._listener is not None:
            self._is_accepting = True
            self.poller.watch(self._listener.fileno(), READABLE, self._accept)

    def _accept_no_more(self) -> None:
        if self._is_accepting and self._listener is not None:
            self._is_accepting = False
            self.poller.forget(self._listener.fileno())

    def _accept(self, _: int = READABLE) -> None:
        assert self._listener is not None
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, where = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if not self._has_accept_failed:  # the first time in a row
                    self._has_accept_failed = True
                    _log.error("accept_failed", reason=str(error))
                # Accepting pauses; the connections that are there go on.
                self.metrics.accept_pauses += 1
                self._accept_no_more()
                self._timers["accept"] = self.loop.call_later(ACCEPT_PAUSE_S, self._accept_on)
                return
            self._has_accept_failed = False
            self._admit(sock, where[0])

    def _admit(self, sock: socket.socket, address: str) -> None:
        config = self._config
        refusal = ""
        if len(self._connections) >= config.connections_max:
            refusal = "connections-max"
        elif self._per_address[
            address
        ] >= config.connections_per_address_max and not self._is_unlimited(address):
            refusal = "connections-max-per-address"
        if refusal:
            self.metrics.count_refused_connection(refusal)
            if refusal not in self._refusals_logged:
                self._refusals_logged.add(refusal)
                _log.warning("connection_refused", client=address, reason=refusal)
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
            if config.socket_send_buffer_bytes:
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes
                )
        except OSError:
            sock.close()  # it went away between accept and here
            return
        connection = Connection(sock, address, self)
        self._connections.add(connection)
        self._per_address[address] += 1
        self.metrics.connections_accepted += 1
        connection.start()

    def _is_unlimited(self, address: str) -> bool:
        try:
            plain = plain_address(address)
        except ValueError:
            return False
        return plain.is_loopback or str(plain) in self._config.unlimited_addresses

    def connection_closed(self, connection: Connection, reason: str, detail: str) -> None:
        self._connections.discard(connection)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]
        self.metrics.count_closed(reason)
        if reason not in _QUIET_ENDS and self._closings_logged < CLOSINGS_LOGGED_PER_SWEEP:
            self._closings_logged += 1
            log = _log.error if reason in BROKEN_READS else _log.warning
            log("connection_closed", client=connection.address, reason=reason, detail=detail)

    # --- the end of a turn ---------------------------------------------------------------------

    def produced(self, count: int, began_s: float) -> None:
        """`count` produce requests were handled, the first of them at `began_s`."""
        if not self._turn_produced:
            self._turn_began_s = began_s
        self._turn_produced += count
        self._produced += count

    def give_back_after_turn(self, buffer: memoryview) -> None:
        """Return the buffer after this turn's writes, which may still read it."""
        self._lent.append(buffer)
        self._schedule_write()

    def _held_changed(self, size_bytes: int) -> None:
        """Count a change of what the logs hold; a decrease makes room after this turn."""
        self.memory.count_held(size_bytes)
        if size_bytes < 0:
            self._is_room_made = True
            self._schedule_write()

    def _schedule_write(self) -> None:
        """Write at the end of this turn; between turns (a flush has ended), as soon as possible."""
        if not self._write_scheduled:
            self._write_scheduled = True
            if not self.poller.in_turn:
                self.loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        if self._write_scheduled:
            self.write_turn()
        self.poller.pause_s = self._gathering.pause_s(
            time.perf_counter(), self._produced, self.metrics.bytes_read
        )

    def write_turn(self) -> None:
        """Write what was appended; afterwards the buffers that were lent may change."""
        self._write_scheduled = False
        self.turn += 1
        self._disk.write()
        if self._turn_produced:
            elapsed_s = time.perf_counter() - self._turn_began_s
            self.metrics.request_s["produce"].observe(elapsed_s, self._turn_produced)
            self._turn_produced = 0
        if self._lent:
            lent, self._lent = self._lent, []
            for buffer in lent:
                self.memory.give(buffer)
            self._is_room_made = True
        if self._is_room_made:
            self._is_room_made = False
            self.memory.wake()

    def warm_up(self, job: WarmUp, done: Callable[[WarmUp], None]) -> None:
        """Read old data from the disk for a response, beside the loop."""
        self.metrics.cold_reads += 1
        self._disk.read(job, done)

    def check(self, job: Job, done: Callable[[Job], None]) -> None:
        """Run a check beside the loop, which it would block for too long."""
        self.metrics.checks_beside_loop += 1
        self._checkers.put(job, done)

    # --- deadlines -----------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._timers["sweep"] = self.loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that are past a deadline."""
        self._sweep_later()
        self._closings_logged = 0
        self._refusals_logged.clear()
        now_s = self.loop.time()
        late = [
            connection
            for connection in self._connections
            if connection.deadline_s is not None and connection.deadline_s < now_s
        ]
        for connection in late:
            connection.close(connection.deadline_reason, "no bytes transferred before the deadline")
        for connection in self._connections:
            connection.tidy()
            connection.look_for_end()

    def gauges(self) -> dict[str, float]:
        return {
            "connections": len(self._connections),
            "buffered_request_bytes": self.memory.bytes_held,
            "flush_queue": self._disk.queue_length,
            "read_queue": self._disk.read_queue_length,
            "check_queue": self._checkers.waiting,
            "serving": float(self.is_serving),
        }

    # --- a replica's clients -------------------------------------------------------------------

    def open(self) -> None:
        """Let clients in, in a server that was started without `listen`. Raises OSError."""
        self.listen()
        self.is_paused = False
        self._accept_on()

    def hang_up(self) -> None:
        """Let no more clients in, and close all connections."""
        self._close_listener()
        for connection in list(self._connections):
            connection.close("leads-no-more")
        self.write_turn()

    def pause(self, paused: bool) -> None:
        """Read nothing from clients beyond what has arrived; or, with False, read on."""
        self.is_paused = paused
        for connection in list(self._connections):
            if paused:
                connection.pause()
            else:
                connection.resume()

    def drained(self) -> bool:
        """Whether everything that has arrived is written; asked while clients are paused."""
        settled = [connection.has_settled() for connection in list(self._connections)]
        self.write_turn()
        return all(settled)

    def _drain(self, connection: Connection) -> None:
        for _ in range(LAST_READS):
            if connection.is_waiting or not connection.on_readable():
                break

    def _close_listener(self) -> None:
        self._accept_no_more()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    # --- stopping ------------------------------------------------------------------------------

    def stop(self, stopped: Callable[[], None]) -> None:
        """Stop accepting, take what has arrived, flush, send the responses that are due, hang up;
        then call `stopped`. The logs are still open then."""
        self.is_serving = False
        self._close_listener()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._disk.stop()
        if self.is_paused:
            self.pause(False)
        for connection in list(self._connections):
            self._drain(connection)
        self.write_turn()
        self._disk.flush_all()
        deadline_s = self.loop.time() + STOP_GRACE_S

        def finish() -> None:
            owed = any(
                connection.is_waiting and not connection.is_closed
                for connection in self._connections
            )
            if owed and self.loop.time() < deadline_s:
                self.loop.call_later(0.02, finish)
                return
            for connection in list(self._connections):
                connection.close("stop")
            self.write_turn()
            self.poller.close()
            self._checkers.close()
            self._disk.close()
            # The threads' last results are in the loop's queue ahead of this.
            self.loop.call_soon(stopped)

        finish()


def listening_socket(
    host: str, port: int, backlog: int, *, receive_buffer_bytes: int | None = None
) -> socket.socket:
    """A socket that takes connections and does not block. Raises OSError when the address cannot be
    used."""
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listener.bind(where)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def raise_descriptor_limit() -> int:
    """Take as many descriptors as the system lets us have; returns that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft
