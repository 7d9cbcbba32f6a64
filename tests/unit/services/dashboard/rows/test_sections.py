"""From what was collected to the page's rows."""

import json
from pathlib import Path
from typing import Any

from kafka2011.coordination.paths import BrokerAddress
from kafka2011.services.dashboard.faults.actions import FaultRefused, parse_action, proxy_faults
from kafka2011.services.dashboard.rows.audit_cells import cell_rows
from kafka2011.services.dashboard.rows.sections import SectionRows
from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedCluster,
    ObservedGroup,
    ObservedProcess,
)
from kafka2011.services.dashboard.sampling.spark_jobs import JobReader


def cell(window: int, server: str, **states: tuple[str, int]) -> dict[str, Any]:
    tiers = {
        tier: {"state": state, "counted": 10, "expected": 10, state: n}
        for tier, (state, n) in states.items()
    }
    complete = all(state == "complete" for state, _ in states.values())
    return {
        "topic": "page-view",
        "window_start_ms": window,
        "server": server,
        "produced": 10,
        "complete": complete,
        "tiers": tiers,
    }


def test_cell_of_the_wall_is_as_its_worst_server() -> None:
    rows = cell_rows(
        [
            cell(0, "a", live=("complete", 0), offline=("missing", 2)),
            cell(0, "b", live=("pending", 0), offline=("missing", 1)),
        ]
    )
    tiers = rows["page-view|0"]["tiers"]
    assert tiers["live"]["state"] == "pending"
    assert tiers["offline"] == {
        "state": "missing", "counted": 20, "expected": 20, "missing": 3, "extra": 0, "again": 0,
    }  # fmt: skip


def test_old_cells_stay_while_they_are_not_complete() -> None:
    cells = [cell(number, "a", live=("complete", 0)) for number in range(100)]
    cells[3] = cell(3, "a", live=("missing", 1))
    assert "page-view|3" in cell_rows(cells)
    assert "page-view|4" not in cell_rows(cells)
    assert "page-view|99" in cell_rows(cells)


def broker(now_ms: int, end: int) -> ObservedProcess:
    process = ObservedProcess("live/broker-7", "live", "broker-7", "broker", "h:1")
    process.health.note_node(True, now_ms)
    process.health.note_scrape(True, now_ms)
    place = {"topic": "x", "partition": "0"}
    process.samples = {
        "kafka2011_broker_log_end": [(place, float(end))],
        "kafka2011_broker_high_watermark": [(place, float(end))],
        "kafka2011_broker_bytes_in_total": [({"topic": "x"}, float(end))],
    }
    return process


def collected(
    now_ms: int, process: ObservedProcess, groups_at_ms: int, offset: int
) -> Observations:
    group = ObservedGroup("g", {"g_h": "{}"}, {("x", "7-0"): "g_h-0"}, {("x", "7-0"): (offset, 1)})
    look = ObservedCluster(
        "live",
        "zk",
        is_answering=True,
        brokers={7: BrokerAddress("h", 1)},
        topics=("x",),
        groups={"g": group},
        groups_at_ms=groups_at_ms,
    )
    return Observations(now_ms, {process.key: process}, {"live": look}, None, {}, None, {}, {})


def test_rows_of_partitions_topics_and_groups() -> None:
    deployment = SectionRows(60_000, 10_000)
    deployment.sections(collected(0, broker(0, 1000), 0, 400))
    sections = deployment.sections(collected(1000, broker(1000, 3000), 1000, 400))
    assert sections["partitions"]["live/x/7-0"]["bytes_s"] == 2000
    assert sections["topics"]["live/x"]["groups"] == {"g": 2600}
    assert sections["groups"]["live/g"]["lag_bytes"] == 2600
    assert sections["processes"]["live/broker-7"]["broker_id"] == 7
    json.dumps(sections)


def test_registered_partitions_without_a_message_are_zeros_as_in_the_tools() -> None:
    deployment = SectionRows(60_000, 10_000)
    seen = collected(0, broker(0, 1000), 0, 400)
    seen.clusters["live"].partitions = {"x": {7: 2, 8: 1}, "y": {7: 1}}
    sections = deployment.sections(seen)
    rows = sections["partitions"]
    assert set(rows) == {"live/x/7-0", "live/x/7-1", "live/x/8-0", "live/y/7-0"}
    assert rows["live/x/7-0"]["end"] == 1000
    empty = rows["live/x/7-1"]
    assert (empty["start"], empty["end"], empty["watermark"], empty["state"]) == (0, 0, 0, "online")
    assert rows["live/x/8-0"]["state"] == "away", "no process has this id"
    assert sections["topics"]["live/x"]["partitions"] == 3
    assert {row["partition"] for row in sections["group_partitions"].values()} == {
        "7-0", "7-1", "8-0",
    }  # fmt: skip


def test_old_offset_beside_a_new_end_is_no_lag() -> None:
    deployment = SectionRows(60_000, 10_000)
    deployment.sections(collected(0, broker(0, 400), 5, 400))
    sections = deployment.sections(collected(1000, broker(1000, 3000), 5, 400))
    assert sections["groups"]["live/g"]["lag_bytes"] == 0


def test_dead_broker_is_told_once_and_its_partitions_are_away() -> None:
    deployment = SectionRows(60_000, 10_000)
    process = broker(0, 1000)
    deployment.sections(collected(0, process, 0, 0))
    for at in (1000, 2000, 3000):
        process.health.note_scrape(False, at, "connection refused")
        sections = deployment.sections(collected(at, process, 0, 0))
    assert sections["processes"]["live/broker-7"]["state"] == "down"
    assert [row["text"] for row in sections["events"].values()] == [
        "broker-7 is down: connection refused"
    ]
    deployment.sections(collected(4000, process, 0, 0))
    assert sections["meta"]["deployment"]["state"] == "stopped"


def test_an_audit_that_is_not_heard_any_more_gives_no_rates_and_says_since_when() -> None:
    deployment = SectionRows(60_000, 10_000)
    seen = collected(0, broker(0, 0), 0, 0)
    seen.audit = {"produced": 5, "tiers": {"live": {"count": 5}}}
    heard = deployment.sections(seen)["audit"]["summary"]
    assert "unheard_since_ms" not in heard
    assert heard["rates"]["live"] is not None
    seen.audit_unheard_ms = 17
    summary = deployment.sections(seen)["audit"]["summary"]
    assert (summary["unheard_since_ms"], summary["rates"]["live"]) == (17, None)
    assert summary["produced"] == 5, "what was counted stays"
    seen.audit_unheard_ms = 0
    assert deployment.sections(seen)["audit"]["summary"] == heard


def test_commits_are_read_from_the_tables_log(tmp_path: Path) -> None:
    log = tmp_path / "page_view" / "_delta_log"
    log.mkdir(parents=True)
    told = {"topic": "page-view", "rows": 3, "offsets": {"11-0": [10, 40]}, "quarantined": []}
    info = {"commitInfo": {"timestamp": 5, "kafka2011": json.dumps(told)}}
    add = {"add": {"path": "a", "size": 9}}
    (log / "00000000000000000001.json").write_text(json.dumps(info) + "\n" + json.dumps(add))
    (log / "00000000000000000002.json").write_text("{half")
    rows = JobReader(tmp_path, None).commits()
    assert list(rows) == ["page_view/1"]
    assert rows["page_view/1"]["source_bytes"] == 30
    assert rows["page_view/1"]["bytes"] == 9


def test_pictures_are_only_those_listed(tmp_path: Path) -> None:
    (tmp_path / "secret.svg").write_text("x")
    reader = JobReader(None, tmp_path)
    assert reader.picture("secret") is None
    (tmp_path / "secret.json").write_text('{"totals": {}}')
    assert reader.picture("secret") == b"x"
    assert reader.picture("../secret") is None


def test_reports_tell_of_their_tables_and_rows(tmp_path: Path) -> None:
    traffic = {"table": "page_view", "version": 5, "rows": 7, "totals": {"page_views": 6}}
    activity = {"report": "sessions", "tables": {"login": 3, "click": 4}, "rows": [{}, {}]}
    for name, told in (("page_view", traffic), ("sessions", activity), ("half", None)):
        (tmp_path / f"{name}.svg").write_text("<svg/>")
        (tmp_path / f"{name}.json").write_text(json.dumps(told) if told else "{half")
    rows = JobReader(None, tmp_path).reports()
    assert list(rows) == ["page_view", "sessions"]
    assert rows["page_view"]["tables"] == {"page_view": 5}
    assert (rows["page_view"]["rows"], rows["page_view"]["answers"]) == (7, None)
    assert (rows["sessions"]["rows"], rows["sessions"]["answers"]) == (None, 2)


def test_chaos_takes_only_known_words() -> None:
    assert parse_action(b'{"action": "kill", "name": "a"}')[:2] == ("kill", "a")
    for body in (b"", b"[]", b'{"action": "rm", "name": "a"}', b'{"action": "kill", "name": 1}'):
        try:
            parse_action(body)
        except FaultRefused:
            continue
        raise AssertionError(body)
    assert proxy_faults("drop", {"topic": "x", "count": 3}) == {
        "faults": {"drop_messages": {"topic": "x", "count": 3}}
    }
