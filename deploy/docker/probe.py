"""The health check of every container: exits 0 when a page answers 200, and 1 otherwise.

usage: python3 -I -S probe.py PORT PATH [WORD]

With WORD the page must contain it. It runs every few seconds in some twenty containers on two
cores, so it uses a bare socket and leaves everything out that takes time to import.
"""

import socket
import sys

ANSWER_BYTES_MAX = 65536
TIMEOUT_S = 15.0  # below that of the check in docker-compose.yml


def page(port: int, path: str) -> bytes:
    """The whole answer with its headers. Raises OSError when there is none in time."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path.encode())
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX:
            chunk = connection.recv(8192)
            if not chunk:
                break
            answer += chunk
    return answer


def main(words: list[str]) -> str:
    """The first fault found, in one line; empty when there is none."""
    port, path, *wanted = words
    try:
        answer = page(int(port), path)
    except OSError as error:
        return f"port {port}: {error}"
    first_line = answer.partition(b"\r\n")[0]
    if b" 200" not in first_line:
        return first_line.decode(errors="replace") or f"port {port}: an empty answer"
    missing = [word for word in wanted if word.encode() not in answer]
    return f"{path} does not contain {missing[0]}" if missing else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)  # a text is printed, and the status is 1
