"""Whatever a process registers as its address or answers is a failed request, and nothing else."""

import asyncio
import contextlib

import pytest

from kafka2011.services.dashboard.sampling.http_client import HttpClient, RequestFailed

TIMEOUT_S = 60.0


def failure_of(host: str, port: int, answer: bytes | None = None) -> str:
    """Why a request fails. With `answer`, a server of that answer is asked instead."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer or b"")
        writer.close()

    async def run() -> str:
        async with contextlib.AsyncExitStack() as stack:
            place = host, port
            if answer is not None:
                server = await asyncio.start_server(serve, "127.0.0.1", 0)
                stack.callback(server.close)
                place = server.sockets[0].getsockname()[:2]
            client = HttpClient(*place)
            stack.callback(client.close)
            with pytest.raises(RequestFailed) as failed:
                if answer is not None and answer.endswith(b"["):
                    await client.get_json("/status", TIMEOUT_S)
                await client.get("/metrics", TIMEOUT_S)
            return str(failed.value)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 99_999),
        ("a..b", 9301),
        ("x" * 64, 9301),
        ("a\x00b", 9301),
        ("a\ud800", 9301),
    ],
)
def test_an_address_that_cannot_be_used_is_a_failed_request(host: str, port: int) -> None:
    assert failure_of(host, port)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5000 + b"1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"[" * 60_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        b"\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_an_answer_that_cannot_be_read_is_a_failed_request(answer: bytes) -> None:
    assert failure_of("", 0, answer)
