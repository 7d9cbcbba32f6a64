"""The loop's side of the broker: accepts connections within limits, ends each turn with the writes,
keeps the schedules (flush, retention, deadlines), starts and stops.

A turn: the loop calls the readable connections, they hand sets to the logs; then `write_turn` does
one write per log that has something, and asks for the flushes that are due. All of it is one
thread; the disk threads hand their results back through the loop.
"""

import errno
import ipaddress
import random
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka2011.broker.buffers import BufferBudget, BufferPool
from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.connection import BROKEN_READS, Connection
from kafka2011.broker.flushing import DiskThreads
from kafka2011.broker.handlers import RequestHandlers
from kafka2011.broker.log.disk_jobs import FlushJob, Retirement
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.metrics import BrokerMetrics
from kafka2011.broker.polling import READABLE, Poller
from kafka2011.broker.sending import WarmUp
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 0.2  # after running out of descriptors
FLUSH_RETRY_S = 0.5  # likewise
SWEEP_INTERVAL_S = 0.5
RETENTION_DELAY_S = 60.0  # 0.7's cleaner first runs a minute after the start
CLOSINGS_LOGGED_PER_SWEEP = 5  # a flood of bad clients must not become a flood of log lines
STOP_GRACE_S = 5.0  # for responses on their way when the broker stops
DRAIN_READS = 16  # last reads of each connection at a stop
KEEPALIVE_IDLE_S = 60
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

# Ends that are nobody's fault and not worth a line.
_QUIET_ENDS = frozenset({"end", "reset", "stop"})


class BrokerServer:
    """Serves `logs` on one port. Construct, `listen`, `start`, and at the end `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        loop: Any,
        metrics: BrokerMetrics,
        *,
        clock: Clock,
        rng: random.Random,
        topic_seen: Callable[[str], None],
        failed: Callable[[], None],
    ) -> None:
        """`failed` is called when no log takes writes any more."""
        self.loop = loop
        self.poller = Poller(loop, self._end_of_turn)
        self.metrics = metrics
        self.clock = clock
        self.pool = BufferPool()
        self.budget = BufferBudget(config.buffered_request_bytes_max)
        self.turn = 0
        self.request_bytes_max = config.request_bytes_max
        self.message_bytes_max = config.message_bytes_max
        self.read_deadline_s = config.read_deadline_ms / 1000
        self.send_deadline_s = config.send_deadline_ms / 1000
        self.handlers = RequestHandlers(
            config, logs, metrics, rng=rng, appended=self.appended, topic_seen=topic_seen
        )
        self.is_serving = False
        self.port = 0
        self._config = config
        self._logs = logs
        self._failed = failed
        self._group_commit = config.group_commit
        self._disk = DiskThreads(loop, config.flush_threads)
        self._listener: socket.socket | None = None
        self._is_accepting = False
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._dirty: dict[Log, None] = {}
        self._postponed: set[Log] = set()
        self._write_scheduled = False
        self._turn_began_s = 0.0
        self._turn_produced = 0
        self._lent: list[memoryview] = []
        self._closings_logged = 0
        self._timers: dict[str, Any] = {}

    # --- starting and accepting ----------------------------------------------------------------

    def listen(self) -> None:
        """Take the port. Clients may connect from here on; they are served after `start`.

        Raises OSError when the address cannot be used.
        """
        config = self._config
        family, _, _, _, where = socket.getaddrinfo(
            config.listen_address, config.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if config.socket_receive_buffer_bytes:
                listener.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes
                )
            listener.bind(where)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self.port = listener.getsockname()[1]

    def start(self) -> None:
        """Serve, on the loop that runs or will run."""
        self.is_serving = True
        self._accept_on()
        self._every(SWEEP_INTERVAL_S, "sweep", self._sweep)
        if not self._group_commit:
            interval_s = self._config.scheduler_interval_ms / 1000
            self._every(interval_s, "flush", self._flush_due)
        self._every(
            self._config.retention_interval_minutes * 60, "retention", self.retire_now, first=True
        )

    def _every(
        self, interval_s: float, name: str, work: Callable[[], None], first: bool = False
    ) -> None:
        def tick() -> None:
            self._timers[name] = self.loop.call_later(interval_s, tick)
            work()

        delay_s = min(RETENTION_DELAY_S, interval_s) if first else interval_s
        self._timers[name] = self.loop.call_later(delay_s, tick)

    def _accept_on(self) -> None:
        if not self._is_accepting and self._listener is not None:
            self._is_accepting = True
            self.poller.watch(self._listener.fileno(), READABLE, self._accept)

    def _accept_no_more(self) -> None:
        if self._is_accepting and self._listener is not None:
            self._is_accepting = False
            self.poller.forget(self._listener.fileno())

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, where = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    _log.error("accept_failed", reason=str(error))
                # Accepting pauses; the connections that are there go on (fault S14).
                self.metrics.accept_pauses += 1
                self._accept_no_more()
                self._timers["accept"] = self.loop.call_later(ACCEPT_PAUSE_S, self._accept_on)
                return
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
        if address in self._config.unlimited_addresses:
            return True
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = getattr(parsed, "ipv4_mapped", None)
        return (mapped or parsed).is_loopback

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

    def appended(self, log: Log) -> None:
        """`log` took something over, or waits for a roll: write it at the end of this turn."""
        self._dirty[log] = None
        self._schedule_write()

    def produced(self, count: int, began_s: float) -> None:
        """`count` produce requests were handled, the first of them at `began_s`."""
        if not self._turn_produced:
            self._turn_began_s = began_s
        self._turn_produced += count

    def give_back_after_turn(self, buffer: memoryview) -> None:
        """The buffer may still be read by this turn's writes; after them it goes to the pool."""
        self._lent.append(buffer)
        self._schedule_write()

    def _schedule_write(self) -> None:
        """At the end of this turn; when none runs (a flush has ended), as soon as may be."""
        if not self._write_scheduled:
            self._write_scheduled = True
            if not self.poller.in_turn:
                self.loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        if self._write_scheduled:
            self.write_turn()

    def write_turn(self) -> None:
        """Write everything that was handed in, one write per log, and ask for flushes."""
        self._write_scheduled = False
        self.turn += 1
        dirty, self._dirty = self._dirty, {}
        for log in dirty:
            log.write_gathered()
            if self._wants_flush(log):
                self.request_flush(log)
        if self._turn_produced:
            elapsed_s = time.perf_counter() - self._turn_began_s
            self.metrics.request_s["produce"].observe(elapsed_s, self._turn_produced)
            self._turn_produced = 0
        if self._lent:
            lent, self._lent = self._lent, []
            for buffer in lent:
                self.pool.give(buffer)

    def _wants_flush(self, log: Log) -> bool:
        return (
            self._group_commit
            or log.roll_waits
            or log.messages_since_flush_began >= log.flush_interval_messages
            or log.has_flush_waiters
        )

    # --- flushing ------------------------------------------------------------------------------

    def request_flush(self, log: Log) -> None:
        """Start a flush unless one runs; when it ends, another starts if it is still wanted."""
        if log in self._postponed:
            return
        job = log.begin_flush()
        if job is not None:
            self._disk.put(job, partial(self._flushed, log))
        elif log.state is not LogState.ONLINE:
            self._check_all_failed()

    def _flushed(self, log: Log, job: FlushJob) -> None:
        self.metrics.flush_s.observe(job.elapsed_s)
        if job.error is not None:
            self.metrics.flush_errors += 1
            _log.error("flush_failed", partition=log.name, reason=str(job.error))
        log.complete_flush(job)
        if job.is_postponed:
            self._postpone(log)
        if log.has_gathered:
            self.appended(log)
        elif not job.is_postponed and log.flush_wanted and self._wants_flush(log):
            self.request_flush(log)
        self._check_all_failed()

    def _postpone(self, log: Log) -> None:
        """There was no descriptor for a directory (fault S14): this log's flush waits a while."""
        if not self.is_serving:
            return  # closing the log tries once more
        _log.warning("flush_postponed", partition=log.name, reason="no descriptor is free")
        if not self._postponed:
            self._timers["postponed"] = self.loop.call_later(FLUSH_RETRY_S, self._flush_postponed)
        self._postponed.add(log)

    def _flush_postponed(self) -> None:
        logs, self._postponed = self._postponed, set()
        for log in logs:
            self.request_flush(log)

    def _check_all_failed(self) -> None:
        if self.is_serving and self._logs.all_failed:
            self._failed()

    def _flush_due(self) -> None:
        for log in list(self._logs.due_for_flush()):
            self.request_flush(log)

    def warm_up(self, job: WarmUp, done: Callable[[WarmUp], None]) -> None:
        """Read old data from the disk for a response, beside the loop."""
        self.metrics.cold_reads += 1
        self._disk.put(job, done)

    # --- schedules -----------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Close who is past a deadline; end when the last log has failed, wherever it did: making a
        segment or a write may fail without a flush."""
        self._check_all_failed()
        self._closings_logged = 0
        now_s = self.loop.time()
        late = [
            connection
            for connection in self._connections
            if connection.deadline_s is not None and connection.deadline_s < now_s
        ]
        for connection in late:
            connection.close(connection.deadline_reason, "nothing came or went in time")

    def retire_now(self) -> None:
        """One round of retention; the files go in the background."""
        for log, job in self._logs.retire():
            self._disk.put(job, partial(self._retired, log))

    def _retired(self, log: Log, job: Retirement) -> None:
        log.complete_retirement(job)
        self.metrics.retired_segments += len(job.removed)
        self.metrics.retired_bytes += job.bytes_removed
        if job.error is not None:
            self.metrics.retention_errors += 1
            _log.error("retention_failed", partition=log.name, reason=str(job.error))
            return
        _log.info(
            "segments_retired",
            partition=log.name,
            segments=len(job.removed),
            bytes=job.bytes_removed,
            start_offset=log.start_offset,
        )

    def gauges(self) -> dict[str, float]:
        return {
            "connections": len(self._connections),
            "buffered_request_bytes": self.budget.bytes_held,
            "open_segments": len(self._logs.open_files),
            "partitions": len(self._logs.logs),
            "flush_queue": self._disk.waiting,
            "serving": float(self.is_serving),
        }

    # --- stopping ------------------------------------------------------------------------------

    def stop(self, stopped: Callable[[], None]) -> None:
        """Stop accepting, take what has arrived, flush, send what is owed, hang up; then call
        `stopped`. The logs are still open then."""
        self.is_serving = False
        self._accept_no_more()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for connection in list(self._connections):
            for _ in range(DRAIN_READS):
                if connection.is_waiting or not connection.on_readable():
                    break
        self.write_turn()
        self._postponed.clear()
        for log in self._logs.logs.values():
            self.request_flush(log)
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
            self._disk.close()
            # The disk threads' last results are in the loop's queue, before this.
            self.loop.call_soon(stopped)

        finish()


def raise_descriptor_limit() -> int:
    """Take as many descriptors as the system lets us have; returns that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft
