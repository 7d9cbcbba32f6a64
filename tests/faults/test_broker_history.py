"""SIGKILL under load with several writers a partition, judged by the checker from a history file.

Each producer is one connection at a time; it sends to any partition, in single and multi-requests,
and sends a barrier now and then. What a barrier covered is durable.
After each kill all of them connect again and send on. At the end the whole log is read, and
`tests.faults.checker` says what is wrong with the history, which stays in the test's directory.
"""

import json
import random
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from kafka2011.protocol import message_set
from tests.faults.checker import check, read_history
from tests.faults.kills import SEED, UntilDeath, kill_under, rounds
from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.raw_requests import entry, fetch, multi_produce, produce

pytestmark = pytest.mark.integration

TOPIC = b"t"
PARTITIONS = 2
PRODUCERS = 4


class History:
    """Writes events as JSON lines; each is with the kernel when `add` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def add(self, *events: dict[str, Any]) -> None:
        data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        with self._lock:
            self._file.write(data)

    def close(self) -> None:
        self._file.close()


class Producer(UntilDeath):
    """One connection's life; what a barrier covered is durable."""

    def __init__(self, broker: RunningBroker, name: str, history: History, seed: int) -> None:
        super().__init__(broker)
        self.name = name
        self.rng = random.Random(seed)
        self.durable_count = 0
        self._history = history
        self._sequence = 0
        self._unconfirmed: list[str] = []

    def step(self, client: RawClient) -> None:
        for _ in range(self.rng.randint(1, 10)):
            self._send(client)
        if client.latest(TOPIC) is None:
            raise ConnectionResetError
        self._history.add(*({"f": "durable", "id": name} for name in self._unconfirmed))
        self.durable_count += len(self._unconfirmed)
        self._unconfirmed.clear()

    def _set(self, partition: int) -> bytes:
        entries = []
        for _ in range(self.rng.randint(1, 12)):
            name = f"{self.name}.{self._sequence}"
            self._sequence += 1
            payload = name.encode() + b"|" + self.rng.randbytes(self.rng.randint(0, 300))
            self._history.add(
                {"f": "send", "id": name, "partition": partition, "crc": zlib.crc32(payload)}
            )
            self._unconfirmed.append(name)
            entries.append(entry(payload))
        return b"".join(entries)

    def _send(self, client: RawClient) -> None:
        partition = self.rng.randrange(PARTITIONS)
        if self.rng.random() < 0.3:
            parts = [(TOPIC, number, self._set(number)) for number in range(PARTITIONS)]
            client.send(multi_produce(*parts))
        else:
            client.send(produce(TOPIC, self._set(partition), partition))


class Reader(UntilDeath):
    """Polls one partition from where it was, and notes what it was shown."""

    def __init__(self, broker: RunningBroker, partition: int, start: int, history: History) -> None:
        super().__init__(broker)
        self.partition = partition
        self.offset = start
        self._history = history

    def step(self, client: RawClient) -> None:
        found, self.offset = poll(client, self.partition, self.offset)
        self._history.add(*({"f": "poll", **event} for event in found))


def poll(client: RawClient, partition: int, offset: int) -> tuple[list[dict[str, Any]], int]:
    """One fetch: the messages as events, and where to go on. Raises ConnectionResetError."""
    answer = client.ask(fetch(TOPIC, offset, partition, 200_000))
    if not answer:
        raise ConnectionResetError
    assert answer[4:6] == b"\0\0", f"{partition}:{offset}: {answer[:6].hex()}"
    found = []
    data = answer[6:]
    whole = message_set.split(data) if data else 0
    for payload, next_offset in message_set.messages(data[:whole], offset):
        name = payload.partition(b"|")[0].decode(errors="replace")
        event = {"id": name, "partition": partition, "offset": offset, "crc": zlib.crc32(payload)}
        found.append({**event, "next_offset": next_offset})
        offset = next_offset
    return found, offset


MODES: dict[str, dict[str, object]] = {
    "group commit": {},
    "small segments, flush every 20": {"log_file_size": 30_000, "log_flush_interval": 20},
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_the_history_of_many_kills_is_good(tmp_path: Path, mode: dict[str, object]) -> None:
    kills = rounds(usual=4)
    rng = random.Random(SEED)
    history = History(tmp_path / "history.jsonl")
    read_to = [0] * PARTITIONS
    for number in range(kills):
        with start_broker(tmp_path, num_partitions=PARTITIONS, **mode) as broker:
            producers = [
                Producer(broker, f"{producer}.{number}", history, rng.randrange(2**31))
                for producer in range(PRODUCERS)
            ]
            readers = [
                Reader(broker, partition, start, history) for partition, start in enumerate(read_to)
            ]
            kill_under(
                broker,
                [*producers, *readers],
                lambda all=producers: any(one.durable_count for one in all),
                rng,
            )
            history.add({"f": "fault", "kind": "SIGKILL"})
            read_to = [reader.offset for reader in readers]
    with start_broker(tmp_path, num_partitions=PARTITIONS, **mode) as broker:
        with broker.connect() as client:
            for partition in range(PARTITIONS):
                end = client.latest(TOPIC, partition) or 0
                history.add({"f": "end", "partition": partition, "offset": end})
                offset = 0
                while offset < end:
                    found, after = poll(client, partition, offset)
                    assert after > offset, f"{partition}:{offset} shows nothing below {end}"
                    history.add(*({"f": "final", **event} for event in found))
                    offset = after
        assert broker.stop() == 0
    history.close()
    verdict = check(read_history(history.path))
    print(verdict)
    assert verdict.is_good, f"{verdict}\nhistory: {history.path}, FAULT_SEED={SEED}"
    assert verdict.faults == kills
    assert verdict.durable > 0
