"""HTTP client for the processes: one kept connection each, one deadline for the whole exchange.

Forty lines instead of a library, and no thread per process. No answer of a process raises anything
but RequestFailed.
"""

import asyncio
import contextlib
import json
from typing import Any

from kafka2011.runtime.os_errors import reason_of

BODY_BYTES_MAX = 32 * 1024 * 1024
HEADER_BYTES_MAX = 32 * 1024
# What connecting raises: any client can register an impossible host or port.
UNUSABLE = (OSError, ValueError, OverflowError)


class RequestFailed(Exception):
    """No usable answer before the deadline. The text is shown to the user."""


class AnswerLate(RequestFailed):
    """There was no answer before the deadline."""


class StatusNotOk(RequestFailed):
    """There was an answer, of another status than 200."""


class HttpClient:
    """A connection to one process's HTTP server. Requests of several tasks wait for each other."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()
        self.timing = ""  # the header Server-Timing of the last answer

    async def get(self, path: str, timeout_s: float) -> bytes:
        """The body of a 200. Raises RequestFailed."""
        return await self._request(f"GET {path} HTTP/1.1", b"", timeout_s)

    async def get_json(self, path: str, timeout_s: float) -> dict[str, Any]:
        try:
            value = json.loads(await self.get(path, timeout_s))
        except (ValueError, RecursionError):
            raise RequestFailed("the answer is not JSON") from None
        if not isinstance(value, dict):
            raise RequestFailed("the answer is not a JSON object")
        return value

    async def post_json(self, path: str, value: object, timeout_s: float) -> bytes:
        body = json.dumps(value).encode()
        head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json"
        return await self._request(head, body, timeout_s)

    async def _request(self, head: str, body: bytes, timeout_s: float) -> bytes:
        request = f"{head}\r\nHost: {self.host}\r\nContent-Length: {len(body)}\r\n\r\n"
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._exchange(request.encode() + body)
            except TimeoutError:
                self.close()
                raise AnswerLate(f"no answer within {timeout_s * 1000:.0f} ms") from None
            except ConnectionRefusedError:
                self.close()
                raise RequestFailed("connection refused") from None
            except (*UNUSABLE, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                self.close()
                raise RequestFailed(reason_of(error)[:200]) from None

    async def _exchange(self, request: bytes) -> bytes:
        if self._streams is not None:
            # A kept connection may have been closed meanwhile: try once more on a new one.
            try:
                return await self._send(request)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
        self._streams = await asyncio.open_connection(self.host, self.port, limit=HEADER_BYTES_MAX)
        return await self._send(request)

    async def _send(self, request: bytes) -> bytes:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        self.timing = headers.get("server-timing", "")
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self.close()
            raise RequestFailed("an answer without Content-Length, or too large")
        body = await reader.readexactly(int(length))
        if headers.get("connection", "").lower() == "close":
            self.close()
        status = head[0].split(" ")[1] if " " in head[0] else ""
        if status != "200":
            text = body[:200].decode("utf-8", "replace").strip()
            raise StatusNotOk(f"status {status}: {text}")
        return body

    def close(self) -> None:
        if self._streams is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be gone already
                self._streams[1].close()
            self._streams = None
