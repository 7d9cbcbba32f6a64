"""The server in this process, under asyncio and uvloop, with a socket and a disk that misbehave."""

import contextlib
import errno
import gzip
import logging
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.broker.core import disk_scheduler
from kafka2011.broker.core.disk_scheduler import FLUSH_RETRY_S
from kafka2011.broker.core.partitions import Partitions
from kafka2011.broker.kafka07 import checks, handlers, session
from kafka2011.broker.kafka07.handlers import Reading, RequestHandlers
from kafka2011.broker.log.disk_jobs import FlushJob, Retirement
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.network import sender, server
from kafka2011.broker.network.connection import Connection
from kafka2011.broker.process import STATUS_STORAGE_FAILED
from kafka2011.producer.connection import BrokerConnection
from tests.support.brokers import RawClient
from tests.support.in_process_broker import LOOPS, InProcessBroker, in_process_broker
from tests.support.raw_requests import (
    EMPTY,
    OUT_OF_RANGE,
    answer,
    entry,
    fetch,
    frame,
    multi_fetch,
    multi_produce,
    offsets,
    offsets_answer,
    produce,
    waiting_fetch,
)
from tests.support.waiting import wait_until
from tests.unit.broker.data_directory import FIRST, DataDirectory, some

V = entry(b"hello")
BARRIER = offsets(b"t", -1, 1)
EVERYTHING = fetch(b"t", 0, 0, 10**7)

both_loops = pytest.mark.parametrize("loop", list(LOOPS))


@pytest.fixture
def loop() -> str:
    return "uvloop"


@pytest.fixture
def broker(tmp_path: Path, loop: str) -> Iterator[InProcessBroker]:
    """A broker with two partitions a topic on a real disk, under the loop that the test names."""
    with in_process_broker(tmp_path, loop, num_partitions=2) as made:
        yield made


def broker_on(disk: DataDirectory, loop: str = "uvloop", **properties: object) -> Any:
    """The same on a disk that can fail, with further settings."""
    return in_process_broker(disk.root.parent, loop, disk.files, num_partitions=2, **properties)


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[RawClient]:
    with broker.connect() as made:
        yield made


def store(client: RawClient, data: bytes, end: int | None = None, topic: bytes = b"t") -> None:
    """Append to partition 0 and wait until it is durable up to `end` (default: the set's size)."""
    client.send(produce(topic, data) + offsets(topic, -1, 1))
    assert client.response() == offsets_answer(len(data) if end is None else end)


def run_on_loop(broker: InProcessBroker, work: Callable[[], None]) -> None:
    done = threading.Event()

    def call() -> None:
        work()
        done.set()

    broker.broker.server.loop.call_soon_threadsafe(call)
    assert done.wait(60)


@both_loops
def test_a_conversation(disk: DataDirectory, loop: str) -> None:
    with broker_on(disk, loop) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", V * 3) + produce(b"t", V, 1) + BARRIER)
            assert client.response() == offsets_answer(45)
            both = client.ask(multi_fetch((b"t", 0, 15, 15), (b"t", 1, 0, 100)))
            assert both == frame(b"\0\0" + answer(V) + answer(V))
        with broker.connect() as client:
            client.send(bytes(4))
            assert client.is_closed_by_broker()
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()


@both_loops
def test_requests_of_a_turn_are_one_write(disk: DataDirectory, loop: str) -> None:
    with broker_on(disk, loop) as broker, broker.connect() as client:
        client.send(produce(b"t", V) * 1000 + BARRIER)
        assert client.response() == offsets_answer(15_000)
        assert disk.operations().count("write_at") < 20


@both_loops
def test_a_reset_after_data_is_noticed(broker: InProcessBroker) -> None:
    """uvloop's own reader never hears of it; ours must."""
    for _ in range(100):
        client = broker.connect()
        client.send(struct.pack(">ih", 1_000_000, 0) + bytes(50_000))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    wait_until(lambda: sum(broker.metrics.connections_closed.values()) == 100, "all resets noticed")


@both_loops
def test_responses_are_exact_whatever_sendfile_does(
    broker: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N8: sendfile sends less than it was asked for, or nothing."""
    rng, real, calls = random.Random(7), os.sendfile, []

    def sendfile(out: int, source: int, offset: int, count: int) -> int:
        calls.append(count)
        if rng.random() < 0.3:
            raise BlockingIOError(errno.EAGAIN, "not now")
        return real(out, source, offset, min(count, rng.randint(1, 5000)))

    monkeypatch.setattr(os, "sendfile", sendfile)
    data = b"".join(entry(os.urandom(size)) for size in range(0, 900, 3))
    store(client, data)
    for offset in range(0, len(data), 7919):
        client.send(fetch(b"t", offset, 0, 100_000) + fetch(b"t", 0, 0, 10))
    for offset in range(0, len(data), 7919):
        assert client.response() == answer(data[offset : offset + 100_000])
        assert client.response() == answer(data[:10])
    assert broker.metrics.fetch_without_sendfile == 0
    assert len(calls) > 100


def test_a_file_that_ends_early_closes_and_never_spins(
    broker: InProcessBroker,
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(os, "sendfile", lambda *_: 0)
    store(client, V)
    client.send(fetch(b"t", 5))
    client.receive(6)
    assert client.is_closed_by_broker()
    closed = broker.metrics.connections_closed
    wait_until(lambda: closed.get("segment-ends-early") == 1, "counted")
    wait_until(lambda: [one for one in caplog.records if one.levelno == logging.ERROR], "logged")
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "t-0 ends early, at offset 5: " in line


def closing_line(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> str:
    """The line of the one connection that ended, which must be because of the broker's disk."""
    closed = broker.metrics.connections_closed
    wait_until(lambda: closed, "closed")
    assert closed == {"cannot-read": 1}

    def found() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]

    wait_until(found, "logged")
    (line,) = found()
    return line


@pytest.mark.parametrize("call", ["sendfile", "preadv"])
def test_bytes_that_cannot_be_read_are_named(
    broker: InProcessBroker,
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
) -> None:
    """`detail` was `[Errno 5] Input/output error`, on a broker of many partitions."""
    real = os.preadv

    def preadv(fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return refuse() if call == "preadv" else real(fd, buffers, position)

    def refuse(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", preadv)
    if call == "sendfile":
        monkeypatch.setattr(os, "sendfile", refuse)
    store(client, V * 3)
    client.send(fetch(b"t", 15))
    line = closing_line(broker, caplog)
    path = broker.log_dir / "t-0" / FIRST
    assert f"t-0 cannot be read at offset 15: {path}: Input/output error" in line


def test_a_segment_that_cannot_be_opened_again_is_named(
    disk: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """The client was said to have reset its connection, which is no line in the log."""
    for number in range(20):
        disk.put(V, number * len(V))
    parts = [(b"t", 0, number * len(V), 1000) for number in range(20)]
    with broker_on(disk, open_segments_max=16) as broker, broker.connect() as client:
        disk.fail(errno.EACCES, "open", nth=len(parts) + 1, within="t-0")
        client.send(multi_fetch(*parts))
        line = closing_line(broker, caplog)
    assert "t-0 cannot be read at offset 2" in line
    assert ".kafka: Permission denied" in line


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes, the limit is 10485760: it "
         "begins as HTTP does"),
        (bytes.fromhex("1603010200010001"), "a frame of 369295618 bytes, the limit is 10485760: it "
         "begins as TLS does"),
        (struct.pack(">i", 10485761), "a frame of 10485761 bytes, the limit is 10485760"),
        (struct.pack(">i", -1), "a frame of -1 bytes, the limit is 10485760"),
    ],
)  # fmt: skip
def test_a_frame_that_is_no_request_is_told_from_one_that_is_too_large(
    client: RawClient, caplog: pytest.LogCaptureFixture, sent: bytes, detail: str
) -> None:
    """HTTP and TLS on this port were requests that are too large: `smaller batches`, said the page,
    which had them below another reason."""
    client.send(sent)
    assert client.is_closed_by_broker()
    wait_until(lambda: [one for one in caplog.messages if "connection_closed" in one], "logged")
    (line,) = [one for one in caplog.messages if "connection_closed" in one]
    assert f'reason=frame-size detail="{detail}"' in line


def test_connections_above_the_limit_are_named_once_in_a_while(
    disk: DataDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client was hung up on, and the log said nothing."""
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 10**6)
    with broker_on(disk, connections_max=1) as broker, broker.connect() as client:
        assert client.ask(BARRIER) == offsets_answer(0)
        for _ in range(5):
            with broker.connect() as refused:
                assert refused.is_closed_by_broker()
        assert broker.metrics.connections_refused == {"connections-max": 5}
    lines = [one for one in caplog.messages if "connection_refused" in one]
    assert [line.partition("client=")[2] for line in lines] == ["127.0.0.1 reason=connections-max"]


def test_a_listed_address_is_unlimited_in_whatever_form_the_socket_names_it(
    disk: DataDirectory,
) -> None:
    """A socket that listens on `::` names an IPv4 balancer ::ffff:10.0.0.5: it was limited."""
    listed = "10.0.0.5,2001:DB8:0::1"
    with broker_on(disk, connections_unlimited_addresses=listed) as broker:
        addresses = ["10.0.0.5", "::ffff:10.0.0.5", "2001:db8::1", "127.0.0.1", "::ffff:127.0.0.1"]
        others = ["10.0.0.6", "::ffff:10.0.0.6", "2001:db8::2", "no address"]
        is_unlimited = broker.broker.server._is_unlimited
        assert [*filter(is_unlimited, addresses + others)] == addresses


def test_failures_to_accept_are_named_once_in_a_row(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors clients waited in the kernel's queue, and the log said nothing."""
    failures = iter([errno.EMFILE] * 3)
    real = socket.socket.accept

    def accept(listener: socket.socket) -> Any:
        if number := next(failures, 0):
            raise OSError(number, os.strerror(number))
        return real(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with broker.connect() as client:
        assert client.ask(BARRIER) == offsets_answer(0)
    assert broker.metrics.accept_pauses == 3
    lines = [one for one in caplog.messages if "accept_failed" in one]
    assert [line.partition("reason=")[2] for line in lines] == ['"[Errno 24] Too many open files"']


def test_parts_of_a_multi_fetch_never_ask_for_less_than_nothing(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A negative size is nonsense that closes the connection: ours must not come to one when the
    parts before have used up what a response can hold."""
    monkeypatch.setattr(handlers, "RESPONSE_BYTES_MAX", 40)
    store(client, V * 3)
    whole = frame(b"\0\0" + answer((V * 3)[:20]) + EMPTY + EMPTY)
    assert client.ask(multi_fetch(*[(b"t", 0, 0, 100)] * 3)) == whole
    assert client.ask(BARRIER) == offsets_answer(45), "still open"


def test_where_sendfile_cannot_be_used_the_answer_is_the_same_and_counted(
    broker: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EINVAL, "no sendfile here")

    monkeypatch.setattr(os, "sendfile", refuse)
    store(client, V * 50_000)
    assert client.ask(EVERYTHING) == answer(V * 50_000)
    assert broker.metrics.fetch_without_sendfile > 0


def test_one_connection_does_not_keep_the_loop_for_itself(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region larger than a turn's share is sent in several turns."""
    monkeypatch.setattr(sender, "SEND_BYTES_PER_TURN", 10_000)
    store(client, V * 20_000)
    assert client.ask(EVERYTHING) == answer(V * 20_000)


NEW = [b"new-%d" % number for number in range(40)]
OTHERS = fetch(b"other", 0)


@both_loops
@pytest.mark.parametrize(
    ("request_bytes", "wanted"),
    [
        (b"".join(produce(topic, V) for topic in NEW) + BARRIER, offsets_answer(len(V))),
        (multi_produce(*((topic, 0, V) for topic in NEW)) + BARRIER, offsets_answer(len(V))),
        (multi_fetch(*[(b"t", 0, 0, 100)] * 40), frame(b"\0\0" + answer(V) * 40)),
        (multi_fetch(*[(b"t", 0, 15, 100)] * 40), frame(b"\0\0" + EMPTY * 40)),
        (waiting_fetch(0, *[(b"t", 0, 15, 100)] * 40), frame(b"\0\0" + EMPTY * 40)),
    ],
    ids=["new topics", "new topics at once", "parts with data", "parts at the end", "waiting"],
)
def test_others_are_served_between_the_parts_of_a_request(
    broker: InProcessBroker,
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    request_bytes: bytes,
    wanted: bytes,
) -> None:
    """900 new topics in 28 KB held the loop for half a second, and four clients with a fetch of
    1,000 parts each made everybody's round trip 205 ms."""
    monkeypatch.setattr(session, "TURN_S", 0.0)
    monkeypatch.setattr(sender, "SEND_PIECES_PER_TURN", 3)
    store(client, V)
    steps: list[str] = []
    with broker.connect() as other:
        assert other.ask(OTHERS) == EMPTY

        def meet(name: str) -> None:
            steps.append(name)
            if len(steps) == 1:
                other.send(OTHERS)

        find_or_create, read = Partitions.find_or_create, RequestHandlers._read
        monkeypatch.setattr(
            Partitions,
            "find_or_create",
            lambda self, topic, *rest: (meet(topic), find_or_create(self, topic, *rest))[1],
        )
        monkeypatch.setattr(
            RequestHandlers,
            "_read",
            lambda self, route, *rest: (meet(route[2:-4].decode()), read(self, route, *rest))[1],
        )
        assert client.ask(request_bytes) == wanted
        assert other.response() == EMPTY
    assert len(steps) == 41
    assert steps[-1] != "other", steps
    for topic in NEW if b"new" in request_bytes else ():
        assert (broker.log_dir / f"{topic.decode()}-0" / FIRST).read_bytes() == V


def test_a_client_that_leaves_between_two_turns_leaves_no_file_open(
    broker: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(client, V)
    monkeypatch.setattr(session, "TURN_S", 0.0)
    held: list[FileRegion] = []
    cancelled: list[Reading] = []
    cancel = Reading.cancel

    def noted(reading: Reading) -> None:
        cancelled.append(reading)
        held.extend(region for _, region, _ in reading._answers if region is not None)
        cancel(reading)

    def go_on(reading: Reading, until_s: float) -> bool:
        [connection] = broker.broker.server._connections
        broker.broker.server.loop.call_soon(connection.close, "reset")
        return go_on_really(reading, until_s)

    go_on_really = Reading.go_on
    monkeypatch.setattr(Reading, "cancel", noted)
    monkeypatch.setattr(Reading, "go_on", go_on)
    client.send(multi_fetch(*[(b"t", 0, 0, 100)] * 40))
    assert client.is_closed_by_broker()
    assert len(cancelled) == 1
    assert held
    assert all(region.fd < 0 for region in held)


def drop_from_memory(path: Path) -> None:
    """Drop the file's pages, so that reading it needs the disk again; skips where that cannot be.

    Pages that are being read in just now, or that are on their way to the kernel's lists, are not
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
def test_old_data_is_read_beside_the_loop(broker: InProcessBroker, client: RawClient) -> None:
    data = b"".join(entry(os.urandom(50_000)) for _ in range(100))
    for start in range(0, len(data), 50_010 * 10):
        client.send(produce(b"t", data[start : start + 50_010 * 10]))
    assert client.ask(BARRIER) == offsets_answer(len(data))
    drop_from_memory(broker.log_dir / "t-0" / FIRST)
    assert client.ask(EVERYTHING) == answer(data)
    assert broker.metrics.cold_reads > 0
    assert client.ask(EVERYTHING) == answer(data)


def test_a_client_that_leaves_while_its_data_is_read_lets_go_of_the_file(
    broker: InProcessBroker, client: RawClient
) -> None:
    for _ in range(10):
        client.send(produce(b"t", entry(bytes(900_000))))
    assert client.ask(BARRIER) != b""
    segment = broker.broker.logs.logs["t", 0].segments[0]
    for _ in range(20):
        drop_from_memory(segment.path)
        with broker.connect() as leaving:
            leaving.send(EVERYTHING)
    wait_until(lambda: segment.users == 0, "all leases released")


def test_a_bug_costs_the_connection_it_was_met_on_and_no_other(
    broker: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = broker.broker.handlers
    real = served.offsets

    def fail(query: Any, appends: Any) -> Any:
        if b"unlucky" in query.route:
            raise KeyError("a bug")
        return real(query, appends)

    monkeypatch.setattr(served, "offsets", fail)
    for _ in range(3):
        with broker.connect() as unlucky:
            unlucky.send(offsets(b"unlucky"))
            assert unlucky.is_closed_by_broker()
        assert client.ask(BARRIER) == offsets_answer(0)
    assert broker.metrics.connections_closed["internal-error"] == 3


# --- deadlines -----------------------------------------------------------------------------------


def wait_a_moment() -> None:
    """So long that the loop's clock, of whole milliseconds, tells it from now."""
    at_s = time.monotonic() + 0.005
    wait_until(lambda: time.monotonic() > at_s, "the moment")


def test_a_read_deadline_is_of_a_request_and_not_of_its_bytes_or_of_the_connection(
    broker: InProcessBroker, client: RawClient
) -> None:
    request = fetch(b"t")
    assert client.ask(request) == EMPTY
    (connection,) = broker.broker.server._connections
    wait_until(lambda: connection.deadline_s is None, "idle")

    def send(data: bytes, pending: int) -> float:
        """The deadline once so many bytes of a request have come."""
        client.send(data)
        wait_until(lambda: len(connection._received._tail) == pending, "read")
        return some(connection.deadline_s)

    first = send(request[:5], 5)
    wait_a_moment()
    assert send(request[5:9], 9) == first, "later by a byte more"
    assert send(request[9:] + request[:6], 6) > first
    assert client.response() == EMPTY
    assert client.ask(request[6:]) == EMPTY
    wait_until(lambda: connection.deadline_s is None, "idle again")


def test_a_send_deadline_moves_on_as_long_as_the_client_takes_something(
    broker: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room, refused = os.sendfile, 1000, 0

    def sendfile(out: int, source: int, offset: int, count: int) -> int:
        nonlocal room, refused
        if not room:
            refused += 1
            raise BlockingIOError(errno.EAGAIN, "nothing is taken")
        sent = real(out, source, offset, min(count, room))
        room -= sent
        return sent

    monkeypatch.setattr(os, "sendfile", sendfile)
    store(client, V * 200)
    (connection,) = broker.broker.server._connections
    client.send(EVERYTHING)
    wait_until(lambda: refused > 2, "the client takes no more")
    first = some(connection.deadline_s)
    wait_a_moment()
    seen = refused
    wait_until(lambda: refused > seen + 2, "nor later")
    assert connection.deadline_s == first
    room = 1000
    wait_until(lambda: some(connection.deadline_s) > first, "it has taken some")
    room = 10_000
    assert client.response() == answer(V * 200)


# --- work beside the loop ------------------------------------------------------------------------


def compressed(entries: bytes) -> bytes:
    packed = gzip.compress(entries, mtime=0)
    return entry(packed, attributes=1)


BOMB = compressed(entry(bytes(900_000)) * 10)


class Gate:
    """Stops the calls of a function in a thread until `open`; `entered` is set by the first."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._may_go_on = threading.Event()

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.entered.set()
            assert self._may_go_on.wait(60)
            return real(*arguments)

        return call

    def open(self) -> None:
        self._may_go_on.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@both_loops
def test_a_large_compressed_set_is_checked_beside_the_loop_and_stays_in_order(
    broker: InProcessBroker, client: RawClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.CheckJob, "run", gate.before(checks.CheckJob.run))
    client.send(produce(b"t", V) + produce(b"t", BOMB) + produce(b"t", V) + BARRIER + EVERYTHING)
    assert gate.entered.wait(60)
    with broker.connect() as other:
        store(other, V, topic=b"other")
        small = compressed(V * 20)
        store(other, small, len(V) + len(small), topic=b"other")
    assert broker.metrics.checks_beside_loop == 1
    gate.open()
    assert client.response() == offsets_answer(len(V + BOMB + V))
    assert client.response() == answer(V + BOMB + V)


def test_a_client_that_leaves_during_its_check_leaves_nothing(
    broker: InProcessBroker, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither messages nor the buffer, which the thread reads to the end."""
    monkeypatch.setattr(checks.CheckJob, "run", gate.before(checks.CheckJob.run))
    server = broker.broker.server
    with broker.connect() as leaving:
        leaving.send(produce(b"t", BOMB))
        assert gate.entered.wait(60)
        (connection,) = server._connections
        run_on_loop(broker, lambda: connection.close("gone"))
        held = server.memory.bytes_held
        with broker.connect() as client:
            store(client, V, topic=b"other")
        assert server.memory.bytes_held > held
        assert not server._connections or connection not in server._connections
    gate.open()
    wait_until(lambda: connection not in server.memory._holders, "given back")
    assert ("t", 0) not in broker.broker.logs.logs


@pytest.mark.parametrize("everywhere", ["loop", "thread"])
def test_where_a_set_is_checked_makes_no_difference(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, everywhere: str
) -> None:
    if everywhere == "thread":
        monkeypatch.setattr(checks, "LOOP_PACKED_BYTES_MAX", -1)
    else:  # however long a check takes on a busy machine
        monkeypatch.setattr(checks.LoopShare, "is_left", lambda _: True)
    good = compressed(V * 3)
    damaged = compressed(V + V[:-1] + b"!")
    too_large = entry(bytes(1_000_001))
    both = multi_produce((b"t", 0, good), (b"t", 1, damaged), (b"t", 0, V))
    kept = [
        (produce(b"t", good) * 100 + produce(b"t", V), False, 100 * len(good) + 15),
        (produce(b"t", good) + produce(b"t", damaged) + produce(b"t", V), True, len(good)),
        (both, True, len(good)),
        (multi_produce((b"t", 0, too_large), (b"t", 0, good)), True, len(good)),
        (produce(b"t", good) + produce(b"../t", good), True, len(good)),
        (produce(b"t", good) + produce(b"t", good, 7), True, len(good)),
        (produce(b"t", good) + b"\0\0\0\4\0\0\0\1", True, len(good)),
    ]
    end = 0
    for data, is_refused, size in kept:
        with broker.connect() as client:
            assert (client.ask(data + BARRIER) == b"") == is_refused
        end += size
        with broker.connect() as client:
            assert client.ask(BARRIER) == offsets_answer(end)
    assert (broker.metrics.checks_beside_loop > 0) == (everywhere == "thread")


@pytest.mark.parametrize("kind", ["read", "remove"])
def test_a_flush_does_not_wait_for_slow_reads_or_for_retention(
    disk: DataDirectory, gate: Gate, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    settings = {"log_file_size": 500_000, "log_retention_size": 500_000}
    with broker_on(disk, **settings) as broker, contextlib.ExitStack() as readers:
        served = broker.broker
        with broker.connect() as client:
            for number in range(20):
                topic = b"old%d" % number
                client.send(produce(topic, entry(bytes(900_000))) * 3 + offsets(topic, -1, 1))
                client.response()
        if kind == "read":
            monkeypatch.setattr(sender, "_is_warm", lambda _: False)
            monkeypatch.setattr(sender.WarmUp, "run", gate.before(sender.WarmUp.run))
            for number in range(20):
                reader = readers.enter_context(broker.connect())
                reader.send(fetch(b"old%d" % number))
        else:
            monkeypatch.setattr(Retirement, "run", gate.before(Retirement.run))
            run_on_loop(broker, served.disk.retire_now)
        assert gate.entered.wait(60)
        assert end_after(broker, V) == offsets_answer(15)
        gate.open()


# --- disk faults, as clients see them ------------------------------------------------------------


def end_after(broker: InProcessBroker, data: bytes) -> bytes:
    """The answer to a barrier behind an append on a connection of its own; b"" if it is closed."""
    with broker.connect() as client:
        return client.ask(produce(b"t", data) + BARRIER)


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
    disk: DataDirectory, kind: str, error: int, works_after: bool
) -> None:
    with broker_on(disk) as broker, broker.connect() as other:
        store(other, V, topic=b"other")
        assert end_after(broker, V) == offsets_answer(15)
        disk.fail(error, kind, within="t-0")
        assert end_after(broker, V) == b""
        disk.files.fault = None
        with broker.connect() as reader:
            assert reader.ask(fetch(b"t")) == answer(V)
            assert reader.ask(fetch(b"t", 15)) == EMPTY
        assert end_after(broker, V) == (offsets_answer(30) if works_after else b"")
        store(other, V, 30, topic=b"other")


@pytest.mark.parametrize(
    ("kind", "sets"), [("write_at", 3), ("open", 2)], ids=["write into a new segment", "roll"]
)
def test_a_broker_whose_only_log_failed_without_a_flush_ends_with_its_status(
    disk: DataDirectory, kind: str, sets: int
) -> None:
    """By 0.7's settings nothing is flushed here that would say so."""
    settings = {"log_flush_interval": 1000, "log_file_size": 20}
    with broker_on(disk, **settings) as broker:
        for count in range(1, sets + 1):
            assert end_after(broker, V) == offsets_answer(15 * count)
        disk.fail(errno.EIO, kind, within="t-0")
        with broker.connect() as client:
            client.send(produce(b"t", V))
            assert client.is_closed_by_broker()
        wait_until(lambda: broker.broker.status == STATUS_STORAGE_FAILED, "ending")


def test_a_flush_that_went_well_looks_at_no_other_log(
    disk: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 partitions that took the loop 0.7 ms, after each flush of any of them."""
    asked: list[None] = []
    monkeypatch.setattr(disk_scheduler, "CHECK_INTERVAL_S", 10**6)
    monkeypatch.setattr(LogManager, "all_failed", property(lambda _logs: bool(asked.append(None))))
    with broker_on(disk) as broker, broker.connect() as client:
        for number in range(1, 11):
            store(client, V, 15 * number)
    assert asked == []


def test_a_barrier_holds_whatever_became_of_partition_0(disk: DataDirectory) -> None:
    """Decision 103: it is asked for (topic, 0), and what was appended elsewhere is durable."""
    disk.put(V[:-1] + b"!" + V)
    with broker_on(disk) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", V, 1))
            assert client.ask(BARRIER) == offsets_answer()
            assert client.ask(offsets(b"t", -1, 1, 1)) == offsets_answer(15)
            client.send(offsets(b"t", -2, 1))
            assert client.is_closed_by_broker()
        with broker.connect() as client:
            client.send(BARRIER)
            assert client.is_closed_by_broker()
        connection = BrokerConnection(("127.0.0.1", broker.port))
        connection.send(produce(b"t", V, 1), "t", len(V))
        assert connection.barrier(10_000)
        connection.disconnect()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_no_descriptor_for_a_directory_makes_the_barrier_wait_and_fails_nothing(
    disk: DataDirectory, is_stopped: bool
) -> None:
    """Tried again now and then, and never in a busy loop; not at a stop either."""
    segment = disk.root / "t-0" / FIRST
    with broker_on(disk) as broker, broker.connect() as client:
        began_s = time.monotonic()
        disk.fail(errno.EMFILE, "sync_directory", persistent=True)
        fault = some(disk.files.fault)
        for size in range(15, 301, 15):  # each set in a turn of its own
            client.send(produce(b"t", V))
            wait_until(
                lambda size=size: segment.exists() and segment.stat().st_size >= size,  # type: ignore[misc]
                f"{size} bytes in the segment",
            )
        client.send(BARRIER)
        wait_until(lambda: fault.hits >= 3, "tried again")
        looks_max = 2 + (time.monotonic() - began_s) / FLUSH_RETRY_S
        assert fault.hits <= looks_max, "a busy loop"
        if not is_stopped:
            disk.files.fault = None
            assert client.response() == offsets_answer(300)
    assert (disk.root / ".kafka_cleanshutdown").exists() != is_stopped


def test_a_slow_disk_holds_only_the_connections_that_wait_for_it(disk: DataDirectory) -> None:
    """S17: the flush hangs; produces, fetches and offsets of others go on meanwhile."""
    hangs = threading.Event()
    goes_on = threading.Event()

    def before(kind: str) -> None:
        if kind == "sync_data" and hangs.is_set():
            assert goes_on.wait(60)

    disk.files.before = before
    with broker_on(disk) as broker:
        try:
            assert end_after(broker, V) == offsets_answer(15)
            hangs.set()
            with broker.connect() as waiting, broker.connect() as free:
                waiting.send(produce(b"t", V) + BARRIER)
                for number in range(50):
                    free.send(produce(b"t", V))
                    assert free.ask(fetch(b"t", 0, 0, 15)) == answer(V), number
                assert free.ask(fetch(b"t", 15)) == EMPTY, "visible before it is flushed"
                hangs.clear()
                goes_on.set()
                assert int.from_bytes(waiting.response()[10:18], "big") >= 30
        finally:
            hangs.clear()
            goes_on.set()


def test_a_roll_on_a_slow_disk_holds_the_sets_and_keeps_the_boundaries(
    disk: DataDirectory,
) -> None:
    """Sets that come while the roll waits for its flush are neither lost nor moved."""
    delay = threading.Event()
    disk.files.before = lambda kind: kind == "sync_data" and delay.wait(0.005)
    with broker_on(disk, log_file_size=100) as broker, broker.connect() as client:
        client.send(produce(b"t", entry(b"42")) * 200 + BARRIER)
        assert client.response() == offsets_answer(2400)
        assert client.ask(offsets(b"t", -1, 3)) == offsets_answer(2400, 2376, 2268)
        assert client.ask(offsets(b"t", -2, 10)) == offsets_answer(0)
    assert disk.names() == [f"{start:020d}.kafka" for start in range(0, 2400, 108)]


def test_the_first_requests_of_a_connection_keep_the_boundaries(disk: DataDirectory) -> None:
    """They went into a segment that was nearly full, all that came in one buffer: nothing was known
    yet of the log that they are for."""
    size, large, small = 2**20, entry(bytes(2**19 - 10)), entry(bytes(100))
    with broker_on(disk, log_file_size=size) as broker:
        with broker.connect() as client:
            store(client, large + entry(bytes(2**19 - 20)))
        with broker.connect() as client:
            client.send(produce(b"t", small) * 1000 + BARRIER)
            client.response()
    first_end = len(large) * 2 - 10 + len(small)
    assert disk.names() == [FIRST, f"{first_end:020d}.kafka"]


def test_sets_that_wait_for_a_new_segment_are_within_the_bound_of_memory(
    disk: DataDirectory,
) -> None:
    """Each is a copy that outlives its connection's buffer. All are stored when the disk goes on:
    what holds the memory needs no more of it."""
    hangs, goes_on = threading.Event(), threading.Event()

    def before(kind: str) -> None:
        if kind == "sync_data" and hangs.is_set():
            assert goes_on.wait(60)

    disk.files.before = before
    bound, large = 4 * 1024 * 1024, entry(bytes(900_000)) * 2
    settings = {"log_file_size": 1024 * 1024, "buffered_request_bytes_max": bound}
    with broker_on(disk, **settings) as broker, contextlib.ExitStack() as clients:
        server, waiting = broker.broker.server, [0]
        memory = server.memory
        store(clients.enter_context(broker.connect()), V)
        log = some(broker.broker.logs.get("t", 0))
        hangs.set()
        producers = [clients.enter_context(broker.connect()) for _ in range(8)]
        sends = [
            threading.Thread(target=one.send, args=(produce(b"t", large) + BARRIER,))
            for one in producers
        ]
        try:
            for send in sends:
                send.start()

            def look() -> None:
                """Let go of what the sweeps would, and count those that wait all the same."""
                connections = list(server._connections)
                for one in connections * 2:
                    one.tidy()
                server.write_turn()
                for_disk = [one for one in connections if one._wait and not one._is_being_checked]
                for_room = [one for one in connections if one._waits_for_room]
                waiting.append(len(for_disk) + len(for_room))

            def all_wait() -> bool:
                run_on_loop(broker, look)
                return waiting[-1] == len(producers) and log.is_held

            wait_until(all_wait, "each waits for the disk or for room")
            held = sum(len(one.message_set) for one in log._held)
            assert 0 < held <= bound + len(large)
            assert held <= memory.bytes_held <= 2 * bound
        finally:
            hangs.clear()
            goes_on.set()
        for one in producers:
            assert one.response() != b""
        for send in sends:
            send.join()
        with broker.connect() as client:
            assert client.ask(BARRIER) == offsets_answer(len(V) + 8 * len(large))
        assert not log.is_held
        run_on_loop(broker, lambda: memory.has_room("all", bound))  # without the pool's free ones
        assert memory.bytes_held < len(large)


def test_retention_by_size_removes_files_while_a_fetch_of_them_runs(disk: DataDirectory) -> None:
    """B5 and S19: the response completes from the open file."""
    data = entry(os.urandom(400_000))
    settings = {"log_file_size": 1_000_000, "log_retention_size": 1_000_000}
    with broker_on(disk, **settings) as broker:
        first = broker.log_dir / "t-0" / FIRST
        with broker.connect() as reader, broker.connect() as client:
            for _ in range(12):
                client.send(produce(b"t", data))
            assert client.ask(BARRIER) == offsets_answer(12 * len(data))
            reader.send(EVERYTHING)
            begun = reader.receive(1000)
            size = first.stat().st_size
            run_on_loop(broker, broker.broker.disk.retire_now)
            wait_until(lambda: not first.exists(), "the first segment's file removed")
            whole = begun + reader.receive(6 + size - len(begun))
            assert whole == answer((data * 3)[:size])
            assert client.ask(fetch(b"t")) == OUT_OF_RANGE
        wait_until(lambda: broker.metrics.retired_segments > 0, "the removal counted")


def test_regions_are_let_go_when_a_client_leaves(
    broker: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[FileRegion] = []
    real = FileRegion.release

    def release(region: FileRegion) -> None:
        if region.fd >= 0:
            released.append(region)
        real(region)

    monkeypatch.setattr(FileRegion, "release", release)
    store(client, entry(bytes(900_000)) * 10)
    with broker.connect() as leaving:
        leaving.send(multi_fetch(*[(b"t", 0, 0, 10**7)] * 20))
        leaving.receive(100)
    wait_until(lambda: len(released) == 20, "all twenty regions released")


def test_a_multi_fetch_of_many_segments_opens_them_in_turn(disk: DataDirectory) -> None:
    """It opened all of them before its first byte, up to the broker's last descriptor."""
    sets = [entry(os.urandom(100)) for _ in range(30)]
    for number, one in enumerate(sets):
        disk.put(one, number * len(one))
    parts = [(b"t", 0, number * len(one), 1000) for number, one in enumerate(sets)]
    with broker_on(disk, open_segments_max=16) as broker, broker.connect() as client:
        most = 0

        def look(kind: str) -> None:
            nonlocal most
            most = max(most, len(broker.broker.logs.open_files))

        disk.files.before = look
        response = client.ask(multi_fetch(*parts))
        disk.files.before = None
        assert all(one in response for one in sets)
        assert most <= 17
        assert len(broker.broker.logs.open_files) <= 16


def test_a_wait_for_data_goes_on_with_its_data_and_ends_with_its_connection(
    disk: DataDirectory,
) -> None:
    with broker_on(disk) as broker, broker.connect() as client:
        store(client, V)
        served = broker.broker
        log = some(served.partitions.find("t", 0))

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


# --- clients that leave while they wait -----------------------------------------------------------


def reset(client: RawClient) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("leave", [reset, RawClient.close], ids=["reset", "closed"])
@pytest.mark.parametrize("wait", ["flush", "read", "room"])
def test_clients_that_leave_while_they_wait_do_not_keep_others_out(
    tmp_path: Path,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    wait: str,
    leave: Callable[[RawClient], None],
) -> None:
    """N10: however long they wait, for a disk that hangs or for memory."""
    settings = {"connections_max": 8, "response_send_deadline_ms": 1000}
    with in_process_broker(tmp_path, **settings) as broker:
        server, request = broker.broker.server, produce(b"t", V) + BARRIER + produce(b"t", V)
        with broker.connect() as client:
            store(client, V)
        wait_until(lambda: not server._connections, "the first client is gone")
        if wait == "flush":
            monkeypatch.setattr(FlushJob, "run", gate.before(FlushJob.run))
        elif wait == "read":
            monkeypatch.setattr(sender, "_is_warm", lambda _: False)
            monkeypatch.setattr(sender.WarmUp, "run", gate.before(sender.WarmUp.run))
            request = EVERYTHING
        else:
            monkeypatch.setattr(server.memory, "has_room", lambda holder, size: size < 30_000)
            request = produce(b"t", entry(bytes(40_000)))  # with its end within the window

        def all_wait() -> bool:
            connections = list(server._connections)
            return len(connections) == 8 and all(one.is_waiting for one in connections)

        leaving = [broker.connect() for _ in range(8)]
        for client in leaving:
            client.send(request)
        wait_until(all_wait, "each waits")
        for client in leaving:
            leave(client)
        wait_until(lambda: not server._connections, "all are noticed")
        with broker.connect() as other:
            assert other.ask(offsets(b"t", -2, 1)) == offsets_answer(0)
        gate.open()
        closed = broker.metrics.connections_closed
        assert closed["reset" if leave is reset else "left-waiting"] == 8


def test_a_client_that_sends_no_more_has_what_it_waits_for(
    broker: InProcessBroker, client: RawClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in 0.7: the end of what it sends is no end of what it receives. Nor is it news twice."""
    told: list[int] = []
    real = Connection._on_left

    def on_left(one: Connection, events: int) -> None:
        told.append(events)
        real(one, events)

    monkeypatch.setattr(Connection, "_on_left", on_left)
    monkeypatch.setattr(FlushJob, "run", gate.before(FlushJob.run))
    client.send(produce(b"t", V) + BARRIER + produce(b"t", V) + BARRIER)
    client.socket.shutdown(socket.SHUT_WR)
    wait_until(lambda: told, "its end was noticed")
    with broker.connect() as other:
        for _ in range(20):
            assert other.ask(offsets(b"t", -2, 1)) == offsets_answer(0)
    assert len(told) == 1, "a busy loop"
    gate.open()
    assert client.response() == offsets_answer(15)
    assert client.response() == offsets_answer(30)
    assert client.is_closed_by_broker()
    wait_until(lambda: broker.metrics.connections_closed["end"] == 2, "two ordinary ends")


# --- a pause for a handover ----------------------------------------------------------------------


@pytest.fixture
def when_it_gives_way(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Connections give way after each request; what the test hands in is called once, between the
    first that does and its next request."""
    monkeypatch.setattr(session, "TURN_S", 0.0)
    real = Connection.give_way
    calls: list[Callable[[], None]] = []

    def give_way(one: Connection) -> None:
        if calls:
            one._host.loop.call_soon(calls.pop())
        real(one)

    monkeypatch.setattr(Connection, "give_way", give_way)
    return calls.append


def pause(broker: InProcessBroker, *then: str) -> None:
    """Pause the clients, on the loop; then `ask` whether they are drained, or `go on`."""
    server = broker.broker.server
    server.pause(True)
    for one in then:
        if one == "ask":
            server.drained()
        else:
            server.pause(False)


@both_loops
@pytest.mark.parametrize("then", [(), ("ask",), ("go on",), ("ask", "go on")], ids=str)
def test_a_pause_leaves_the_sets_that_are_checked_as_they_are(
    broker: InProcessBroker,
    client: RawClient,
    when_it_gives_way: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
    then: tuple[str, ...],
) -> None:
    """What was checked is a view of the buffer, which the connection may not move."""
    monkeypatch.setattr(checks, "LOOP_PACKED_BYTES_MAX", -1)  # as if they were large
    monkeypatch.setattr("kafka2011.broker.network.receive_buffer.TAIL_BYTES_MAX", 0)
    sets = [compressed(entry(os.urandom(10 * number))) for number in range(8)]
    when_it_gives_way(lambda: pause(broker, *then))
    client.send(b"".join(produce(b"t", one) for one in sets) + BARRIER)
    assert client.response() == offsets_answer(len(b"".join(sets)))
    assert (broker.log_dir / "t-0" / FIRST).read_bytes() == b"".join(sets)
    run_on_loop(broker, lambda: broker.broker.server.pause(False))
    assert client.ask(EVERYTHING) == answer(b"".join(sets))


@both_loops
def test_clients_are_drained_when_all_that_had_arrived_is_with_the_logs(
    broker: InProcessBroker,
    client: RawClient,
    when_it_gives_way: Callable[[Callable[[], None]], None],
) -> None:
    """And when the handover is taken back nothing is left over."""
    server = broker.broker.server
    store(client, V)
    log = some(broker.broker.logs.get("t", 0))
    ends_when_drained: list[int] = []

    def look() -> None:
        if server.drained():
            ends_when_drained.append(log.log_end)

    def begin() -> None:
        server.pause(True)
        look()

    when_it_gives_way(begin)
    client.send(multi_produce((b"t", 0, V)) * 20 + BARRIER)
    wait_until(lambda: server.is_paused, "paused")

    def is_drained() -> bool:
        run_on_loop(broker, look)
        return bool(ends_when_drained)

    wait_until(is_drained, "drained")
    assert set(ends_when_drained) == {21 * len(V)}
    run_on_loop(broker, lambda: server.pause(False))
    assert client.response() == offsets_answer(21 * len(V))


def test_clients_are_not_drained_while_one_waits_for_room(
    broker: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has sent is in its socket."""
    server = broker.broker.server
    real = server.memory.has_room
    monkeypatch.setattr(server.memory, "has_room", lambda holder, size: size < 10**6)
    large = entry(bytes(900_000))
    client.send(produce(b"t", large * 2) + BARRIER)
    wait_until(lambda: broker.metrics.buffer_waits > 0, "it waits for room")
    found: list[bool] = []
    run_on_loop(broker, lambda: server.pause(True))
    for _ in range(20):
        run_on_loop(broker, lambda: found.append(server.drained()))
    assert not any(found)

    def make_room() -> None:
        monkeypatch.setattr(server.memory, "has_room", real)
        server.memory.wake()

    run_on_loop(broker, make_room)

    def is_drained() -> bool:
        run_on_loop(broker, lambda: found.append(server.drained()))
        return found[-1]

    wait_until(is_drained, "drained")
    assert client.response() == offsets_answer(2 * len(large))


def test_a_request_that_a_pause_cuts_has_its_deadline_afterwards(
    broker: InProcessBroker,
    client: RawClient,
    when_it_gives_way: Callable[[Callable[[], None]], None],
) -> None:
    server = broker.broker.server
    when_it_gives_way(lambda: server.pause(True))
    client.send(multi_produce((b"t", 0, V)) * 20 + BARRIER + BARRIER[:7])
    assert client.response() == offsets_answer(20 * len(V))
    (connection,) = server._connections
    run_on_loop(broker, lambda: server.pause(False))
    assert connection.deadline_s is not None
    client.send(BARRIER[7:])
    assert client.response() == offsets_answer(20 * len(V))


@pytest.mark.parametrize("begun", [1, 3, 4, 5])
def test_a_request_that_began_before_a_long_wait_is_read_on_in_a_pause(
    broker: InProcessBroker,
    client: RawClient,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    begun: int,
) -> None:
    """Its few bytes were moved to a buffer of their own size, which must have room for more."""
    server = broker.broker.server
    monkeypatch.setattr(FlushJob, "run", gate.before(FlushJob.run))
    client.send(produce(b"t", V) + BARRIER + BARRIER[:begun])
    wait_until(lambda: any(one._is_held for one in server._connections), "it waits for the disk")
    (connection,) = server._connections
    for _ in range(2):  # sweeps
        run_on_loop(broker, connection.tidy)
    run_on_loop(broker, lambda: server.pause(True))
    gate.open()
    assert client.response() == offsets_answer(len(V))
    run_on_loop(broker, lambda: server.drained())
    run_on_loop(broker, lambda: server.pause(False))
    client.send(BARRIER[begun:])
    assert client.response() == offsets_answer(len(V))


def test_a_fetch_that_waits_still_ends_by_what_its_client_sends_after_a_pause(
    broker: InProcessBroker, client: RawClient
) -> None:
    server = broker.broker.server
    client.send(waiting_fetch(30_000, (b"t", 0, 0, 1000)))
    wait_until(lambda: server._connections, "connected")
    (connection,) = server._connections
    wait_until(lambda: connection._waits_for_client, "the wait")
    run_on_loop(broker, lambda: server.pause(True))
    run_on_loop(broker, lambda: server.pause(False))
    assert not connection.is_waiting
    client.send(fetch(b"t"))
    assert client.response() == frame(b"\0\0" + answer(b""))
    assert client.response() == EMPTY


def test_a_stop_in_a_pause_takes_what_has_arrived(disk: DataDirectory) -> None:
    with broker_on(disk) as broker:
        server = broker.broker.server
        with broker.connect() as client:
            store(client, V)
            run_on_loop(broker, lambda: server.pause(True))
            client.send(produce(b"t", V))
    assert (disk.root / "t-0" / FIRST).read_bytes() == V + V
