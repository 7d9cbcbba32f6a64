"""Frames: bad sizes are refused before anything is kept, memory follows what arrives."""

import random
import time
import tracemalloc

import pytest

from kafka2011.protocol.errors import FrameTooLarge, RemoteProtocolError
from tests.support.frames import NEED_DATA, FrameReader


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_frames_come_out_as_they_went_in_however_cut() -> None:
    rng = random.Random(7)
    bodies = [rng.randbytes(rng.choice([1, 2, 50, 3000])) for _ in range(200)]
    stream = b"".join(map(frame, bodies))
    for _ in range(5):
        reader = FrameReader(3000)
        found: list[bytes] = []
        position = 0
        while position < len(stream):
            size = rng.randint(1, 5000)
            reader.receive_data(stream[position : position + size])
            position += size
            while (body := reader.next_frame()) is not NEED_DATA:
                found.append(bytes(body))
        assert found == bodies
        assert reader.pending_bytes == 0


def test_a_frame_stays_good_after_more_data() -> None:
    reader = FrameReader(10)
    reader.receive_data(frame(b"first") + frame(b"second"))
    first = reader.next_frame()
    second = reader.next_frame()
    reader.receive_data(bytes(100))
    assert first == b"first"
    assert second == b"second"


def test_exactly_the_limit_is_accepted() -> None:
    reader = FrameReader(5)
    reader.receive_data(frame(b"12345"))
    assert reader.next_frame() == b"12345"


@pytest.mark.parametrize(
    ("size", "error"),
    [(0, RemoteProtocolError), (-1, RemoteProtocolError), (-(2**31), RemoteProtocolError),
     (6, FrameTooLarge), (104857601, FrameTooLarge), (2**31 - 1, FrameTooLarge)],
)  # fmt: skip
def test_bad_sizes_are_refused_on_their_fourth_byte(
    size: int, error: type[RemoteProtocolError]
) -> None:
    reader = FrameReader(5)
    header = size.to_bytes(4, "big", signed=True)
    for byte in header[:3]:
        reader.receive_data(bytes([byte]))
        assert reader.next_frame() is NEED_DATA
    reader.receive_data(header[3:])
    with pytest.raises(error):
        reader.next_frame()
    assert reader.pending_bytes == 0
    for again in (reader.next_frame, lambda: reader.receive_data(b"x")):
        with pytest.raises(error):
            again()


def test_an_announced_size_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader(10**9)
        reader.receive_data((10**9).to_bytes(4, "big") + b"x")
        assert reader.next_frame() is NEED_DATA
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_megabyte_byte_by_byte_takes_linear_time() -> None:
    reader = FrameReader(10**7)
    started = time.process_time()
    reader.receive_data((10**6).to_bytes(4, "big"))
    for _ in range(10**6 - 1):
        reader.receive_data(b"x")
    assert reader.next_frame() is NEED_DATA
    reader.receive_data(b"x")
    assert len(reader.next_frame()) == 10**6  # type: ignore[arg-type]
    assert time.process_time() - started < 10
