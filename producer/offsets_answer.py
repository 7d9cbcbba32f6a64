"""Reads the answer to an Offsets request from a connection that only produces: a barrier's.

Nothing else comes on such a connection, so a byte too many is an error, and the connection useless.
"""

import select
import socket
import time
from collections.abc import Sequence

from kafka2011.protocol.errors import RemoteProtocolError
from kafka2011.protocol.responses import decode_offsets_response

ANSWER_BYTES_MAX = 1024


def newest(offsets: Sequence[int]) -> int:
    """The first of an answer's offsets. Raises RemoteProtocolError when it has none.

    A broker of this project answers a barrier so when the partition that it names is offline: not
    the same as an empty log, which has offset 0.
    """
    if not offsets:
        raise RemoteProtocolError("an answer without an offset: the partition is offline")
    return offsets[0]


def read_answer(sock: socket.socket, deadline_ns: int) -> list[int]:
    """Read one Offsets response. Raises OSError (TimeoutError) or RemoteProtocolError.

    A response that has arrived is taken even after the deadline, since the time may have been spent
    on waiting for another broker.
    """
    buffer = b""
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    size = 0
    while True:
        left_ms = (deadline_ns - time.monotonic_ns()) / 1e6
        if not poller.poll(max(0.0, left_ms)):
            raise TimeoutError("the barrier was not answered before the deadline")
        chunk = sock.recv(ANSWER_BYTES_MAX)
        if not chunk:
            raise ConnectionResetError("the broker closed the connection")
        buffer += chunk
        if len(buffer) >= 4 and not size:
            size = int.from_bytes(buffer[:4], "big", signed=True)
            if not 0 < size <= ANSWER_BYTES_MAX:
                raise RemoteProtocolError(f"an answer of {size} bytes to the barrier")
        if size and len(buffer) > 4 + size:
            raise RemoteProtocolError("bytes behind the answer to the barrier")
        if size and len(buffer) == 4 + size:
            return decode_offsets_response(memoryview(buffer)[4:])
