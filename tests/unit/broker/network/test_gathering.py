"""When a turn pauses: in a stream of tiny requests, and never for one that stands alone."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from kafka2011.broker.network.gathering import PAUSE_S, Gathering
from kafka2011.broker.network.poller import READABLE, Poller


def judged(requests_per_s: int, request_bytes: int, turn_s: float, turns: int = 100) -> float:
    gathering = Gathering()
    gathering.pause_s(1.0, 0, 0)
    pause_s = 0.0
    for turn in range(1, turns):
        requests = int(turn * turn_s * requests_per_s)
        pause_s = gathering.pause_s(1.0 + turn * turn_s, requests, requests * request_bytes)
    return pause_s


@pytest.mark.parametrize(
    ("requests_per_s", "request_bytes", "pause_s"),
    [(500_000, 240, PAUSE_S), (5_000, 240, 0.0), (100_000, 10_000, 0.0), (0, 0, 0.0)],
)
@pytest.mark.parametrize("turn_s", [0.000_04, 0.000_2, 0.000_5])
def test_only_a_stream_of_tiny_requests_is_gathered(
    requests_per_s: int, request_bytes: int, pause_s: float, turn_s: float
) -> None:
    assert judged(requests_per_s, request_bytes, turn_s) == pause_s


@pytest.mark.parametrize(
    ("requests_per_s", "turn_s", "pause_s"),
    [
        (4_000_000, 0.000_04, PAUSE_S),
        (4_000_000, 0.000_2, 0.0),
        (500_000, 0.003, 0.0),
        (100_000, 0.003, 0.0),
        (90_000, 0.003, PAUSE_S),
        (5_000, 0.003, 0.0),
    ],
)
def test_turns_that_are_full_by_themselves_are_not_gathered(
    requests_per_s: int, turn_s: float, pause_s: float
) -> None:
    """A client that writes a buffer of tiny requests at once lost half its rate to the pauses."""
    assert judged(requests_per_s, 240, turn_s) == pause_s


def test_a_stream_that_ends_is_not_waited_for_again() -> None:
    gathering = Gathering()
    gathering.pause_s(1.0, 0, 0)
    assert gathering.pause_s(1.002, 200, 48_000) == PAUSE_S
    assert gathering.pause_s(2.0, 201, 48_240) == 0.0


class Loop:
    """Has the turn that a poller registers."""

    turn: Callable[[], None]

    def add_reader(self, _fd: int, turn: Callable[[], None]) -> None:
        self.turn = turn

    def remove_reader(self, _fd: int) -> None:
        """Nothing to remove."""


def test_a_turn_pauses_only_close_behind_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.0005, 10.0006, 10.002, 10.003])
    slept: list[float] = []
    monkeypatch.setattr("kafka2011.broker.network.poller.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("kafka2011.broker.network.poller.time.sleep", slept.append)
    loop: Any = Loop()
    poller = Poller(loop, lambda: None)
    ours, theirs = socket.socketpair()
    read: list[bytes] = []
    with ours, theirs:
        poller.watch(ours.fileno(), READABLE, lambda _: read.append(ours.recv(100)))
        theirs.send(b"a")
        loop.turn()  # ends at 10.0, without a pause yet
        poller.pause_s = 0.0001
        theirs.send(b"b")
        loop.turn()  # 0.5 ms later, ends at 10.0006
        assert slept == [0.0001]
        theirs.send(b"c")
        loop.turn()  # 1.4 ms later
        assert slept == [0.0001]
        assert read == [b"a", b"b", b"c"]
        poller.forget(ours.fileno())
    poller.close()
