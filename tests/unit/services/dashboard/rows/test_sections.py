"""From what was observed to the sections."""

import json
import math
from typing import Any

import pytest

from kafka2011.coordination.paths import BrokerAddress
from kafka2011.services.dashboard.rows.sections import SectionRows
from kafka2011.services.dashboard.rows.topics import PARTITIONS_MAX
from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedCluster,
    ObservedGroup,
    ObservedProcess,
)
from tests.unit.services.dashboard.conftest import observations, process


def broker(end: int) -> ObservedProcess:
    """Broker 7 with partition 0 of topic x."""
    place = {"topic": "x", "partition": "0"}
    return process(
        "broker",
        "broker-7",
        kafka2011_broker_log_end=[(place, float(end))],
        kafka2011_broker_high_watermark=[(place, float(end))],
        kafka2011_broker_bytes_in_total=[({"topic": "x"}, float(end))],
    )


def observed(
    now_ms: int, broker: ObservedProcess, groups_at_ms: int = 0, offset: int = 0
) -> Observations:
    """With the group g, which had committed `offset` at `groups_at_ms`."""
    group = ObservedGroup("g", {"g_h": "{}"}, {("x", "7-0"): "g_h-0"}, {("x", "7-0"): (offset, 1)})
    cluster = ObservedCluster(
        "live",
        "zk",
        is_answering=True,
        brokers={7: BrokerAddress("broker-7", 1)},
        topics=("x",),
        groups={"g": group},
        groups_at_ms=groups_at_ms,
    )
    return observations(broker, now_ms=now_ms, clusters={"live": cluster})


def test_rows_of_partitions_topics_and_groups() -> None:
    rows = SectionRows(60_000, 10_000)
    rows.sections(observed(0, broker(1000), 0, 400))
    sections = rows.sections(observed(1000, broker(3000), 1000, 400))
    assert sections["partitions"]["live/x/7-0"]["bytes_s"] == 2000
    assert sections["topics"]["live/x"]["groups"] == {"g": 2600}
    assert sections["groups"]["live/g"]["lag_bytes"] == 2600
    assert sections["processes"]["live/broker-7"]["broker_id"] == 7
    json.dumps(sections)


def test_registered_partitions_without_a_message_are_zeros_as_in_the_tools() -> None:
    seen = observed(0, broker(1000), 0, 400)
    seen.clusters["live"].partitions = {"x": {7: 2, 8: 1}, "y": {7: 1}}
    sections = SectionRows(60_000, 10_000).sections(seen)
    found = {
        key: (row["start"], row["end"], row["watermark"], row["state"])
        for key, row in sections["partitions"].items()
    }
    assert found == {
        "live/x/7-0": (0, 1000, 1000, "online"),
        "live/x/7-1": (0, 0, 0, "online"),
        "live/x/8-0": (None, None, None, "away"),  # no process has this id
        "live/y/7-0": (0, 0, 0, "online"),
    }
    assert sections["topics"]["live/x"]["partitions"] == 3
    read = {row["partition"] for row in sections["group_partitions"].values()}
    assert read == {"7-0", "7-1", "8-0"}


def test_a_broker_that_is_not_measured_is_neither_away_nor_empty() -> None:
    """One without process.name, as every server.properties of 0.7 has it, or without a metrics
    port: ZooKeeper has its address, and nothing more is known."""
    seen = observed(0, broker(1000), 0, 400)
    unnamed, mute = BrokerAddress("old", 1), BrokerAddress("broker-9", 1)
    seen.clusters["live"].brokers |= {8: unnamed, 9: mute}
    seen.clusters["live"].partitions = {"x": {7: 1, 8: 1}, "y": {8: 1, 9: 1}}
    seen.clusters["live"].topics = ("x", "y")
    seen.clusters["live"].groups["g"].offsets["x", "8-0"] = (500, 1)
    without_metrics = process("broker", "broker-9")
    seen.processes[without_metrics.key] = without_metrics
    sections = SectionRows(60_000, 10_000).sections(seen)
    for key, name in (("x/8-0", "broker 8"), ("y/8-0", "broker 8"), ("y/9-0", "broker-9")):
        row = sections["partitions"][f"live/{key}"]
        assert (row["state"], row["broker"]) == ("not measured", name)
        assert {row[name] for name in ("start", "end", "watermark", "segments", "bytes_s")} == {
            None
        }
    for topic in ("x", "y"):
        row = sections["topics"][f"live/{topic}"]
        assert (row["partitions"], row["away"]) == (2, 0)
        assert {row[name] for name in ("size", "segments", "messages_s", "out_s")} == {None}
    assert sections["groups"]["live/g"]["state"] == "UNKNOWN"
    assert "away" not in sections["groups"]["live/g"]["reason"]
    seen.clusters["live"].is_answering = False
    assert SectionRows(60_000, 10_000).sections(seen)["partitions"]["live/x/8-0"]["state"] == "away"


def test_old_offset_beside_a_new_end_is_no_lag() -> None:
    rows = SectionRows(60_000, 10_000)
    rows.sections(observed(0, broker(400), 5, 400))
    sections = rows.sections(observed(1000, broker(3000), 5, 400))
    assert sections["groups"]["live/g"]["lag_bytes"] == 0


def test_of_a_group_whose_zookeeper_is_away_nothing_is_known() -> None:
    """The last look said OK; the group may have been dead ever since."""
    rows = SectionRows(60_000, 10_000)
    shown = []
    for at_ms in (1000, 10_000, 12_000, 13_000):
        seen = observed(at_ms, broker(3000), groups_at_ms=13_000 if at_ms == 13_000 else 1000)
        seen.clusters["live"].is_answering = at_ms in (1000, 13_000)
        sections = rows.sections(seen)
        each = sections["groups"]["live/g"], sections["group_partitions"]["live/g/x/7-0"]
        shown.append([(row["state"], row["lag_bytes"]) for row in each])
    now, unknown = ("OK", 3000), ("UNKNOWN", None)
    assert [both[0] for both in shown] == [now, now, unknown, now]
    assert [both[1] for both in shown] == [now, now, unknown, now]
    assert "ZooKeeper does not answer" not in sections["groups"]["live/g"]["reason"]


def test_the_end_of_a_log_whose_broker_is_away_is_not_known() -> None:
    """What it said last was the offset that was committed: `groups describe` says UNKNOWN."""
    rows = SectionRows(60_000, 10_000)
    dying = broker(3000)
    shown = []
    for at_ms in (0, 1000, 2000, 3000):
        if at_ms in (1000, 2000):
            dying.health.note_scrape(False, "connection refused")
        else:
            dying.health.note_scrape(True)
        sections = rows.sections(observed(at_ms, dying, at_ms, 3000))
        row, lags = sections["groups"]["live/g"], sections["topics"]["live/x"]["groups"]
        shown.append((row["state"], row["lag_bytes"], row["lag_ms"], lags["g"]))
    known, unknown = ("OK", 0, 0, 0), ("UNKNOWN", None, None, None)
    assert shown == [known, known, unknown, known]


def test_a_partition_whose_broker_is_away_has_no_rate() -> None:
    """Its last stood on the page for a minute, beside an offset that stood still."""
    rows = SectionRows(60_000, 10_000)
    rows.sections(observed(0, broker(1000)))
    running = broker(3000)
    assert rows.sections(observed(1000, running))["partitions"]["live/x/7-0"]["bytes_s"] == 2000
    for at_ms in (2000, 3000):
        running.health.note_scrape(False, "connection refused")
        row = rows.sections(observed(at_ms, running))["partitions"]["live/x/7-0"]
    assert (row["state"], row["end"], row["bytes_s"]) == ("away", 3000, None)


def test_a_group_is_unknown_because_of_the_broker_and_says_so() -> None:
    """Not because of an idle topic beside it, without owner and offset."""
    seen = observed(0, broker(3000), 0, 3000)
    seen.clusters["live"].partitions = {"x": {7: 2, 8: 1}}
    group = seen.clusters["live"].groups["g"]
    assert SectionRows(60_000, 10_000).sections(seen)["groups"]["live/g"]["state"] == "OK"
    group.offsets["x", "8-0"] = (500, 1)
    row = SectionRows(60_000, 10_000).sections(seen)["groups"]["live/g"]
    assert (row["state"], row["lag_bytes"]) == ("UNKNOWN", None)
    assert row["reason"] == "x 8-0: broker 8 is away, and this log with it"


def test_the_partitions_of_a_broker_that_is_away_stay_and_those_of_a_deleted_topic_go() -> None:
    """ZooKeeper has the partitions of living brokers only; one without a message has no log."""
    rows = SectionRows(60_000, 10_000)
    dying = broker(3000)
    shown = []
    for at_ms, is_there, has_topic in (
        (0, True, True),
        (1000, False, True),
        (2000, False, True),
        (3000, True, True),
        (4000, True, False),
    ):
        dying.health.note_scrape(is_there, "" if is_there else "connection refused")
        seen = observed(at_ms, dying)
        if has_topic:
            seen.clusters["live"].partitions = {"x": {7: 2} if is_there else {}}
        found = rows.sections(seen)["partitions"]
        shown.append({key.rpartition("/")[2]: row["state"] for key, row in found.items()})
    online, away = [dict.fromkeys(("7-0", "7-1"), state) for state in ("online", "away")]
    assert shown == [online, online, away, online, {"7-0": "online"}]


def test_a_broker_id_is_of_the_process_that_answers() -> None:
    """It moved to a machine where the process has another name; the old name is still expected."""
    old, new = broker(3000), broker(5000)
    new.name, new.key, new.address = "broker-a-7", "live/broker-a-7", "elsewhere:1"
    rows = SectionRows(60_000, 10_000)
    rows.sections(observed(0, old))
    for _ in range(3):
        old.health.note_scrape(False, "connection refused")
    for order in ((old, new), (new, old)):
        seen = observed(1000, new)
        seen.processes = {one.key: one for one in order}
        for registered in ("elsewhere", "broker-7"):  # the old registration may outlast the process
            seen.clusters["live"].brokers = {7: BrokerAddress(registered, 1)}
            seen.clusters["live"].partitions = {"x": {7: 2}}
            sections = rows.sections(seen)
            shown = {
                key.rpartition("/")[2]: (row["broker"], row["state"])
                for key, row in sections["partitions"].items()
            }
            assert shown == dict.fromkeys(("7-0", "7-1"), ("broker-a-7", "online"))
            assert sections["topics"]["live/x"]["size"] == 5000
            assert sections["processes"]["live/broker-a-7"]["broker_id"] == 7


def test_a_name_that_ends_in_any_number_of_digits_is_a_name() -> None:
    odd = process("broker", "broker-" + "9" * 5000)
    assert SectionRows(60_000, 10_000).sections(observed(0, odd))["processes"][odd.key]


def test_numbers_in_zookeeper_make_no_more_than_a_bounded_sum_of_rows() -> None:
    """Any client can write them. Small ones, which topics have, come first."""
    seen = observed(0, broker(1000))
    seen.clusters["live"].partitions = {f"forged-{n}": {7: 100_000} for n in range(20)}
    seen.clusters["live"].partitions |= {"y": {7: 3}}
    found = SectionRows(60_000, 10_000).sections(seen)["partitions"]
    assert len(found) == 1 + PARTITIONS_MAX
    assert {"live/x/7-0", "live/y/7-0", "live/y/7-2"} <= set(found)


def test_a_rate_is_not_known_before_the_second_look() -> None:
    rows = SectionRows(60_000, 10_000)
    frontend = process("frontend", "f", kafka2011_frontend_messages_total=[({}, 7.0)])
    shown = []
    for at_ms in (0, 1000):
        seen = observed(at_ms, broker(1000))
        seen.processes[frontend.key] = frontend
        sections = rows.sections(seen)
        shown.append(
            (
                sections["processes"]["live/broker-7"]["in_s"],
                sections["processes"]["live/f"]["facts"]["messages_s"],
                sections["partitions"]["live/x/7-0"]["bytes_s"],
                sections["topics"]["live/x"]["bytes_s"],
            )
        )
    assert shown == [(None, None, None, None), (0, 0, 0, 0)]
    json.dumps(sections)


def test_a_broker_that_was_not_read_yet_has_logs_of_unknown_ends() -> None:
    starting = process("broker", "broker-7")
    seen = observed(0, starting, 0, 3000)
    seen.clusters["live"].partitions = {"x": {7: 1}}
    row = SectionRows(60_000, 10_000).sections(seen)["groups"]["live/g"]
    assert (row["state"], row["lag_bytes"]) == ("UNKNOWN", None)


def test_what_a_process_said_last_is_not_shown_once_it_is_down() -> None:
    rows = SectionRows(60_000, 10_000)
    mirror = process("mirror", "mirror-1", kafka2011_mirror_lag_bytes=[({}, 700.0)])
    lags = []
    for at_ms in range(0, 4000, 1000):
        if at_ms:
            mirror.health.note_scrape(False, "connection refused")
        seen = observed(at_ms, broker(1000))
        seen.processes[mirror.key] = mirror
        lags.append(rows.sections(seen)["processes"][mirror.key]["lag_bytes"])
    assert lags == [700, 700, None, None]


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("loader", "kafka2011_warehouse_lag_bytes"),  # its last load failed
        ("mirror", "kafka2011_mirror_lag_bytes"),  # its source is not heard
        ("online-consumer", "kafka2011_online_lag_bytes"),
        ("site", "kafka2011_site_lag_bytes"),
    ],
)
def test_a_lag_that_is_not_known_is_not_shown_as_nothing(kind: str, metric: str) -> None:
    shown = []
    for values in ([700.0, 1.0], [0.0], [700.0, math.nan], []):
        reader = process(kind, kind, **{metric: [({}, value) for value in values]})
        seen = observed(0, broker(1000))
        seen.processes[reader.key] = reader
        row = SectionRows(60_000, 10_000).sections(seen)["processes"][reader.key]
        shown.append((row["lag_bytes"], row["behind_ms"], row["state"]))
    unknown = (None, None, "up")
    assert shown == [(701, None, "up"), (0, 0.0, "up"), unknown, unknown]


def test_a_dead_broker_is_one_event_and_its_partitions_are_away() -> None:
    rows = SectionRows(60_000, 10_000)
    dying = broker(1000)
    rows.sections(observed(0, dying))
    for at_ms in (1000, 2000, 3000):
        dying.health.note_scrape(False, "connection refused")
        sections = rows.sections(observed(at_ms, dying))
        if at_ms == 1000:
            row = sections["processes"]["live/broker-7"]
            assert (row["state"], row["reason"]) == ("slow", ""), "one answer; it is shown as up"
    assert sections["processes"]["live/broker-7"]["state"] == "down"
    assert sections["meta"]["deployment"]["state"] == "stopped"
    texts = [row["text"] for row in sections["events"].values()]
    assert texts == ["broker-7 is down: connection refused"]
    partitions = rows.sections(observed(4000, dying))["partitions"]
    assert partitions["live/x/7-0"]["state"] == "away"


def test_lagging_is_an_event_when_it_has_lasted() -> None:
    rows = SectionRows(60_000, 10_000)

    def texts(lag_bytes: int, *seconds: int) -> list[str]:
        for at_s in seconds:
            site = process("site", "site", kafka2011_site_lag_bytes=[({}, float(lag_bytes))])
            site.health = health
            seen = observed(at_s * 1000, broker(1000 * at_s))
            seen.processes[site.key] = site
            events = rows.sections(seen)["events"]
        return [row["text"] for row in events.values()]

    health = process("site", "site").health
    texts(0, *range(5))
    assert texts(1_000_000, *range(5, 14)) == []
    assert health.state == "lagging"
    assert texts(0, 14, 15) == []
    assert texts(1_000_000, *range(16, 28)) == ["site is lagging"]
    assert texts(0, 28, 29) == ["site is lagging", "site is up"]


def audit_summary(now_ms: int) -> dict[str, Any]:
    tiers = {"live": {"count": 5, "read_to_ms": now_ms}}
    return {"now_ms": now_ms, "reports_read_to_ms": now_ms, "produced": 5, "tiers": tiers}


def test_an_audit_that_does_not_answer_has_no_rates_and_the_time_of_its_last_answer() -> None:
    rows = SectionRows(60_000, 10_000)
    seen = observed(0, broker(0))
    seen.audit = audit_summary(0)
    assert rows.sections(seen)["audit"]["summary"]["rates"]["live"] is None, "the first answer"
    seen.audit = audit_summary(1000)
    seen.now_ms = 1000
    current = rows.sections(seen)["audit"]["summary"]
    assert "unheard_since_ms" not in current
    assert current["rates"]["live"] is not None
    seen.audit_unheard_ms = 17
    unheard = {"unheard_since_ms": 17, "rates": dict.fromkeys(current["rates"])}
    assert rows.sections(seen)["audit"]["summary"] == current | unheard, "what was counted stays"
    seen.audit_unheard_ms = 0
    assert rows.sections(seen)["audit"]["summary"] == current


def test_where_nothing_registers_it_is_not_starting_for_ever() -> None:
    rows = SectionRows(60_000, 10_000)
    states = []
    for at_ms in (1000, 60_000, 61_000, 62_000, 63_000):
        seen = observed(at_ms, broker(1000)) if at_ms == 62_000 else observations(now_ms=at_ms)
        seen.clusters = {"live": ObservedCluster("live", "zk", is_answering=True)}
        states.append(rows.sections(seen)["meta"]["deployment"]["state"])
    assert states == ["starting", "starting", "empty", "running", "empty"]


HOUR_MS = 3_600_000


def test_a_clock_that_goes_back_makes_no_rate_unknown_or_false() -> None:
    """There were no rates until the old time came again, and then a false one."""
    rows = SectionRows(60_000, 10_000)
    begun_ms = 10 * HOUR_MS
    for second in range(5):
        rows.sections(observed(begun_ms + 1000 * second, broker(1000 * second)))
    for second in range(5, 8):
        at_ms = begun_ms - HOUR_MS + 1000 * second
        sections = rows.sections(observed(at_ms, broker(1000 * second), at_ms, 1000 * second))
    assert sections["processes"]["live/broker-7"]["in_s"] == 1000
    assert sections["partitions"]["live/x/7-0"]["bytes_s"] == 1000
    assert {at.rpartition("|")[2] for at in sections["lag_series"]} == {
        str(begun_ms - HOUR_MS + second * 1000) for second in (5, 7)
    }, "the line goes on, by the present clock alone"
    texts = [row["text"] for row in sections["events"].values()]
    assert texts == ["the clock of the dashboard's machine went back: rates and lines begin anew"]
    assert list(sections["events"]) == ["001-000000001"], "the page has it above what came before"


def test_what_does_not_answer_is_down_in_time_though_the_clock_goes_back() -> None:
    """It was *no answer for -3480 s*, and never down, until the old time came again."""
    rows = SectionRows(60_000, 10_000)
    hanging = broker(1000)
    rows.sections(observed(10 * HOUR_MS, hanging))
    for second in range(1, 4):
        hanging.health.note_scrape(False, is_late=True)
        sections = rows.sections(observed(10 * HOUR_MS + 1000 * second, hanging))
    assert sections["processes"]["live/broker-7"]["state"] == "silent"
    for second in range(4, 40):
        hanging.health.note_scrape(False, is_late=True)
        sections = rows.sections(observed(9 * HOUR_MS + 1000 * second, hanging))
    row = sections["processes"]["live/broker-7"]
    assert row["state"] == "down"
    assert row["reason"] == "no answer for 36 s"
    assert row["since_ms"] <= 9 * HOUR_MS + 40_000, "no time that is still to come"
