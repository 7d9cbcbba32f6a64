"""`kafka2011 audit` without a running service: it recounts from the files."""

import io
import json
import os
import re
import shutil
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console

from kafka2011.cli.audit import _ask, _service_url, notes_without, of_topics
from kafka2011.cli.audit_table import (
    EQUAL,
    NEVER,
    SURPLUS,
    beyond_limit,
    conclusion,
    notes_of,
    pending_cells,
    print_report,
    surplus_of,
    verdicts_text,
    window_text,
    worst_of,
)
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.runtime.process_state import is_ours
from kafka2011.services.audit.losses import unread_text
from kafka2011.services.audit.recount.segment_files import LogDirectory
from kafka2011.services.audit.verdicts import STATES
from kafka2011.services.embedded.control import held
from tests.conftest import Run
from tests.support.commands import Child
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import (
    T0,
    end_of,
    entries_of,
    event,
    heartbeat,
    report,
    write_log,
)


@pytest.fixture
def var(tmp_path: Path) -> Path:
    """The directory of an embedded deployment that was stopped: 20 page views everywhere."""
    views = message_set.encode([event(n) for n in range(20)])
    live, offline = tmp_path / "broker-1" / "logs", tmp_path / "broker-11" / "logs"
    write_log(live, AUDIT, 0, message_set.encode([report(0, [(PAGE_VIEW, T0, 20)])]))
    write_log(live, PAGE_VIEW, 0, views)
    write_log(offline, PAGE_VIEW, 0, views)
    run = tmp_path / "run"
    run.mkdir()
    for name, datacenter in (("broker-1", "live"), ("broker-11", "offline")):
        (run / f"{name}.json").write_text(json.dumps({"name": name, "datacenter": datacenter}))
    return tmp_path


@pytest.fixture
def audit(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command on a directory with more options."""
    monkeypatch.setenv("COLUMNS", "160")
    return lambda var, *words: run("audit", "--var", var, "--forms", "*:2011", *words)


def offline_segment(var: Path) -> Path:
    return var / "broker-11" / "logs" / f"{PAGE_VIEW}-0" / f"{0:020d}.kafka"


@pytest.fixture
def short(var: Path) -> Path:
    """The same with message 7 missing offline. Nothing says how far the mirror had come."""
    entries = entries_of(offline_segment(var).read_bytes())
    offline_segment(var).write_bytes(b"".join(entries[:7] + entries[8:]))
    return var


def test_a_balanced_deployment_exits_0(var: Path, audit: Run) -> None:
    status, out, _ = audit(var)
    assert status == 0
    assert "The audit balances: 20 messages in every tier" in out


def test_files_that_are_written_are_not_recounted(var: Path, audit: Run) -> None:
    with held(var, "up"):
        status, out, err = audit(var)
        assert audit(var, "--recount").status == 0, "of a demo whose brokers have ended"
    assert (status, out) == (2, "")
    assert f"the audit of the deployment that runs in {var} does not answer: it is start" in err
    assert audit(var).status == 0


def test_a_message_that_is_not_there_is_shown_with_its_window_and_exits_1(
    short: Path, audit: Run
) -> None:
    status, out, _ = audit(short)
    assert status == 1
    assert "unknown 1" in out
    assert "how far the mirror had come is not known" in " ".join(out.split())
    assert "Cells, windows of 2011-03-13 (UTC), server frontend-1" in out
    assert "07:06:40" in out
    assert "offline: unknown 1" in out
    assert "It is not known whether everything arrived; unknown: 1 in offline" in out
    assert audit(short, "--topic", "click").status == 2
    assert audit(short, "--topic", PAGE_VIEW).status == 1


def test_json_is_the_whole_report(short: Path, audit: Run) -> None:
    status, out, _ = audit(short, "--json")
    found = json.loads(out)
    assert status == found["exit_status"] == 1
    assert found["source"] == "disk"
    assert found["totals"]["tiers"]["offline"]["unknown"] == 1
    assert [cell["tiers"]["offline"]["unknown"] for cell in found["cells"]] == [1]


def test_restarts_of_the_run_excuse_copies(var: Path, audit: Run) -> None:
    entries = offline_segment(var).read_bytes()
    offline_segment(var).write_bytes(entries + entries_of(entries)[0])
    assert audit(var).status == 1
    restart = {"name": "mirror-1", "time_ms": T0}
    (var / "run" / "restarts.json").write_text(json.dumps([restart]))
    status, out, _ = audit(var)
    assert status == 0
    assert out.count("offline: redelivered 1 (copies)") == 3  # topic, all topics, cell
    assert "(messages may have been sent again after that): mirror-1" in out


@pytest.mark.parametrize(
    ("copies", "new", "said"),
    [
        (0, 2, "live, offline: redelivered 2 (never reported)"),
        (3, 2, "live: redelivered 2 (never reported) offline: redelivered 5 (2 never reported)"),
    ],
)
def test_a_recount_tells_copies_from_messages_that_no_report_counts(
    var: Path, audit: Run, copies: int, new: int, said: str
) -> None:
    (var / "run" / "restarts.json").write_text(json.dumps([{"name": "mirror-1", "time_ms": T0}]))
    more = message_set.encode([event(20 + n) for n in range(new)])
    offline = offline_segment(var)
    entries = entries_of(offline.read_bytes())
    offline.write_bytes(offline.read_bytes() + more + b"".join(entries[:copies]))
    live = var / "broker-1" / "logs" / f"{PAGE_VIEW}-0" / f"{0:020d}.kafka"
    live.write_bytes(live.read_bytes() + more)
    status, out, _ = audit(var)
    assert status == 0, out
    (row,) = re.findall(r"all topics[^a-z]*(.*?\))\s*\n\s*\n", out, re.DOTALL)
    assert " ".join(row.split()) == said


def test_a_producer_that_sent_again_excuses_copies_and_lost_no_report_by_it(
    var: Path, audit: Run
) -> None:
    entries = offline_segment(var).read_bytes()
    offline_segment(var).write_bytes(entries + entries_of(entries)[0])
    log = var / "broker-1" / "logs" / f"{AUDIT}-0" / f"{0:020d}.kafka"
    before = log.read_bytes()
    same = [heartbeat(T0), heartbeat(T0 + 1000, is_last=True, last_sequence=0)]
    log.write_bytes(before + message_set.encode(same))
    assert audit(var).status == 1
    again = heartbeat(T0 + 1000, instance="run-1+5", is_last=True, last_sequence=0)
    log.write_bytes(before + message_set.encode([same[0], again]))
    status, out, _ = audit(var)
    assert status == 0, out
    assert "redelivered 1" in out


def test_of_a_directory_of_no_known_broker_a_loss_is_unknown_and_how_to_name_it_is_said(
    short: Path, audit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short / "broker-1").rename(short / "disk-1")
    monkeypatch.setattr(
        "kafka2011.services.audit.recount.mirrored_offsets.mirrored_offsets",
        lambda *_: end_of(LogDirectory("live", "", short / "disk-1/logs")),
    )
    words = ["--offline-dir", short / "broker-11", "--live-zookeeper", "zk:1", "--live-dir"]
    status, out, _ = audit(short, *words, short / "disk-1")
    assert (status, "unknown: 1 in offline" in out) == (1, True), out
    assert f"live {short / 'disk-1'}: which broker's it is is not known" in out
    (short / "broker-7").symlink_to(short / "disk-1")
    status, out, err = audit(short, *words, short / "broker-7")
    assert (status, "missing: 1 in offline" in out) == (1, True), out + err
    assert "is not known" not in out


def test_a_warehouse_that_is_not_there_is_refused(var: Path, audit: Run) -> None:
    """Everything was behind, with status 0."""
    words = ["--offline-dir", var / "broker-11", "--warehouse", var / "nowhere"]
    status, out, err = audit(var, "--live-dir", var / "broker-1", *words)
    assert (status, out) == (2, "")
    assert err == f"kafka2011 audit: no directory of a warehouse at {var / 'nowhere'}\n"


def test_without_the_live_logs_whose_reports_they_have_nothing_is_said_to_be_whole(
    var: Path, audit: Run
) -> None:
    status, out, _ = audit(var, "--offline-dir", var / "broker-11")
    assert status == 1
    assert "It is not known whether everything arrived" in out
    assert f"came from there, and these were not given: {PAGE_VIEW}" in out
    assert "since no report" not in out


def test_a_segment_that_cannot_be_read_is_one_line_and_status_2(var: Path, audit: Run) -> None:
    offline_segment(var).unlink()
    offline_segment(var).mkdir()
    status, out, err = audit(var)
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        f"kafka2011 audit: not everything can be read: {offline_segment(var)}: Is a directory"
    ]


@pytest.mark.parametrize("end", ["", '{"add'])
def test_a_table_whose_log_is_damaged_is_one_line_and_status_2(
    var: Path, audit: Run, end: str
) -> None:
    log = var / "warehouse" / "page_view" / "_delta_log"
    log.mkdir(parents=True)
    loaded = {"txn": {"appId": f"load/{PAGE_VIEW}/11-0", "version": 5}}
    (log / f"{0:020d}.json").write_text(f"{json.dumps(loaded)}\n{end}")
    status, out, err = audit(var)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("kafka2011 audit: not everything can be read: ")


def test_directories_can_be_named(var: Path, audit: Run) -> None:
    elsewhere = var / "elsewhere"
    words = ["--live-dir", var / "broker-1", "--offline-dir", var / "broker-11"]
    assert audit(elsewhere, *words).status == 0
    assert audit(elsewhere, "--live-dir", var / "none").status == 2


@pytest.mark.parametrize(
    ("directory", "words", "reason"),
    [
        ("nowhere", [], "no broker logs are below"),
        ("", ["--url", "127.0.0.1:1"], "no audit service answers at 127.0.0.1:1"),
        ("", ["--topic", "nosuch"], "no messages of topic 'nosuch'"),
    ],
)
def test_nothing_to_count_is_status_2_with_one_line(
    var: Path, audit: Run, directory: str, words: list[str], reason: str
) -> None:
    status, _, err = audit(var / directory, *words)
    assert status == 2
    [line] = err.splitlines()
    assert reason in line


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 99_999]
)
def test_what_is_no_audit_does_not_answer(var: Path, audit: Run, answer: bytes) -> None:
    class Other(ScriptedServer):
        def serve(self, connection: socket.socket) -> None:
            connection.recv(1_000)
            connection.sendall(answer)
            connection.close()

    other = Other()
    for url in (f"127.0.0.1:{other.port}", "a b:3"):
        status, _, err = audit(var, "--url", url)
        assert (status, len(err.splitlines())) == (2, 1)
        assert f"no audit service answers at {url}" in err
    other.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_audit_of_this_machine_is_not_asked_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # it remembers the proxies
    pages = {"/audit/summary": lambda: (200, "application/json", b"{}")}
    server = MetricsServer(CollectorRegistry(), lambda: True, routes=pages)
    assert _ask(f"http://{host}:{server.port}", "/audit/summary", {}) == {}
    server.close()


def test_each_line_below_the_table_is_one_line_in_a_pipe(short: Path, audit: Run) -> None:
    found = json.loads(audit(short, "--json").out)
    note = "note: " + "very long " * 40 + "end"
    found["notes"] = [note.removeprefix("note: ")]
    out = io.StringIO()
    print_report(Console(file=out, width=60), found)
    assert note in out.getvalue().splitlines()


def test_notes_on_names_from_messages_cannot_move_the_cursor() -> None:
    found = {"unknown": [], "awaited": [], "restarts": [], "notes": ["a\x1b[2Jb\n\u2028"]}
    assert notes_of(found) == ["note: a\\x1b[2Jb\\x0a\\u2028"]


@pytest.mark.parametrize(
    ("start_ms", "text"),
    [
        (1_300_000_000_000, "2011-03-13 07:06:40"),
        (1_300_000_000_250, "2011-03-13 07:06:40.250"),
        (-1, "no header"),
        (2**60, f"{2**60} ms"),
    ],
)
def test_windows_are_shown_in_utc(start_ms: int, text: str) -> None:
    assert window_text(start_ms) == text


def cell(number: int, *verdicts: str) -> dict[str, Any]:
    tiers = ("live", "offline", "warehouse")
    found = {tier: {"verdict": verdict} for tier, verdict in zip(tiers, verdicts, strict=False)}
    return {"number": number, "tiers": found}


@pytest.mark.parametrize("limit", [3, 8, 40])
def test_the_worst_cells_are_listed_first_each_kind_in_order(limit: int) -> None:
    cells = [
        cell(0, "redelivered 1", "complete"),
        cell(1, "pending"),
        cell(2, "complete", "missing 7", "behind 1"),
        cell(3, "not audited"),
        cell(4, "complete", "complete", "behind 3000"),
        cell(5, "redelivered 2", "unknown"),
        cell(6, "redelivered 9"),
        cell(7, "extra 1"),
        cell(8, "redelivered 1", "pending"),
    ]
    expected = [2, 5, 7, 1, 4, 8, 0, 3, 6]
    assert [each["number"] for each in worst_of(cells, limit)] == expected[:limit]


def test_a_reason_that_many_windows_have_is_said_once() -> None:
    away = {"verdict": "behind 3000", "state": "behind", "counted": 1, "reason": "broker 1 is away"}
    reasons: dict[str, int] = {}
    tiers = {"live": away, "offline": {**away, "reason": "broker 2 is away"}}
    texts = [verdicts_text(tiers, ["live", "offline"], reasons, {}).plain for _ in range(2)]
    assert texts == ["live: behind 3,000 (1)\noffline: behind 3,000 (2)"] * 2
    assert reasons == {"broker 1 is away": 1, "broker 2 is away": 2}


def test_the_service_of_a_deployment_that_has_ended_is_not_asked(tmp_path: Path) -> None:
    """Another deployment's may have its port, and another process its id, since a reboot."""
    (tmp_path / "run").mkdir()
    state = tmp_path / "run" / "audit.json"
    mine = {"KAFKA2011_DATA_DIR": "/mine/audit"}
    named = {**os.environ, "KAFKA2011_PROCESS_NAME": "audit", **mine}
    theirs = {**named, "KAFKA2011_DATA_DIR": "/theirs/audit"}
    with Child(["sleep", "600"], env=named) as ours, Child(["sleep", "600"], env=theirs) as other:
        wait_until(lambda: is_ours(ours.pid, "audit") and is_ours(other.pid, "audit"), "two audits")
        for pid, url in (
            (ours.pid, "http://127.0.0.1:1"),
            (os.getpid(), None),
            (other.pid, None),
            (2**22 + 1, None),
            (None, None),
        ):
            recorded = {"pid": pid, "metrics_address": "127.0.0.1:1", "environment": mine}
            state.write_text(json.dumps(recorded))
            assert _service_url(tmp_path, None) == url
            assert _service_url(tmp_path, "h:2") == "http://h:2"


def test_a_cell_that_is_pending_at_each_tier_is_one() -> None:
    pending, complete = {"state": "pending"}, {"state": "complete"}
    cells = [
        {"tiers": {"live": pending, "offline": pending, "warehouse": pending}},
        {"tiers": {"live": complete, "offline": complete, "warehouse": pending}},
        {"tiers": {"live": complete, "offline": complete, "warehouse": complete}},
    ]
    assert pending_cells(cells) == 2


AWAY = {"state": "pending", "reason": "live broker 2 does not answer: Connection refused"}


@pytest.mark.parametrize(
    ("states", "cells", "awaited", "said"),
    [
        # The cells come from a service a moment after the sums.
        ({"pending": 3}, [], [], "Nothing is missing so far (cells are pending)"),
        ({"pending": 0}, [{"live": {"state": "pending"}}], [], "The audit balances: 7 messages in"),
        (
            {"pending": 2},
            [{"live": {"state": "pending"}}],
            [],
            "Nothing is missing so far (1 cell is",
        ),
        (
            {"pending": 3},
            [
                {"live": {"state": "pending", "reason": "window open"}},
                {"live": AWAY, "offline": {"state": "pending", "reason": "reader behind"}},
                {"live": AWAY},
            ],
            [],
            "Nothing is missing so far (3 cells are pending, 2 of them because live broker 2 does "
            "not answer: Connection refused)",
        ),
        # What a report that is not read has counted may be in no cell.
        ({"pending": 0}, [], [{"what": "a report"}], "Nothing is missing so far"),
    ],
)
def test_it_is_called_balanced_by_the_same_moment_as_its_sums(
    states: dict[str, int], cells: list[Any], awaited: list[Any], said: str
) -> None:
    sums = dict.fromkeys(("missing", "unknown", "extra", "redelivered", "unreported"), 0)
    report = {
        "totals": {"produced": 7, "tiers": {"live": sums}},
        "verdicts": states,
        "cells": [
            {"topic": "t", "window_start_ms": n, "tiers": tiers} for n, tiers in enumerate(cells)
        ],
        "behind_by": {},
        "topics": {},
        "awaited": awaited,
        "not_read": [],
        "retained_from": [],
        "exit_status": 0,
    }
    assert conclusion(report).startswith(said)
    if said.startswith("The audit balances"):
        unread = "live ZooKeeper does not answer"
        one = {"produced": 1, "tiers": report["totals"]["tiers"]}
        found = conclusion(report | {"totals": one})
        assert found.startswith("The audit balances: 1 message in every tier")
        found = conclusion(report | {"not_read": [unread]})
        assert found == f"Nothing is missing so far ({unread})", "an old state is no balance"
        found = conclusion(report | {"retained_from": [{"topic": "audit"}]})
        assert found.startswith("Nothing is missing of what can be audited (what retention had")
        lost = "an unclean election lost a range of a log of live"
        found = conclusion(report | {"losses": [{"what": lost}]})
        assert found == f"Nothing is missing so far ({lost})", "counted, and there no more"
        empty = {"produced": 0, "tiers": report["totals"]["tiers"]}
        found = conclusion(report | {"not_read": [unread], "totals": empty})
        assert found == f"Nothing was read yet; {unread}"


def test_of_a_stopped_deployment_no_age_is_said_that_only_grows() -> None:
    sums = dict.fromkeys(("missing", "unknown", "extra", "redelivered", "unreported"), 0)
    report = {
        "source": "disk",
        "totals": {"produced": 7, "tiers": {"warehouse": sums}},
        "verdicts": {"pending": 0},
        "cells": [],
        "behind_by": {"warehouse": {"messages": 5, "bytes": None, "ms": 9000}},
        **dict.fromkeys(("topics", "awaited", "not_read", "retained_from"), ()),
        "exit_status": 0,
    }
    report["topics"] = {}
    assert conclusion(report) == (
        "Nothing is missing so far (warehouse is behind by 5 messages of cells judged, which the "
        "next start takes there)"
    )
    assert "warehouse is 9 s behind (5 messages" in conclusion(report | {"source": "service"})


LOST = [{"what": f"log {n} was lost", "tier": "live", "topic": "t", "place": n} for n in range(30)]
GAP = {"what": "monitoring event 1 not read", "server": "s"}
UNREAD = {"what": "live broker 1 does not answer", "tier": "live", "topic": AUDIT}


@pytest.mark.parametrize(
    ("unknown", "left_out", "missing", "said"),
    [
        (
            LOST,
            0,
            0,
            "It is not known whether everything arrived; 30 logs were lost; extra: 1 in live",
        ),
        (
            [*LOST[:1], GAP, UNREAD],
            0,
            0,
            "It is not known whether everything arrived; 1 log was lost; 1 range of monitoring "
            "events was not read; live broker 1 does not answer; extra: 1 in live",
        ),
        (
            [LOST[0] | {"place": "table"}, GAP, GAP],
            7,
            0,
            "It is not known whether everything arrived; 1 table is not the one that was counted; "
            "2 ranges of monitoring events were not read; and 7 more; extra: 1 in live",
        ),
        (
            LOST,
            0,
            2,
            "The audit does not balance. 30 logs were lost; missing: 2 in live; extra: 1 in live",
        ),
        ([], 0, 0, "The audit does not balance. extra: 1 in live"),
    ],
)
def test_the_last_line_names_what_is_unknown_before_what_is_extra(
    unknown: list[Any], left_out: int, missing: int, said: str
) -> None:
    """It left out thirty lost logs beside one message that was extra."""
    sums = dict.fromkeys(("unknown", "redelivered", "unreported", "unknown_cells"), 0)
    report = {
        "totals": {"produced": 7, "tiers": {"live": sums | {"missing": missing, "extra": 1}}},
        "verdicts": {"pending": 0},
        "unknown": unknown,
        "unknown_left_out": left_out,
        **dict.fromkeys(("cells", "awaited", "not_read", "retained_from", "notes", "restarts"), ()),
        "behind_by": {},
        "topics": {},
        "exit_status": 1,
    }
    assert conclusion(report) == said
    lines = notes_of(report)
    assert len(lines) == min(len(unknown), 20) + bool(len(unknown) > 20 or left_out)
    if len(unknown) > 20:
        assert lines[-1] == "unknown: ... and 10 more"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "{late}; redelivered: 4 in live"),
        ({"missing": 2}, "The audit does not balance. missing: 2 in live; {rest}; {late}"),
        ({"extra": 1}, "The audit does not balance. extra: 1 in live; {rest}; {late}"),
        ({"unknown_cells": 1}, "It is not known whether everything arrived; {rest}; {late}"),
    ],
)
def test_the_last_line_says_which_tier_is_beyond_the_limit_and_by_how_much(
    wrong: dict[str, int], said: str
) -> None:
    sums = dict.fromkeys(("missing", "unknown", "extra", "unreported", "unknown_cells"), 0)
    report = {
        "totals": {"produced": 7, "tiers": {"live": sums | {"redelivered": 4} | wrong}},
        "verdicts": {"pending": 0},
        **dict.fromkeys(("cells", "awaited", "not_read", "retained_from", "unknown"), ()),
        "behind_by": {
            tier: {"messages": 0, "bytes": 0, "ms": ms}
            for tier, ms in (("live", 5000), ("offline", 5100), ("warehouse", 3_600_000))
        },
        "topics": {},
        "exit_status": 1,
    }
    late = (
        "ehind for longer than allowed: offline by 5.1 s, warehouse by 1 h 0 min (--max-behind 5 s)"
    )
    first = "B" if said.startswith("{late}") else "b"
    expected = said.format(late=first + late, rest="redelivered: 4 in live")
    assert conclusion(report, beyond_limit(report, 5)) == expected
    assert beyond_limit(report, 3600) == ""


def test_what_is_produced_and_not_reported_yet_is_not_called_nothing() -> None:
    sums = dict.fromkeys(("missing", "unknown", "extra", "redelivered"), 0) | {"unreported": 9}
    report = {
        "source": "service",
        "now_ms": T0,
        "totals": {"produced": 0, "tiers": {"live": sums}},
        "verdicts": {"pending": 0},
        "cells": [],
        "behind_by": {},
        "topics": {},
        "awaited": [],
        "not_read": [],
        "retained_from": [],
        "exit_status": 0,
    }
    said = "Nothing was reported yet; 9 messages more than their producers have reported so far"
    assert conclusion(report) == said
    said = "Nothing was reported yet; 9 messages more than had been reported at 07:06:40 UTC, when "
    assert conclusion(report | {"source": "brokers"}) == said + "the recount began"


def test_copies_stand_behind_the_number_that_they_explain() -> None:
    part = {"verdict": "missing 7, redelivered 1256, pending", "redelivered": 1256}
    for unreported, word in ((0, "copies"), (2000, "never reported"), (3, "3 never reported")):
        numbers = {("live", "redelivered", NEVER): unreported, ("live", "redelivered", EQUAL): 0}
        text = verdicts_text({"live": part}, ["live"], {}, numbers).plain
        assert text == f"live: missing 7, redelivered 1,256 ({word}), pending"
    part = {"verdict": "extra 3, redelivered 1256", "extra": 3, "redelivered": 1256}
    numbers = {("live", word, what): 0 for word in SURPLUS for what in (NEVER, EQUAL)}
    numbers["live", "extra", NEVER] = 3
    text = verdicts_text({"live": part}, ["live"], {}, numbers).plain
    assert text == "live: extra 3 (never reported), redelivered 1,256 (copies)"
    numbers["live", "extra", NEVER], numbers["live", "extra", EQUAL] = 2, 1
    numbers["live", "redelivered", EQUAL] = 1256
    text = verdicts_text({"live": part}, ["live"], {}, numbers).plain
    assert text == (
        "live: extra 3 (2 never reported, 1 copies or equal), redelivered 1,256 (copies or equal)"
    )


def test_what_was_never_reported_is_counted_by_what_it_is_called() -> None:
    tiers = {
        "live": {"extra": 3, "redelivered": 0, "counted": 8, "distinct": 8},
        "offline": {"extra": 0, "redelivered": 5, "counted": 9, "distinct": 6},
        "warehouse": {"extra": 0, "redelivered": 4, "counted": 5, "distinct": 5, "equal": 1},
    }
    found = surplus_of(tiers)
    assert found == {
        ("live", "extra", NEVER): 3,
        ("live", "extra", EQUAL): 0,
        ("offline", "redelivered", NEVER): 2,
        ("offline", "redelivered", EQUAL): 0,
        ("warehouse", "redelivered", NEVER): 3,
        ("warehouse", "redelivered", EQUAL): 1,
    }
    assert surplus_of({"live": {"extra": 3, "redelivered": 0, "counted": 8}}) == {}


def test_an_audit_of_one_topic_is_about_that_one() -> None:
    def tier(number: int, state: str) -> dict[str, Any]:
        return {"live": {"behind": number, "state": state}}

    cells = [
        {"window_start_ms": 5000, "tiers": tier(2, "behind")},
        {"window_start_ms": 3000, "tiers": tier(5, "behind")},
        {"window_start_ms": 1000, "tiers": tier(0, "pending")},
    ]
    gap = {"what": "a gap", "server": "s"}
    lost = [{"what": name, "tier": "live", "topic": name} for name in ("a", "b", AUDIT)]
    summary = {
        "now_ms": 9000,
        "window_ms": 1000,
        "topics": {
            name: {
                "is_audited": name == "a",
                "cells": 1,
                "produced": 2,
                "tiers": {},
                "lag_bytes": lag,
            }
            for name, lag in (("a", {}), ("b", {"live": 70}))
        },
        "notes": ["live a: 1", "live b: 2"],
        "verdicts": {"pending": 7, "behind": 90, "missing": 8},
        "unknown": [gap, *lost],
        "awaited": [gap],
        "unknown_left_out": 0,
        "unread": lost,
        "deleted": lost,
        "tiers": {
            "live": {
                "behind_by": {"messages": 90, "bytes": 9, "ms": 9},
                "count": 1,
                "caught_up": False,
                "read_to_ms": 8000,
            }
        },
    }
    found = of_topics(summary, cells, ["a"])
    assert found["topics"].keys() == {"a"}
    assert found["totals"]["produced"] == 2
    assert found["notes"] == ["live a: 1"]
    assert found["verdicts"] == {"pending": 1, "behind": 2, "missing": 0}, "an older service's"
    by_state = dict.fromkeys(STATES, 0) | {"pending": 1, "behind": 2, "complete": 30}
    summary["topics"]["a"]["verdicts"] = by_state
    assert of_topics(summary, cells, ["a"])["verdicts"] == by_state
    assert found["unknown"] == [gap, lost[0], lost[2]]
    assert found["awaited"] == [gap]
    assert (found["unread"], found["deleted"]) == ([lost[0], lost[2]], [lost[0]])
    assert found["tiers"]["live"]["behind_by"] == {"messages": 7, "bytes": None, "ms": 5000}
    assert found["tiers"]["live"]["caught_up"], "what is not counted is another topic's"
    assert of_topics(summary | {"unknown_left_out": 1}, cells, ["a"])["unknown"] == [gap, *lost]
    nothing_is_said_of = of_topics(summary, [], ["b"])
    assert nothing_is_said_of["unknown"] == [lost[1]]
    assert not nothing_is_said_of["tiers"]["live"]["caught_up"]
    assert nothing_is_said_of["tiers"]["live"]["behind_by"] == {
        "messages": 0,
        "bytes": None,
        "ms": 0,
    }


def test_an_audit_of_one_topic_has_no_notes_of_others() -> None:
    notes = [
        "warehouse a: 1",
        "warehouse b: 2",
        "live b 1-0: its log, or the end of it, was lost: offline had taken it",
        "live broker 1 has no leader: a",
        "offline c: 3",
        "live a 2-0: its log, or the end of it, was lost: offline had taken it",
    ]
    assert notes_without({"a", "c"}, notes) == notes[1:4]


@pytest.mark.parametrize(("count", "more"), [(41, "1 more cell"), (42, "2 more cells")])
def test_how_many_cells_are_not_listed(short: Path, audit: Run, count: int, more: str) -> None:
    found = json.loads(audit(short, "--json").out)
    found["cells"] *= count
    out = io.StringIO()
    print_report(Console(file=out, width=160), found)
    assert f"... and {more} (--all lists all)" in out.getvalue().splitlines()


def test_topics_that_no_producer_reports_are_named_and_nothing_is_called_complete(
    var: Path, audit: Run
) -> None:
    shutil.rmtree(var / "broker-1" / "logs" / f"{AUDIT}-0")
    status, out, _ = audit(var)
    assert (status, "complete" in out) == (0, False), out
    assert out.splitlines()[-1] == ("Not audited, since no report of them was found: page-view")


@pytest.mark.parametrize(
    ("place", "first", "last", "reason", "text"),
    [
        ("1-0", 5, 9, "too large", "live t 1-0: from offset 5 to 9 was not read: too large"),
        ("1-0", 5, 9, "lost: election", "live t 1-0: from offset 5 to 9 is lost: election"),
        ("1-0", 9, 0, "it ends at 5", "live t 1-0: beyond offset 9 was not read: it ends at 5"),
        ("versions", 5, 6, "cleaned up", "live t: version 5 was not read: cleaned up"),
        ("versions", 5, 9, "cleaned up", "live t: versions 5 to 8 were not read: cleaned up"),
        ("table", 5, -1, "table t is another", "live t: table t is another"),
    ],
)
def test_a_range_that_was_not_counted_is_said_as_it_is(
    place: str, first: int, last: int, reason: str, text: str
) -> None:
    unread = {"tier": "live", "topic": "t", "place": place, "reason": reason}
    assert unread_text(unread | {"first": first, "last": last}) == text
