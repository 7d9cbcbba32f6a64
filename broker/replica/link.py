"""One connection between two replicas: receives frames, sends frames and the bytes of logs.

A log's bytes are read when their turn comes, and go from the file to the socket. Nothing that the
other side sends or leaves unread makes this side's memory grow: what arrives is handled frame by
frame, and of what waits to be sent only the range is kept (`outbox`).
"""

import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol

from kafka2011.broker.core.worker_threads import Job
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.network.poller import BROKEN, READABLE, WRITABLE, Poller
from kafka2011.broker.network.sender import Progress, Reply, Sender, WarmUp
from kafka2011.broker.replica import frames
from kafka2011.broker.replica.frames import Chunk, FrameReader, Kind, Wire
from kafka2011.broker.replica.outbox import Outbox, Range
from kafka2011.broker.replication.frames import Data, Mark
from kafka2011.protocol.errors import ProtocolError
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

READ_BYTES = 256 * 1024
READS_PER_TURN = 4
SEND_BYTES_PER_TURN = 4 * 1024 * 1024
FINISH_S = 2.0  # for the last frames of a link that is being closed
STUCK_S = 30.0  # without a byte taken, while some wait: then the link ends
PIECE_BYTES_MIN = 4096
USER_TIMEOUT_MS = 15_000  # bytes that are not acknowledged for so long end the connection


class Host(Protocol):
    """What a link needs of its replica."""

    loop: Any
    poller: Poller

    def received(self, link: "Link", frame: Wire) -> None: ...

    def link_closed(self, link: "Link") -> None:
        """Called when the other side, or an error, has ended the link."""

    def read_chunk(self, partition: str, offset: int, size_max: int) -> tuple[Chunk, FileRegion]:
        """A chunk without its bytes, and their place in a file. Raises OSError, PartitionError."""

    def warm_up(self, job: Job, done: Callable[[Any], None]) -> None: ...


class Pace:
    """Limits what is sent to `bytes_per_s`, in pieces worth a quarter of a second (or of
    PIECE_BYTES_MIN), so that the other side does not take the pauses for silence."""

    def __init__(self, bytes_per_s: int) -> None:
        self.piece_bytes_max = max(PIECE_BYTES_MIN, bytes_per_s // 4)
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long to wait before anything is sent; 0 when it may be now."""
        return max(0.0, self._free_s - now_s)

    def sent(self, size_bytes: int, now_s: float) -> None:
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s


class Link:
    """One connection to another replica; `number` is what the machine calls it."""

    def __init__(
        self, number: int, sock: socket.socket, host: Host, sender: Sender, first: frozenset[Kind]
    ) -> None:
        """`first` are the kinds of frames that the other side may begin with."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, USER_TIMEOUT_MS // 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        self.number = number
        self.is_closed = False
        self.is_greeted = False
        self.pace: Pace | None = None  # of the bytes of logs; may be shared by links
        self._paces = False  # waits for its pace
        self._socket = sock
        self._host = host
        self._sender = sender
        self._reader = FrameReader(first)
        self._outbox = Outbox()
        self._epoch = 0
        self._told: dict[str, int] = {}  # the watermarks that the other side was sent
        self._is_warming = False
        self._is_finishing = False
        self._reading_waits = False
        self._is_pumping = False
        self._moved_bytes = 0
        self._moved_s = host.loop.time()
        host.poller.watch(sock.fileno(), READABLE, self._on_ready)

    def settle(self, epoch: int) -> None:
        """Set the link's epoch: from here on every frame of both sides has it."""
        self._epoch = self._reader.epoch = epoch

    # --- sending -------------------------------------------------------------------------------

    def send(self, frame: Wire | Data, epoch: int | None = None) -> None:
        """Send a frame when its turn comes; `epoch` is for one sent before the link has one."""
        if self.is_closed:
            return
        if isinstance(frame, Data):
            self._outbox.put_range(frame.partition, frame.offset, frame.end)
        elif isinstance(frame, Mark):
            self._outbox.put_mark(frame)
        else:
            self._outbox.put(frames.encode(frame, self._epoch if epoch is None else epoch))
        self._pump()

    def finish(self) -> None:
        """Send what waits, then close; nothing more is received. A link that has an epoch is closed
        at once: what waits are ranges of logs, and this replica may soon have other bytes there."""
        if self._epoch:
            self.close()
        if self.is_closed or self._is_finishing:
            return
        self._is_finishing = True
        self._host.loop.call_later(FINISH_S, self.close)
        self._pump()

    def _pump(self) -> None:
        """Send until the socket is full. A nested call leaves it to the one under way."""
        if self.is_closed or self._is_warming or self._is_pumping:
            return
        self._is_pumping = True
        try:
            progress = self._send_some()
            if progress is Progress.COLD:
                self._is_warming = True
                self._host.warm_up(self._sender.next_warm_up(), self._on_warm)
        except Exception as error:  # a bug costs the link, as bytes that cannot be read do
            self._end(error)
            return
        finally:
            self._is_pumping = False
        if progress is Progress.ALL_SENT and self._is_finishing:
            self.close()
            return
        self._watch(progress is Progress.SOCKET_FULL)

    def _send_some(self) -> Progress:
        until = self._sender.progress_bytes + SEND_BYTES_PER_TURN
        while True:
            progress = self._sender.send()
            if progress is not Progress.ALL_SENT:
                return progress
            if self._sender.progress_bytes >= until:
                return Progress.SOCKET_FULL
            item = self._outbox.next()
            if item is None:
                return Progress.ALL_SENT
            if isinstance(item, Range):
                if self._must_wait():
                    return Progress.ALL_SENT
                self._put_chunk(item)
            elif isinstance(item, Mark):
                self._sender.put(Reply([self._encoded_mark(item)]))
            else:
                self._sender.put(Reply([item]))

    def _put_chunk(self, waiting: Range) -> None:
        size_max = min(frames.CHUNK_BYTES_MAX, waiting.end - waiting.offset)
        if self.pace is not None:
            size_max = min(size_max, self.pace.piece_bytes_max)
        chunk, region = self._host.read_chunk(waiting.partition, waiting.offset, size_max)
        self._outbox.sent(waiting.partition, waiting.offset + region.count)
        if self.pace is not None:
            self.pace.sent(region.count, self._host.loop.time())
        header = frames.encode_chunk_header(chunk, region.count, self._epoch)
        self._sender.put(Reply([header, region]))

    def _must_wait(self) -> bool:
        """Whether the pace makes the link wait; then a timer resumes it."""
        wait_s = self.pace.wait_s(self._host.loop.time()) if self.pace is not None else 0.0
        if wait_s and not self._paces:
            self._paces = True
            self._host.loop.call_later(wait_s, self._go_on)
        return wait_s > 0

    def _go_on(self) -> None:
        self._paces = False
        self._pump()

    def _encoded_mark(self, mark: Mark) -> bytes:
        """The mark with only those watermarks that have moved since the last one on this link."""
        told = self._told
        moved = {name: at for name, at in mark.watermarks.items() if told.get(name) != at}
        told |= moved
        return frames.encode(Mark(mark.number, moved, mark.flush_age_ms), self._epoch)

    def _on_warm(self, warm_up: WarmUp) -> None:
        warm_up.finish()
        self._is_warming = False
        if warm_up.error is not None:
            self._end(warm_up.error)
        else:
            self._pump()

    # --- receiving -----------------------------------------------------------------------------

    def hold_reading(self) -> None:
        """Receive and handle nothing more before `read_on`."""
        self._reading_waits = True

    def read_on(self) -> None:
        self._reading_waits = False
        if not self.is_closed:
            self._handle_frames()
            self._watch(True)

    def _watch(self, writes: bool) -> None:
        if not self.is_closed:
            events = (0 if self._reading_waits else READABLE) | (WRITABLE if writes else 0)
            self._host.poller.watch(self._socket.fileno(), events, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if not self._reading_waits:
            self._receive()
        elif events & BROKEN:  # which reading would find
            self._end(ConnectionResetError())
        self._pump()

    def _receive(self) -> None:
        try:
            for _ in range(READS_PER_TURN):
                if self.is_closed or self._reading_waits:
                    return
                data = self._socket.recv(READ_BYTES)
                if not data:
                    self._end(None)
                    return
                self._reader.feed(data)
                self._handle_frames()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)

    def _handle_frames(self) -> None:
        try:
            while not (self.is_closed or self._is_finishing or self._reading_waits):
                frame = self._reader.next()
                if frame is None:
                    return
                self._host.received(self, frame)
        except ProtocolError as error:
            _log.warning("replica_link_refused", reason=str(error))
            self._end(error)

    def check_progress(self, now_s: float) -> None:
        """End the link if the other side has taken nothing for STUCK_S: a process that hangs keeps
        its connection, and what waits for it would grow."""
        moved_bytes = self._sender.progress_bytes
        if self._outbox.is_empty or moved_bytes != self._moved_bytes:
            self._moved_bytes, self._moved_s = moved_bytes, now_s
        elif now_s - self._moved_s > STUCK_S:
            self._end(TimeoutError(f"nothing was taken for {STUCK_S:.0f} s"))

    # --- ending --------------------------------------------------------------------------------

    def _end(self, error: Exception | None) -> None:
        if self.is_closed:
            return
        if error is not None and not isinstance(error, (ConnectionError, ProtocolError)):
            _log.warning("replica_link_failed", reason=repr(error))
        told = not self._is_finishing
        self.close()
        if told:
            self._host.link_closed(self)

    def close(self) -> None:
        """Close at once; the host is not called. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._host.poller.forget(self._socket.fileno())
        self._sender.drop()
        self._socket.close()
