"""From what was observed to the sections."""

import json

from kafka2011.coordination.paths import BrokerAddress
from kafka2011.services.dashboard.rows.sections import SectionRows
from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedCluster,
    ObservedGroup,
    ObservedProcess,
)


def broker(now_ms: int, end: int) -> ObservedProcess:
    process = ObservedProcess("live/broker-7", "live", "broker-7", "broker", "h:1")
    process.health.note_node(True)
    process.health.note_scrape(True)
    place = {"topic": "x", "partition": "0"}
    process.samples = {
        "kafka2011_broker_log_end": [(place, float(end))],
        "kafka2011_broker_high_watermark": [(place, float(end))],
        "kafka2011_broker_bytes_in_total": [({"topic": "x"}, float(end))],
    }
    return process


def observed(now_ms: int, process: ObservedProcess, groups_at_ms: int, offset: int) -> Observations:
    group = ObservedGroup("g", {"g_h": "{}"}, {("x", "7-0"): "g_h-0"}, {("x", "7-0"): (offset, 1)})
    cluster = ObservedCluster(
        "live",
        "zk",
        is_answering=True,
        brokers={7: BrokerAddress("h", 1)},
        topics=("x",),
        groups={"g": group},
        groups_at_ms=groups_at_ms,
    )
    return Observations(now_ms, {process.key: process}, {"live": cluster}, None, {}, None, {}, {})


def test_rows_of_partitions_topics_and_groups() -> None:
    rows = SectionRows(60_000, 10_000)
    rows.sections(observed(0, broker(0, 1000), 0, 400))
    sections = rows.sections(observed(1000, broker(1000, 3000), 1000, 400))
    assert sections["partitions"]["live/x/7-0"]["bytes_s"] == 2000
    assert sections["topics"]["live/x"]["groups"] == {"g": 2600}
    assert sections["groups"]["live/g"]["lag_bytes"] == 2600
    assert sections["processes"]["live/broker-7"]["broker_id"] == 7
    json.dumps(sections)


def test_registered_partitions_without_a_message_are_zeros_as_in_the_tools() -> None:
    rows = SectionRows(60_000, 10_000)
    seen = observed(0, broker(0, 1000), 0, 400)
    seen.clusters["live"].partitions = {"x": {7: 2, 8: 1}, "y": {7: 1}}
    sections = rows.sections(seen)
    partitions = sections["partitions"]
    assert set(partitions) == {"live/x/7-0", "live/x/7-1", "live/x/8-0", "live/y/7-0"}
    assert partitions["live/x/7-0"]["end"] == 1000
    empty = partitions["live/x/7-1"]
    assert (empty["start"], empty["end"], empty["watermark"], empty["state"]) == (0, 0, 0, "online")
    assert partitions["live/x/8-0"]["state"] == "away", "no process has this id"
    assert sections["topics"]["live/x"]["partitions"] == 3
    assert {row["partition"] for row in sections["group_partitions"].values()} == {
        "7-0", "7-1", "8-0",
    }  # fmt: skip


def test_old_offset_beside_a_new_end_is_no_lag() -> None:
    rows = SectionRows(60_000, 10_000)
    rows.sections(observed(0, broker(0, 400), 5, 400))
    sections = rows.sections(observed(1000, broker(1000, 3000), 5, 400))
    assert sections["groups"]["live/g"]["lag_bytes"] == 0


def test_a_dead_broker_is_one_event_and_its_partitions_are_away() -> None:
    rows = SectionRows(60_000, 10_000)
    process = broker(0, 1000)
    rows.sections(observed(0, process, 0, 0))
    for at in (1000, 2000, 3000):
        process.health.note_scrape(False, "connection refused")
        sections = rows.sections(observed(at, process, 0, 0))
    assert sections["processes"]["live/broker-7"]["state"] == "down"
    assert [row["text"] for row in sections["events"].values()] == [
        "broker-7 is down: connection refused"
    ]
    rows.sections(observed(4000, process, 0, 0))
    assert sections["meta"]["deployment"]["state"] == "stopped"


def test_an_audit_that_does_not_answer_has_no_rates_and_the_time_of_its_last_answer() -> None:
    rows = SectionRows(60_000, 10_000)
    seen = observed(0, broker(0, 0), 0, 0)
    seen.audit = {"produced": 5, "tiers": {"live": {"count": 5}}}
    current = rows.sections(seen)["audit"]["summary"]
    assert "unheard_since_ms" not in current
    assert current["rates"]["live"] is not None
    seen.audit_unheard_ms = 17
    summary = rows.sections(seen)["audit"]["summary"]
    assert (summary["unheard_since_ms"], summary["rates"]["live"]) == (17, None)
    assert summary["produced"] == 5, "what was counted stays"
    seen.audit_unheard_ms = 0
    assert rows.sections(seen)["audit"]["summary"] == current
