"""What a source broker can answer, seen in the copy: gone, large, damaged, begun anew."""

import pytest
import structlog

from kafka2011.coordination import paths
from kafka2011.protocol.message_set import encode
from kafka2011.services.mirror_maker.mirror_registry import read_maps
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import Clusters


@pytest.mark.parametrize(
    ("start", "committed", "skipped"),
    [
        pytest.param(500, 100, 400, id="retired messages are counted"),
        pytest.param(0, 100_000, 0, id="a log that began anew is not"),
    ],
)
def test_an_offset_out_of_range_goes_on_at_the_start_of_the_log(
    clusters: Clusters, start: int, committed: int, skipped: int
) -> None:
    source, _ = clusters.with_topics("t")
    source.append("t", 0, [b"present"])
    source.starts["t", 0] = start
    clusters.commit("t", committed)
    running = clusters.mirror()
    clusters.wait_until_copied("t")
    assert running.partition("t")["skipped_bytes"] == skipped


def test_the_map_says_nothing_of_a_log_that_the_source_lost(clusters: Clusters) -> None:
    """It called messages of the new log the very same as those of the old one."""
    source, target = clusters.with_topics("t")
    source.append("t", 0, [b"of the lost log"] * 100)
    running = clusters.mirror(map_interval_ms=0)
    clusters.wait_until_copied("t")
    old_end = target.end("t", 0)
    wait_until(lambda: mapped(clusters, 10) == (10, True), "the map is stored")
    running.close()
    source.logs["t", 0].clear()
    source.append("t", 0, [b"new"] * 3)
    clusters.mirror(map_interval_ms=0)
    new = len(source.log("t"))
    wait_until(lambda: target.end("t", 0) == old_end + new, "the new log is copied")
    wait_until(lambda: clusters.committed("t") == new, "it is committed")
    wait_until(lambda: mapped(clusters, new) == (old_end + new, False), "the map is stored")
    target_offset, is_exact = mapped(clusters, 10)
    assert (target_offset, is_exact) == (0, False)


@pytest.mark.parametrize("is_same_length", [False, True], ids=["mid-entry", "at an entry"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_log_that_was_lost_and_has_outgrown_the_offset_is_copied_from_its_start(
    clusters: Clusters, is_restarted: bool, is_same_length: bool
) -> None:
    source, target = clusters.with_topics("t")
    source.append("t", 0, [b"of the lost log"] * 5)
    running = clusters.mirror()
    clusters.wait_until_copied("t")
    old = target.log("t")
    if is_restarted:
        running.close()
    with structlog.testing.capture_logs() as logged:
        with source.lock:
            source.logs["t", 0].clear()
            source.append("t", 0, [b"of the new log "] * 5 if is_same_length else [])
            source.append("t", 0, [b"longer than what was in the lost one"] * 5)
            source.hang_up()
        if is_restarted:
            running = clusters.mirror()
        wait_until(lambda: target.log("t") == old + source.log("t"), "the new log is copied")
        clusters.wait_until_committed("t")
    assert running.partition("t")["source_restarts"] == 1
    [line] = [one for one in logged if one["event"] == "source_restarted"]
    assert (line["read_to"], line["offset"]) == (len(old), 0)


def test_the_next_member_takes_up_a_new_log_where_it_was_left(clusters: Clusters) -> None:
    """The tail of the lost log in ZooKeeper had it copied again."""
    source, target = clusters.with_topics("t")
    source.append("t", 0, [b"of the lost log"] * 5)
    clusters.mirror().close()
    running = clusters.mirror()
    clusters.wait_until_copied("t")
    old = target.log("t")
    with source.lock:
        source.logs["t", 0].clear()
        source.append("t", 0, [b"longer than what was in the lost one"] * 5)
        source.hang_up()
    clusters.wait_until_committed("t")
    running.close()
    source.append("t", 0, [b"more"])
    following = clusters.mirror()
    clusters.wait_until_committed("t")
    assert target.log("t") == old + source.log("t")
    assert following.partition("t")["source_restarts"] == 0


def mapped(clusters: Clusters, source_offset: int) -> tuple[int, bool]:
    """Where an offset of the topic stands at the target by the stored map, (-1, False) if nowhere;
    whether that is exact."""
    rows = read_maps(clusters.target.admin, "mirror", "t", "1-0", source_offset)
    return (rows[0].target_offset, rows[0].is_exact) if rows else (-1, False)


def test_a_message_larger_than_fetch_size_is_fetched_with_a_larger_one(clusters: Clusters) -> None:
    source, _ = clusters.with_topics("t")
    source.append("t", 0, [b"small", b"L" * 5000, b"small"])
    clusters.mirror(fetch_size=100)
    clusters.wait_until_copied("t")


def test_an_entry_above_the_largest_fetch_size_refuses_its_partition_only(
    clusters: Clusters,
) -> None:
    source, _ = clusters.with_topics("big", "t")
    source.append("big", 0, [b"L" * 5000])
    source.append("t", 0, [b"small"])
    running = clusters.mirror(fetch_size=100, fetch_size_max=1000)
    running.wait_for_state("big", "refused")
    assert "fetch.size.max=1000" in running.partition("big")["trouble"]
    clusters.wait_until_copied("t")


def test_starting_at_the_largest_offset_copies_only_what_comes(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    end = source.append("t", 0, [b"old"])
    running = clusters.mirror(autooffset_reset="largest")
    wait_until(lambda: running.partition("t")["copied_offset"] == end, "it knows the end")
    source.append("t", 0, [b"new"])
    wait_until(lambda: target.log("t") == encode([b"new"]), "the new one is copied")


def test_damage_at_the_source_holds_up_its_partition_only(clusters: Clusters) -> None:
    source, target = clusters.with_topics("bad", "good")
    good_bytes = source.append("bad", 0, [b"one"])
    source.append("bad", 0, [b"two"])
    source.logs["bad", 0][-1] ^= 1
    source.append("good", 0, [b"one"])
    running = clusters.mirror()
    wait_until(lambda: clusters.committed("bad") == good_bytes, "what is good is copied")
    clusters.wait_until_copied("good")
    wait_until(lambda: "CRC" in (running.partition("bad")["trouble"] or ""), "it says why")
    assert len(target.log("bad")) == good_bytes


def a_set(clusters: Clusters) -> tuple[ScriptedBroker, ScriptedBroker]:
    """The source is a replica set, whose leader of epoch 1 has written two messages."""
    source, target = clusters.with_topics("t")
    clusters.source.admin.put(paths.replica_state_path(1), b"{}")
    source.lead_anew("t", 1, 0)
    source.append("t", 0, [b"of all"])
    source.append("t", 0, [b"of some"])
    return source, target


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_source_lost_is_named_and_the_copy_goes_on_where_the_logs_parted(
    clusters: Clusters, is_restarted: bool
) -> None:
    source, target = a_set(clusters)
    running = clusters.mirror()
    clusters.wait_until_copied("t")
    before, kept = source.log("t"), len(encode([b"of all"]))
    if is_restarted:
        running.close()
    # The new log is longer than what was read of the old one, and other messages are in it.
    source.lead_anew("t", 2, kept)
    source.append("t", 0, [b"of another leader " * 10])
    with structlog.testing.capture_logs() as logged:
        if is_restarted:
            running = clusters.mirror()
        clusters.wait_until_committed("t")
        assert target.log("t") == before + source.log("t")[kept:]
        assert running.partition("t")["cut_bytes"] == len(before) - kept
        # A takeover that cuts nothing goes on without a word.
        source.lead_anew("t", 3, source.end("t", 0))
        source.append("t", 0, [b"more"])
        clusters.wait_until_committed("t")
    assert target.log("t") == before + source.log("t")[kept:]
    [line] = [one for one in logged if one["event"] == "source_cut"]
    assert (line["first"], line["last"], line["epoch"]) == (kept, len(before), 2)


def test_a_leader_that_is_older_than_what_was_read_is_not_read(clusters: Clusters) -> None:
    source, target = a_set(clusters)
    source.lead_anew("t", 3, source.end("t", 0))
    source.append("t", 0, [b"of epoch 3"])
    running = clusters.mirror()
    clusters.wait_until_copied("t")
    copied = target.log("t")
    current = source.lineages["t", 0]
    source.lead_anew("t", 4, source.end("t", 0))
    source.lineages["t", 0] = current[:1]
    source.append("t", 0, [b"never confirmed"])
    wait_until(lambda: "epoch is 1" in (running.partition("t")["trouble"] or ""), "it says why")
    assert target.log("t") == copied
