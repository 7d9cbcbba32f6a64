"""A link over a pair of sockets: frames both ways, chunks from a file, flow control, its end."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.core.worker_threads import Job
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.segment import OpenFiles, Segment, segment_name
from kafka2011.broker.log.segment_sums import SegmentSums
from kafka2011.broker.network.poller import Poller
from kafka2011.broker.network.sender import Sender
from kafka2011.broker.replica import frames
from kafka2011.broker.replica.frames import Chunk, Kind, Sums, Wire
from kafka2011.broker.replica.link import PIECE_BYTES_MIN, STUCK_S, Link, Pace
from kafka2011.broker.replication.frames import Ack, Data, Mark, Ready, Verdict, Welcome

PATIENCE_S = 60.0
EPOCH = 7
BYTES = random.Random(1).randbytes(3_000_000)  # nearly three chunks, none like another


class Host:
    """One side, with a log of one segment."""

    def __init__(self, loop: Any, poller: Poller, path: Path) -> None:
        self.loop = loop
        self.poller = poller
        self.frames: list[Wire] = []
        self.is_over = False
        self._open_files = OpenFiles(FileLayer(), 10)
        self._segment = Segment(path / segment_name(0), 0, len(BYTES), 0)
        self._segment.path.write_bytes(BYTES)

    def received(self, link: Link, frame: Wire) -> None:
        del link
        self.frames.append(frame)

    def link_closed(self, link: Link) -> None:
        del link
        self.is_over = True

    def read_chunk(self, partition: str, offset: int, size_max: int) -> tuple[Chunk, FileRegion]:
        fd = self._open_files.lease(self._segment)
        region = FileRegion(self._open_files, self._segment, fd, offset, size_max)
        return Chunk(partition, offset, 0, 5, b""), region

    def warm_up(self, job: Job, done: Callable[[Any], None]) -> None:
        job.run()
        self.loop.call_soon(done, job)


class Pair:
    def __init__(self, path: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.poller = Poller(self.loop, lambda: None)
        self.hosts = [Host(self.loop, self.poller, path), Host(self.loop, self.poller, path)]
        self.links = [
            Link(number, sock, host, Sender(sock, BrokerMetrics()), frozenset(Kind))
            for number, (sock, host) in enumerate(zip(self._sockets(), self.hosts, strict=True))
        ]
        for link in self.links:
            link.settle(EPOCH)

    @staticmethod
    def _sockets() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            one = socket.create_connection(listener.getsockname())
            other, _ = listener.accept()
        return one, other

    def run_until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), PATIENCE_S))

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.poller.close()
        self.loop.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def test_a_logs_bytes_arrive_in_chunks_and_the_mark_behind_them(pair: Pair) -> None:
    sender, receiver = pair.links[0], pair.hosts[1]
    sender.send(Data("t-0", 0, len(BYTES)))
    sender.send(Mark(1, {"t-0": 100, "t-1": 5}, 0))
    sender.send(Mark(2, {"t-0": 100, "t-1": 6}, 0))
    pair.run_until(lambda: receiver.frames and receiver.frames[-1] == Mark(2, {"t-1": 6}, 0))
    *chunks, first, _ = receiver.frames
    assert first == Mark(1, {"t-0": 100, "t-1": 5}, 0)
    is_all = b"".join(chunk.data for chunk in chunks if isinstance(chunk, Chunk)) == BYTES
    assert is_all  # pytest would look for the difference of megabytes
    assert max(len(chunk.data) for chunk in chunks if isinstance(chunk, Chunk)) == (
        frames.CHUNK_BYTES_MAX
    )


def test_what_is_not_to_be_read_yet_stays_with_the_sender(pair: Pair) -> None:
    sender, receiver = pair.links
    receiver.hold_reading()
    for number in range(50):
        sender.send(Data("t-0", 0, len(BYTES)) if not number else Ack(number, {}))
    pair.run_until(lambda: not pair.hosts[1].frames)
    receiver.read_on()
    pair.run_until(lambda: Ack(49, {}) in pair.hosts[1].frames)


def test_a_pace_is_kept_over_time_and_in_small_pieces() -> None:
    pace = Pace(1_000_000)
    assert pace.piece_bytes_max == 250_000
    sent, now_s = 0, 100.0
    while now_s < 110.0:
        wait_s = pace.wait_s(now_s)
        assert wait_s <= 0.25
        if not wait_s:
            pace.sent(pace.piece_bytes_max, now_s)
            sent += pace.piece_bytes_max
        now_s += wait_s or 0.001
    assert 9_500_000 < sent < 10_500_000
    assert Pace(1).piece_bytes_max == PIECE_BYTES_MIN


def test_a_link_with_a_pace_sends_all_in_order_and_its_marks_with_it(pair: Pair) -> None:
    sender, receiver = pair.links[0], pair.hosts[1]
    sender.pace = Pace(20_000_000)
    sender.send(Data("t-0", 0, len(BYTES)))
    sender.send(Mark(1, {"t-0": 1}, 0))
    pair.run_until(lambda: receiver.frames and isinstance(receiver.frames[-1], Mark))
    *chunks, _ = receiver.frames
    assert b"".join(chunk.data for chunk in chunks if isinstance(chunk, Chunk)) == BYTES
    sender.pace = Pace(PIECE_BYTES_MIN)
    sender.send(Data("t-0", 0, 2 * PIECE_BYTES_MIN))
    sender.pace = None  # it is in sync now
    sender.send(Mark(2, {"t-0": 2}, 0))
    pair.run_until(lambda: receiver.frames[-1] == Mark(2, {"t-0": 2}, 0))


def test_a_link_whose_other_side_takes_nothing_ends(pair: Pair) -> None:
    sender, receiver = pair.links
    receiver.hold_reading()
    receiver._watch(False)
    now_s = pair.loop.time()
    sender.check_progress(now_s)
    for number in range(20):  # more than the sockets hold
        sender.send(Data(f"t-{number}", 0, len(BYTES)))
    pair.run_until(lambda: pair.links[0]._sender.progress_bytes > 0)
    sender.check_progress(now_s + STUCK_S + 1)  # it has moved
    assert not sender.is_closed
    sender.check_progress(now_s + 3 * STUCK_S)
    assert sender.is_closed
    assert pair.hosts[0].is_over


@pytest.mark.parametrize("sends", [False, True])
def test_a_link_whose_reading_is_held_ends_when_the_other_side_is_gone(
    pair: Pair, sends: bool
) -> None:
    """Else the loop would be told of it again and again."""
    one, other = pair.links
    one.hold_reading()
    one._watch(sends)
    other._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()
    pair.run_until(lambda: pair.hosts[0].is_over)
    assert one.is_closed
    one.read_on()
    assert pair.hosts[0].frames == []


def test_a_link_that_is_finished_sends_what_waits_and_receives_no_more(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.broker.replica.link.FINISH_S", 600.0)
    one, other = pair.links
    one.settle(0)  # as before a Welcome
    sums = {f"t-{number}": (SegmentSums(0, 1, -1, (7,) * 100_000),) for number in range(20)}
    one.send(Sums(sums), EPOCH)
    one.send(Welcome(Verdict.NOT_LEADER, EPOCH), EPOCH)
    other.send(Ready())
    one.finish()
    pair.run_until(lambda: pair.hosts[1].is_over)
    assert len(pair.hosts[1].frames) == 2
    assert pair.hosts[0].frames == []
    assert one.is_closed
    assert not pair.hosts[0].is_over  # it was this side's wish


def test_a_link_of_an_epoch_sends_no_bytes_of_a_log_after_its_end(pair: Pair) -> None:
    """They could be of the next epoch by then."""
    one, other = pair.links
    other.hold_reading()
    other._watch(False)
    for number in range(20):  # more than the sockets hold
        one.send(Data(f"t-{number}", 0, len(BYTES)))
    pair.run_until(lambda: one._sender.progress_bytes > 0)
    one.finish()
    other.read_on()
    pair.run_until(lambda: pair.hosts[1].is_over)
    sent = sum(len(frame.data) for frame in pair.hosts[1].frames if isinstance(frame, Chunk))
    assert sent < 20 * len(BYTES)
    assert one.is_closed
    assert not pair.hosts[0].is_over


def test_a_frame_of_another_epoch_ends_the_link(pair: Pair) -> None:
    pair.links[0].settle(EPOCH + 1)
    pair.links[0].send(Ready())
    pair.run_until(lambda: pair.hosts[1].is_over and pair.hosts[0].is_over)
    assert pair.hosts[1].frames == []


def test_bytes_that_cannot_be_read_end_the_link(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "no such bytes")

    monkeypatch.setattr(pair.hosts[0], "read_chunk", fails)
    pair.links[0].send(Data("t-0", 0, 10))
    pair.run_until(lambda: all(host.is_over for host in pair.hosts))
