"""The whole mirror in one process: copying, refusals, rewinds, sessions, pauses, the map."""

from typing import TYPE_CHECKING, cast
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.rebalance import Disowned
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.producer import offset_polling
from kafka2011.protocol.message_set import encode
from kafka2011.runtime import workers
from kafka2011.runtime.clock import now_ms
from kafka2011.services.mirror_maker.app import set_paused, status_of
from kafka2011.services.mirror_maker.group_member import topic_filter
from kafka2011.services.mirror_maker.metrics import MirrorCollector
from kafka2011.services.mirror_maker.mirror_registry import Pauses, read_maps
from kafka2011.services.mirror_maker.placement import Placement
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.raw_requests import offsets_answer
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import Clusters

if TYPE_CHECKING:
    from kafka2011.services.mirror_maker.app import Link
    from tests.unit.services.mirror_maker.conftest import RunningMirror

PAUSED = "/kafka2011/mirrors/mirror/paused"


def exported(link: "Link") -> list[str]:
    """The lines of its metrics."""
    registry = CollectorRegistry()
    registry.register(MirrorCollector(lambda: status_of([link])))
    return generate_latest(registry).decode().splitlines()


def test_a_partition_that_the_target_refuses_does_not_hold_up_its_neighbours(
    clusters: Clusters,
) -> None:
    source, target = clusters.with_topics("bad", "good")
    target.refused = {"bad"}
    source.append("bad", 0, [b"%d" % number for number in range(50)])
    running = clusters.mirror(fetch_size=1000)
    wait_until(lambda: running.partition("bad")["rewinds"] >= 2, "it is refused")
    for number in range(50):
        source.append("good", 0, [b"x" * 100, b"%d" % number])
        clusters.wait_until_copied("good")
    bad = running.partition("bad")
    assert (bad["state"], bad["copied_offset"], clusters.committed("bad")) == ("waiting", 0, 0)
    target.refused = set()
    clusters.wait_until_copied("bad")
    assert running.partition("bad")["state"] == "copying"


def test_a_partition_whose_end_is_not_said_does_not_hold_up_its_neighbours(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With flush.method=offsets no partition was to blame: all were sent again, over and over."""
    source, target = clusters.with_topics("a-good", "bad", "good")
    running = clusters.mirror(flush_method="offsets")
    for topic in ("a-good", "bad", "good"):
        source.append(topic, 0, [b"one"])
        clusters.wait_until_copied(topic)
    monkeypatch.setattr(offset_polling, "IDLE_CHECK_NS", -1)  # the end is noticed at the next send
    target.endless = {"bad"}
    target.hang_up()
    source.append("bad", 0, [b"two"])
    (bad,) = (copy for copy in running.mirror.copies() if copy.name.topic == "bad")
    wait_until(lambda: bad.is_suspect, "it is to blame, and travels alone")
    for number in range(20):
        for topic in ("a-good", "bad", "good"):
            source.append(topic, 0, [b"x" * 100, b"%d" % number])
        for topic in ("a-good", "good"):
            clusters.wait_until_committed(topic)
    assert running.partition("bad")["state"] == "waiting"
    assert running.partition("good")["rewinds"] + running.partition("a-good")["rewinds"] <= 4
    target.endless = set()
    clusters.wait_until_committed("bad")


def test_a_mirror_without_zookeeper_does_not_say_that_it_is_settled_or_drained(
    clusters: Clusters,
) -> None:
    """Partitions may have come since that it does not know of."""
    source, _ = clusters.with_topics("t")
    source.append("t", 0, [b"one"])
    running = clusters.mirror()
    link = cast("Link", running)
    wait_until(lambda: status_of([link])["drained"], "all is copied")
    running.registries[0].suspend()
    found = status_of([link])
    assert (found["settled"], found["drained"]) == (False, False)
    running.registries[0].resume()
    wait_until(lambda: status_of([link])["drained"], "it knows its share again")


def test_a_mirror_without_partitions_knows_its_lag_when_it_knows_that_it_has_none(
    clusters: Clusters,
) -> None:
    """As after its start, before it has claimed any: its status said 0."""
    running = clusters.mirror()
    link = cast("Link", running)
    wait_until(lambda: status_of([link])["settled"], "there is nothing to claim")
    assert status_of([link])["lag_bytes"] == 0
    running.registries[0].suspend()
    found = status_of([link])
    assert (found["settled"], found["partitions"], found["lag_bytes"]) == (False, [], None)


def test_the_status_of_several_links_says_what_is_true_of_all(clusters: Clusters) -> None:
    clusters.with_topics("t")
    link = cast("Link", clusters.mirror())
    wait_until(lambda: status_of([link])["targets"], "it has a target")
    known = link.mirror.status() | {"lag_bytes": 7}
    target = {"connected": True, "barriers": 3, "barrier_seconds": 0.5}
    with (
        patch.object(link.mirror, "status") as status,
    ):
        status.side_effect = [
            known | {"targets": {"11": target}},
            known | {"lag_bytes": None, "targets": {"11": target | {"connected": False}}},
        ]
        found = status_of([link, link])
    assert found["lag_bytes"] is None
    assert found["targets"] == {"11": {"connected": False, "barriers": 6, "barrier_seconds": 1.0}}


def test_while_the_source_is_not_heard_the_lag_is_not_known(clusters: Clusters) -> None:
    """What comes meanwhile is not copied, and the end before it would say that nothing is left."""
    source, _ = clusters.with_topics("t")
    source.append("t", 0, [b"one"])
    running = clusters.mirror()
    link = cast("Link", running)
    clusters.wait_until_copied("t")
    wait_until(lambda: running.mirror.status()["lag_bytes"] == 0, "all is copied, and it is known")
    source.is_silent = True
    source.append("t", 0, [b"two"])
    source.hang_up()
    wait_until(lambda: running.mirror.status()["lag_bytes"] is None, "the end is an old one")
    found = running.partition("t")
    assert (found["lag_bytes"], found["copied_offset"]) == (None, found["source_end"])
    assert found["source_end_age_ms"] > 0
    place = '{cluster="memory:1",source="1-0",target="11-0",topic="t"}'
    assert f"kafka2011_mirror_lag_bytes{place} NaN" in exported(link)
    assert running.mirror.status()["drained"], "as of then: as_of_ms says when"
    assert "kafka2011_mirror_drained 0.0" in exported(link), "which is not in the metrics"
    source.is_silent = False
    source.hang_up()
    clusters.wait_until_copied("t")
    wait_until(lambda: running.mirror.status()["lag_bytes"] == 0, "it is known again")


def test_a_source_that_was_never_heard_is_unheard_since_the_partition_is_owned(
    clusters: Clusters,
) -> None:
    source, _ = clusters.with_topics("t")
    source.is_silent = True
    begun_ms = now_ms()
    running = clusters.mirror()
    wait_until(lambda: running.partition("t").get("source_end_age_ms"), "it is owned")
    [ages] = [
        float(line.rpartition(" ")[2])
        for line in exported(cast("Link", running))
        if line.startswith("kafka2011_mirror_source_end_age_seconds{")
    ]
    assert 0 < ages * 1000 <= now_ms() - begun_ms
    assert running.mirror.status()["as_of_ms"] == 0
    assert not running.mirror.status()["drained"]


@pytest.mark.parametrize("body", [b"{", b"[" * 60_000, b'{"topic": 3}', b'{"topic": "t/u"}'])
def test_a_body_that_names_no_topic_is_answered(clusters: Clusters, body: bytes) -> None:
    link = cast("Link", clusters.mirror())
    status, _, text = set_paused([link], body, paused=True)
    assert (status, b"send a topic" in text) == (400, True)


def test_of_several_sources_that_is_named_in_which_a_pause_is_not_stored(
    clusters: Clusters,
) -> None:
    links = [cast("Link", clusters.mirror(source_zk_connect=f"memory:{n}")) for n in range(2)]
    cast("RunningMirror", links[0]).registries[0].suspend()
    status, _, text = set_paused(links, b'{"topic": "t"}', paused=True)
    assert status == 503
    assert text.startswith(b'{"error": "not stored, try again: memory:0: ')
    assert text.endswith(b', stored in the other sources"}\n')
    assert clusters.source.admin.children(PAUSED) == ["all:t"]
    cast("RunningMirror", links[0]).registries[0].resume()


def test_without_an_answer_to_the_barrier_nothing_is_committed(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.append("t", 0, [b"one"])
    running = clusters.mirror(barrier_timeout_ms=300)
    clusters.wait_until_copied("t")
    first = source.log("t")
    target.is_silent = True
    source.append("t", 0, [b"two"])
    commits = set()

    def two_barriers_timed_out() -> bool:
        commits.add(clusters.committed("t"))
        return bool(running.partition("t")["rewinds"] >= 2)

    wait_until(two_barriers_timed_out, "barriers time out")
    assert commits == {len(first)}, "no more than what was confirmed"
    target.is_silent = False
    clusters.wait_until_committed("t")
    # Each attempt arrived at this target, which only did not answer.
    repeats = running.partition("t")["rewinds"]
    second = source.log("t").removeprefix(first)
    assert target.log("t") == first + (1 + repeats) * second
    assert running.mirror.repeated_bytes == repeats * len(second)


def test_what_a_lost_session_had_not_committed_counts_as_repeated(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.append("t", 0, [b"one"])
    running = clusters.mirror(barrier_timeout_ms=600_000)
    clusters.wait_until_committed("t")
    first = source.log("t")
    target.is_silent = True
    source.append("t", 0, [b"two"])
    wait_until(lambda: target.log("t") == source.log("t"), "it is sent, and not confirmed")
    assert running.mirror.repeated_bytes == 0
    running.registries[0].expire()
    second = len(source.log("t")) - len(first)
    wait_until(lambda: running.mirror.repeated_bytes == second, "it may come again")


def test_what_a_commit_that_was_refused_leaves_to_copy_again_counts_as_repeated(
    clusters: Clusters,
) -> None:
    """After a pause of ZooKeeper the owner nodes were gone before the session was known to be: the
    copies counted as nothing, and the audit called them extra."""
    source, target = clusters.with_topics("t")
    size = source.append("t", 0, [b"one"])
    running = clusters.mirror(commit_interval_ms=600_000)
    wait_until(lambda: target.log("t") == source.log("t"), "it is copied, and not committed")
    wait_until(lambda: running.partition("t")["copied_offset"] == size, "it is durable")
    owner = paths.owner_path("mirror", "t", BrokerPartition(1, 0))
    clusters.source.admin.delete(owner)
    running.member._rebalancer.post(Disowned(frozenset({TopicPartition("t", 1, 0)})))
    wait_until(lambda: target.log("t") == 2 * source.log("t"), "it is copied again")
    assert running.mirror.repeated_bytes == size


def test_what_a_handover_commits_is_not_repeated_and_what_a_lost_session_leaves_is(
    clusters: Clusters,
) -> None:
    source, _ = clusters.with_topics("t", "u")
    sizes = [source.append(topic, 0, [b"of " + topic.encode()]) for topic in "tu"]
    running = clusters.mirror(commit_interval_ms=600_000)
    for topic, size in zip("tu", sizes, strict=True):
        wait_until(
            lambda topic=topic, size=size: running.partition(topic)["copied_offset"] == size,
            "it is durable",
        )
    mirror = running.mirror
    mirror.halt([TopicPartition("t", 1, 0), TopicPartition("u", 1, 0)])
    mirror.handed_over(TopicPartition("t", 1, 0), is_stored=True)
    assert mirror.repeated_bytes == 0
    mirror.halt_all()
    assert mirror.repeated_bytes == sizes[1]


def test_an_expired_session_stops_copying_until_it_owns_again(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    running = clusters.mirror()
    running.wait_for_state("t", "copying")
    registry = running.registries[0]
    # Another member takes the partition in the moment in which the session ends.
    registry.suspend()
    registry.expire()
    owner = paths.owner_path("mirror", "t", BrokerPartition(1, 0))
    clusters.source.admin.create(owner, b"mirror_other-0")
    registry.resume()
    wait_until(lambda: running.member.rebalances >= 1, "it has noticed")
    source.append("t", 0, [b"not ours"])
    running.wait_for_state("t", "absent")
    assert target.log("t") == b""
    clusters.source.admin.delete(owner)
    wait_until(lambda: target.log("t") == source.log("t"), "it owns again")


def test_a_blacklist_may_be_quoted_as_in_0_7(clusters: Clusters) -> None:
    config = clusters.mirror(topics_blacklist='"clicks, views"').config
    assert topic_filter(config).select(["audit", "clicks", "views", "orders"]) == ["orders"]


def test_what_is_paused_before_it_is_owned_starts_paused(clusters: Clusters) -> None:
    running = clusters.mirror()
    running.mirror.set_paused("t", "1-0", True)
    source, _ = clusters.with_topics("t")
    source.append("t", 0, [b"one"])
    running.wait_for_state("t", "paused")
    running.mirror.set_paused("t", "", False)
    clusters.wait_until_copied("t")


def test_a_partition_of_a_paused_topic_is_not_said_to_be_resumed(clusters: Clusters) -> None:
    running = clusters.mirror()
    link = cast("Link", running)
    whole, part = b'{"topic": "t"}', b'{"topic": "t", "partition": "1-0"}'
    assert set_paused([link], whole, paused=True)[0] == 200
    status, _, text = set_paused([link], part, paused=False)
    assert (status, b"all of t is paused" in text) == (409, True)
    assert set_paused([link], whole, paused=False)[0] == 200
    assert set_paused([link], part, paused=False)[0] == 200


def test_a_partition_is_paused_however_its_numbers_are_written(clusters: Clusters) -> None:
    link = cast("Link", clusters.mirror())
    body = b'{"topic": "t", "partition": "01-00"}'
    assert set_paused([link], body, paused=True)[0] == 200
    assert clusters.source.admin.children(PAUSED) == ["1-0:t"]
    assert set_paused([link], body, paused=False)[0] == 200
    assert clusters.source.admin.children(PAUSED) == []


def test_a_topic_that_is_resumed_resumes_none_whose_name_ends_alike(clusters: Clusters) -> None:
    running = clusters.mirror()
    for topic, partition in (("a:b", ""), ("a:b", "1-0"), ("b", ""), ("b", "1-0")):
        running.mirror.set_paused(topic, partition, True)
    running.mirror.set_paused("b", "", False)
    assert sorted(clusters.source.admin.children(PAUSED)) == ["1-0:a:b", "all:a:b"]


def test_what_is_paused_is_known_before_anything_is_copied() -> None:
    """The watch's first answer may come after the first partition."""
    registry = InMemoryZooKeeper().client()
    registry.start()
    registry.create(f"{PAUSED}/all:t")
    with patch.object(registry, "watch_children"):
        assert Pauses(registry, "mirror", lambda: None).holds(TopicPartition("t", 1, 0))


def test_a_pause_outlives_the_process_and_holds_for_all_members(clusters: Clusters) -> None:
    source, _ = clusters.with_topics("t", "other")
    pauses = clusters.source.admin
    pauses.create(f"{PAUSED}/1-0:t")
    source.append("t", 0, [b"one"])
    source.append("other", 0, [b"one"])
    running = clusters.mirror()
    clusters.wait_until_copied("other")
    assert running.partition("t")["state"] == "paused"
    running.mirror.set_paused("other", "", True)
    assert pauses.children(PAUSED) == ["1-0:t", "all:other"]
    running.mirror.set_paused("t", "", False)  # the topic, with its partitions
    clusters.wait_until_copied("t")
    assert running.partition("other")["state"] == "paused"
    pauses.delete(f"{PAUSED}/all:other")  # by another member
    running.wait_for_state("other", "copying")


def test_messages_are_counted_and_the_map_leads_to_their_copies(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    before = target.append("t", 0, [b"of another mirror"])
    size = source.append("t", 0, [b"one", b"two", b"three"])
    last = size - len(encode([b"three"]))
    running = clusters.mirror(map_interval_ms=0)
    wait_until(lambda: running.partition("t")["copied_messages"] == 3, "three are counted")

    def mapped() -> list[tuple[int, bool]]:
        """Target offsets of the last message, and whether they are exact."""
        rows = read_maps(clusters.target.admin, "mirror", "t", "1-0", last)
        return [(row.target_offset, row.is_exact) for row in rows]

    wait_until(lambda: mapped() == [(before + last, True)], "the map is stored")
    (whole,) = read_maps(clusters.target.admin, "mirror", "t", None, None)
    assert whole.source_offset == size


def test_a_target_partition_without_an_offset_does_not_begin_the_map(clusters: Clusters) -> None:
    """An offline partition, whose broker answers the barrier of other ones without an offset."""
    source, target = clusters.with_topics("t")
    before = target.append("t", 0, [b"of another mirror"])
    size = source.append("t", 0, [b"one"])
    target.offsets_answer = offsets_answer()
    running = clusters.mirror(map_interval_ms=0)
    wait_until(lambda: running.partition("t")["rewinds"] >= 2, "it has no place to begin")
    assert "without an offset" in running.partition("t")["trouble"]
    target.offsets_answer = None
    clusters.wait_until_committed("t")

    def mapped() -> list[tuple[int, bool]]:
        rows = read_maps(clusters.target.admin, "mirror", "t", "1-0", 0)
        return [(row.target_offset, row.is_exact) for row in rows]

    wait_until(lambda: mapped() == [(before, True)], "the map is stored")
    assert target.log("t")[before:] == source.log("t")[:size]


def test_scattering_goes_to_any_live_broker(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    clusters.target.broker(12).close()  # registered, and dead
    source.append("t", 0, [b"one", b"two"])
    running = clusters.mirror(scatter=True)
    clusters.wait_until_committed("t")
    assert target.log("t", -1) == source.log("t")
    assert running.partition("t")["target"] == "11--1"


def test_a_partition_that_cannot_be_placed_for_a_bug_holds_up_no_other_and_is_named(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "RESTART_FIRST_S", 0.001)
    place = Placement.target_of

    def fails(placement: Placement, name: TopicPartition) -> BrokerPartition:
        if name.topic == "bad":
            raise ZeroDivisionError("a bug")
        return place(placement, name)

    source, _ = clusters.with_topics("bad", "good")
    with monkeypatch.context() as broken:
        broken.setattr(Placement, "target_of", fails)
        running = clusters.mirror()
        source.append("good", 0, [b"one"])
        clusters.wait_until_copied("good")
        assert "ZeroDivisionError" in running.partition("bad")["trouble"]
        wait_until(lambda: "placement" in workers.failing(), "the bug to be named")
    source.append("bad", 0, [b"two"])
    clusters.wait_until_copied("bad")
    assert running.mirror.is_alive


@pytest.mark.parametrize(
    "place",
    [
        "kafka2011.services.mirror_maker.target_writer.choose_batch",
        "kafka2011.services.mirror_maker.mirror.Mirror.to_commit",
        "kafka2011.consumer.groups.membership.Membership.read",
    ],
)
def test_a_mirror_whose_writer_commits_or_rebalance_ended_is_not_alive(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    clusters.with_topics("t")
    running = clusters.mirror()
    running.wait_for_state("t", "copying")
    assert running.mirror.is_alive
    assert running.member.is_alive

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(place, fails)
    clusters.with_topics("u")  # a rebalance
    wait_until(lambda: not (running.mirror.is_alive and running.member.is_alive), "its end")
