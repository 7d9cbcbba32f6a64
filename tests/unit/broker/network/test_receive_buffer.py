"""A connection's receive buffer: what is left moves to its beginning, and memory goes back."""

from collections.abc import Callable

import pytest

from kafka2011.broker.network.buffers import POOL_BUFFER_BYTES, RequestMemory
from kafka2011.broker.network.receive_buffer import (
    TAIL_BYTES_MAX,
    TIDIED_BYTES_MAX,
    ReceiveBuffer,
)
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES


class ScriptedHost:
    """Gives buffers back at each write, as the server does; `at_write` runs in the middle of it."""

    def __init__(self, budget_bytes: int = 10 * POOL_BUFFER_BYTES) -> None:
        self.memory = RequestMemory(budget_bytes)
        self.turn = 0
        self.at_write: Callable[[], None] = lambda: None
        self._lent: list[memoryview] = []

    def write_turn(self) -> None:
        self.turn += 1
        self.at_write()
        lent, self._lent = self._lent, []
        for buffer in lent:
            self.memory.give(buffer)
        self.memory.wake()

    def give_back_after_turn(self, buffer: memoryview) -> None:
        self._lent.append(buffer)

    def bytes_needed(self) -> int:
        """What is held after a write, without the free buffers of the pool."""
        self.write_turn()
        self.memory.has_room("no holder", 10**9)  # which ends those
        return self.memory.bytes_held


def read(received: ReceiveBuffer, data: bytes) -> None:
    """Read `data` as a connection does, as much at a time as there is room."""
    while data:
        buffer = received.with_room()
        assert buffer is not None, "no memory"
        count = min(len(data), len(buffer) - received.end)
        buffer[received.end : received.end + count] = data[:count]
        received.end += count
        data = data[count:]


def left(received: ReceiveBuffer) -> bytes:
    """What is not handled yet, as the next read sees it."""
    buffer = received.with_room()
    assert buffer is not None
    assert received.start == 0
    return bytes(buffer[: received.end])


@pytest.mark.parametrize("rest", [0, 1, TAIL_BYTES_MAX, TAIL_BYTES_MAX + 1])
def test_what_is_left_is_at_the_beginning_at_the_next_read(rest: int) -> None:
    host = ScriptedHost()
    received = ReceiveBuffer(host)
    read(received, b"handled" + b"x" * rest)
    received.start = len(b"handled")
    received.settle()
    assert (received.buffer is None) == (rest <= TAIL_BYTES_MAX), "a small one is copied aside"
    if rest <= TAIL_BYTES_MAX:
        assert host.bytes_needed() == rest
    assert left(received) == b"x" * rest


def test_a_buffer_grows_with_a_frame_as_its_bytes_arrive() -> None:
    host = ScriptedHost()
    received = ReceiveBuffer(host)
    frame = FRAME_SIZE.pack(6 * POOL_BUFFER_BYTES) + bytes(6 * POOL_BUFFER_BYTES)
    sizes = []
    for start in range(0, len(frame), POOL_BUFFER_BYTES // 2):
        read(received, frame[start : start + POOL_BUFFER_BYTES // 2])
        assert received.buffer is not None
        sizes.append(len(received.buffer))
    grown = [POOL_BUFFER_BYTES, 4 * POOL_BUFFER_BYTES, FRAME_SIZE_BYTES + 6 * POOL_BUFFER_BYTES]
    assert list(dict.fromkeys(sizes)) == grown
    assert received.buffer is not None
    assert bytes(received.buffer[: received.end]) == frame


def test_a_buffer_that_was_lent_is_written_before_it_changes() -> None:
    host = ScriptedHost()
    received = ReceiveBuffer(host)
    read(received, b"set" + b"x" * (TAIL_BYTES_MAX + 1))
    assert received.buffer is not None
    lent = received.buffer[:3]
    received.lent_turn, received.start = host.turn, 3
    seen: list[bytes] = []
    host.at_write = lambda: seen.append(bytes(lent))
    for _ in range(2):  # it is not lent again in between
        assert received.with_room() is not None
        assert seen == [b"set"]


@pytest.mark.parametrize("is_lent", [True, False])
def test_a_write_that_closes_the_connection_leaves_no_buffer(is_lent: bool) -> None:
    host = ScriptedHost(budget_bytes=POOL_BUFFER_BYTES)
    host.memory.take("the oldest")  # there is no room without a write
    received = ReceiveBuffer(host)
    received.lent_turn = host.turn if is_lent else -1
    host.at_write = received.release
    assert received.with_room() is None
    assert host.bytes_needed() == POOL_BUFFER_BYTES, "the other's"


def test_without_room_small_requests_are_read_and_larger_ones_wait() -> None:
    host = ScriptedHost(budget_bytes=POOL_BUFFER_BYTES)
    other = ReceiveBuffer(host)
    read(other, b"the oldest")
    received = ReceiveBuffer(host)
    large = FRAME_SIZE.pack(2 * TAIL_BYTES_MAX) + b"x" * (TAIL_BYTES_MAX - FRAME_SIZE_BYTES)
    read(received, large)
    assert received.buffer is not None
    assert len(received.buffer) == TAIL_BYTES_MAX
    assert received.with_room() is None
    called: list[str] = []
    received.wait_for_room(lambda: called.append("room"))
    host.write_turn()
    assert not called
    other.release()
    host.write_turn()
    assert called == ["room"]
    assert left(received) == large


@pytest.mark.parametrize(
    ("rest", "held"),
    [(0, 0), (1, 4), (5, 5), (TIDIED_BYTES_MAX, TIDIED_BYTES_MAX), (TIDIED_BYTES_MAX + 1, None)],
)
def test_a_slow_connection_keeps_what_it_needs(rest: int, held: int | None) -> None:
    host = ScriptedHost()
    received = ReceiveBuffer(host)
    read(received, b"x" * rest or b"handled")
    received.start = 0 if rest else received.end
    received.tidy()
    assert host.bytes_needed() == (POOL_BUFFER_BYTES if held is None else held)
    assert left(received) == b"x" * rest


@pytest.mark.parametrize("settles", [False, True])
def test_a_closed_connection_holds_nothing_and_waits_for_nothing(settles: bool) -> None:
    host = ScriptedHost()
    received = ReceiveBuffer(host)
    read(received, b"a part of a request")
    if settles:
        received.settle()
    called: list[str] = []
    received.wait_for_room(lambda: called.append("room"))
    received.release()
    received.release()
    assert host.bytes_needed() == 0
    assert not called
