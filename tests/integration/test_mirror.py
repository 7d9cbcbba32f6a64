"""The mirror between real clusters: nothing lost, order kept, offsets never ahead of the copy."""

import contextlib
import json
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordination import paths
from coordination.paths import BrokerPartition
from services.proxy.config import ProxyConfig, parse_routes
from services.proxy.proxy import Proxy
from services.zookeeper.server import ZooKeeperServer
from tests.support.clusters import Cluster
from tests.support.commands import RunningCommand, start_command
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


class Mirrors:
    """Starts mirrors between two clusters; each test has a topic and a group of its own."""

    def __init__(self, live: Cluster, offline: Cluster, root: Path) -> None:
        self.live = live
        self.offline = offline
        self.root = root
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.running: list[tuple[RunningCommand, str]] = []

    def start(self, *, failpoints: str = "", **settings: object) -> RunningCommand:
        named = {
            "source.zk.connect": self.live.zk_connect,
            "target.zk.connect": self.offline.zk_connect,
            "metrics.port": 0,
            "groupid": self.topic,
            "topics.whitelist": self.topic,
            "offset.commit.interval.ms": 50,
            "mirror.status.interval.ms": 100,
            "mirror.retry.max.ms": 500,
            # A killed member's session, and with it its partitions, goes this fast.
            "zk.sessiontimeout.ms": 1500,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        log = self.root / f"mirror-{len(self.running)}.log"
        command = start_command("mirror", named, log, failpoints=failpoints)
        metrics = command.wait_for_event("serving")["metrics"]
        self.running.append((command, metrics))
        return command

    def status(self, number: int = -1) -> dict[str, Any]:
        metrics = self.running[number][1]
        with urllib.request.urlopen(f"http://{metrics}/status", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def post(self, path: str, **body: str) -> None:
        request = urllib.request.Request(
            f"http://{self.running[-1][1]}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def wait_drained(self, *numbers: int, timeout_s: float = 60) -> None:
        """Until these mirrors (the last one) have copied all that is written by now."""
        begun_ms = time.time_ns() // 1_000_000

        def drained() -> bool:
            found = [self.status(number) for number in numbers or (-1,)]
            return all(one["drained"] and one["as_of_ms"] >= begun_ms for one in found)

        wait_until(
            drained,
            lambda: f"drained: {json.dumps(self.status(), indent=1)}\n{self.running[-1][0].log()}",
            timeout_s,
        )

    def committed(self) -> dict[str, int]:
        found = {}
        path = paths.offsets_path(self.topic, self.topic)
        for name in self.live.registry.children(path):
            stored = self.live.registry.get(f"{path}/{name}")
            assert stored is not None
            found[name] = int(stored.value or b"")
        return found

    def close(self) -> None:
        for command, _ in self.running:
            with command:
                pass


@contextlib.contextmanager
def two_clusters(zookeeper: ZooKeeperServer, root: Path) -> Iterator[tuple[Cluster, Cluster]]:
    prefix = f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:8]}"
    with (
        Cluster(f"{prefix}-live", root / "live", [1, 2]) as live,
        Cluster(f"{prefix}-offline", root / "offline", [11, 12]) as offline,
    ):
        yield live, offline


@pytest.fixture(scope="module")
def clusters(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Cluster]]:
    with two_clusters(zookeeper, tmp_path_factory.mktemp("clusters")) as found:
        yield found


@pytest.fixture
def mirrors(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[Mirrors]:
    for one in clusters:
        for broker_id, broker in one.brokers.items():
            if broker.process.poll() is not None:
                one.start(broker_id)
    with contextlib.closing(Mirrors(*clusters, tmp_path)) as found:
        yield found


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


def test_everything_is_copied_once_and_spread_evenly(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with (
        two_clusters(zookeeper, tmp_path) as clusters,
        contextlib.closing(Mirrors(*clusters, tmp_path)) as mirrors,
    ):
        copy_all_topics(mirrors)


def copy_all_topics(mirrors: Mirrors) -> None:
    topic = mirrors.topic
    mirrors.live.write(topic, 2000)
    mirrors.live.write("search", 300, codec=1)
    mirrors.live.write("audit", 100)
    command = mirrors.start(topics_whitelist="")
    mirrors.wait_drained()
    mirrors.live.write(topic, 500)  # while it runs
    mirrors.live.write("login", 100)  # a topic that did not exist when it started
    wait_until(
        lambda: {p["topic"] for p in mirrors.status()["partitions"]} == {topic, "search", "login"},
        "all topics but audit are copied",
    )
    mirrors.wait_drained()
    assert [check_copies(mirrors, topic) for topic in (topic, "search", "login")] == [0, 0, 0]
    assert mirrors.offline.partitions("audit") == []
    targets = [p["target"] for p in mirrors.status()["partitions"] if p["topic"] == topic]
    assert sorted(targets) == ["11-0", "11-1", "12-0", "12-1"]
    assert command.stop() == 0
    ends = {p.text: end for p, end in mirrors.live.ends(topic).items()}
    assert mirrors.committed() == ends
    # A second life goes on where the first ended, with the same map.
    mirrors.live.write(topic, 50)
    mirrors.start(topics_whitelist="")
    mirrors.wait_drained()
    assert check_copies(mirrors) == 0


class Writer:
    """Writes in the background until told to stop."""

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


def test_sigkill_under_load_loses_nothing(mirrors: Mirrors) -> None:
    with Writer(mirrors):
        for _ in range(4):
            before = copied_bytes(mirrors)
            command = mirrors.start()
            wait_until(lambda: copied_bytes(mirrors) > before + 100_000, "it copies")  # noqa: B023
            command.kill()
            committed = mirrors.committed()
            ends = {p.text: end for p, end in mirrors.live.ends(mirrors.topic).items()}
            assert all(offset <= ends[name] for name, offset in committed.items())
    mirrors.start()
    mirrors.wait_drained()
    check_copies(mirrors)


@pytest.mark.parametrize(
    ("place", "may_commit"),
    [
        ("mirror_after_send_before_barrier", False),
        ("mirror_after_barrier_before_commit", False),
        ("mirror_after_commit", True),
    ],
)
def test_dying_between_barrier_and_commit_only_repeats(
    mirrors: Mirrors, place: str, may_commit: bool
) -> None:
    mirrors.live.write(mirrors.topic, 300)
    command = mirrors.start(failpoints=f"{place}=exit:9")
    assert command.process.wait(30) == 9
    committed = mirrors.committed()
    if not may_commit:
        assert set(committed.values()) <= {0}, "no more than where it started"
    mirrors.start()
    mirrors.wait_drained()
    repeats = check_copies(mirrors)
    assert repeats <= 4 * 300
    if place == "mirror_after_barrier_before_commit":
        assert repeats > 0, "the copy was durable and not committed, so it is made again"


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_frozen_target_never_stored_is_not_committed(
    mirrors: Mirrors, ending: signal.Signals
) -> None:
    mirrors.live.write(mirrors.topic, 100)
    command = mirrors.start(mirror_handover_timeout_ms=300)
    mirrors.wait_drained()
    for target in mirrors.offline.brokers.values():
        target.process.send_signal(signal.SIGSTOP)
    mirrors.live.write(mirrors.topic, 100)
    wait_until(
        lambda: all(p["in_flight_bytes"] for p in mirrors.status()["partitions"]),
        "the sets stand in the sockets of brokers that do not read them",
    )
    commits = mirrors.status()["looks"]
    wait_until(lambda: mirrors.status()["looks"] > commits + 3, "there was time to commit")
    assert set(mirrors.committed().values()) == {100 * 210}
    command.signal(ending)
    command.process.wait(30)
    for target in mirrors.offline.brokers.values():
        target.kill()
    for broker_id in mirrors.offline.brokers:
        mirrors.offline.start(broker_id)
    assert set(mirrors.committed().values()) == {100 * 210}
    mirrors.start()
    mirrors.wait_drained()
    check_copies(mirrors)


def test_a_target_broker_that_dies_holds_up_only_its_partitions(mirrors: Mirrors) -> None:
    mirrors.live.write(mirrors.topic, 100)
    mirrors.start()
    mirrors.wait_drained()
    with Writer(mirrors):
        mirrors.offline.brokers[12].kill()

        def other_goes_on() -> bool:
            states = {p["target"]: p for p in mirrors.status()["partitions"]}
            return (
                states["12-0"]["state"] == states["12-1"]["state"] == "waiting"
                and states["11-0"]["copied_bytes"] > 200_000
                and states["11-0"]["state"] == "copying"
            )

        wait_until(other_goes_on, lambda: json.dumps(mirrors.status(), indent=1), 30)
        mirrors.offline.start(12)
    mirrors.wait_drained()
    check_copies(mirrors)


def test_a_source_broker_that_dies_is_waited_for(mirrors: Mirrors) -> None:
    mirrors.live.write(mirrors.topic, 100)
    mirrors.start()
    mirrors.wait_drained()
    mirrors.live.brokers[2].kill()
    only_first = [BrokerPartition(1, 0), BrokerPartition(1, 1)]
    mirrors.live.write(mirrors.topic, 500, partitions=only_first)
    wait_until(lambda: copied_bytes(mirrors) >= (4 * 100 + 2 * 500) * 210, "the other is copied")
    mirrors.live.start(2)
    mirrors.live.write(mirrors.topic, 200)
    mirrors.wait_drained()
    assert check_copies(mirrors) == 0


def linked(mirrors: Mirrors, brokers: list[int]) -> tuple[Proxy, str]:
    """A proxy with a route b<id> to each of these brokers, and the address map that leads there."""
    home = dict.fromkeys(mirrors.live.brokers, mirrors.live)
    home.update(dict.fromkeys(mirrors.offline.brokers, mirrors.offline))
    places = {broker: "{}:{}".format(*home[broker].address(broker)) for broker in brokers}
    routes = ",".join(f"b{broker}=127.0.0.1:0>{places[broker]}" for broker in brokers)
    proxy = Proxy(ProxyConfig(routes=parse_routes(routes)))
    proxy.start()
    address_map = ",".join(
        f"{places[broker]}=" + "{}:{}".format(*proxy.address(f"b{broker}")) for broker in brokers
    )
    return proxy, address_map


def test_a_clean_handover_between_members_repeats_nothing(mirrors: Mirrors) -> None:
    link, address_map = linked(mirrors, [11, 12])
    with contextlib.closing(link):
        mirrors.live.write(mirrors.topic, 100)
        first = mirrors.start(address_map=address_map)
        mirrors.wait_drained()
        # With a slow way to the target there is always something in flight at the handover.
        link.change(None, {"delay_ms": 100})
        with Writer(mirrors):
            second = mirrors.start(address_map=address_map)
            wait_until(
                lambda: (
                    len(mirrors.status(0)["partitions"]) == len(mirrors.status(1)["partitions"])
                ),
                "the two share",
            )
            copied = copied_bytes(mirrors)
            wait_until(lambda: copied_bytes(mirrors) > copied + 200_000, "both copy")
            assert first.stop() == 0
            wait_until(lambda: len(mirrors.status(1)["partitions"]) == 4, "the second takes over")
        mirrors.wait_drained()
        assert check_copies(mirrors) == 0
        assert second.stop() == 0


def test_a_frozen_member_does_not_copy_on_after_its_session(mirrors: Mirrors) -> None:
    mirrors.live.write(mirrors.topic, 100)
    first = mirrors.start()
    mirrors.wait_drained()
    first.signal(signal.SIGSTOP)
    mirrors.start()
    wait_until(lambda: len(mirrors.status()["partitions"]) == 4, "the second takes all over")
    mirrors.live.write(mirrors.topic, 300)
    mirrors.wait_drained()
    first.signal(signal.SIGCONT)
    wait_until(
        lambda: len(mirrors.status(0)["partitions"]) == len(mirrors.status(1)["partitions"]) == 2,
        "it joins anew and gets its share",
    )
    mirrors.live.write(mirrors.topic, 300)
    mirrors.wait_drained(0, 1)
    assert check_copies(mirrors) == 0


def test_pause_and_resume_one_partition(mirrors: Mirrors) -> None:
    mirrors.live.write(mirrors.topic, 100)
    mirrors.start()
    mirrors.wait_drained()
    mirrors.post("/pause", topic=mirrors.topic, partition="1-0")
    mirrors.live.write(mirrors.topic, 400)

    def others_done() -> bool:
        lags = {p["source"]: p["lag_bytes"] for p in mirrors.status()["partitions"]}
        return lags == {"1-0": 400 * 210, "1-1": 0, "2-0": 0, "2-1": 0}

    wait_until(others_done, lambda: json.dumps(mirrors.status(), indent=1))
    assert not mirrors.status()["drained"]
    mirrors.post("/resume", topic=mirrors.topic, partition="1-0")
    mirrors.wait_drained()
    assert check_copies(mirrors) == 0


def test_a_message_that_the_target_would_drop_stops_its_partition(mirrors: Mirrors) -> None:
    only = [BrokerPartition(1, 0)]
    mirrors.live.write(mirrors.topic, 10)
    mirrors.live.write(mirrors.topic, 1, size=5000, partitions=only)
    mirrors.start(fetch_size=4000, max_message_size=4000)
    mirrors.live.write(mirrors.topic, 10)

    def refused() -> bool:
        states = {p["source"]: p for p in mirrors.status()["partitions"]}
        return len(states) == 4 and (
            states["1-0"]["state"] == "refused"
            and "max.message.size" in states["1-0"]["trouble"]
            and all(states[name]["lag_bytes"] == 0 for name in ("1-1", "2-0", "2-1"))
        )

    wait_until(refused, lambda: json.dumps(mirrors.status(), indent=1))
    assert mirrors.running[-1][0].stop() == 0
    mirrors.start(fetch_size=4000, max_message_size=1_000_000)
    mirrors.wait_drained()
    assert check_copies(mirrors) == 0


def test_over_a_link_that_is_slow_and_cut(mirrors: Mirrors) -> None:
    brokers = [*mirrors.live.brokers, *mirrors.offline.brokers]
    link, address_map = linked(mirrors, brokers)
    with contextlib.closing(link):
        mirrors.live.write(mirrors.topic, 1000)
        link.change(None, {"delay_ms": 50, "jitter_ms": 25})
        mirrors.start(address_map=address_map)
        with Writer(mirrors):
            for number in range(6):
                copied = copied_bytes(mirrors)
                wait_until(lambda: copied_bytes(mirrors) > copied, "it goes on")  # noqa: B023
                if number % 2:
                    link.change(None, {"cut": True})
                    link.change(None, {"cut": False})
                else:
                    link.reset_connections(f"b{brokers[number % 4]}")
        link.change(None, {"clear": True})
        mirrors.wait_drained()
        check_copies(mirrors)


def test_a_damaged_byte_on_the_way_is_not_stored(mirrors: Mirrors) -> None:
    link, address_map = linked(mirrors, [11])
    with contextlib.closing(link):
        link.change("b11", {"flip": {"direction": "to_server", "after_bytes": 50_000}})
        mirrors.live.write(mirrors.topic, 1000)
        mirrors.start(address_map=address_map)
        mirrors.wait_drained()
        assert link.status()["b11"]["to_server"]["flipped"] == 1
        check_copies(mirrors)
        assert sum(p["rewinds"] for p in mirrors.status()["partitions"]) >= 1


def test_loops_are_refused(mirrors: Mirrors, tmp_path: Path) -> None:
    def status_of(source: Cluster, target: Cluster) -> int:
        settings = {"source.zk.connect": source.zk_connect, "target.zk.connect": target.zk_connect}
        with start_command("mirror", settings, tmp_path / "loop.log") as command:
            code = command.process.wait(30)
            assert len(command.events("cannot start")) == 1
            return code

    assert status_of(mirrors.live, mirrors.live) == 2
    mirrors.start()
    assert status_of(mirrors.offline, mirrors.live) == 2


def test_zookeeper_that_is_not_there_ends_it_with_status_1(tmp_path: Path) -> None:
    settings = {
        "source.zk.connect": "127.0.0.1:1",
        "target.zk.connect": "127.0.0.1:2",
        "zk.connectiontimeout.ms": 500,
    }
    with start_command("mirror", settings, tmp_path / "log") as command:
        assert command.process.wait(30) == 1
