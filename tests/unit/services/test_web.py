"""Serving a web application to clients that send too little."""

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kafka2011.services import web
from tests.support.waiting import DEADLINE_S, wait_until

CONNECTIONS_MAX = 3


@contextlib.contextmanager
def serving(read_s: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Any]]:
    """The port of a server that waits so long for a request, and what ends its page /endless."""
    monkeypatch.setattr(web, "REQUEST_READ_S", read_s)
    stop, is_over = threading.Event(), threading.Event()

    async def echo(request: Request) -> Response:
        try:
            return Response(await request.body())
        except ClientDisconnect:
            return Response("cut", 400)

    async def endless(_: Request) -> Response:
        async def parts() -> Any:
            while not is_over.is_set():
                yield b"."
                await asyncio.sleep(0.01)

        return StreamingResponse(parts())

    pages = [Route("/echo", echo, methods=["GET", "POST"]), Route("/endless", endless)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = threading.Thread(
            target=lambda: asyncio.run(
                web.serve_until(
                    stop, Starlette(routes=pages), listener, connections_max=CONNECTIONS_MAX
                )
            )
        )
        running.start()
        try:
            yield listener.getsockname()[1], is_over
        finally:
            is_over.set()
            stop.set()
            running.join(DEADLINE_S)


def status(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/echo", headers={"Connection": "close"})
        return connection.getresponse().status


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /echo HTTP/1.1\r\nHost: x\r\nX-Slow",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nX-Slow",
    ],
)
def test_connections_whose_request_does_not_come_end(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """They counted against connections_max for good: everything else was answered by 503."""
    with serving(0.3, monkeypatch) as (port, _), contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            silent.sendall(sent)
        wait_until(lambda: status(port) == 200, "silent connections make way")


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(0.1, monkeypatch) as (port, is_over):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request("GET", "/endless")
            answer = connection.getresponse()
            assert answer.read(50) == b"." * 50  # half a second of it
            is_over.set()
            assert set(answer.read()) <= {ord(".")}
