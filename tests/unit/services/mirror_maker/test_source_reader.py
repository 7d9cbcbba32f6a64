"""What a source broker can answer, seen in the copy: gone, large, damaged, begun anew."""

from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol.message_set import encode
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import Clusters


def test_retired_messages_are_counted_as_skipped(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.write("t", [b"late"])
    source.broker.starts["t", 0] = 500
    source.registry.put(paths.offset_path("mirror", "t", BrokerPartition(1, 0)), b"100")
    running = clusters.mirror()
    end = 500 + len(source.broker.log("t"))
    wait_until(lambda: clusters.committed("t") == end, "it goes on at the start of the log")
    assert running.partition("t")["skipped_bytes"] == 400
    assert target.broker.log("t") == source.broker.log("t")


def test_a_log_that_began_anew_is_copied_from_its_start(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.write("t", [b"new"])
    source.registry.put(paths.offset_path("mirror", "t", BrokerPartition(1, 0)), b"100000")
    running = clusters.mirror()
    clusters.wait_until_copied("t")
    assert running.partition("t")["skipped_bytes"] == 0
    assert target.broker.log("t") == source.broker.log("t")


def test_a_message_larger_than_fetch_size_is_fetched_with_a_larger_one(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.write("t", [b"small", b"L" * 5000, b"small"])
    clusters.mirror(fetch_size=100)
    clusters.wait_until_copied("t")
    assert target.broker.log("t") == source.broker.log("t")


def test_an_entry_above_the_largest_fetch_size_refuses_its_partition_only(
    clusters: Clusters,
) -> None:
    source, _ = clusters.with_topics("big", "t")
    source.write("big", [b"L" * 5000])
    source.write("t", [b"small"])
    running = clusters.mirror(fetch_size=100, fetch_size_max=1000)
    running.wait_for_state("big", "refused")
    assert "fetch.size.max=1000" in running.partition("big")["trouble"]
    clusters.wait_until_copied("t")


def test_starting_at_the_largest_offset_copies_only_what_comes(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    source.write("t", [b"old"])
    running = clusters.mirror(autooffset_reset="largest")
    old = len(source.broker.log("t"))
    wait_until(lambda: running.partition("t").get("copied_offset") == old, "it knows the end")
    source.write("t", [b"new"])
    wait_until(lambda: target.broker.log("t") == encode([b"new"]), "the new one is copied")


def test_damage_at_the_source_holds_up_its_partition_only(clusters: Clusters) -> None:
    source, target = clusters.with_topics("bad", "good")
    source.write("bad", [b"one"])
    good_bytes = len(source.broker.log("bad"))
    source.write("bad", [b"two"])
    source.broker.logs["bad", 0][-1] ^= 1
    source.write("good", [b"one"])
    running = clusters.mirror()
    wait_until(lambda: clusters.committed("bad") == good_bytes, "what is good is copied")
    clusters.wait_until_copied("good")
    wait_until(lambda: "CRC" in (running.partition("bad")["trouble"] or ""), "it says why")
    assert len(target.broker.log("bad")) == good_bytes
