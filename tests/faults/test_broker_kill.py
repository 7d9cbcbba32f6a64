"""SIGKILL at random moments under load, again and again on the same directory.

Each partition has one producer, so every byte of its log is known beforehand: producer p writes
message after message with (partition, sequence) in it. After each kill the log must be a prefix of
what was sent, at the offsets where it was; nothing that a barrier confirmed, and nothing that a
reader ever saw, may be missing or different; after the restart producers go on where the log ends.

FAULT_ROUNDS (default 4) and FAULT_SEED say how many kills and which; the seed is printed.
"""

import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.kills import SEED, UntilDeath, kill_under, rounds
from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.raw_requests import entry, fetch, produce

pytestmark = pytest.mark.integration

PARTITIONS = 3
MODES: dict[str, dict[str, object]] = {
    "group commit": {},
    "flush every 50": {"log_flush_interval": 50, "log_default_flush_scheduler_interval_ms": 40},
    "small segments": {"log_file_size": 20_000},
}


def message(partition: int, sequence: int) -> bytes:
    rng = random.Random(partition * 1_000_003 + sequence)
    return entry(b"%d:%d:" % (partition, sequence) + rng.randbytes(rng.randint(0, 400)))


class Truth:
    """What one partition's log must be: the messages in order, each at its known offset."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.bytes = bytearray()
        self.ends = [0]

    def message(self, sequence: int) -> bytes:
        while len(self.ends) <= sequence + 1:
            self.bytes += message(self.partition, len(self.ends) - 1)
            self.ends.append(len(self.bytes))
        return bytes(self.bytes[self.ends[sequence] : self.ends[sequence + 1]])


class Producer(UntilDeath):
    """Sends messages from a sequence on; remembers what was confirmed."""

    def __init__(self, broker: RunningBroker, truth: Truth, sequence: int, seed: int) -> None:
        super().__init__(broker)
        self.truth = truth
        self.sequence = sequence
        self.rng = random.Random(seed)
        self.confirmed = 0
        self.problem = ""

    def step(self, client: RawClient) -> None:
        for _ in range(self.rng.randint(1, 20)):
            count = self.rng.randint(1, 30)
            data = b"".join(self.truth.message(self.sequence + n) for n in range(count))
            client.send(produce(b"t", data, self.truth.partition))
            self.sequence += count
        end = client.latest(b"t", self.truth.partition)
        if end is None:
            raise ConnectionResetError
        if end != self.truth.ends[self.sequence]:
            self.problem = f"barrier answered {end}, not {self.truth.ends[self.sequence]}"
            raise ConnectionResetError
        self.confirmed = end


class Reader(UntilDeath):
    """Fetches everything visible; what it saw must stay true for ever."""

    def __init__(self, broker: RunningBroker, partition: int) -> None:
        super().__init__(broker)
        self.partition = partition
        self.seen = b""

    def step(self, client: RawClient) -> None:
        answer = client.ask(fetch(b"t", len(self.seen), self.partition, 100_000))
        if not answer:
            raise ConnectionResetError
        self.seen += answer[6:]


def log_of(broker: RunningBroker, partition: int) -> bytes:
    """The partition's whole visible log, as a consumer reads it."""
    found = b""
    with broker.connect() as client:
        while True:
            answer = client.ask(fetch(b"t", len(found), partition, 1_000_000))
            assert answer[4:6] == b"\0\0", f"fetch at {len(found)}: {answer[:6].hex()}"
            if len(answer) == 6:
                return found
            found += answer[6:]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_kill_under_load_loses_nothing_that_was_confirmed_or_seen(
    tmp_path: Path, mode: dict[str, object]
) -> None:
    """S1."""
    kills = rounds(usual=4)
    rng = random.Random(SEED)
    truths = [Truth(partition) for partition in range(PARTITIONS)]
    kept = [0] * PARTITIONS
    sent_bytes = 0

    def logs_of(broker: RunningBroker, number: int) -> list[bytes]:
        """Every partition's log, which holds what was kept, and whole messages of the truth."""
        found = [log_of(broker, partition) for partition in range(PARTITIONS)]
        for truth, log, least in zip(truths, found, kept, strict=True):
            place = f"round {number}, partition {truth.partition}"
            assert log == truth.bytes[: len(log)], f"{place}: changed"
            assert len(log) >= least, (
                f"{place}: {least - len(log)} bytes seen or confirmed are lost"
            )
            assert len(log) in truth.ends, f"{place}: the log ends inside a message"
        return found

    for number in range(kills):
        with start_broker(tmp_path, num_partitions=PARTITIONS, **mode) as broker:
            began = logs_of(broker, number)
            producers = [
                Producer(broker, truth, truth.ends.index(len(log)), rng.randrange(2**31))
                for truth, log in zip(truths, began, strict=True)
            ]
            readers = [Reader(broker, partition) for partition in range(PARTITIONS)]
            kill_under(
                broker,
                [*producers, *readers],
                lambda made=producers: all(one.confirmed for one in made),
                rng,
            )
            for partition, (producer, reader) in enumerate(zip(producers, readers, strict=True)):
                assert not producer.problem, producer.problem
                truth = truths[partition]
                assert reader.seen == truth.bytes[: len(reader.seen)]
                kept[partition] = max(producer.confirmed, len(reader.seen))
                sent_bytes += producer.confirmed - len(began[partition])
    with start_broker(tmp_path, num_partitions=PARTITIONS, **mode) as broker:
        logs_of(broker, kills)
        assert broker.stop() == 0
    print(f"{kills} kills, {sent_bytes} confirmed bytes, lost 0, different 0")


def test_death_during_recovery_comes_to_the_same_end_at_the_next_start(tmp_path: Path) -> None:
    """S16: between the copy to quarantine and the cut."""
    truth = Truth(0)
    with start_broker(tmp_path) as broker, broker.connect() as client:
        client.send(produce(b"t", b"".join(truth.message(n) for n in range(20))))
        assert client.latest(b"t") == truth.ends[20]
        broker.kill()
    path = broker.log_dir / "t-0" / "00000000000000000000.kafka"
    with path.open("ab") as segment:
        segment.write(b"a torn ending")
    environment = {"KAFKA2011_FAILPOINTS": "after_quarantine_copy=exit:9"}
    for _ in range(2):
        with start_broker(tmp_path, environment=environment, wait=False) as dying:
            assert dying.wait() == 9
    with start_broker(tmp_path) as broker:
        assert log_of(broker, 0) == bytes(truth.bytes)
    copies = [copy.read_bytes() for copy in broker.quarantine_dir.glob("t-0/*")]
    assert copies == [b"a torn ending"] * 3


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    """A log directory of a broker that stored these messages and stopped clean."""

    @functools.cache
    def directory(data: bytes) -> Path:
        with start_broker(tmp_path_factory.mktemp("confirmed"), log_file_size=1000) as broker:
            assert broker.store(b"t", data) == len(data)
            assert broker.stop() == 0
        return broker.log_dir

    return directory


@pytest.mark.parametrize(
    "place",
    [
        "before_write",
        "after_append_before_watermark",
        "before_flush",
        "after_flush",
        "before_roll",
        "after_roll",
        "before_clean_marker",
    ],
)
def test_death_at_each_named_place_leaves_a_log_that_starts(
    tmp_path: Path, confirmed: Callable[[bytes], Path], place: str
) -> None:
    """The process exits when it first comes by the place; nothing confirmed before is missing."""
    environment = {"KAFKA2011_FAILPOINTS": f"{place}=exit:9"}
    truth = Truth(0)
    first = b"".join(truth.message(number) for number in range(3))
    shutil.copytree(confirmed(first), tmp_path / "broker-0")
    with start_broker(tmp_path, log_file_size=1000, environment=environment) as broker:
        sequence = 3
        try:
            with broker.connect() as client:
                for _ in range(30):
                    client.send(produce(b"t", truth.message(sequence)))
                    sequence += 1
                if place != "before_clean_marker":
                    client.response()
        except (ConnectionError, TimeoutError):
            pass
        if place == "before_clean_marker":
            assert broker.stop() == 9
        assert broker.wait() == 9
    with start_broker(tmp_path) as broker:
        found = log_of(broker, 0)
        assert found == truth.bytes[: len(found)]
        assert len(found) >= len(first)
        assert len(found) in truth.ends
        at = truth.ends.index(len(found))
        assert broker.store(b"t", truth.message(at)) == truth.ends[at + 1]
