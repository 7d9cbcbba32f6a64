"""Consumer groups: rebalances as they are remembered, and which verdicts become events."""

from typing import Any

from kafka2011.services.dashboard.rows.groups import GroupRows, owned_by_member
from kafka2011.services.dashboard.sampling.observations import ObservedCluster, ObservedGroup

TWO = {("x", "7-0"): "g_a-1-0", ("x", "7-1"): "g_b-2-0"}
ONE = {("x", "7-0"): "g_a-1-0", ("x", "7-1"): "g_a-1-1"}


def cluster(
    at_ms: int, owners: dict[tuple[str, str], str], offset: int = 0
) -> dict[str, ObservedCluster]:
    members = {owner.rpartition("-")[0]: "{}" for owner in owners.values()}
    offsets = {("x", "7-0"): (offset, at_ms), ("x", "7-1"): (offset, at_ms)}
    group = ObservedGroup("g", members, owners, offsets)
    return {
        "live": ObservedCluster(
            "live", "zk", is_answering=True, groups={"g": group}, groups_at_ms=at_ms
        )
    }


def ends(end: int) -> dict[str, dict[str, Any]]:
    return {
        f"live/x/7-{number}": {
            "dc": "live",
            "topic": "x",
            "partition": f"7-{number}",
            "watermark": end,
        }
        for number in (0, 1)
    }


def test_owner_is_a_thread_of_a_member_and_members_without_partitions_count() -> None:
    group = ObservedGroup("g", {"g_a-1": "", "g_c-3": ""}, TWO, {})
    assert owned_by_member(group) == {"g_a-1": 1, "g_b-2": 1, "g_c-3": 0}


def test_a_rebalance_is_one_point_of_the_time_line_and_one_event() -> None:
    events: list[str] = []
    groups = GroupRows(60_000, lambda _at, _kind, _subject, text: events.append(text))
    for at_ms, owners in ((1000, TWO), (4000, TWO), (7000, ONE), (10_000, ONE)):
        sections = groups.sections(cluster(at_ms, owners), ends(0), at_ms)
    assert [(row["at_ms"], row["members"]) for row in sections["rebalances"].values()] == [
        (1000, {"g_a-1": 1, "g_b-2": 1}),
        (7000, {"g_a-1": 2}),
    ]
    assert events == ["group g rebalanced: 1 partition changed hands, 1 member"]


def test_a_verdict_becomes_an_event_when_it_has_lasted() -> None:
    events: list[tuple[str, str]] = []
    groups = GroupRows(60_000, lambda _at, kind, _subject, text: events.append((kind, text)))
    groups.sections(cluster(0, TWO), ends(0), 0)
    for at_ms in (3000, 6000):  # no owners: a rebalance is going on
        groups.sections(cluster(at_ms, {}), ends(500), at_ms)
    groups.sections(cluster(9000, TWO), ends(0), 9000)
    assert [text for kind, text in events if kind == "bad"] == []
    for at_ms in range(12_000, 30_000, 3000):
        groups.sections(cluster(at_ms, {}), ends(500), at_ms)
    assert [text.partition(":")[0] for kind, text in events if kind == "bad"] == ["group g is STOP"]


def test_a_group_that_is_gone_is_forgotten_only_when_zookeeper_says_so() -> None:
    groups = GroupRows(60_000, lambda *_: None)
    observed = cluster(1000, TWO)
    groups.sections(observed, ends(0), 1000)
    away = {"live": ObservedCluster("live", "zk", is_answering=False)}
    groups.sections(away, ends(0), 2000)
    again = groups.sections(cluster(3000, ONE), ends(0), 3000)
    assert len(again["rebalances"]) == 2
    gone = {"live": ObservedCluster("live", "zk", is_answering=True)}
    groups.sections(gone, ends(0), 4000)
    assert len(groups.sections(cluster(5000, ONE), ends(0), 5000)["rebalances"]) == 1
