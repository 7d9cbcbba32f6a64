"""The server in this process, under asyncio and uvloop, with a socket and a disk that misbehave."""

import errno
import logging
import os
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka2011.broker.kafka07 import handlers
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.network import sender
from kafka2011.broker.process import STATUS_STORAGE_FAILED
from kafka2011.producer.connection import BrokerConnection
from tests.support.faulty_files import Fault, FaultyFileLayer
from tests.support.in_process_broker import LOOPS, in_process_broker
from tests.support.raw_requests import (
    EMPTY,
    answer,
    entry,
    fetch,
    frame,
    multi_fetch,
    offsets,
    offsets_answer,
    produce,
)
from tests.support.waiting import wait_until

V = entry(b"hello")

both_loops = pytest.mark.parametrize("loop", list(LOOPS))


@both_loops
def test_a_conversation(tmp_path: Path, loop: str) -> None:
    with in_process_broker(tmp_path, loop, num_partitions=2) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", V * 3) + produce(b"t", V, 1) + offsets(b"t", -1, 1))
            assert client.response() == offsets_answer(45)
            assert client.ask(multi_fetch((b"t", 0, 15, 15), (b"t", 1, 0, 100))) == frame(
                b"\0\0" + answer(V) + answer(V)
            )
        with broker.connect() as client:
            client.send(bytes(4))
            assert client.is_closed_by_broker()
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()


@both_loops
def test_requests_of_a_turn_are_one_write(tmp_path: Path, loop: str) -> None:
    files = FaultyFileLayer(tmp_path)
    with in_process_broker(tmp_path, loop, files) as broker, broker.connect() as client:
        client.send(produce(b"t", V) * 1000 + offsets(b"t", -1, 1))
        assert client.response() == offsets_answer(15_000)
        assert files.operations.count("write_at") < 20


@both_loops
def test_a_reset_after_data_is_noticed(tmp_path: Path, loop: str) -> None:
    """uvloop's own reader never hears of it; ours must."""
    import socket
    import struct

    with in_process_broker(tmp_path, loop) as broker:
        for _ in range(100):
            client = broker.connect()
            client.send(struct.pack(">ih", 1_000_000, 0) + bytes(50_000))
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        wait_until(
            lambda: sum(broker.metrics.connections_closed.values()) == 100, "all resets noticed"
        )


class Sendfile:
    """`os.sendfile` that sends what it likes: a few bytes, or nothing for now."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._real = os.sendfile
        self.calls = 0

    def __call__(self, out: int, source: int, offset: int, count: int) -> int:
        self.calls += 1
        if self._rng.random() < 0.3:
            raise BlockingIOError(errno.EAGAIN, "not now")
        return self._real(out, source, offset, min(count, self._rng.randint(1, 5000)))


@both_loops
def test_responses_are_exact_whatever_sendfile_does(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N8: sendfile sends less than it was asked for, or nothing."""
    sendfile = Sendfile(7)
    monkeypatch.setattr(os, "sendfile", sendfile)
    data = b"".join(entry(os.urandom(size)) for size in range(0, 900, 3))
    with in_process_broker(tmp_path, loop) as broker, broker.connect() as client:
        client.send(produce(b"t", data) + offsets(b"t", -1, 1))
        assert client.response() == offsets_answer(len(data))
        for offset in range(0, len(data), 7919):
            client.send(fetch(b"t", offset, 0, 100_000) + fetch(b"t", 0, 0, 10))
        for offset in range(0, len(data), 7919):
            assert client.response() == answer(data[offset : offset + 100_000])
            assert client.response() == answer(data[:10])
        assert broker.metrics.fetch_without_sendfile == 0
    assert sendfile.calls > 100


def test_a_file_that_ends_early_closes_and_never_spins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "sendfile", lambda *_: 0)
    with in_process_broker(tmp_path) as broker, broker.connect() as client:
        client.send(produce(b"t", V) + offsets(b"t", -1, 1))
        assert client.response() == offsets_answer(15)
        client.send(fetch(b"t", 5))
        client.receive(6)
        assert client.is_closed_by_broker()
        wait_until(
            lambda: broker.metrics.connections_closed.get("segment-ends-early") == 1, "counted"
        )
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "t-0 ends early, at offset 5: " in line


def test_parts_of_a_multi_fetch_never_ask_for_less_than_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A negative size is nonsense that closes the connection: ours must not come to one when the
    parts before have used up what a response can hold."""
    monkeypatch.setattr(handlers, "RESPONSE_BYTES_MAX", 40)
    with in_process_broker(tmp_path) as broker, broker.connect() as client:
        client.send(produce(b"t", V * 3) + offsets(b"t", -1, 1))
        assert client.response() == offsets_answer(45)
        whole = frame(b"\0\0" + answer((V * 3)[:20]) + EMPTY + EMPTY)
        assert client.ask(multi_fetch(*[(b"t", 0, 0, 100)] * 3)) == whole
        assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(45), "still open"


def test_where_sendfile_cannot_be_used_the_answer_is_the_same_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EINVAL, "no sendfile here")

    monkeypatch.setattr(os, "sendfile", refuse)
    with in_process_broker(tmp_path) as broker, broker.connect() as client:
        data = V * 50_000
        client.send(produce(b"t", data) + offsets(b"t", -1, 1))
        assert client.response() == offsets_answer(len(data))
        assert client.ask(fetch(b"t", 0, 0, 10**6)) == answer(data)
        assert broker.metrics.fetch_without_sendfile > 0


def test_one_connection_does_not_keep_the_loop_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region larger than a turn's share is sent in several turns."""
    monkeypatch.setattr(sender, "SEND_BYTES_PER_TURN", 10_000)
    with in_process_broker(tmp_path) as broker, broker.connect() as client:
        data = V * 20_000
        client.send(produce(b"t", data) + offsets(b"t", -1, 1))
        assert client.response() == offsets_answer(len(data))
        assert client.ask(fetch(b"t", 0, 0, 10**6)) == answer(data)


def drop_from_memory(path: Path) -> None:
    """Drop the file's pages, so that reading it needs the disk again; skips where that cannot be.

    Pages that somebody reads in just now, or that are on their way to the kernel's lists, are not
    dropped yet: tried for 10 s.
    """

    def is_dropped() -> bool:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(fd, [bytearray(1)], 4_000_000, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:  # a file system that cannot tell
            pytest.skip("this file system keeps its pages (a tmpfs)")
        return False

    fd = os.open(path, os.O_RDONLY)
    try:
        wait_until(is_dropped, "dropped", 10)
    except AssertionError:
        pytest.skip("this file system keeps its pages (a tmpfs)")
    finally:
        os.close(fd)


@both_loops
def test_old_data_is_read_beside_the_loop(tmp_path: Path, loop: str) -> None:
    with in_process_broker(tmp_path, loop) as broker, broker.connect() as client:
        data = b"".join(entry(os.urandom(50_000)) for _ in range(100))
        for start in range(0, len(data), 50_010 * 10):
            client.send(produce(b"t", data[start : start + 50_010 * 10]))
        assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(len(data))
        drop_from_memory(broker.log_dir / "t-0" / "00000000000000000000.kafka")
        assert client.ask(fetch(b"t", 0, 0, 10**7)) == answer(data)
        assert broker.metrics.cold_reads > 0
        assert client.ask(fetch(b"t", 0, 0, 10**7)) == answer(data)


def test_a_client_that_leaves_while_its_data_is_read_lets_go_of_the_file(tmp_path: Path) -> None:
    with in_process_broker(tmp_path) as broker:
        with broker.connect() as client:
            for _ in range(10):
                client.send(produce(b"t", entry(bytes(900_000))))
            assert client.ask(offsets(b"t", -1, 1)) != b""
        segment = broker.broker.logs.logs["t", 0].segments[0]
        for _ in range(20):
            drop_from_memory(segment.path)
            with broker.connect() as client:
                client.send(fetch(b"t", 0, 0, 10**7))
        wait_until(lambda: segment.users == 0, "all leases released")


def test_a_bug_costs_the_connection_it_was_met_on_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_process_broker(tmp_path) as broker, broker.connect() as other:
        served = broker.broker.handlers
        real = served.offsets

        def fail(query: Any, appends: Any) -> Any:
            if b"unlucky" in query.route:
                raise KeyError("a bug")
            return real(query, appends)

        monkeypatch.setattr(served, "offsets", fail)
        for _ in range(3):
            with broker.connect() as client:
                client.send(offsets(b"unlucky"))
                assert client.is_closed_by_broker()
            assert other.ask(offsets(b"t", -1, 1)) == offsets_answer(0)
        assert broker.metrics.connections_closed["internal-error"] == 3


# --- disk faults, as clients see them ------------------------------------------------------------


def ends_of(broker: Any, data: bytes) -> bytes:
    with broker.connect() as client:
        try:
            client.send(produce(b"t", data))
            return client.ask(offsets(b"t", -1, 1))
        except (ConnectionResetError, BrokenPipeError):
            return b""


@pytest.mark.parametrize(
    ("kind", "error", "works_after"),
    [
        ("write_at", errno.ENOSPC, True),
        ("write_at", errno.EIO, False),
        ("sync_data", errno.EIO, False),
        ("sync_data", errno.ENOSPC, False),
    ],
)
def test_failed_disk_operations_close_the_barrier_s_connection(
    tmp_path: Path, kind: str, error: int, works_after: bool
) -> None:
    files = FaultyFileLayer(tmp_path)
    with (
        in_process_broker(tmp_path, files=files, num_partitions=2) as broker,
        broker.connect() as other,
    ):
        other.send(produce(b"other", V) + offsets(b"other", -1, 1))
        assert other.response() == offsets_answer(15)
        assert ends_of(broker, V) == offsets_answer(15)
        files.fault = Fault(1, error, (kind,))
        assert ends_of(broker, V) == b""
        files.fault = None
        with broker.connect() as reader:
            assert reader.ask(fetch(b"t")) == answer(V)
            assert reader.ask(fetch(b"t", 15)) == EMPTY
        assert ends_of(broker, V) == (offsets_answer(30) if works_after else b"")
        other.send(produce(b"other", V) + offsets(b"other", -1, 1))
        assert other.response() == offsets_answer(30), "another connection was disturbed"


@pytest.mark.parametrize("broken", ["write", "roll"])
def test_a_broker_whose_only_log_failed_without_a_flush_ends_with_its_status(
    tmp_path: Path, broken: str
) -> None:
    """By 0.7's settings nothing is flushed here that would say so."""
    files = FaultyFileLayer(tmp_path)
    with in_process_broker(
        tmp_path, files=files, log_flush_interval=1000, log_file_size=20
    ) as broker:
        for count in (1, 2):
            assert ends_of(broker, V) == offsets_answer(15 * count)
        kind = "write_at" if broken == "write" else "open"
        if broken == "write":
            assert ends_of(broker, V) == offsets_answer(45)  # into a new segment
        files.fault = Fault(1, errno.EIO, (kind,))
        with broker.connect() as client:
            client.send(produce(b"t", V))
            assert client.is_closed_by_broker()
        wait_until(lambda: broker.broker.status == STATUS_STORAGE_FAILED, "ending", 10)


def test_a_barrier_holds_whatever_became_of_partition_0(tmp_path: Path) -> None:
    """Decision 103: it is asked for (topic, 0), and what was appended elsewhere is durable."""
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (directory / "00000000000000000000.kafka").write_bytes(V[:-1] + b"!" + V)
    with in_process_broker(tmp_path, num_partitions=2) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", V, 1))
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer()
            assert client.ask(offsets(b"t", -1, 1, 1)) == offsets_answer(15)
            client.send(offsets(b"t", -2, 1))
            assert client.is_closed_by_broker()
        with broker.connect() as client:
            client.send(offsets(b"t", -1, 1))
            assert client.is_closed_by_broker()
        connection = BrokerConnection(("127.0.0.1", broker.port))
        connection.send(produce(b"t", V, 1), "t", len(V))
        assert connection.barrier(10_000)
        connection.disconnect()


def has_bytes(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size >= size


@pytest.mark.parametrize("is_stopped", [False, True])
def test_no_descriptor_for_a_directory_makes_the_barrier_wait_and_fails_nothing(
    tmp_path: Path, is_stopped: bool
) -> None:
    """Tried again now and then, and never in a busy loop; not at a stop either."""
    files = FaultyFileLayer(tmp_path)
    with in_process_broker(tmp_path, files=files) as broker, broker.connect() as client:
        files.fault = Fault(1, errno.EMFILE, ("sync_directory",), persistent=True)
        segment = broker.log_dir / "t-0" / "00000000000000000000.kafka"
        for number in range(1, 21):  # each a turn of its own
            client.send(produce(b"t", V))
            wait_until(
                partial(has_bytes, segment, number * len(V)), f"{number} sets are in the segment"
            )
        client.send(offsets(b"t", -1, 1))
        wait_until(lambda: files.fault is not None and files.fault.hits >= 3, "tried again")
        assert files.fault.hits < 10
        if not is_stopped:
            files.fault = None
            assert client.response() == offsets_answer(20 * len(V))
    assert (broker.log_dir / ".kafka_cleanshutdown").exists() != is_stopped


def test_a_slow_disk_holds_nobody_but_who_waits_for_it(tmp_path: Path) -> None:
    """S17: the flush hangs; produces, fetches and offsets of others go on meanwhile."""
    hangs = threading.Event()
    goes_on = threading.Event()

    def before(kind: str) -> None:
        if kind == "sync_data" and hangs.is_set():
            assert goes_on.wait(20)

    files = FaultyFileLayer(tmp_path, before=before)
    with in_process_broker(tmp_path, files=files) as broker:
        try:
            assert ends_of(broker, V) == offsets_answer(15)
            hangs.set()
            with broker.connect() as waiting, broker.connect() as free:
                waiting.send(produce(b"t", V) + offsets(b"t", -1, 1))
                for number in range(50):
                    free.send(produce(b"t", V))
                    assert free.ask(fetch(b"t", 0, 0, 15)) == answer(V), number
                assert free.ask(fetch(b"t", 15)) == EMPTY, "visible before it is flushed"
                hangs.clear()
                goes_on.set()
                found = waiting.response()
                assert int.from_bytes(found[10:18], "big") >= 30
        finally:
            hangs.clear()
            goes_on.set()


def test_a_roll_on_a_slow_disk_holds_the_sets_and_keeps_the_boundaries(tmp_path: Path) -> None:
    """Sets that come while the roll waits for its flush are neither lost nor moved."""
    delay = threading.Event()

    def before(kind: str) -> None:
        if kind == "sync_data":
            delay.wait(0.005)

    files = FaultyFileLayer(tmp_path, before=before)
    with in_process_broker(tmp_path, files=files, log_file_size=100) as broker:
        twelve = entry(b"42")
        with broker.connect() as client:
            client.send(produce(b"t", twelve) * 200 + offsets(b"t", -1, 1))
            assert client.response() == offsets_answer(2400)
        names = sorted(path.name for path in (broker.log_dir / "t-0").iterdir())
        assert names == [f"{start:020d}.kafka" for start in range(0, 2400, 108)]


def test_offsets_of_the_original_s_worked_example(tmp_path: Path) -> None:
    with in_process_broker(tmp_path, log_file_size=100) as broker, broker.connect() as client:
        for _ in range(20):
            client.send(produce(b"t", entry(b"42")))
        assert client.ask(offsets(b"t", -1, 10)) == offsets_answer(240, 216, 108, 0)
        assert client.ask(offsets(b"t", -1, 2)) == offsets_answer(240, 216)
        assert client.ask(offsets(b"t", -2, 10)) == offsets_answer(0)
        assert client.ask(fetch(b"t", 100, 0, 1000)) == answer((entry(b"42") * 20)[100:108])


def test_retention_by_size_removes_files_while_a_fetch_of_them_runs(tmp_path: Path) -> None:
    """B5 and S19: the response completes from the open file."""
    with in_process_broker(
        tmp_path, log_file_size=1_000_000, log_retention_size=1_000_000
    ) as broker:
        data = entry(os.urandom(400_000))
        with broker.connect() as reader, broker.connect() as client:
            for _ in range(12):
                client.send(produce(b"t", data))
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(12 * len(data))
            reader.send(fetch(b"t", 0, 0, 10**7))
            begun = reader.receive(1000)
            first = broker.log_dir / "t-0" / "00000000000000000000.kafka"
            size = first.stat().st_size
            run_on_loop(broker, broker.broker.disk.retire_now)
            wait_until(lambda: not first.exists(), "the first segment's file removed")
            whole = begun + reader.receive(6 + size - len(begun))
            assert whole == answer((data * 3)[:size])
            assert client.ask(fetch(b"t")) == bytes.fromhex("00000002 0001")
        wait_until(lambda: broker.metrics.retired_segments > 0, "the removal counted")


def run_on_loop(broker: Any, work: Callable[[], None]) -> None:
    done = threading.Event()

    def call() -> None:
        work()
        done.set()

    broker.broker.server.loop.call_soon_threadsafe(call)
    assert done.wait(10)


def test_regions_are_let_go_when_a_client_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[FileRegion] = []
    real = FileRegion.release

    def release(region: FileRegion) -> None:
        if region.fd >= 0:
            released.append(region)
        real(region)

    monkeypatch.setattr(FileRegion, "release", release)
    with in_process_broker(tmp_path) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", entry(bytes(900_000)) * 10) + offsets(b"t", -1, 1))
            client.response()
        with broker.connect() as client:
            client.send(multi_fetch(*[(b"t", 0, 0, 10**7)] * 20))
            client.receive(100)
        wait_until(lambda: len(released) == 20, "all twenty regions released")


def test_a_wait_for_data_goes_on_with_its_data_and_ends_with_its_connection(
    tmp_path: Path,
) -> None:
    with in_process_broker(tmp_path) as broker, broker.connect() as client:
        client.send(produce(b"t", V) + offsets(b"t", -1, 1))
        assert client.response() == offsets_answer(15)
        served = broker.broker
        log = served.partitions.find("t", 0)

        def hold() -> None:
            (connection,) = served.server._connections
            connection.hold(
                lambda done: served.partitions.wait_for_data(
                    {log: log.high_watermark}, served.server.loop.time() + 60, lambda _: done(True)
                )
            )

        waits = served.partitions._data_waits
        run_on_loop(broker, hold)
        client.send(fetch(b"t", 0, 0, 15))
        assert waits.log_count == 1
        with broker.connect() as other:
            other.send(produce(b"t", V))
            assert client.response() == answer(V)
        wait_until(lambda: len(served.server._connections) == 1, "the other one is gone")
        run_on_loop(broker, hold)
        assert waits.log_count == 1
    assert waits.log_count == 0
