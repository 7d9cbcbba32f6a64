"""Hostile clients: each limit of the broker, by name, with flat memory and others undisturbed."""

import contextlib
import gzip
import os
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.raw_requests import (
    EMPTY,
    answer,
    entry,
    fetch,
    multi_produce,
    offsets,
    offsets_answer,
    produce,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

V = entry(b"hello")
MIB = 1024 * 1024


def closings(broker: RunningBroker, reason: str) -> float:
    return broker.metrics().get(
        f'kafka2011_broker_connections_closed_total{{reason="{reason}"}}', 0
    )


def works(broker: RunningBroker, topic: bytes = b"good") -> None:
    """A well-behaved client is served (within the client's own timeout)."""
    with broker.connect() as client:
        client.send(produce(topic, V))
        assert client.ask(offsets(topic, -1, 1)) != b""
        assert client.ask(fetch(topic, 0, 0, 15)) == answer(V)


@contextlib.contextmanager
def several(broker: RunningBroker, count: int) -> Iterator[list[RawClient]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(broker.connect()) for _ in range(count)]


# --- connections ---------------------------------------------------------------------------------


def test_connections_over_the_limit_are_closed_at_once_and_the_others_served(
    tmp_path: Path,
) -> None:
    with start_broker(tmp_path, connections_max=10) as broker:
        with several(broker, 10) as early:
            for client in early:
                assert client.ask(fetch(b"t")) == EMPTY
            for _ in range(50):
                with broker.connect() as late:
                    assert late.is_closed_by_broker()
            for client in early:
                assert client.ask(fetch(b"t")) == EMPTY
        name = 'kafka2011_broker_connections_refused_total{reason="connections-max"}'
        assert broker.metrics()[name] == 50
        wait_until(lambda: broker.metrics()["kafka2011_broker_connections"] == 0, "all gone")
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
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                client = stack.enter_context(RawClient(address, broker.port))
                assert client.ask(fetch(b"t")) == EMPTY
            late = stack.enter_context(RawClient(address, broker.port))
            assert late.is_closed_by_broker()
            with several(broker, 10) as local:  # loopback is not limited
                for client in local:
                    assert client.ask(fetch(b"t")) == EMPTY
        wait_until(lambda: broker.metrics()["kafka2011_broker_connections"] == 0, "all gone")
        with RawClient(address, broker.port) as again:
            assert again.ask(fetch(b"t")) == EMPTY
    settings["connections_unlimited_addresses"] = f"203.0.113.9,{address}"
    with start_broker(tmp_path / "two", **settings) as broker, contextlib.ExitStack() as stack:
        for _ in range(10):
            client = stack.enter_context(RawClient(address, broker.port))
            assert client.ask(fetch(b"t")) == EMPTY


# --- deadlines -----------------------------------------------------------------------------------


def test_slow_requests_end_at_their_deadline_and_idle_connections_do_not(tmp_path: Path) -> None:
    """N6: one byte now and then does not help; the deadline starts with the first byte."""
    with start_broker(tmp_path, request_read_deadline_ms=1500) as broker:
        with broker.connect() as idle, several(broker, 40) as slow:
            assert idle.ask(fetch(b"t")) == EMPTY
            request = produce(b"t", V * 1000)
            for client in slow:
                client.send(request[:3])
            position = 3

            def dribble_until_closed() -> bool:
                nonlocal position
                for client in slow:
                    with contextlib.suppress(OSError):
                        client.send(request[position : position + 1])
                position += 1
                return closings(broker, "read-deadline") == 40

            wait_until(dribble_until_closed, "all slow clients closed", 15)
            assert idle.ask(fetch(b"t")) == EMPTY, "an idle connection was closed"
        works(broker)


def test_deadline_is_per_request_and_not_per_connection(tmp_path: Path) -> None:
    with start_broker(tmp_path, request_read_deadline_ms=2500) as broker, broker.connect() as one:
        stream = fetch(b"t") * 20
        pause = threading.Event()
        for start in range(0, len(stream), 14):  # always half a request ahead, for over 4 s
            one.send(stream[start : start + 14])
            pause.wait(0.12)
        for _ in range(20):
            assert one.response() == EMPTY


def test_a_client_that_takes_nothing_is_closed_and_others_are_served(tmp_path: Path) -> None:
    """N7."""
    with start_broker(tmp_path, response_send_deadline_ms=1500) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", entry(bytes(900_000)) * 10))
            assert client.ask(offsets(b"t", -1, 1)) != b""
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect((broker.host, broker.port))
        before = broker.resident_bytes()
        stuck.sendall(fetch(b"t", 0, 0, 9_000_000) * 500)
        works(broker)
        wait_until(lambda: closings(broker, "send-deadline") == 1, "the stuck client closed", 15)
        assert broker.resident_bytes() - before < 8 * MIB
        stuck.close()
        wait_until(lambda: broker.metrics()["kafka2011_broker_open_segments"] <= 2, "files let go")


def test_a_slow_client_that_goes_on_taking_is_not_closed(tmp_path: Path) -> None:
    with start_broker(tmp_path, response_send_deadline_ms=1000) as broker, broker.connect() as one:
        big = entry(os.urandom(900_000)) * 5
        one.send(produce(b"t", big))
        assert one.ask(offsets(b"t", -1, 1)) != b""
        one.send(fetch(b"t", 0, 0, 5_000_000))
        received = b""
        pause = threading.Event()
        while len(received) < 6 + len(big):
            received += one.receive(min(300_000, 6 + len(big) - len(received)))
            pause.wait(0.15)
        assert received == answer(big)


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
    with start_broker(tmp_path, buffered_request_bytes_max=16 * MIB, num_partitions=30) as broker:
        works(broker)
        before = broker.resident_bytes()
        big = entry(os.urandom(800_000)) * 10
        peak = 0
        threads = []
        problems: list[str] = []

        def send(partition: int) -> None:
            try:
                with broker.connect(60) as client:
                    client.send(produce(b"t", big, partition))
                    if client.ask(offsets(b"t", -1, 1, partition)) != offsets_answer(len(big)):
                        problems.append(f"partition {partition} is not whole")
            except OSError as error:
                problems.append(f"partition {partition}: {error}")

        for partition in range(30):
            threads.append(threading.Thread(target=send, args=(partition,)))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            peak = max(peak, broker.resident_bytes())
            threads[0].join(0.01)
        assert not problems
        assert peak - before < 16 * MIB + 10 * MIB + 64 * MIB, f"{(peak - before) / MIB:.0f} MiB"
        assert broker.metrics()["kafka2011_broker_buffered_request_bytes"] == 0


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
            works(broker)
            for worker in workers:
                worker.join()

        wave(200)  # everything that is allocated once is allocated now
        before = broker.resident_bytes()
        descriptors = broker.open_descriptors()
        wave(500)
        wait_until(lambda: broker.metrics()["kafka2011_broker_connections"] == 0, "all gone")
        assert broker.resident_bytes() - before < 8 * MIB
        assert broker.open_descriptors() <= descriptors + 2
        assert len(broker.log()) < 200_000, "a flood of clients made a flood of log lines"
        works(broker)


def test_random_bytes_only_ever_close_the_connection_that_sent_them(tmp_path: Path) -> None:
    """N1, against the process: every prefix and many mutations of valid requests."""
    import random

    rng = random.Random(2011)
    valid = [
        produce(b"t", V),
        multi_produce((b"t", 0, V), (b"u", -1, V)),
        fetch(b"t"),
        offsets(b"t"),
    ]
    with start_broker(tmp_path, request_read_deadline_ms=300) as broker, broker.connect() as good:
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


# --- compressed sets -----------------------------------------------------------------------------


def wrapper(payload: bytes) -> bytes:
    body = b"\1\1" + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def test_decompression_bomb_is_refused_with_flat_memory(tmp_path: Path) -> None:
    """N5: 49 KB that unpack to 50 MB."""
    bomb = wrapper(gzip.compress(bytes(50 * MIB)))
    assert len(bomb) < 60_000
    with start_broker(tmp_path) as broker:
        works(broker)
        before = broker.resident_bytes()
        for _ in range(5):
            with broker.connect() as client:
                client.send(produce(b"t", bomb))
                assert client.is_closed_by_broker()
        assert broker.resident_bytes() - before < 40 * MIB
        works(broker)


def nested(depth: int) -> bytes:
    data = V
    for _ in range(depth):
        data = wrapper(gzip.compress(data))
    return data


def test_nesting_is_allowed_to_a_depth_of_four(tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", nested(4)))
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(len(nested(4)))
        with broker.connect() as client:
            client.send(produce(b"t", nested(5)))
            assert client.is_closed_by_broker()


def test_the_ceiling_is_for_a_request_in_all(tmp_path: Path) -> None:
    """Three wrappers of 6 MB each: two are within 16 MiB, three are not; the next request is."""
    part = wrapper(gzip.compress(entry(bytes(900_000)) * 7))
    with start_broker(tmp_path) as broker:
        with broker.connect() as client:
            client.send(produce(b"t", part * 2) + produce(b"t", part * 2))
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(4 * len(part))
            client.send(multi_produce((b"t", 0, part), (b"u", 0, part), (b"v", 0, part)))
            assert client.is_closed_by_broker()
        with broker.connect() as client:
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(5 * len(part))
            assert client.ask(offsets(b"u", -1, 1)) == offsets_answer(len(part))


# --- topics and partitions -----------------------------------------------------------------------


def test_topics_and_partitions_are_limited(tmp_path: Path) -> None:
    """B9: 0.7 makes a directory, a znode and a descriptor for every name it is sent."""
    with start_broker(tmp_path, topics_max=5, partitions_max=8, num_partitions=4) as broker:

        def accepted(topic: bytes, partition: int) -> bool:
            with broker.connect() as client:
                client.send(produce(topic, V, partition))
                return client.ask(offsets(topic, -1, 1, partition)) == offsets_answer(15)

        assert [accepted(b"t%d" % number, 0) for number in range(7)] == [True] * 5 + [False] * 2
        assert [accepted(b"t0", number) for number in range(1, 4)] == [True] * 3
        assert not accepted(b"t1", 1), "the ninth partition"
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
                    found = client.ask(offsets(b"t", -1, 1, partition))
                    if not found:
                        return
                    confirmed[partition] = int.from_bytes(found[10:18], "big")

        threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(confirmed), "each partition has something confirmed")
        assert broker.stop() == 0
        for thread in threads:
            thread.join(20)
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    with start_broker(tmp_path, num_partitions=4) as broker, broker.connect() as client:
        for partition in range(4):
            found = client.ask(offsets(b"t", -1, 1, partition))
            end = int.from_bytes(found[10:18], "big")
            assert confirmed[partition] <= end <= sent[partition]


def test_stop_sends_the_response_that_is_on_its_way(tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker, broker.connect() as client:
        big = entry(os.urandom(900_000)) * 8
        client.send(produce(b"t", big))
        assert client.ask(offsets(b"t", -1, 1)) != b""
        client.send(fetch(b"t", 0, 0, 10_000_000))
        first = client.receive(100_000)
        broker.process.terminate()
        assert first + client.receive(6 + len(big) - 100_000) == answer(big)
        assert client.is_closed_by_broker()
        assert broker.wait(20) == 0


def test_a_second_signal_ends_a_stop_that_takes_too_long(tmp_path: Path) -> None:
    slow = {"KAFKA2011_FAILPOINTS": "before_flush=sleep:20000"}
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
