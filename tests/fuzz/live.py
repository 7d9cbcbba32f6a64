"""The target with a broker: mutated requests by several clients, while a good one must be served.

The broker may close a connection; it must not die, keep memory, keep descriptors, or disturb the
good client. What is appended by accident is bounded by retention and by the limit of topics.
"""

import contextlib
import random
import time
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


def check_served(broker: RunningBroker, count: int) -> None:
    """The good client, which has written `count` messages, appends one and reads it."""
    with broker.connect() as client:
        client.send(produce(b"good", GOOD))
        end = int.from_bytes(client.ask(offsets(b"good", -1, 1))[10:18], "big")
        assert end == (count + 1) * len(GOOD), f"the good client's log ends at {end} after {count}"
        found = client.ask(fetch(b"good", end - len(GOOD)))
        assert found == answer(GOOD), "the good client read something else than it wrote"


def descriptors_of(broker: RunningBroker) -> int:
    """Open descriptors but those of segments, which their own limit bounds; clients are gone."""
    wait_until(lambda: broker.metrics()["kafka2011_broker_connections"] == 0, "all clients gone")
    return broker.open_descriptors() - int(broker.metrics()["kafka2011_broker_open_segments"])


def run(directory: Path, seed: int, seconds: float) -> tuple[int, str]:
    """Attack a fresh broker for a while; its output is in `directory`.

    Returns the number of connections and what its memory did; AssertionError or OSError on a
    finding.
    """
    connections = served = descriptors = resident = 0
    with start_broker(
        directory,
        topics_max=20,
        num_partitions=2,
        log_file_size=4 * MIB,
        topic_log_retention_size=f"t:{16 * MIB}",
        log_cleanup_interval_mins=1,
    ) as broker:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            attack(broker, random.Random(f"{seed}:live:{connections}"))
            connections += 1
            if connections % CHECK_EVERY == 0 or connections <= WARM_UP:
                assert broker.is_running, f"the broker ended with {broker.wait()}"
                check_served(broker, served)
                served += 1
            if connections == WARM_UP:
                resident, descriptors = broker.resident_bytes(), descriptors_of(broker)
        if not resident:
            return connections, "too short to judge memory"
        after, left = broker.resident_bytes(), descriptors_of(broker)
        memory = f"memory {resident / MIB:.0f} MiB, then {after / MIB:.0f}"
        assert after - resident <= GROWTH_MAX_BYTES, memory
        assert left <= descriptors + DESCRIPTORS_MAX, f"{left} descriptors, {descriptors} before"
        assert "internal_error" not in broker.log(), f"an internal error, see {broker.log_path}"
        assert broker.stop() == 0, f"the broker stopped with {broker.wait()}"
    return connections, memory
