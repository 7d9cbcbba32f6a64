"""Errors as one line for people; if the operating system refused: what, where, why and what to do.

`str` of an OSError begins with its number ("[Errno 98] Address already in use") and names no
address; that of an error of Spark or a store goes on with a stack trace.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

LINE_LENGTH_MAX = 1_000
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # in messages of a store's client


class CannotListen(OSError):
    """A process cannot listen on the address that it is to serve. The text is one line."""

    def __init__(self, error: OSError, host: str, port: int, setting: str) -> None:
        super().__init__(error.errno, _listening_refused(error, host, port, setting))

    def __str__(self) -> str:
        return str(self.strerror)


@contextmanager
def listening_on(host: str, port: int, setting: str) -> Iterator[None]:
    """Raises CannotListen for an OSError of the block, which listens on that address; `setting` is
    the name of the port's setting."""
    try:
        yield
    except OSError as error:
        raise CannotListen(error, host, port, setting) from None


def _listening_refused(error: OSError, host: str, port: int, setting: str) -> str:
    number = error.errno or 0
    what_to_do = {
        errno.EADDRINUSE: "end the process that uses it (`ss -ltnp` lists them), or set "
        f"{setting} to another port",
        errno.EADDRNOTAVAIL: "no network interface of this machine has that address",
        errno.EACCES: f"ports below 1024 need a privilege: set {setting} to another port",
    }.get(number)
    # The number's own text: Python's repeats the address. (An unknown host's number is below 0.)
    reason = os.strerror(number) if number > 0 else reason_of(error)
    line = f"cannot listen on {host}:{port}: {reason}"
    return f"{line}; {what_to_do}" if what_to_do else line


def reason_of(error: BaseException) -> str:
    """The reason without its number, after the file if there is one ("/data: Permission denied").
    For any error but an OSError, its text, or the name of its class."""
    if isinstance(error, OSError) and error.strerror and type(error).__str__ is OSError.__str__:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of the reason, without colours, at most LINE_LENGTH_MAX characters."""
    lines = _COLOUR.sub("", reason_of(error)).strip().splitlines() or [type(error).__name__]
    return lines[0][:LINE_LENGTH_MAX]
