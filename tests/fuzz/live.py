"""The target with a broker: mutated requests by several clients, while a good one must be served.

The broker may close a connection; it must not die, keep memory, keep descriptors, or disturb the
good client. What is appended by accident is bounded by retention and by the limit of topics.
"""

import contextlib
import random
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import mutation
from tests.support.brokers import RunningBroker, start_broker
from tests.support.raw_requests import answer, entry, fetch, offsets, produce
from tests.support.waiting import wait_until

MIB = 1024 * 1024
GROWTH_MAX_BYTES = 24 * MIB
DESCRIPTORS_MAX = 4  # more than before, with all clients gone, segment files not counted
CHECK_EVERY = 200  # connections between two checks
WARM_UP = 400  # connections before memory is called the start
GOOD = entry(b"a message of the good client")
REQUESTS = mutation.requests()


@dataclass
class Findings:
    """What the run saw; `problem` is "" when all is well."""

    connections: int = 0
    resident_before: int = 0
    resident_after: int = 0
    problem: str = ""


def hostile(rng: random.Random) -> bytes:
    """A stream of a few requests, one or more of them mutated, some with sets of any kind."""
    frames = []
    for _ in range(rng.randint(1, 6)):
        if rng.random() < 0.5:
            frame = produce(b"t", mutation.mutated_set(rng, mutation.sets()), rng.randint(-1, 1))
        else:
            frame = rng.choice(REQUESTS)
        if rng.random() < 0.5:
            frame = mutation.mutated(rng, frame, REQUESTS)
        if rng.random() < 0.5 and len(frame) >= 4:  # let it reach the parser behind the size
            frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
        frames.append(frame)
    return b"".join(frames)


def attack(broker: RunningBroker, rng: random.Random) -> None:
    """One connection: send, perhaps read a little, leave."""
    with contextlib.suppress(OSError), broker.connect() as client:
        client.socket.settimeout(0.02)
        client.send(hostile(rng))
        if rng.random() < 0.5:
            client.socket.recv(100_000)


def is_served(broker: RunningBroker, count: int) -> str:
    """The good client appends once more and reads the last message; "" or what went wrong."""
    try:
        with broker.connect(20) as client:
            client.send(produce(b"good", GOOD))
            found = client.ask(offsets(b"good", -1, 1))
            end = int.from_bytes(found[10:18], "big")
            if end != (count + 1) * len(GOOD):
                return f"the good client's log ends at {end}, not {(count + 1) * len(GOOD)}"
            if client.ask(fetch(b"good", end - len(GOOD))) != answer(GOOD):
                return "the good client read something else than it wrote"
    except OSError as error:
        return f"the good client was not served: {error}"
    return ""


def descriptors_of(broker: RunningBroker) -> int:
    """Open descriptors but those of segments, which their own limit bounds; clients are gone."""
    wait_until(lambda: broker.metrics()["kafka2011_broker_connections"] == 0, "all clients gone")
    return broker.open_descriptors() - int(broker.metrics()["kafka2011_broker_open_segments"])


def run(directory: Path, seed: int, seconds: float) -> Findings:
    """Attack a fresh broker for a while. The broker's output is in `directory`."""
    found = Findings()
    settings = {
        "topics_max": 20,
        "num_partitions": 2,
        "log_file_size": 4 * MIB,
        "topic_log_retention_size": f"t:{16 * MIB}",
        "log_cleanup_interval_mins": 1,
    }
    with start_broker(directory, **settings) as broker:
        descriptors = served = 0
        began_s = time.monotonic()
        while time.monotonic() < began_s + seconds and not found.problem:
            attack(broker, random.Random(f"{seed}:live:{found.connections}"))
            found.connections += 1
            if found.connections % CHECK_EVERY and found.connections > WARM_UP:
                continue
            found.problem = is_served(broker, served)
            served += 1
            if not broker.is_running:
                found.problem = f"the broker ended with {broker.process.returncode}"
            elif found.connections == WARM_UP:
                found.resident_before = broker.resident_bytes()
                descriptors = descriptors_of(broker)
        if found.problem or not found.resident_before:
            return found
        found.resident_after = broker.resident_bytes()
        left = descriptors_of(broker)
        if found.resident_after - found.resident_before > GROWTH_MAX_BYTES:
            found.problem = "memory grew"
        elif left > descriptors + DESCRIPTORS_MAX:
            found.problem = f"{left} descriptors, {descriptors} before"
        elif "internal_error" in broker.log():
            found.problem = f"an internal error, see {broker.log_path}"
        elif broker.stop() != 0:
            found.problem = f"the broker stopped with {broker.process.returncode}"
    return found
