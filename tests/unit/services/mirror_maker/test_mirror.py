"""The whole mirror in one process: copying, refusals, rewinds, sessions, pauses, the map."""

import contextlib

from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol.message_set import encode
from kafka2011.services.mirror_maker.mirror_registry import read_maps
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import Clusters, Side


def test_copies_and_commits_what_is_durable(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.write("t", [b"one", b"two"])
    clusters.mirror()
    clusters.wait_until_copied("t")
    assert target.broker.log("t") == source.broker.log("t")


def test_a_partition_that_the_target_refuses_does_not_hold_up_its_neighbours(
    clusters: Clusters,
) -> None:
    source, target = clusters.with_topics("bad", "good")
    target.broker.refused = {"bad"}
    for number in range(50):
        source.write("bad", [b"%d" % number])
    running = clusters.mirror(fetch_size=1000)
    wait_until(lambda: running.partition("bad")["rewinds"] >= 2, "it is refused")
    for number in range(50):
        source.write("good", [b"x" * 100, b"%d" % number])
        clusters.wait_until_copied("good")
    assert target.broker.log("good") == source.broker.log("good"), "and nothing of it is repeated"
    bad = running.partition("bad")
    assert (bad["state"], bad["copied_offset"], clusters.committed("bad")) == ("waiting", 0, 0)
    target.broker.refused = set()
    clusters.wait_until_copied("bad")
    assert target.broker.log("bad") == source.broker.log("bad")
    assert running.partition("bad")["state"] == "copying"


def test_without_an_answer_to_the_barrier_nothing_is_committed(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.write("t", [b"one"])
    running = clusters.mirror()
    clusters.wait_until_copied("t")
    first = source.broker.log("t")
    target.broker.is_silent = True
    source.write("t", [b"two"])
    commits = set()

    def two_barriers_timed_out() -> bool:
        commits.add(clusters.committed("t"))
        return bool(running.partition("t").get("rewinds", 0) >= 2)

    wait_until(two_barriers_timed_out, "barriers time out")
    assert commits == {len(first)}, "no more than what was confirmed"
    target.broker.is_silent = False
    clusters.wait_until_copied("t")
    # Each attempt arrived at this target, which only did not answer.
    repeats = running.partition("t")["rewinds"]
    second = source.broker.log("t")[len(first) :]
    assert target.broker.log("t") == first + (1 + repeats) * second


def test_an_expired_session_stops_copying_until_it_owns_again(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    running = clusters.mirror()
    running.wait_for_state("t", "copying")
    registry = running.registries[0]
    # Another member takes the partition in the moment in which the session ends.
    registry.suspend()
    registry.expire()
    owner = paths.owner_path("mirror", "t", BrokerPartition(1, 0))
    source.registry.create(owner, b"mirror_other-0")
    registry.resume()
    wait_until(lambda: running.member.rebalances >= 1, "it has noticed")
    source.write("t", [b"not ours"])
    running.wait_for_state("t", "absent")
    assert target.broker.log("t") == b""
    source.registry.delete(owner)
    wait_until(lambda: target.broker.log("t") == source.broker.log("t"), "it owns again")


def test_what_is_paused_before_it_is_owned_starts_paused(clusters: Clusters) -> None:
    running = clusters.mirror()
    running.mirror.set_paused("t", "1-0", True)
    source, _ = clusters.with_topics("t")
    source.write("t", [b"one"])
    running.wait_for_state("t", "paused")
    running.mirror.set_paused("t", "", False)
    clusters.wait_until_copied("t")


def test_messages_are_counted_and_the_map_leads_to_their_copies(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    target.broker.logs["t", 0] = bytearray(encode([b"of another mirror"]))
    before = len(target.broker.log("t"))
    source.write("t", [b"one", b"two", b"three"])
    running = clusters.mirror(map_interval_ms=0)
    size = len(source.broker.log("t"))
    wait_until(lambda: running.partition("t").get("copied_messages") == 3, "three are counted")

    def mapped() -> list[tuple[int, bool]]:
        return [
            (row.target_offset, row.is_exact)
            for row in read_maps(target.registry, "mirror", "t", "1-0", size - 15)
        ]

    wait_until(lambda: mapped() == [(before + size - 15, True)], "the map is stored")
    assert [row.source_offset for row in read_maps(target.registry, "mirror", "t", None, None)] == [
        size
    ]


def test_a_pause_outlives_the_process_and_holds_for_all_members(clusters: Clusters) -> None:
    source, _ = clusters.with_topics("t", "other")
    source.registry.create("/kafka2011/mirrors/mirror/paused/1-0:t")
    source.write("t", [b"one"])
    source.write("other", [b"one"])
    running = clusters.mirror()
    clusters.wait_until_copied("other")
    assert running.partition("t")["state"] == "paused"
    running.mirror.set_paused("other", "", True)
    assert source.registry.children("/kafka2011/mirrors/mirror/paused") == ["1-0:t", "all:other"]
    running.mirror.set_paused("t", "", False)  # the topic, with its partitions
    clusters.wait_until_copied("t")
    assert running.partition("other")["state"] == "paused"
    source.registry.delete("/kafka2011/mirrors/mirror/paused/all:other")  # by another member
    running.wait_for_state("other", "copying")


def test_scattering_goes_to_any_live_broker(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    with contextlib.closing(Side(12)) as dead:
        target.registry.create_ephemeral(
            paths.broker_id_path(12), paths.encode_broker(*dead.broker.address, 1)
        )
    source.write("t", [b"one", b"two"])
    running = clusters.mirror(scatter=True)
    clusters.wait_until_copied("t")
    assert target.broker.logs["t", -1] == source.broker.log("t")
    assert running.partition("t")["target"] == "11--1"
