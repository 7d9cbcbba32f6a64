"""The HTTP routes: static files, snapshot, stream of changes, messages, audit cells, faults.

Read-only unless chaos is on. Every answer forbids foreign addresses, frames and scripts that are
not this server's own files; a request that names another host is refused, so that no foreign web
page can reach a dashboard on loopback by a name of its own. Requests that change something must be
JSON, which no foreign form can send.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationError
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime import strict_json
from kafka2011.runtime.http_access import HttpAccess
from kafka2011.runtime.logs import get_logger
from kafka2011.services.dashboard.config import DashboardConfig
from kafka2011.services.dashboard.faults.actions import (
    LOSE_DISK,
    SIGNALS,
    FaultInjector,
    FaultRefused,
    check_expendable,
    parse_action,
    proxy_faults,
)
from kafka2011.services.dashboard.faults.processes import EmbeddedFaults
from kafka2011.services.dashboard.sampling.http_client import RequestFailed
from kafka2011.services.dashboard.sampling.sampler import SLOW_TIMEOUT_S, Sampler
from kafka2011.services.web import AccessGuard

STATIC = Path(__file__).with_name("static")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# A picture that a job made may style itself, and nothing else.
PICTURE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"
}
SECTIONS = (
    "meta", "processes", "edges", "topics", "groups", "audit", "cells", "latency", "flow",
    "loader", "commits", "reports", "events", "partitions", "group_partitions", "lag_series",
    "rebalances", "site", "site_latency", "sets", "validated",
)  # fmt: skip
CLIENTS_MAX = 100
KEEPALIVE_S = 15.0
BODY_BYTES_MAX = 4096
BLOCKING_THREADS = 3
MEMBER_DIGITS_MAX = 18
Result = TypeVar("Result")

log = get_logger(__name__)
Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """Makes the application; `clients` is the number of open streams."""

    def __init__(self, config: DashboardConfig, sampler: Sampler) -> None:
        self._config = config
        self._sampler = sampler
        self._codec = config.topic_codec()
        self._is_ending = False
        self._files = load_static()
        # Few threads, kept: each costs memory for as long as the process lives.
        self._threads = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="blocking")
        self._injector = fault_injector(config)
        self.clients = 0

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*arguments))

    def end_streams(self) -> None:
        """Ends every stream, so that the server can stop."""
        self._is_ending = True
        self._sampler.changed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def application(self, lifespan: Any) -> Starlette:
        routes = [
            Route("/api/snapshot", self._guarded(self.snapshot)),
            Route("/api/stream", self._guarded(self.stream)),
            Route("/api/messages", self._guarded(self.messages)),
            Route("/api/trace", self._guarded(self.trace)),
            Route("/api/cells", self._guarded(self.cells)),
            Route("/api/feed", self._guarded(self.feed)),
            Route("/api/report/{name}", self._guarded(self.report)),
            Route("/api/chaos", self._guarded(self.apply_fault), methods=["POST"]),
            Route("/{path:path}", self._guarded(self.file)),
        ]
        access = HttpAccess(self._config.bind, self._config.http_hosts)
        guard = Middleware(AccessGuard, access=access)
        return Starlette(routes=routes, lifespan=lifespan, middleware=[guard])

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            began_s = time.perf_counter()
            self._sampler.seen()
            answer = await handler(request)
            total = f"total;dur={(time.perf_counter() - began_s) * 1000:.3f}"
            calls = answer.headers.get("Server-Timing")
            answer.headers["Server-Timing"] = f"{total}, {calls}" if calls else total
            for name, value in HEADERS.items():
                answer.headers.setdefault(name, value)
            return answer

        return guarded

    # --- reading -----------------------------------------------------------------------------

    async def file(self, request: Request) -> Response:
        path = request.path_params["path"] or "index.html"
        found = self._files.get(path)
        if found is None:
            return Response("no such page; the dashboard is at /\n", 404, media_type="text/plain")
        return Response(found[1], headers={"Content-Type": found[0]})

    async def snapshot(self, request: Request) -> Response:
        """The requested sections whole, and the number to stream from."""
        body = self._sampler.changes.snapshot(wanted_sections(request.query_params.get("sections")))
        return Response(body, media_type="application/json")

    async def stream(self, request: Request) -> Response:
        """Changes as server-sent events, from `after` or Last-Event-ID on."""
        if self.clients >= CLIENTS_MAX:
            return Response("too many open streams\n", 503, media_type="text/plain")
        wanted = wanted_sections(request.query_params.get("sections"))
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        number = int(last) if last.isdecimal() and len(last) < 16 else -1
        return StreamingResponse(self._changes(wanted, number), media_type="text/event-stream")

    async def _changes(self, wanted: list[str], number: int) -> AsyncIterator[str]:
        self.clients += 1
        try:
            yield "retry: 1000\n\n"
            while not self._is_ending:
                self._sampler.seen()
                changed = self._sampler.changed
                found = self._sampler.changes.since(number, wanted)
                if found is None:
                    number = self._sampler.changes.id
                    snapshot = self._sampler.changes.snapshot(wanted)
                    yield f"id: {number}\nevent: snapshot\ndata: {snapshot}\n\n"
                    continue
                for number, text in found:
                    yield f"id: {number}\ndata: {text}\n\n"
                if self._sampler.changes.id == number:
                    try:
                        async with asyncio.timeout(KEEPALIVE_S):
                            await changed.wait()
                    except TimeoutError:
                        yield ": nothing new\n\n"
        finally:
            self.clients -= 1

    async def messages(self, request: Request) -> Response:
        """Messages of one partition; see `message_browser.browse`."""
        # Codecs and a consumer: some 5 MB, loaded with the first request.
        from kafka2011.services.dashboard.message_browser import browse, query_from

        query = dict(request.query_params)
        try:
            question = query_from(query)
        except ValueError as error:
            return _problem(400, str(error))
        cluster = self._sampler.cluster_samplers.get(query.get("dc", ""))
        broker = query.get("broker", "")
        is_id = paths.is_broker_id(broker)
        published = cluster.observed.brokers.get(int(broker)) if cluster and is_id else None
        if published is None:
            return _problem(404, "no such broker is registered at present")
        address = self._config.address_map.get((published.host, published.port), published)
        try:
            found = await self._in_thread(browse, (address[0], address[1]), question, self._codec)
        except KafkaError as error:
            return _problem(502, str(error) or type(error).__name__)
        return _json(found)

    async def trace(self, request: Request) -> Response:
        """The way of the message at a place; see `message_trace.trace_message`."""
        from kafka2011.services.dashboard.message_trace import place_from, trace_message

        try:
            question = place_from(dict(request.query_params))
        except ValueError as error:
            return _problem(400, str(error))
        registries = {
            name: found.registry for name, found in self._sampler.cluster_samplers.items()
        }
        try:
            found = await self._in_thread(trace_message, self._config, registries, question)
        except (KafkaError, CoordinationError) as error:
            return _problem(502, str(error) or type(error).__name__)
        if found is None:
            return _problem(404, "there is no such message, or its ZooKeeper does not answer")
        return _json(found)

    async def cells(self, request: Request) -> Response:
        """The audit's cells of one topic in one window by server, for the drill down."""
        topic = request.query_params.get("topic", "")
        window = request.query_params.get("window", "")
        wanted = {"topic": topic, "limit": 500} | ({"window_start_ms": window} if window else {})
        process = self._sampler.first_of("audit")
        client = self._sampler.client_of(process.key) if process else None
        if client is None:
            return _problem(503, "no audit service is registered")
        try:
            found = await client.get_json("/audit?" + urlencode(wanted), SLOW_TIMEOUT_S)
            shown = {"cells": found["cell_list"], "left_out": found["cells_left_out"]}
        except RequestFailed as error:
            return _problem(502, str(error))
        except KeyError:  # any client can register a process of any kind
            return _problem(502, "the answer has an unexpected form")
        return _json(shown)

    async def feed(self, request: Request) -> Response:
        """The newsfeed of one member."""
        member = request.query_params.get("member", "")
        if not member.isascii() or not member.isdecimal() or len(member) > MEMBER_DIGITS_MAX:
            return _problem(400, "member must be a number")
        process = self._sampler.first_of("site")
        client = self._sampler.client_of(process.key) if process else None
        if client is None:
            return _problem(503, "no process computes the newsfeed")
        began_s = time.perf_counter()
        try:
            found = await client.get_json(f"/feed?member={member}", SLOW_TIMEOUT_S)
        except RequestFailed as error:
            return _problem(502, str(error))
        took_ms = (time.perf_counter() - began_s) * 1000
        call = f'call;dur={took_ms:.3f};desc="{process.key} GET /feed"' if process else ""
        served = client.timing.replace("total", "served")
        return _json(found, headers={"Server-Timing": f"{call}, {served}"})

    async def report(self, request: Request) -> Response:
        name = request.path_params["name"]
        picture = await self._in_thread(self._sampler.picture, name)
        if picture is None:
            return _problem(404, "no such report")
        return Response(picture, headers={"Content-Type": TYPES[".svg"], **PICTURE_HEADERS})

    # --- faults ------------------------------------------------------------------------------

    async def apply_fault(self, request: Request) -> Response:
        """Kill, pause, continue, start, lose a disk, cut, mend, delay, drop; only where chaos is
        on."""
        if self._config.chaos != "on":
            return _problem(403, "this dashboard is read-only (dashboard.chaos is off)")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _problem(415, "send application/json")
        body = b""
        async for block in request.stream():
            body += block
            if len(body) > BODY_BYTES_MAX:
                return _problem(413, "too large")
        try:
            action, name, details = parse_action(body)
            text = await self._apply(action, name, details)
        except (FaultRefused, RequestFailed) as error:
            return _problem(409, str(error))
        log.warning("fault_applied", action=action, process=name)
        return _json({"said": text})

    async def _apply(self, action: str, name: str, details: dict[str, Any]) -> str:
        if action == "start" or action in SIGNALS:
            if self._injector is None:
                raise FaultRefused("this dashboard may break links only")
            if action == "start":
                return await self._in_thread(self._injector.start, name)
            return await self._in_thread(self._injector.signal, action, name)
        if action == LOSE_DISK:
            if not isinstance(self._injector, EmbeddedFaults):
                raise FaultRefused("disks are lost in the embedded deployment only")
            check_expendable(self._sampler.changes.rows("sets").values(), name)
            return await self._in_thread(self._injector.lose_disk, name)
        faults = proxy_faults(action, details)
        for key, process in self._sampler.processes.items():
            client = self._sampler.client_of(key)
            if process.name == name and process.kind == "proxy" and client is not None:
                await client.post_json("/faults", faults, SLOW_TIMEOUT_S)
                return f"{action}: {name}" if action != "drop" else drop_text(name, details)
        raise FaultRefused(f"{name} is not a proxy")


def fault_injector(config: DashboardConfig) -> FaultInjector | None:
    """The injector of the settings: local processes, containers, or None (links only)."""
    if config.chaos != "on":
        return None
    if config.chaos_engine is not None:
        # The docker SDK takes 6 MB: only where containers may be broken.
        from kafka2011.services.dashboard.faults.containers import ContainerFaults

        return ContainerFaults(config.chaos_engine, config.chaos_project)
    return EmbeddedFaults(config.chaos_dir) if config.chaos_dir is not None else None


def drop_text(name: str, details: dict[str, Any]) -> str:
    """The confirmation shown when messages are being dropped."""
    return (
        f"{name} drops the next {details['count']} messages of {details['topic']}; the audit "
        "shows them as missing once their window is over"
    )


def wanted_sections(text: str | None) -> list[str]:
    """The known names of a comma list; all sections when none is given."""
    if text is None:
        return list(SECTIONS)
    given = set(text.split(","))
    return [name for name in SECTIONS if name in given]


def load_static() -> dict[str, tuple[str, bytes]]:
    """Path -> content type and bytes. Read once: no request's path ever reaches a file system."""
    found = {}
    for file in sorted(STATIC.rglob("*")):
        if file.suffix in TYPES and file.is_file():
            with contextlib.suppress(OSError):
                name = file.relative_to(STATIC).as_posix()
                found[name] = (TYPES[file.suffix], file.read_bytes())
    return found


def _json(found: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in ASCII, with numbers that JSON has not as texts: messages, and what other
    processes answer, may have such numbers and text that is not Unicode."""
    return Response(strict_json.dumps(found), status, headers, "application/json")


def _problem(status: int, text: str) -> Response:
    return _json({"error": text}, status)
