"""One route: its listening socket, its targets in turn, its connections and its faults.

Everything here runs on the event loop's thread; `proxy.py` brings calls there from others.
"""

import asyncio
import contextlib
import dataclasses
import random
import socket
from typing import Any

from kafka2011.events.topics import AUDIT
from kafka2011.protocol.requests import LATEST, OffsetsRequest, encode_request
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import listening_on
from kafka2011.services.proxy.balancing import Target, TargetRing
from kafka2011.services.proxy.config import ProxyConfig, RouteConfig
from kafka2011.services.proxy.faults import DIRECTIONS, TO_CLIENT, TO_SERVER, Faults
from kafka2011.services.proxy.frames import DropPlan, FrameFilter
from kafka2011.services.proxy.relay import Connection, Direction, Side
from kafka2011.services.proxy.shaping import Link

BACKLOG = 1024
STOP_TIMEOUT_S = 2.0  # for forwarded bytes that are unsent
# A health check asks for the end of a partition. The answer begins with a size and an error code,
# whether or not the target has the partition.
CHECK_REQUEST = encode_request(OffsetsRequest(AUDIT, 0, LATEST, 1))
RESPONSE_HEAD_BYTES = 6
CHECKS_MISSED = 2
NO_ANSWER = "no answer to a request"
# TimeoutError is an OSError; ValueError: no look-up can be made of the name.
CANNOT_CONNECT = (OSError, ValueError)

log = get_logger(__name__)


class RouteDirection:
    """The faults and the counters of one direction of a route."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.link = Link(rng)
        self.bytes_total = 0
        self.swallowed_bytes_total = 0
        self.flipped_total = 0
        self.cut_total = 0
        self.is_held = False
        self.is_blackhole = False
        # How many more bytes until the fault; None: not requested, or done.
        self.flip_after_bytes: int | None = None
        self.cut_after_bytes: int | None = None

    def configure(self, faults: Faults, before: Faults) -> None:
        self.link.configure(faults.rate_bytes_s, faults.delay_ms, faults.jitter_ms)
        self.is_held = self.name in faults.hold
        self.is_blackhole = self.name in faults.blackhole
        # One-time faults count from each change that names them (see `changed`), not from others.
        if faults.flip is not before.flip:
            self.flip_after_bytes = _countdown(faults.flip, self.name)
        if faults.cut_after is not before.cut_after:
            self.cut_after_bytes = _countdown(faults.cut_after, self.name)

    @property
    def is_plain(self) -> bool:
        return (
            self.link.is_plain
            and not self.is_held
            and not self.is_blackhole
            and self.flip_after_bytes is None
            and self.cut_after_bytes is None
        )

    def damaged(self, data: bytes) -> tuple[bytes, int | None]:
        if self.flip_after_bytes is not None:
            if self.flip_after_bytes < len(data):
                flipped = bytearray(data)
                flipped[self.flip_after_bytes] ^= 1
                data = bytes(flipped)
                self.flip_after_bytes = None
                self.flipped_total += 1
            else:
                self.flip_after_bytes -= len(data)
        if self.cut_after_bytes is not None:
            if self.cut_after_bytes <= len(data):
                cut_at, self.cut_after_bytes = self.cut_after_bytes, None
                self.cut_total += 1
                return data, cut_at
            self.cut_after_bytes -= len(data)
        return data, None


def _countdown(fault: Any, direction: str) -> int | None:
    return fault.after_bytes if fault is not None and fault.direction == direction else None


class Route:
    """One route. It is made, started, changed and stopped on the loop's thread."""

    def __init__(
        self, route: RouteConfig, config: ProxyConfig, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.name = route.name
        self.listen = route.listen
        self.faults = Faults()
        self.plan = DropPlan()
        self.accepted_total = 0
        self.unserved_total = 0  # client connections closed because no target answered
        self._is_serving = True  # as was seen with the last client
        self._config = config
        self._loop = loop
        self.ring = TargetRing(
            route.targets, config.retry_min_ms / 1000, config.retry_max_ms / 1000
        )
        rng = random.Random()
        self.directions = {name: RouteDirection(name, rng) for name in DIRECTIONS}
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None

    async def start(self) -> None:
        """Listen. Raises CannotListen when the address cannot be had."""
        # A second socket, bound but never listening, keeps the port while the route is cut.
        with listening_on(*self.listen, "proxy.routes"):
            self._reserved = _bound(self.listen)
        self.listen = (self.listen[0], self._reserved.getsockname()[1])
        await self.change(self._config.faults)
        if self._server is None and not self.faults.cut:
            await self._open()
        for target in self.ring.targets:
            self._start_task(self._watch(target))

    async def stop(self) -> None:
        """Refuse new connections and close open ones after sending what was forwarded."""
        self._shut()
        if self._reserved is not None:
            self._reserved.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        connections = list(self._connections)
        for connection in connections:
            connection.close()
        # A peer that does not read must not block the stop.
        deadline = self._loop.time() + STOP_TIMEOUT_S
        while not all(connection.is_gone for connection in connections):
            if self._loop.time() > deadline:
                for connection in connections:
                    connection.reset()
                return
            await asyncio.sleep(0.005)

    async def change(self, faults: Faults) -> None:
        """Make `faults` the faults of this route, at once."""
        before, self.faults = self.faults, faults
        for direction in self.directions.values():
            direction.configure(faults, before)
        wanted = faults.drop_messages
        if wanted is not before.drop_messages:
            self.plan.start(wanted.topic if wanted else "", wanted.count if wanted else 0)
        if faults.cut:
            self._shut()
            self.reset_connections()
        elif self._server is None and self._reserved is not None:
            await self._open()
        for connection in list(self._connections):
            connection.refresh()

    def reset_connections(self) -> None:
        for connection in list(self._connections):
            connection.reset()

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def _faults_left(self) -> Faults:
        """The faults without one-time ones that are done."""
        faults, directions = self.faults, self.directions.values()
        if all(one.flip_after_bytes is None for one in directions):
            faults = dataclasses.replace(faults, flip=None)
        if all(one.cut_after_bytes is None for one in directions):
            faults = dataclasses.replace(faults, cut_after=None)
        if not self.plan.is_active:
            faults = dataclasses.replace(faults, drop_messages=None)
        return faults

    def status(self) -> dict[str, Any]:
        return {
            "listen": f"{self.listen[0]}:{self.listen[1]}",
            "targets": [
                {
                    "address": f"{target.address[0]}:{target.address[1]}",
                    "up": target.is_up,
                    "connections_total": target.connections_total,
                    "failures_total": target.failures_total,
                }
                for target in self.ring.targets
            ],
            "faults": self._faults_left().as_json(),
            "connections": self.open_connections,
            "accepted_total": self.accepted_total,
            "unserved_total": self.unserved_total,
            "dropped_messages": dict(self.plan.dropped),
            "drop_remaining": self.plan.remaining_count,
            **{
                name: {
                    "bytes": direction.bytes_total,
                    "swallowed_bytes": direction.swallowed_bytes_total,
                    "flipped": direction.flipped_total,
                    "cut": direction.cut_total,
                    "flip_after_bytes": direction.flip_after_bytes,
                    "cut_after_bytes": direction.cut_after_bytes,
                }
                for name, direction in self.directions.items()
            },
        }

    # --- the Owner protocol of relay.Connection ---

    def direction(self, name: str) -> Direction:
        return self.directions[name]

    def frame_filter(self) -> FrameFilter | None:
        return FrameFilter(self.plan) if self._config.frames else None

    def client_connected(self, connection: Connection) -> None:
        self.accepted_total += 1
        self._connections.add(connection)
        self._start_task(self._connect(connection))

    def connection_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    # --- inside ---

    async def _open(self) -> None:
        self._server = await self._loop.create_server(
            self._accepted, sock=_bound(self.listen), backlog=BACKLOG
        )

    def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accepted(self) -> Side:
        return Connection(self, self._loop).client

    async def _connect(self, connection: Connection) -> None:
        try:
            for target in self.ring.candidates():
                if await self._reach(target, connection):
                    self._is_serving = True
                    return
                if connection.is_closed:
                    return
            if self._is_serving:  # clients that try again and again make one line, not one each
                self._is_serving = False
                log.warning("no_target_answering", route=self.name)
        except Exception:  # a bug; the client must not wait for ever
            log.exception("connecting_failed", route=self.name)
        self.unserved_total += 1
        connection.reset()

    async def _reach(self, target: Target, connection: Connection | None) -> bool:
        """Connect to `target`, for `connection`, or (None) only to check it."""
        host, port = target.address
        was_up = target.is_up

        def protocol() -> asyncio.BaseProtocol:
            return connection.server if connection is not None else asyncio.Protocol()

        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                transport, _ = await self._loop.create_connection(protocol, host, port)
        except CANNOT_CONNECT as error:
            if connection is not None and connection.server.transport is not None:
                connection.reset()  # it connected just as the attempt timed out
                return True
            self._failed(target, str(error))
            return False
        if connection is None:
            transport.close()
            if self._config.check_interval_ms and not await self._serves(target):
                self._failed(target, NO_ANSWER)
                return False
        self.ring.succeeded(target, is_check=connection is None)
        if not was_up:
            log.info("target_up", route=self.name, target=f"{host}:{port}")
        return True

    def _failed(self, target: Target, reason: str) -> None:
        was_up = target.is_up
        self.ring.failed(target, self._loop.time())
        if was_up:
            host, port = target.address
            log.warning("target_down", route=self.name, target=f"{host}:{port}", reason=reason)

    async def _watch(self, target: Target) -> None:
        """Run `_check` for ever; after a bug in it the target counts as down and is tried again."""
        while True:
            try:
                await self._check(target)
            except Exception as error:
                log.exception("check_failed", route=self.name)
                self._failed(target, repr(error))

    async def _check(self, target: Target) -> None:
        """Try the target while it is down, whenever its pause is over; while it is up, do the
        health checks, if there are any.

        Open connections stay: closing those of a slow target would only have everything on them
        sent twice.
        """
        config = self._config
        missed = 0
        while True:
            if not target.is_up:
                missed = 0
                await asyncio.sleep(max(0.0, target.retry_at_s - self._loop.time()))
                await self._reach(target, None)
                continue
            await asyncio.sleep((config.check_interval_ms or config.retry_min_ms) / 1000)
            if not config.check_interval_ms or not target.is_up:
                continue
            missed = 0 if await self._serves(target) else missed + 1
            if missed >= CHECKS_MISSED and target.is_up:
                self._failed(target, NO_ANSWER)

    async def _serves(self, target: Target) -> bool:
        """Whether the target answers a request of 0.7: a process that hangs accepts connections."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._config.check_timeout_ms / 1000):
                reader, writer = await asyncio.open_connection(*target.address)
                writer.write(CHECK_REQUEST)
                await reader.readexactly(RESPONSE_HEAD_BYTES)
            return True
        except (*CANNOT_CONNECT, asyncio.IncompleteReadError):
            return False
        finally:
            if writer is not None:
                writer.close()

    def _start_task(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _bound(address: tuple[str, int]) -> socket.socket:
    """A TCP socket bound to `address`, shareable with another that does not listen."""
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, number, _, where = found[0]
    bound = socket.socket(family, kind, number)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind(where)
    except BaseException:
        with contextlib.suppress(OSError):
            bound.close()
        raise
    return bound


__all__ = ["TO_CLIENT", "TO_SERVER", "Route", "RouteDirection"]
