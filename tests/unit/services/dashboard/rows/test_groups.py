"""Consumer groups: rebalances as they are remembered, and which verdicts become events."""

from kafka2011.services.dashboard.rows.groups import GroupRows, owned_by_member
from kafka2011.services.dashboard.rows.topics import AWAY
from kafka2011.services.dashboard.sampling.observations import (
    ObservedCluster,
    ObservedGroup,
    Row,
    Rows,
)

Owners = dict[tuple[str, str], str]

TWO = {("x", "7-0"): "g_a-1-0", ("x", "7-1"): "g_b-2-0"}
ONE = {("x", "7-0"): "g_a-1-0", ("x", "7-1"): "g_a-1-1"}
END = 500


class Samples:
    """Samples of the group `g`, which has committed 0 of two partitions with each sample, or
    `offset` once; keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []  # kind, text
        self.shown: set[str] = set()  # keys of the groups
        self.group: Row = {}
        self.others: dict[str, ObservedCluster] = {}
        self.before_ms: list[int] = []  # of each rebalance: when what was before was last seen
        self._rows = GroupRows(
            60_000, lambda _at, kind, _of, text: self.events.append((kind, text))
        )

    def take(
        self,
        at_ms: int,
        owners: Owners | None,
        *,
        end: int = 0,
        offset: int | None = None,
        is_answering: bool = True,
        away: str = "",
        end_ms: int | None = None,
    ) -> list[tuple[int, dict[str, int]]]:
        """The rebalances so far; without `owners` there is no group."""
        cluster = ObservedCluster("live", "zk", is_answering=is_answering, groups_at_ms=at_ms)
        if owners is not None:
            members = {owner.rpartition("-")[0]: "{}" for owner in owners.values()}
            stored = (0, at_ms) if offset is None else (offset, 1)
            offsets = dict.fromkeys(TWO, stored)
            cluster.groups["g"] = ObservedGroup("g", members, owners, offsets)
        partitions: Rows = {
            f"live/{topic}/{name}": {
                "dc": "live",
                "topic": topic,
                "partition": name,
                "broker": 7,
                "watermark": end,
                "state": AWAY if name == away else "online",
                "as_of_ms": end_ms,
            }
            for topic, name in TWO
        }
        sections = self._rows.sections({**self.others, "live": cluster}, partitions, at_ms)
        self.shown = set(sections["groups"])
        self.group = sections["groups"].get("live/g", {})
        rebalances = sections["rebalances"].values()
        self.before_ms = [row["before_ms"] for row in rebalances]
        return [(row["at_ms"], row["members"]) for row in rebalances]


def test_owner_is_a_thread_of_a_member_and_members_without_partitions_count() -> None:
    group = ObservedGroup("g", {"g_a-1": "", "g_c-3": ""}, TWO, {})
    assert owned_by_member(group) == {"g_a-1": 1, "g_b-2": 1, "g_c-3": 0}


def test_a_rebalance_is_one_point_of_the_time_line_and_one_event() -> None:
    samples = Samples()
    for at_ms, owners in ((1000, TWO), (4000, TWO), (7000, ONE), (10_000, ONE)):
        rebalances = samples.take(at_ms, owners)
    assert rebalances == [(1000, {"g_a-1": 1, "g_b-2": 1}), (7000, {"g_a-1": 2})]
    event = "group g rebalanced: 1 partition changed hands, 1 member"
    assert samples.events == [("info", event)]


def test_what_a_rebalance_ended_is_known_only_until_the_look_before_it() -> None:
    samples = Samples()
    for at_ms, owners in ((1000, {}), (61_000, TWO), (65_000, TWO), (69_000, ONE)):
        samples.take(at_ms, owners)
    assert samples.before_ms == [1000, 1000, 65_000]


def test_a_verdict_becomes_an_event_when_it_has_lasted() -> None:
    samples = Samples()

    def bad() -> list[str]:
        return [text.partition(":")[0] for kind, text in samples.events if kind == "bad"]

    samples.take(0, TWO)
    for at_ms in (3000, 6000):  # no owners: a rebalance is going on
        samples.take(at_ms, {}, end=END)
    samples.take(9000, TWO)
    assert bad() == []
    for at_ms in range(12_000, 30_000, 3000):
        samples.take(at_ms, {}, end=END)
    assert bad() == ["group g is STOP"]


def test_an_offset_past_the_end_of_its_log_is_no_group_without_lag() -> None:
    samples = Samples()
    samples.take(0, TWO, offset=END, end=END - 1)
    assert samples.group["state"] == "OK", "the end may be one of before the commit"
    samples.take(12_000, TWO, offset=END, end=END - 1)
    found = samples.group
    assert (found["state"], found["lag_bytes"], found["lag_ms"]) == ("STOP", None, None)
    assert "1 bytes past the end of the log" in found["reason"]
    samples.take(24_000, TWO, offset=END, end=END)
    assert (samples.group["state"], samples.group["lag_bytes"]) == ("OK", 0)


def test_of_messages_whose_age_is_not_known_the_group_has_none_that_is_new() -> None:
    """Those of 7-0 came since the look before, those of 7-1 at any time while it was away."""
    samples = Samples()
    for at_ms in (0, 4000, 8000, 12_000):
        samples.take(at_ms, TWO, offset=0, away="7-1" if at_ms else "")
    ages = []
    for at_ms in (16_000, 20_000, 28_000):
        samples.take(at_ms, TWO, offset=0, end=END)
        ages.append(samples.group["lag_ms"])
    assert ages == [None, 4000, 12_000]


def test_a_group_that_is_gone_is_forgotten_only_when_zookeeper_says_so() -> None:
    samples = Samples()
    samples.take(1000, TWO)
    samples.take(2000, None, is_answering=False)
    assert len(samples.take(3000, ONE)) == 2
    samples.take(4000, None)
    assert len(samples.take(5000, ONE)) == 1


def test_a_group_that_is_gone_is_forgotten_while_another_zookeeper_is_away() -> None:
    samples = Samples()
    there = ObservedGroup("there", {}, {}, dict.fromkeys(TWO, (0, 1)))
    offline = ObservedCluster("offline", "zk", is_answering=True, groups={"there": there})
    samples.others = {"offline": offline}
    samples.take(1000, TWO)
    offline.is_answering = False
    samples.take(2000, TWO)
    assert samples.shown == {"live/g", "offline/there"}
    samples.take(3000, None)
    assert samples.shown == {"offline/there"}, "of what does not answer nothing is forgotten"


def test_an_offset_is_past_no_end_that_was_read_before_it() -> None:
    """The figures of a broker of very many partitions are some seconds old: the log has grown."""
    samples = Samples()
    states = []
    for at_ms, end_ms in ((1000, 1000), (15_000, 1000), (16_000, 16_000)):
        samples.take(at_ms, TWO, end=END, offset=END + 1, end_ms=end_ms)
        states.append(samples.group["state"])
    assert states == ["OK", "OK", "STOP"]
