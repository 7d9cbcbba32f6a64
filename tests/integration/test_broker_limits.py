"""Hostile clients: each limit of the broker, by name, with flat memory and others undisturbed."""

import contextlib
import gzip
import os
import random
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.raw_requests import (
    EMPTY,
    answer,
    entry,
    fetch,
    multi_produce,
    offsets,
    produce,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

V = entry(b"hello")
MIB = 1024 * 1024
PATIENT = {"request_read_deadline_ms": 600_000}  # where a deadline is not what is tested


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With the default limits."""
    with start_broker(tmp_path_factory.mktemp("default")) as running:
        works(running)
        yield running


def closings(broker: RunningBroker, reason: str) -> float:
    return broker.metrics().get(
        f'kafka2011_broker_connections_closed_total{{reason="{reason}"}}', 0
    )


def works(broker: RunningBroker, topic: bytes = b"good") -> None:
    """A well-behaved client is served (within the client's own timeout)."""
    assert broker.store(topic, V) is not None
    with broker.connect() as client:
        assert client.ask(fetch(topic, 0, 0, 15)) == answer(V)


def wait_until_all_are_gone(broker: RunningBroker) -> None:
    wait_until(lambda: broker.metrics()["kafka2011_broker_connections"] == 0, "all gone")


@contextlib.contextmanager
def several(broker: RunningBroker, count: int, host: str = "") -> Iterator[list[RawClient]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(RawClient(host or broker.host, broker.port)) for _ in range(count)
        ]


def run_threads(work: Callable[[Any], None], arguments: Iterator[Any] | range) -> None:
    """`work` of each argument at the same time, until all have ended."""
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- connections ---------------------------------------------------------------------------------


def test_connections_over_the_limit_are_closed_at_once_and_the_others_served(
    tmp_path: Path,
) -> None:
    with start_broker(tmp_path, connections_max=10) as broker:
        with several(broker, 10) as early:
            assert [client.ask(fetch(b"t")) for client in early] == [EMPTY] * 10
            for _ in range(50):
                with broker.connect() as late:
                    assert late.is_closed_by_broker()
            assert [client.ask(fetch(b"t")) for client in early] == [EMPTY] * 10
        name = 'kafka2011_broker_connections_refused_total{reason="connections-max"}'
        assert broker.metrics()[name] == 50  # counted before they are closed
        wait_until_all_are_gone(broker)
        works(broker)


def own_address() -> str:
    """An address of this machine that is not loopback, or ""."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        found = str(probe.getsockname()[0])
        return "" if found.startswith("127.") else found


@pytest.mark.skipif(not own_address(), reason="no address but loopback")
def test_connections_of_one_address_are_limited_but_not_a_listed_balancer_s(
    tmp_path: Path,
) -> None:
    address = own_address()
    settings = {"bind_address": "0.0.0.0", "hostname": address, "connections_max_per_address": 3}
    with start_broker(tmp_path / "one", **settings) as broker:
        with several(broker, 3, address) as early, several(broker, 10) as local:
            # Loopback is not limited.
            assert [client.ask(fetch(b"t")) for client in (*early, *local)] == [EMPTY] * 13
            with RawClient(address, broker.port) as late:
                assert late.is_closed_by_broker()
        wait_until_all_are_gone(broker)
        with RawClient(address, broker.port) as again:
            assert again.ask(fetch(b"t")) == EMPTY
    settings["connections_unlimited_addresses"] = f"203.0.113.9,{address}"
    with (
        start_broker(tmp_path / "two", **settings) as broker,
        several(broker, 10, address) as clients,
    ):
        assert [client.ask(fetch(b"t")) for client in clients] == [EMPTY] * 10


# --- deadlines -----------------------------------------------------------------------------------


def test_slow_requests_end_at_their_deadline_and_idle_connections_do_not(tmp_path: Path) -> None:
    """N6: one byte now and then does not help; the deadline starts with the first byte."""
    with start_broker(tmp_path, request_read_deadline_ms=1500) as broker:
        with broker.connect() as idle, several(broker, 40) as slow:
            assert idle.ask(fetch(b"t")) == EMPTY
            request = produce(b"t", V * 1000)
            position = 0

            def dribble_until_closed() -> bool:
                nonlocal position
                for client in slow:
                    with contextlib.suppress(OSError):
                        client.send(request[position : position + 1])
                position += 1
                return closings(broker, "read-deadline") == 40

            wait_until(dribble_until_closed, "all slow clients closed")
            assert idle.ask(fetch(b"t")) == EMPTY, "an idle connection was closed"
        works(broker)


def test_a_client_that_takes_nothing_is_closed_and_others_are_served(tmp_path: Path) -> None:
    """N7."""
    with start_broker(tmp_path, response_send_deadline_ms=1000) as broker:
        assert broker.store(b"unread", entry(bytes(900_000)) * 10)
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect((broker.host, broker.port))
        before = broker.resident_bytes()
        stuck.sendall(fetch(b"unread", 0, 0, 9_000_000) * 500)
        works(broker)
        wait_until(lambda: closings(broker, "send-deadline") == 1, "the stuck client closed")
        assert broker.resident_bytes() - before < 8 * MIB
        stuck.close()
        logs = len(list(broker.log_dir.glob("*-*")))
        wait_until(
            lambda: broker.metrics()["kafka2011_broker_open_segments"] <= logs, "files let go"
        )


def test_random_bytes_only_ever_close_the_connection_that_sent_them(
    broker: RunningBroker,
) -> None:
    """N1, against the process: every prefix and many mutations of valid requests."""
    rng = random.Random(2011)
    valid = [
        produce(b"t", V),
        multi_produce((b"t", 0, V), (b"u", -1, V)),
        fetch(b"t"),
        offsets(b"t"),
    ]
    with broker.connect() as good:
        for number in range(1500):
            data = bytearray(rng.choice(valid))
            if number % 2:
                data = data[: rng.randrange(1, len(data))]
            else:
                for _ in range(rng.randint(1, 3)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            with contextlib.suppress(OSError), broker.connect() as client:
                client.send(bytes(data))
            if number % 100 == 0:
                assert good.ask(fetch(b"elsewhere")) == EMPTY
    assert broker.is_running
    assert "Traceback" not in broker.log()
    works(broker)


# --- memory --------------------------------------------------------------------------------------


def test_announced_sizes_cost_nothing(tmp_path: Path) -> None:
    """B7: 0.7 allocates what four bytes say."""
    with start_broker(tmp_path, max_socket_request_bytes=2**31 - 1) as broker:
        works(broker)
        before = broker.resident_bytes()
        with several(broker, 100) as clients:
            for client in clients:
                client.send(struct.pack(">i", 2**31 - 1) + produce(b"t", V)[4:])
            works(broker)
            assert broker.resident_bytes() - before < 16 * MIB


def test_large_requests_in_progress_share_one_budget_and_all_are_completed(
    tmp_path: Path,
) -> None:
    """30 requests of 8 MB at once with 16 MB for them: one after the other, none refused."""
    settings = {"buffered_request_bytes_max": 16 * MIB, "num_partitions": 30, **PATIENT}
    with start_broker(tmp_path, **settings) as broker:
        works(broker)
        before = broker.resident_bytes()
        big = entry(os.urandom(800_000)) * 10
        peak = before
        ends: dict[int, int | None] = {}

        def send(partition: int) -> None:
            with broker.connect() as client:
                client.send(produce(b"t", big, partition))
                ends[partition] = client.latest(b"t", partition)

        load = threading.Thread(target=run_threads, args=(send, range(30)))
        load.start()
        while load.is_alive():
            peak = max(peak, broker.resident_bytes())
            load.join(0.01)
        assert ends == dict.fromkeys(range(30), len(big))
        assert peak - before < 16 * MIB + 10 * MIB + 64 * MIB, f"{(peak - before) / MIB:.0f} MiB"
        wait_until(
            lambda: broker.metrics()["kafka2011_broker_buffered_request_bytes"] <= 4 * MIB,
            "all given back but the free ones",
        )


def test_buffers_of_requests_that_do_not_come_to_an_end_are_counted_and_small(
    tmp_path: Path,
) -> None:
    """600 connections with 17 KB each: more than a remainder that is copied aside."""
    with start_broker(tmp_path, **PATIENT) as broker:
        works(broker)
        before = broker.resident_bytes()
        with several(broker, 600) as clients:
            for client in clients:
                client.send((struct.pack(">i", MIB) + bytes(2)).ljust(17_000, b"x"))

            def held() -> float:
                return broker.metrics()["kafka2011_broker_buffered_request_bytes"]

            low, high = 600 * 17_000, 600 * 17_000 + 4 * MIB
            wait_until(lambda: low <= held() <= high, "each holds what it has sent")
            assert broker.resident_bytes() - before < 32 * MIB
            works(broker)
        wait_until(lambda: held() <= 4 * MIB, "all given back")


def test_small_requests_are_served_with_all_memory_in_use(tmp_path: Path) -> None:
    """And a large one is taken once there is room again."""
    with start_broker(tmp_path, buffered_request_bytes_max=MIB, **PATIENT) as broker:
        works(broker)
        with broker.connect() as large:
            data = entry(bytes(900_000)) * 3
            sender = threading.Thread(target=large.send, args=(produce(b"large", data),))
            with several(broker, 8) as clients:
                for client in clients:
                    client.send((struct.pack(">i", 5 * MIB) + bytes(2)).ljust(200_000, b"x"))
                sender.start()
                waits = "kafka2011_broker_buffer_waits_total"
                wait_until(lambda: broker.metrics()[waits] > 0, "memory is in use")
                works(broker)
            sender.join()
            assert large.latest(b"large") == len(data)


def test_flat_memory_under_a_mixed_attack(tmp_path: Path) -> None:
    """Half requests, garbage, wrong sizes and resets, two thousand connections of them."""
    with start_broker(tmp_path, connections_max=300) as broker:
        works(broker)
        attacks = [
            b"\0\0\x7f\xff" + b"x" * 100,
            os.urandom(2000),
            bytes(4),
            produce(b"t", V[:-1] + b"!"),
            produce(b"../../etc", V),
            fetch(b"t", 0, 0, 2**31 - 1) * 20,
            struct.pack(">ih", 10 * MIB, 0) + bytes(50_000),
        ]

        def attack(rounds: int) -> None:
            for number in range(rounds):
                with contextlib.suppress(OSError), broker.connect() as client:
                    client.send(attacks[number % len(attacks)])
                    if number % 3 == 0:
                        client.socket.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )

        def wave(rounds: int) -> None:
            workers = [threading.Thread(target=attack, args=(rounds,)) for _ in range(4)]
            for worker in workers:
                worker.start()
            # Those that have left may still be in the broker's queue, up to its limit and above.
            wait_until(lambda: broker.store(b"good", V) is not None, "others are served")
            for worker in workers:
                worker.join()

        wave(200)  # everything that is allocated once is allocated now
        before = broker.resident_bytes()
        descriptors = broker.open_descriptors()
        wave(500)
        wait_until_all_are_gone(broker)
        assert broker.resident_bytes() - before < 8 * MIB
        assert broker.open_descriptors() <= descriptors + 2
        assert len(broker.log()) < 200_000, "a flood of clients made a flood of log lines"
        works(broker)


# --- compressed sets -----------------------------------------------------------------------------


def wrapper(entries: bytes) -> bytes:
    packed = gzip.compress(entries, mtime=0)  # with the time, two of the same may differ in size
    body = b"\1\1" + struct.pack(">I", zlib.crc32(packed)) + packed
    return struct.pack(">i", len(body)) + body


def nested(depth: int) -> bytes:
    return wrapper(nested(depth - 1)) if depth else V


def test_decompression_bomb_is_refused_with_flat_memory(broker: RunningBroker) -> None:
    """N5: 49 KB that unpack to 50 MB."""
    bomb = wrapper(bytes(50 * MIB))
    assert len(bomb) < 60_000
    before = broker.resident_bytes()
    assert [broker.store(b"t", bomb) for _ in range(5)] == [None] * 5
    assert broker.resident_bytes() - before < 40 * MIB
    works(broker)


def test_nesting_is_allowed_to_a_depth_of_four(broker: RunningBroker) -> None:
    assert broker.store(b"nested", nested(4)) == len(nested(4))
    assert broker.store(b"nested", nested(5)) is None


def test_the_ceiling_is_for_a_request_in_all(broker: RunningBroker) -> None:
    """Three wrappers of 6 MB each: two are within 16 MiB, three are not; the next request is."""
    part = wrapper(entry(bytes(900_000)) * 7)
    with broker.connect() as client:
        client.send(produce(b"a", part * 2) + produce(b"a", part * 2))
        assert client.latest(b"a") == 4 * len(part)
        client.send(multi_produce((b"a", 0, part), (b"b", 0, part), (b"c", 0, part)))
        assert client.is_closed_by_broker()
    assert [broker.latest(topic) for topic in (b"a", b"b")] == [5 * len(part), len(part)]


# --- topics and partitions -----------------------------------------------------------------------


def test_topics_and_partitions_are_limited(tmp_path: Path) -> None:
    """B9: 0.7 makes a directory, a znode and a descriptor for every name it is sent."""
    with start_broker(tmp_path, topics_max=5, partitions_max=8, num_partitions=4) as broker:
        ends = [broker.store(b"t%d" % number, V) for number in range(7)]
        assert ends == [len(V)] * 5 + [None] * 2
        assert [broker.store(b"t0", V, number) for number in range(1, 4)] == [len(V)] * 3
        assert broker.store(b"t1", V, 1) is None, "the ninth partition"
        assert len(list(broker.log_dir.glob("*-*"))) == 8
        with broker.connect() as client:
            assert client.ask(fetch(b"t0")) == answer(V)


# --- stopping ------------------------------------------------------------------------------------


def test_stop_under_load_keeps_everything_confirmed_and_exits_with_0(tmp_path: Path) -> None:
    """C2."""
    with start_broker(tmp_path, num_partitions=4, log_flush_interval=1000) as broker:
        confirmed = [0] * 4
        sent = [0] * 4

        def work(partition: int) -> None:
            with contextlib.suppress(OSError), broker.connect() as client:
                while True:
                    for _ in range(20):
                        client.send(produce(b"t", V * 10, partition))
                        sent[partition] += 150
                    end = client.latest(b"t", partition)
                    if end is None:
                        return
                    confirmed[partition] = end

        load = threading.Thread(target=run_threads, args=(work, range(4)))
        load.start()
        wait_until(lambda: all(confirmed), "each partition has something confirmed")
        assert broker.stop() == 0
        load.join()
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    with start_broker(tmp_path, num_partitions=4) as broker:
        for partition in range(4):
            end = broker.latest(b"t", partition)
            assert end is not None
            assert confirmed[partition] <= end <= sent[partition]


def test_stop_sends_the_response_that_is_on_its_way(tmp_path: Path) -> None:
    big = entry(os.urandom(900_000)) * 8
    with start_broker(tmp_path) as broker, broker.connect() as client:
        assert broker.store(b"t", big)
        client.send(fetch(b"t", 0, 0, 10_000_000))
        first = client.receive(100_000)
        broker.process.terminate()
        assert first + client.receive(6 + len(big) - 100_000) == answer(big)
        assert client.is_closed_by_broker()
        assert broker.wait() == 0


def test_a_second_signal_ends_a_stop_that_takes_too_long(tmp_path: Path) -> None:
    slow = {"KAFKA2011_FAILPOINTS": f"before_flush=hold:{tmp_path}"}
    with start_broker(tmp_path, environment=slow) as broker, broker.connect() as client:
        client.send(produce(b"t", V))
        wait_until(lambda: (broker.log_dir / "t-0").exists(), "the produce arrived")
        broker.process.terminate()
        wait_until(lambda: "stopping" in broker.log(), "the stop began")

        def is_over() -> bool:  # signals that come together are one
            broker.process.terminate()
            return not broker.is_running

        wait_until(is_over, "the later signal ended it")
        assert broker.process.returncode == 130
