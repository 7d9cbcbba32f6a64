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
from collections import Counter
from collections.abc import Callable
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
COLUMNS = (
    *("life", "seconds", "messages read", "serving after", "memory", "descriptors"),
    *("log", "ended by", "problem"),
)
SETTINGS: dict[str, object] = {
    "num_partitions": PARTITIONS,
    "log_file_size": 8 * MIB,
    "log_retention_size": 64 * MIB,
    "log_cleanup_interval_mins": 1,
}
Samples = list[tuple[int, int]]


class Load:
    """One partition: what was sent and confirmed under which name, and how far it was read.

    A message is `<connection>.<sequence>|filler`; a connection's numbers begin at 0 and rise by 1.
    """

    def __init__(self, partition: int, seed: int) -> None:
        self.partition = partition
        self.rng = random.Random(seed)
        self.confirmed: list[int] = []  # per connection: messages known to be durable
        self.seen: Counter[int] = Counter()  # connection -> messages read, in order
        self.read_to = 0
        self.problem = ""

    def produce(self, client: RawClient, stop: threading.Event) -> None:
        """Send until `stop` is set or the broker is gone, which raises OSError."""
        connection, sequence = len(self.confirmed), 0
        self.confirmed.append(0)
        while not stop.is_set():
            began_s = time.monotonic()
            for _ in range(10):
                entries = []
                for number in range(sequence, sequence + BATCH):
                    name = b"%d.%d|" % (connection, number)
                    entries.append(entry(name + self.rng.randbytes(self.rng.randint(0, 400))))
                client.send(produce(TOPIC, b"".join(entries), self.partition))
                sequence += BATCH
            if not client.ask(offsets(TOPIC, -1, 1, self.partition)):
                raise ConnectionResetError
            self.confirmed[connection] = sequence
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
        whole = message_set.split(data) if data else 0
        for payload in message_set.payloads(data[:whole]):
            connection, sequence = map(int, payload.partition(b"|")[0].split(b"."))
            if sequence != self.seen[connection]:
                expected = f"{connection}.{self.seen[connection]}"
                self.problem = f"{sequence} came for {expected} near offset {self.read_to}"
                return False
            self.seen[connection] += 1
        self.read_to += whole
        return whole > 0

    def check_all_seen(self) -> None:
        for connection, count in enumerate(self.confirmed):
            if self.seen[connection] < count:
                self.problem = f"{count} confirmed on connection {connection}, {self.seen} read"


def run_life(broker: RunningBroker, loads: list[Load], seconds: float, kills: bool) -> Samples:
    """Load the broker for a while, then end it; its resident bytes and descriptors meanwhile."""
    stop = threading.Event()

    def work(follow: Callable[[RawClient, threading.Event], None]) -> None:
        with contextlib.suppress(OSError), broker.connect() as client:
            follow(client, stop)

    works = [one for load in loads for one in (load.produce, load.consume)]
    threads = [threading.Thread(target=work, args=(one,)) for one in works]
    end_s = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    samples = []
    while time.monotonic() < end_s and broker.is_running:
        stop.wait(min(1.0, seconds / 10))
        files = broker.open_descriptors() - int(broker.metrics()["kafka2011_broker_open_segments"])
        samples.append((broker.resident_bytes(), files))
    if kills:
        broker.kill()
    stop.set()
    for thread in threads:
        thread.join(30)
    if not kills and broker.stop() != 0:
        loads[0].problem = f"the broker stopped with {broker.wait()}, see {broker.log_path}"
    return samples


def problem_of(loads: list[Load]) -> str:
    found = [f"partition {load.partition}: {load.problem}" for load in loads if load.problem]
    return found[0] if found else ""


def read_count(loads: list[Load]) -> int:
    return sum(load.seen.total() for load in loads)


def read_the_rest(directory: Path, loads: list[Load]) -> None:
    with start_broker(directory, **SETTINGS) as broker, broker.connect() as client:
        for load in loads:
            wait_until(lambda load=load: not load.poll(client), "the end of the log", 60)
            load.check_all_seen()


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
    table = Table(*COLUMNS, header_style="bold", box=None)
    end_s = time.monotonic() + given.minutes * 60
    lives, problem = 0, ""
    while time.monotonic() < end_s and not problem:
        began_s, read_before = time.monotonic(), read_count(loads)
        kills = lives % 2 == 1
        lives += 1
        with start_broker(directory, **SETTINGS) as broker, console.status(f"life {lives}"):
            serving_s = time.monotonic() - began_s
            samples = run_life(broker, loads, life_s, kills)
        (memory, files), (memory_late, files_late) = samples[len(samples) // 3], samples[-1]
        problem = problem_of(loads)
        if memory_late - memory > GROWTH_MAX_BYTES:
            problem = problem or "memory grew"
        if files_late - files > DESCRIPTORS_MAX:
            problem = problem or "descriptors grew"
        log_bytes = sum(path.stat().st_size for path in broker.log_dir.rglob("*.kafka"))
        table.add_row(
            f"{lives}",
            f"{time.monotonic() - began_s:.0f}",
            f"{read_count(loads) - read_before:,}",
            f"{serving_s:.2f} s",
            f"{memory / MIB:.0f} MiB, then {memory_late / MIB:.0f}",
            f"{files}, then {files_late}",
            f"{log_bytes / MIB:.0f} MiB",
            "SIGKILL" if kills else "SIGTERM",
            problem,
        )
    if not problem:
        read_the_rest(directory, loads)
        problem = problem_of(loads)
    console.print(table)
    confirmed = sum(sum(load.confirmed) for load in loads)
    console.print(f"{confirmed:,} messages confirmed, {read_count(loads):,} read, {lives} lives")
    console.print(f"problem: {problem}" if problem else "nothing lost, nothing grew")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
