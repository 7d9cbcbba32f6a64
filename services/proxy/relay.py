"""One client connection and its connection to a target, and the bytes between them.

A `Flow` is one direction. Without faults it forwards each piece at once; with a fault set it queues
pieces as its `Link` computes. A flow never holds more than the link's
window (plus one read): above that the sending side is not read, and TCP pushes back from there.

Everything here runs on the event loop's thread. Times are of time.monotonic(): the loop's own
clock stands still during an iteration, which would make delays a little too short.
"""

import asyncio
import contextlib
import socket
import struct
import time
from collections import deque
from typing import Protocol, cast

from kafka2011.services.proxy.faults import TO_CLIENT, TO_SERVER
from kafka2011.services.proxy.frames import FrameFilter
from kafka2011.services.proxy.shaping import Link

# Why a side is not read at the moment (bits).
_TARGET_FULL = 1
_WINDOW_FULL = 2
_HELD = 4
_CONNECTING = 8

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends RST and drops what is unsent
# Above this much unsent, the other side is not read.
WRITE_BUFFER_BYTES = 512 * 1024


class Direction(Protocol):
    """A route's faults and counters for the flows of one direction; see `route.RouteDirection`."""

    link: Link
    bytes_total: int
    swallowed_bytes_total: int

    @property
    def is_held(self) -> bool: ...
    @property
    def is_blackhole(self) -> bool: ...
    @property
    def is_plain(self) -> bool:
        """Whether there is no fault at all, so that pieces may be handed straight on."""
        ...

    def damaged(self, data: bytes) -> tuple[bytes, int | None]:
        """`data` with a due flip done, and where a due cut falls in it (None: no cut)."""
        ...


class Side(asyncio.Protocol):
    """One of a connection's two sockets."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        self.flow: Flow  # what is read here goes into it
        self.is_lost = False
        self._why_paused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.connection.side_made(self)
        # uvloop starts reading after this call, even if it was paused during the call.
        self.connection.loop.call_soon(self._pause_now)

    def data_received(self, data: bytes) -> None:
        self.flow.received(data)

    def eof_received(self) -> bool:
        self.flow.received_end()
        return True  # the other direction goes on

    def pause_writing(self) -> None:
        self.connection.other(self).pause(_TARGET_FULL)

    def resume_writing(self) -> None:
        self.connection.other(self).resume(_TARGET_FULL)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.connection.side_lost(self, error)

    def _pause_now(self) -> None:
        if self._why_paused and self.transport is not None and not self.is_lost:
            self.transport.pause_reading()

    def pause(self, why: int) -> None:
        """Stop reading until every reason is gone, `why` among them."""
        if not self._why_paused and self.transport is not None and not self.is_lost:
            self.transport.pause_reading()
        self._why_paused |= why

    def resume(self, why: int) -> None:
        if not self._why_paused & why:
            return
        self._why_paused &= ~why
        if not self._why_paused and self.transport is not None and not self.is_lost:
            self.transport.resume_reading()

    def reset(self) -> None:
        """Close with RST."""
        if self.transport is None or self.is_lost:
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            # ValueError: uvloop has closed the socket and will report it with connection_lost.
            with contextlib.suppress(OSError, ValueError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()


class Flow:
    """One direction of one connection: from `source`, to `sink`, as `direction` says."""

    def __init__(
        self,
        source: Side,
        sink: Side,
        direction: Direction,
        frames: FrameFilter | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._source = source
        self._sink = sink
        self.direction = direction
        self._frames = frames
        self._loop = loop
        self._waiting: deque[bytes] = deque()  # not on the link yet; b"" is the end
        self._on_link: bytes | None = None  # being serialised
        # (arrival, piece), in the order of sending: an early one waits for those before it
        self._flying: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0
        self._link_timer: asyncio.TimerHandle | None = None
        self._arrival_timer: asyncio.TimerHandle | None = None
        self._is_plain = False  # until there is a sink
        self.lost_bytes = False  # bytes were discarded: the stream has a gap
        self.is_finished = False  # the end was passed on

    def received(self, data: bytes) -> None:
        direction = self.direction
        direction.bytes_total += len(data)
        if self._is_plain:
            if self._frames is not None:
                data = self._frames.feed(data)
            self._pass_on(data)
            return
        if direction.is_blackhole:
            self.lost_bytes = True
            direction.swallowed_bytes_total += len(data)
            return
        data, cut_at = direction.damaged(data)
        if cut_at is not None:
            self._pass_on_all()
            self._pass_on(data[:cut_at])
            self._source.connection.close()
            return
        if self._frames is not None:
            data = self._frames.feed(data)
        if data:
            self._queue(data)

    def received_end(self) -> None:
        if self.direction.is_blackhole:
            self.lost_bytes = True
            return
        if self._frames is not None and (rest := self._frames.finish()):
            self._queue(rest)
        self._waiting.append(b"")
        self._serialise()

    @property
    def _is_stopped(self) -> bool:
        return self.direction.is_held or self._sink.transport is None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued here."""
        return not (self._waiting or self._flying or self._on_link is not None)

    def refresh(self) -> None:
        """Reschedule everything queued, because the route's faults changed."""
        direction = self.direction
        if direction.is_held:
            self._source.pause(_HELD)
        else:
            self._source.resume(_HELD)
        self._cancel_timers()
        if self._on_link is not None:
            self._waiting.appendleft(self._on_link)
            self._on_link = None
        now_s = time.monotonic()
        self._flying = deque(
            (min(arrival_s, direction.link.arrival(now_s)), piece)
            for arrival_s, piece in self._flying
        )
        self._serialise()
        self._deliver()
        self._settle()

    def close(self) -> None:
        """Discard what is queued."""
        self._cancel_timers()
        self._waiting.clear()
        self._flying.clear()
        self._on_link = None

    def _cancel_timers(self) -> None:
        if self._link_timer is not None:
            self._link_timer.cancel()
            self._link_timer = None
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None

    def _queue(self, data: bytes) -> None:
        self._queued_bytes += len(data)
        self._waiting.append(data)
        self._serialise()
        if self._queued_bytes > self.direction.link.window_bytes:
            self._source.pause(_WINDOW_FULL)

    def _serialise(self) -> None:
        """Put what waits on the link; with a rate, one piece at a time."""
        link = self.direction.link
        if self._is_stopped:
            return
        while self._waiting and self._on_link is None:
            data = self._waiting.popleft()
            if not link.rate_bytes_s or not data:
                self._fly(data)
                continue
            if len(data) > link.piece_bytes:
                self._waiting.appendleft(data[link.piece_bytes :])
                data = data[: link.piece_bytes]
            self._on_link = data
            now_s = time.monotonic()
            done_s = link.reserve(now_s, len(data))
            self._link_timer = self._loop.call_later(done_s - now_s, self._serialised)

    def _serialised(self) -> None:
        self._link_timer = None
        piece, self._on_link = self._on_link, None
        assert piece is not None
        self._fly(piece)
        self._serialise()

    def _fly(self, piece: bytes) -> None:
        now_s = time.monotonic()
        arrival_s = self.direction.link.arrival(now_s)
        self._flying.append((arrival_s, piece))
        if self._arrival_timer is None:
            self._deliver()

    def _deliver(self) -> None:
        """Forward what has arrived, and schedule the next."""
        self._arrival_timer = None
        if self._is_stopped:
            return
        now_s = time.monotonic()
        while self._flying and self._flying[0][0] <= now_s:
            _, piece = self._flying.popleft()
            if piece:
                self._queued_bytes -= len(piece)
                self._pass_on(piece)
            else:
                self._pass_on_end()
        if self._flying:
            self._arrival_timer = self._loop.call_later(self._flying[0][0] - now_s, self._deliver)
        if self._queued_bytes <= self.direction.link.window_bytes // 2:
            self._source.resume(_WINDOW_FULL)
        self._settle()

    def _settle(self) -> None:
        self._is_plain = self.direction.is_plain and self.is_idle and not self._is_stopped
        self._source.connection.close_if_done()

    def _pass_on(self, data: bytes) -> None:
        sink = self._sink
        if data and sink.transport is not None and not sink.is_lost:
            sink.transport.write(data)

    def _pass_on_all(self) -> None:
        """Forward everything queued at once, ignoring the link."""
        on_link = [] if self._on_link is None else [self._on_link]
        for piece in [*(piece for _, piece in self._flying), *on_link, *self._waiting]:
            self._pass_on(piece)

    def _pass_on_end(self) -> None:
        self.is_finished = True
        sink = self._sink
        if sink.transport is not None and not sink.is_lost and sink.transport.can_write_eof():
            with contextlib.suppress(OSError):
                sink.transport.write_eof()


class Connection:
    """A client's connection, its target's, and the two flows between."""

    def __init__(
        self,
        owner: "Owner",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._owner = owner
        self.loop = loop
        self.client = Side(self)
        self.server = Side(self)
        self.to_server = Flow(
            self.client, self.server, owner.direction(TO_SERVER), owner.frame_filter(), loop
        )
        self.to_client = Flow(self.server, self.client, owner.direction(TO_CLIENT), None, loop)
        self.client.flow = self.to_server
        self.server.flow = self.to_client
        self.is_closed = False
        self.client.pause(_CONNECTING)

    def other(self, side: Side) -> Side:
        return self.server if side is self.client else self.client

    def side_made(self, side: Side) -> None:
        if self.is_closed:  # the client left during the connect
            side.reset()
        elif side is self.client:
            self._owner.client_connected(self)
        else:
            self.refresh()
            self.client.resume(_CONNECTING)

    def refresh(self) -> None:
        """Apply the route's changed faults."""
        flows = (self.to_server, self.to_client)
        if any(flow.lost_bytes and not flow.direction.is_blackhole for flow in flows):
            self.reset()  # a stream with a gap cannot continue
            return
        for flow in flows:
            flow.refresh()

    def side_lost(self, side: Side, error: Exception | None) -> None:
        """Note that a socket was closed. After an error, or with nothing queued, reset both."""
        if self.is_closed:
            self._owner.connection_closed(self)
            return
        if side.flow.direction.is_blackhole:
            side.flow.lost_bytes = True  # the close is discarded as well
            return
        if error is not None or side.flow.is_idle:
            self.reset()
        # else: bytes sent before are still queued; `close_if_done` ends it.

    def close_if_done(self) -> None:
        """Close when both directions have ended and everything was passed on."""
        if self.is_closed:
            return
        to_server, to_client = self.to_server, self.to_client
        ended = to_server.is_finished and to_client.is_finished
        orphaned = any(s.is_lost and s.flow.is_idle and not s.flow.lost_bytes for s in self.sides)
        if ended or orphaned:
            self.close()

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.client, self.server

    @property
    def is_gone(self) -> bool:
        """Whether both sockets are closed."""
        return all(side.transport is None or side.is_lost for side in self.sides)

    def close(self) -> None:
        """Close both sides after what was written to them has left."""
        self._close_flows()
        for side in self.sides:
            if side.transport is not None and not side.is_lost:
                side.transport.close()
        self._owner.connection_closed(self)

    def reset(self) -> None:
        """RST both sides at once."""
        self._close_flows()
        for side in self.sides:
            side.reset()
        self._owner.connection_closed(self)

    def _close_flows(self) -> None:
        self.is_closed = True
        self.to_server.close()
        self.to_client.close()


class Owner(Protocol):
    """The route of a connection, as the connection uses it."""

    def direction(self, name: str) -> Direction: ...
    def frame_filter(self) -> FrameFilter | None: ...
    def client_connected(self, connection: Connection) -> None: ...
    def connection_closed(self, connection: Connection) -> None: ...
