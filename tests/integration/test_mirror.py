"""The mirror between real clusters: nothing lost, order kept, offsets never ahead of the copy."""

import contextlib
import json
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.producer.connection import BrokerConnection
from kafka2011.protocol.message_set import encode_compressed
from kafka2011.protocol.requests import ProduceRequest, encode_request
from kafka2011.services.proxy.config import ProxyConfig, parse_routes
from kafka2011.services.proxy.proxy import Proxy
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.clusters import Cluster
from tests.support.commands import run, start_command
from tests.support.mirrors import Mirrors, Writer, check_copies, copied_bytes, two_clusters
from tests.support.waiting import wait_for_growth, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MESSAGE = 210  # bytes of one in the log
Copies = dict[str, dict[str, Any]]  # source partition -> its state


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
            if not broker.is_running:
                one.start(broker_id)
    with contextlib.closing(Mirrors(*clusters, tmp_path)) as found:
        yield found


def wait_for(mirrors: Mirrors, condition: Callable[[Copies], bool]) -> None:
    """Until the states of the partitions are such."""
    wait_until(
        lambda: condition({one["source"]: one for one in mirrors.status()["partitions"]}),
        lambda: json.dumps(mirrors.status(), indent=1),
    )


def count(mirrors: Mirrors, number: int = -1) -> int:
    """How many partitions a mirror has."""
    return len(mirrors.status(number)["partitions"])


def copied(mirrors: Mirrors, messages: int) -> Mirrors:
    """With a mirror that has copied `messages` of each partition."""
    mirrors.live.write(mirrors.topic, messages)
    mirrors.start()
    mirrors.wait_drained()
    return mirrors


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


def test_sigkill_under_load_loses_nothing(mirrors: Mirrors) -> None:
    with Writer(mirrors):
        for _ in range(4):
            before = copied_bytes(mirrors)
            command = mirrors.start()
            wait_for_growth(lambda: copied_bytes(mirrors), 100_000, "it copies", since=before)
            command.kill()
            committed = mirrors.committed()
            ends = {p.text: end for p, end in mirrors.live.ends(mirrors.topic).items()}
            assert all(offset <= ends[name] for name, offset in committed.items())
    mirrors.start()
    mirrors.wait_drained()
    check_copies(mirrors)


@pytest.mark.parametrize(
    ("place", "action", "status", "may_commit"),
    [
        ("mirror_after_send_before_barrier", "exit:9", 9, False),
        ("mirror_after_barrier_before_commit", "exit:9", 9, False),
        ("mirror_after_commit", "exit:9", 9, True),
        ("mirror_after_commit", "raise", 1, True),  # a bug in the thread that commits
    ],
)
def test_dying_between_barrier_and_commit_only_repeats(
    mirrors: Mirrors, place: str, action: str, status: int, may_commit: bool
) -> None:
    mirrors.live.write(mirrors.topic, 300)
    command = mirrors.start(failpoints=f"{place}={action}")
    assert command.wait() == status
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
    command = mirrors.start(mirror_handover_timeout_ms=300, mirror_barrier_timeout_ms=10_000)
    mirrors.wait_drained()
    for target in mirrors.offline.brokers.values():
        target.pause()
    mirrors.live.write(mirrors.topic, 100)

    def are_under_way_to_both() -> bool:  # what comes behind a barrier waits for its answer
        copies = mirrors.status()["partitions"]
        return len({p["target"][:2] for p in copies if p["in_flight_bytes"]}) == 2

    try:
        wait_until(
            are_under_way_to_both, "the sets stand in the sockets of brokers that do not read them"
        )
        wait_for_growth(lambda: mirrors.status()["looks"], 3, "there was time to commit")
        assert set(mirrors.committed().values()) == {100 * MESSAGE}
        command.signal(ending)
        command.wait()
    finally:  # the next tests use these brokers too
        for target in mirrors.offline.brokers.values():
            target.kill()
        for broker_id in mirrors.offline.brokers:
            mirrors.offline.start(broker_id)
    assert set(mirrors.committed().values()) == {100 * MESSAGE}
    mirrors.start()
    mirrors.wait_drained()
    check_copies(mirrors)


def test_a_target_broker_that_dies_holds_up_only_its_partitions(mirrors: Mirrors) -> None:
    copied(mirrors, 100)
    with Writer(mirrors):
        mirrors.offline.brokers[12].kill()

        def other_goes_on(copies: Copies) -> bool:
            at = {one["target"]: one for one in copies.values()}
            return len(at) == 4 and (
                at["12-0"]["state"] == at["12-1"]["state"] == "waiting"
                and at["11-0"]["copied_bytes"] > 200_000
                and at["11-0"]["state"] == "copying"
            )

        wait_for(mirrors, other_goes_on)
        mirrors.offline.start(12)
    mirrors.wait_drained()
    check_copies(mirrors)


def test_a_source_broker_that_dies_is_waited_for(mirrors: Mirrors) -> None:
    copied(mirrors, 100)
    mirrors.live.brokers[2].kill()
    mirrors.live.write(
        mirrors.topic, 500, partitions=[BrokerPartition(1, 0), BrokerPartition(1, 1)]
    )
    both = (4 * 100 + 2 * 500) * MESSAGE
    wait_until(lambda: copied_bytes(mirrors) >= both, "the other is copied")
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
            wait_until(lambda: count(mirrors, 0) == count(mirrors, 1), "the two share")
            wait_for_growth(lambda: copied_bytes(mirrors), 200_000, "both copy")
            assert first.stop() == 0
            wait_until(lambda: count(mirrors, 1) == 4, "the second takes over")
        mirrors.wait_drained()
        assert check_copies(mirrors) == 0
        assert second.stop() == 0


def test_a_frozen_member_does_not_copy_on_after_its_session(mirrors: Mirrors) -> None:
    mirrors.live.write(mirrors.topic, 100)
    first = mirrors.start(zk_sessiontimeout_ms=4000)
    mirrors.wait_drained()
    first.pause()
    mirrors.start()
    wait_until(
        lambda: count(mirrors) == 4,
        lambda: f"the second takes all over: {json.dumps(mirrors.status(), indent=1)}",
    )
    mirrors.live.write(mirrors.topic, 300)
    mirrors.wait_drained()
    first.resume()
    wait_until(
        lambda: count(mirrors, 0) == count(mirrors, 1) == 2, "it joins anew and gets its share"
    )
    assert check_copies(mirrors) == 0
    mirrors.live.write(mirrors.topic, 300)
    mirrors.wait_drained(0, 1)
    check_copies(mirrors)  # a session so short may end again on a busy machine: that repeats


def test_a_message_that_the_target_would_drop_stops_its_partition(mirrors: Mirrors) -> None:
    only = [BrokerPartition(1, 0)]
    mirrors.live.write(mirrors.topic, 10)
    mirrors.live.write(mirrors.topic, 1, size=5000, partitions=only)
    mirrors.start(fetch_size=4000, max_message_size=4000)
    mirrors.live.write(mirrors.topic, 10)

    def refused(copies: Copies) -> bool:
        return len(copies) == 4 and (
            copies["1-0"]["state"] == "refused"
            and "max.message.size" in copies["1-0"]["trouble"]
            and all(copies[name]["lag_bytes"] == 0 for name in ("1-1", "2-0", "2-1"))
        )

    wait_for(mirrors, refused)
    assert mirrors.running[-1].stop() == 0
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
                wait_for_growth(lambda: copied_bytes(mirrors), 0, "it goes on")
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
            code = command.wait()
            assert len(command.events("start_failed")) == 1
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
        assert command.wait() == 1


def test_a_pause_lasts_and_the_map_says_where_a_consumer_goes_on(mirrors: Mirrors) -> None:
    def only_it_lags(messages: int) -> None:
        lags = {"1-0": messages * MESSAGE, "1-1": 0, "2-0": 0, "2-1": 0}
        wait_for(mirrors, lambda found: lags == {n: c["lag_bytes"] for n, c in found.items()})

    first = copied(mirrors, 100).running[0]
    mirrors.post("/pause", topic=mirrors.topic, partition="1-0")
    mirrors.live.write(mirrors.topic, 400)
    only_it_lags(400)
    assert not mirrors.status()["drained"]
    assert first.stop() == 0
    mirrors.live.write(mirrors.topic, 50)
    mirrors.start()
    only_it_lags(450)
    mirrors.post("/resume", topic=mirrors.topic, partition="1-0")
    mirrors.wait_drained()
    mirrors.post("/pause", topic=mirrors.topic, partition="1-1")
    mirrors.post("/resume", topic=mirrors.topic)
    mirrors.live.write(mirrors.topic, 50)
    mirrors.wait_drained()
    assert check_copies(mirrors) == 0

    def where(offset: int) -> tuple[int, list[dict[str, Any]]]:
        words = ["mirror", "offsets", "--zookeeper", mirrors.offline.zk_connect, "--json"]
        words += ["--topic", mirrors.topic, "--group", mirrors.topic]
        words += ["--partition", "01-0", "--source-offset", str(offset)]  # a number, not a text
        done = run(*words, status=None)
        return done.returncode, json.loads(done.stdout)

    wait_until(lambda: where(120 * MESSAGE)[1][0]["is_exact"], "the map is stored")
    status, [row] = where(120 * MESSAGE)
    assert status == 0
    broker_id, partition = map(int, row["target"].split("-"))
    with SimpleConsumer(*mirrors.offline.address(broker_id)) as client:
        fetched = client.fetch(mirrors.topic, partition, row["target_offset"], 1000)
        payload, _ = next(iter(fetched.messages()))
    assert payload.startswith(f"{mirrors.topic}|1-0|120|".encode())


def test_two_source_clusters_by_the_originals_options(
    mirrors: Mirrors, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    other_place = f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:8]}"
    with Cluster(other_place, tmp_path / "other", [3]) as other:
        mirrors.live.write(mirrors.topic, 200)
        other.write(mirrors.topic, 300)
        files = []
        for number, cluster in enumerate((mirrors.live, other)):
            file = tmp_path / f"consumer-{number}.properties"
            file.write_text(
                f"zk.connect={cluster.zk_connect}\ngroupid={mirrors.topic}\n"
                "shallowiterator.enable=true\n"
            )
            files.append(file)
        target = tmp_path / "producer.properties"
        target.write_text(f"zk.connect={mirrors.offline.zk_connect}\nproducer.type=async\n")
        words = " ".join(f"--consumer.config {file}" for file in files)
        command = start_command(
            f"mirror {words} --producer.config {target} --num.streams 2 "
            f"--whitelist {mirrors.topic}",
            {"metrics.port": 0, "mirror.status.interval.ms": 100},
            tmp_path / "mirror-of-two.log",
        )
        mirrors.running.append(command)
        command.wait_for_event("serving")
        mirrors.wait_drained()
        (unused,) = command.events("settings_without_effect")
        assert "shallowiterator.enable" in unused["names"]
        found: dict[str, list[int]] = {}
        for messages in mirrors.offline.read(mirrors.topic).values():
            for source, number in messages:
                found.setdefault(source, []).append(number)
        assert found == {
            **{name: list(range(200)) for name in ("1-0", "1-1", "2-0", "2-1")},
            **{name: list(range(300)) for name in ("3-0", "3-1")},
        }
        clusters = {partition["cluster"] for partition in mirrors.status()["partitions"]}
        assert clusters == {mirrors.live.zk_connect, other.zk_connect}
        assert command.stop() == 0


def test_a_well_compressed_topic_is_copied_and_a_refused_entry_is_left_out(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    prefix = f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:8]}"
    limit = 4_000_000
    place = BrokerPartition(1, 0)
    with (
        Cluster(f"{prefix}-live", tmp_path / "live", [1]) as live,
        Cluster(f"{prefix}-off", tmp_path / "off", [11], decompressed_bytes_max=limit) as offline,
        contextlib.closing(Mirrors(live, offline, tmp_path)) as mirrors,
    ):
        topic = mirrors.topic
        live.write(topic, 2000, size=20_000, codec=1, partitions=[place])  # 40 MB, packed 0.1
        command = mirrors.start(decompressed_bytes_max=limit, mirror_refused_entry="skip")
        mirrors.wait_drained()
        assert check_copies(mirrors) == 0
        [before] = [one["rewinds"] for one in mirrors.status()["partitions"] if one["copied_sets"]]
        assert before == 0, "nothing was refused"

        offset = live.ends(topic)[place]
        bomb = encode_compressed([b"x" * (limit + 1)], 1)
        connection = BrokerConnection(live.address(1))
        connection.send(encode_request(ProduceRequest(topic, 0, bomb)), topic, len(bomb))
        assert connection.barrier(120_000)
        connection.disconnect()
        live.write(topic, 100, size=20_000, codec=1, partitions=[place])
        mirrors.wait_drained()
        check_copies(mirrors)
        words = ["mirror", "refused", "--zookeeper", live.zk_connect, "--group", topic]
        [row] = json.loads(run(*words, "--json").stdout)
        assert (row["source"], row["offset"], row["bytes"]) == ("1-0", offset, len(bomb))
        assert f"{offset:,}" in run(*words).stdout
        assert f"{offset}" in command.log()
        assert "kafka2011_mirror_left_out_entries_total" in command.get("/metrics")
