"""Load and restarts for as long as it is told: memory and descriptors must stay flat, nothing lost.

`python -m tests.fuzz.soak --minutes 10`. One broker on one directory lives several times, and ends
by SIGTERM and SIGKILL in turn. Meanwhile one producer a partition sends at a steady rate and
one consumer a partition follows it: every message confirmed durable must come, in order, once, at
offsets without a gap, through all restarts and through retention, which keeps the disk bounded too.
Prints a row a life; exits with 1 when something is wrong.
"""

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kafka2011.protocol import message_set
from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.raw_requests import OUT_OF_RANGE, entry, fetch, offsets, produce
from tests.support.waiting import wait_until

MIB = 1024 * 1024
TOPIC = b"soak"
PARTITIONS = 4
LIVES = 10  # at least; a life is never longer than LIFE_S_MAX
LIFE_S_MAX = 600.0
MESSAGES_PER_S = 2000  # a partition
BATCH = 20
GROWTH_MAX_BYTES = 16 * MIB
DESCRIPTORS_MAX = 4
SETTINGS: dict[str, object] = {
    "num_partitions": PARTITIONS,
    "log_file_size": 8 * MIB,
    "log_retention_size": 64 * MIB,
    "log_cleanup_interval_mins": 1,
}


class Load:
    """One partition: what was sent and confirmed under which name, and how far it was read.

    A message is `<connection>.<sequence>|filler`; a connection's numbers begin at 0 and rise by 1.
    """

    def __init__(self, partition: int, seed: int) -> None:
        self.partition = partition
        self.rng = random.Random(seed)
        self.connection = -1
        self.sequence = 0
        self.confirmed: dict[int, int] = {}  # connection -> messages known to be durable
        self.seen: dict[int, int] = {}  # connection -> messages read, in order
        self.read_to = 0
        self.problem = ""

    def produce(self, client: RawClient, stop: threading.Event) -> None:
        """Send until `stop` is set or the broker is gone, which raises OSError."""
        self.connection += 1
        self.sequence = 0
        while not stop.is_set():
            began_s = time.monotonic()
            for _ in range(10):
                entries = []
                for _ in range(BATCH):
                    name = b"%d.%d|" % (self.connection, self.sequence)
                    entries.append(entry(name + self.rng.randbytes(self.rng.randint(0, 400))))
                    self.sequence += 1
                client.send(produce(TOPIC, b"".join(entries), self.partition))
            if not client.ask(offsets(TOPIC, -1, 1, self.partition)):
                raise ConnectionResetError
            self.confirmed[self.connection] = self.sequence
            stop.wait(max(0.0, 10 * BATCH / MESSAGES_PER_S - (time.monotonic() - began_s)))

    def consume(self, client: RawClient, stop: threading.Event) -> None:
        """Follow the log until `stop` is set or the broker is gone."""
        while not stop.is_set() and not self.problem:
            if not self.poll(client):
                stop.wait(0.02)

    def poll(self, client: RawClient) -> bool:
        """One fetch, judged; whether it brought anything. Raises OSError."""
        answer = client.ask(fetch(TOPIC, self.read_to, self.partition, MIB))
        if not answer:
            raise ConnectionResetError
        if answer == OUT_OF_RANGE:
            self.problem = f"offset {self.read_to} is not in the log any more"
            return False
        data = answer[6:]
        if not data:
            return False
        whole = message_set.split(data)
        for payload in message_set.payloads(data[:whole]):
            connection, _, sequence = payload.partition(b"|")[0].partition(b".")
            expected = self.seen.get(int(connection), 0)
            if int(sequence) != expected:
                self.problem = (
                    f"{connection.decode()}.{sequence.decode()} came where "
                    f"{expected} was expected, near offset {self.read_to}"
                )
                return False
            self.seen[int(connection)] = expected + 1
        self.read_to += whole
        return True

    def missing(self) -> str:
        """What was confirmed and never came."""
        for connection, count in self.confirmed.items():
            if self.seen.get(connection, 0) < count:
                return f"{count} confirmed on connection {connection}, {self.seen} read"
        return ""


@dataclass
class Life:
    """What one life of the broker looked like, early and late."""

    seconds: float
    messages: int
    serving_s: float
    resident: tuple[int, int]
    descriptors: tuple[int, int]
    log_bytes: int
    ended_by: str


def run_life(broker: RunningBroker, loads: list[Load], seconds: float, kills: bool) -> Life:
    """Load the broker for a while, then end it."""
    stop = threading.Event()

    def work(load: Load, is_producer: bool) -> None:
        with contextlib.suppress(OSError), broker.connect() as client:
            (load.produce if is_producer else load.consume)(client, stop)

    threads = [
        threading.Thread(target=work, args=(load, is_producer))
        for load in loads
        for is_producer in (True, False)
    ]
    before = sum(sum(load.seen.values()) for load in loads)
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    samples: list[tuple[int, int]] = []
    while time.monotonic() < began_s + seconds and broker.is_running:
        stop.wait(min(1.0, seconds / 10))
        files = broker.open_descriptors() - int(broker.metrics()["kafka2011_broker_open_segments"])
        samples.append((broker.resident_bytes(), files))
    if kills:
        broker.kill()
    stop.set()
    for thread in threads:
        thread.join(30)
    if not kills:
        status = broker.stop()
        if status:
            loads[0].problem = f"the broker stopped with {status}, see {broker.log_path}"
    early, late = samples[len(samples) // 3], samples[-1]
    return Life(
        time.monotonic() - began_s,
        sum(sum(load.seen.values()) for load in loads) - before,
        0.0,
        (early[0], late[0]),
        (early[1], late[1]),
        sum(path.stat().st_size for path in broker.log_dir.rglob("*.kafka")),
        "SIGKILL" if kills else "SIGTERM",
    )


def problem_of(life: Life, loads: list[Load]) -> str:
    for load in loads:
        if load.problem:
            return f"partition {load.partition}: {load.problem}"
    if life.resident[1] - life.resident[0] > GROWTH_MAX_BYTES:
        return "memory grew"
    if life.descriptors[1] - life.descriptors[0] > DESCRIPTORS_MAX:
        return "descriptors grew"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 2**31)
    life_s = min(LIFE_S_MAX, given.minutes * 60 / LIVES)
    console = Console(width=None if sys.stdout.isatty() else 160)
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    console.print(f"seed {seed}, {given.minutes:g} minutes, {life_s:.0f} s a life, {directory}")
    loads = [Load(partition, seed + partition) for partition in range(PARTITIONS)]
    table = Table("life", "seconds", "messages read", "serving after", "memory", "descriptors",
                  "log", "ended by", "problem", header_style="bold", box=None)  # fmt: skip
    end_s = time.monotonic() + given.minutes * 60
    lives, problem = 0, ""
    while time.monotonic() < end_s and not problem:
        began_s = time.monotonic()
        with start_broker(directory, **SETTINGS) as broker:
            serving_s = time.monotonic() - began_s
            with console.status(f"life {lives + 1}"):
                life = run_life(broker, loads, life_s, kills=lives % 2 == 1)
        life.serving_s = serving_s
        lives += 1
        problem = problem_of(life, loads)
        early, late = life.resident
        table.add_row(
            str(lives), f"{life.seconds:.0f}", f"{life.messages:,}", f"{life.serving_s:.2f} s",
            f"{early / MIB:.0f} MiB, then {late / MIB:.0f}",
            f"{life.descriptors[0]}, then {life.descriptors[1]}",
            f"{life.log_bytes / MIB:.0f} MiB", life.ended_by, problem,
        )  # fmt: skip
    if not problem:
        problem = last_reading(directory, loads)
    console.print(table)
    read = sum(sum(load.seen.values()) for load in loads)
    confirmed = sum(sum(load.confirmed.values()) for load in loads)
    console.print(f"{confirmed:,} messages confirmed durable, {read:,} read, {lives} lives")
    console.print(f"problem: {problem}" if problem else "nothing lost, nothing grew")
    return 1 if problem else 0


def last_reading(directory: Path, loads: list[Load]) -> str:
    """Read everything that is left; "" or what is missing."""
    with start_broker(directory, **SETTINGS) as broker, broker.connect() as client:
        for load in loads:
            wait_until(lambda load=load: not load.poll(client), "the end of the log", 60)
            found = load.problem or load.missing()
            if found:
                return f"partition {load.partition}: {found}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
