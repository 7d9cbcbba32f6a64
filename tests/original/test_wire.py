"""The same random requests to the original broker and to ours: the same answers, byte for byte,
and the same bytes in the segment files.

Both have log.flush.interval=1 (the only setting under which an answer does not depend on time),
and ours has 0.7's limits instead of its own tighter ones.
"""

import os
import socket
from pathlib import Path

from tests.original.jvm import Jvm
from tests.original.random_requests import RandomRequests
from tests.support.brokers import start_broker
from tests.support.waiting import wait_until

SEED = int(os.environ.get("ORIGINAL_SEED", "1"))
COUNT = int(os.environ.get("ORIGINAL_COUNT", "500"))
# How many sequences between two comparisons of the files.
LOOK_INTERVAL = 50

SETTINGS = {
    "num_partitions": 2,
    "topic_partition_count_map": "three:3",
    "log_flush_interval": 1,
    "log_default_flush_scheduler_interval_ms": 100,
    "enable_zookeeper": "false",
    "max_message_size": 100_000,
}
LIMITS_OF_0_7 = {"topic_name_rule": "0.7", "max_socket_request_bytes": 104_857_600}


def ask(port: int, data: bytes) -> tuple[bytes, bool]:
    """Everything that comes back for `data` and the end of the connection, and whether it was
    reset: a broker that closes on unread bytes makes the kernel drop answers under way."""
    answer = bytearray()
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while chunk := client.recv(1 << 20):
                answer += chunk
        except TimeoutError:
            raise
        except OSError:
            return bytes(answer), True
    return bytes(answer), False


def is_same(one: tuple[bytes, bool], other: tuple[bytes, bool]) -> bool:
    """Equal answers; of a reset connection a part counts."""
    (first, first_reset), (second, second_reset) = one, other
    return (
        first == second
        or (first_reset and second.startswith(first))
        or (second_reset and first.startswith(second))
    )


def segments(log_dir: Path) -> dict[str, bytes]:
    """Partition directory -> its segments' bytes in order.

    Not the segments' names: with flush interval 1 the original may name the next segment after
    fewer bytes than the last one has, so that offsets overlap.
    """
    return {
        partition.name: b"".join(file.read_bytes() for file in sorted(partition.glob("*.kafka")))
        for partition in log_dir.iterdir()
        if partition.is_dir()
    }


def test_answers_and_files_are_those_of_the_original(jvm: Jvm, tmp_path: Path) -> None:
    with (
        jvm.broker(tmp_path / "original", 0, **SETTINGS) as original,
        start_broker(tmp_path, hostname="127.0.0.1", **SETTINGS, **LIMITS_OF_0_7) as broker,
    ):
        requests = RandomRequests(SEED)
        for number in range(COUNT):
            data = requests.sequence()
            expected, got = ask(original.port, data), ask(broker.port, data)
            assert is_same(got, expected), (
                f"sequence {number} of seed {SEED}: sent {data.hex()}\n"
                f"original {expected[0].hex()}\nours     {got[0].hex()}"
            )
            if number % LOOK_INTERVAL == LOOK_INTERVAL - 1:
                wait_until(
                    lambda: segments(broker.log_dir) == segments(original.log_dir),
                    f"equal files after sequence {number} of seed {SEED}",
                )
