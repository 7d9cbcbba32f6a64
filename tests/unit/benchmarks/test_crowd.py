"""Clients that work together: what they did, and what happens when one of them fails."""

import os
import signal
from collections.abc import Callable

import pytest

from benchmarks.crowd import together


def test_every_connection_is_some_processes_and_all_is_counted() -> None:
    def work(connections: int, ready: Callable[[], None]) -> int:
        ready()
        return connections

    for connections in (1, 3, 50):
        done, elapsed_s = together(connections, work)
        assert done == connections
        assert elapsed_s >= 0


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        (lambda: int("x"), "a client failed: ValueError"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended without an answer"),
    ],
    ids=["an exception", "a kill"],
)
@pytest.mark.timeout(60)
def test_a_client_that_fails_is_an_error_and_nobody_waits_for_it(
    fails: Callable[[], object], text: str
) -> None:
    """The others waited for the start, and the parent for an answer, for ever."""

    def work(connections: int, ready: Callable[[], None]) -> int:
        if connections == 1:  # of 5 connections three processes have one each
            fails()
        ready()
        return connections

    with pytest.raises(RuntimeError, match=text):
        together(5, work)
