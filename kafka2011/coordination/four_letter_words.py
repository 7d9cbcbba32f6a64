"""Asks a ZooKeeper server how it is, without a session: its commands of four letters."""

import socket

ANSWER_TIMEOUT_S = 2.0


def four_letter_word(host: str, port: int, word: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
    """ZooKeeper's answer to `word` (`srvr`, `ruok`). Raises OSError when it does not answer."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode("ascii"))
        answer = bytearray()
        while piece := connection.recv(4096):
            answer += piece
    return answer.decode("utf-8", "replace")


def is_serving(host: str, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
    """Whether the server there answers client requests now (not only accepts connections)."""
    try:
        return "Mode:" in four_letter_word(host, port, "srvr", timeout_s)
    except OSError:
        return False
