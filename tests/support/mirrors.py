"""Mirrors between two clusters for tests: started, asked, judged by what stands at the target."""

import contextlib
import json
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.clusters import Cluster, datacenters
from tests.support.commands import RunningProcess, dotted, start_command
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.zookeeper import end_session


class Mirrors:
    """Starts mirrors between two clusters; each test has a topic and a group of its own."""

    def __init__(self, live: Cluster, offline: Cluster, root: Path) -> None:
        self.live = live
        self.offline = offline
        self.root = root
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.running: list[RunningProcess] = []

    def start(self, *, failpoints: str = "", **settings: object) -> RunningProcess:
        named = {
            "source.zk.connect": self.live.zk_connect,
            "target.zk.connect": self.offline.zk_connect,
            "metrics.port": 0,
            "groupid": self.topic,
            "topics.whitelist": self.topic,
            "offset.commit.interval.ms": 50,
            "mirror.status.interval.ms": 100,
            "mirror.retry.max.ms": 500,
            # What is repeated is a fault's, not a busy machine's.
            "mirror.barrier.timeout.ms": 60_000,
            "mirror.handover.timeout.ms": 60_000,
            "zk.sessiontimeout.ms": 20_000,
            "consumerid": f"member-{len(self.running)}",
            **dotted(settings),
        }
        for number, one in enumerate(self.running):
            if not one.is_running:
                self.end_session(number)
        log = self.root / f"mirror-{len(self.running)}.log"
        command = start_command("mirror", named, log, failpoints=failpoints)
        self.running.append(command)
        if not failpoints:  # with one it may have ended before it serves
            command.wait_for_event("serving")
        return command

    def end_session(self, number: int) -> None:
        """Of a mirror that was killed."""
        member = paths.consumer_id_path(self.topic, f"{self.topic}_member-{number}")
        end_session(self.live.registry, member)

    def status(self, number: int = -1) -> Any:
        return self.running[number].get_json("/status")

    def post(self, path: str, **body: str) -> None:
        self.running[-1].get(path, body)

    def wait_drained(self, *numbers: int, timeout_s: float = DEADLINE_S) -> None:
        """Until these mirrors (the last one) have copied all that is written by now."""
        begun_ms = time.time_ns() // 1_000_000

        def drained() -> bool:
            found = [self.status(number) for number in numbers or (-1,)]
            return any(one["partitions"] for one in found) and all(
                one["drained"] and one["as_of_ms"] >= begun_ms for one in found
            )

        wait_until(
            drained,
            lambda: f"drained: {json.dumps(self.status(), indent=1)}\n{self.running[-1].log()}",
            timeout_s,
        )

    def committed(self) -> dict[str, int]:
        registry, path = self.live.registry, paths.offsets_path(self.topic, self.topic)
        stored = {name: registry.get(f"{path}/{name}") for name in registry.children(path)}
        return {name: int(node.value or b"") for name, node in stored.items() if node}

    def close(self) -> None:
        for command in self.running:
            with command:
                pass


def two_clusters(
    zookeeper: ZooKeeperServer, root: Path
) -> contextlib.AbstractContextManager[tuple[Cluster, Cluster]]:
    """Two brokers live, two offline, in a chroot of their own."""
    prefix = f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:8]}"
    return datacenters(prefix, root, [1, 2], [11, 12])


def check_copies(mirrors: Mirrors, topic: str = "") -> int:
    """Everything is at the target, each source partition in one target partition, in order.

    A repeat after a failure starts again at an earlier number and goes on without a gap. Returns
    how many messages are there more than once.
    """
    topic = topic or mirrors.topic
    found = mirrors.offline.read(topic)
    place: dict[str, BrokerPartition] = {}
    seen: dict[str, list[int]] = {}
    for partition, messages in found.items():
        for source, number in messages:
            assert place.setdefault(source, partition) == partition, f"{source} is scattered"
            seen.setdefault(source, []).append(number)
    repeats = 0
    for source, count in mirrors.live.written(topic).items():
        numbers = seen.get(source, [])
        next_new = 0
        for before, number in zip([-1, *numbers], numbers, strict=False):
            assert number == before + 1 or number <= before, f"gap in {source}: {before}, {number}"
            assert number <= next_new, f"{source} jumps ahead to {number}"
            repeats += number < next_new
            next_new = max(next_new, number + 1)
        assert next_new == count, f"{source}: {next_new} of {count}"
    return repeats


class Writer:
    """Writes in the background until it is closed."""

    def __init__(self, mirrors: Mirrors, count: int = 50) -> None:
        self._mirrors = mirrors
        self._count = count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._mirrors.live.write(self._mirrors.topic, self._count)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def copied_bytes(mirrors: Mirrors) -> int:
    """What is durable at the target."""
    return sum(mirrors.offline.ends(mirrors.topic).values())
