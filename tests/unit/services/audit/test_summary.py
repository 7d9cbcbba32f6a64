"""The service's summary, cells and metrics: bounded, in the recount's form."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kafka2011.cli import audit
from kafka2011.cli.audit import _as_report, not_read
from kafka2011.cli.audit_table import conclusion
from kafka2011.consumer.counting.verdicts import NOT_REPORTED, REPORTS_BEHIND
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.retention import SLACK_MS
from kafka2011.events.sequences import GAP_WAIT_MS
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.services.audit.books.persistence import load_books, take_changes
from kafka2011.services.audit.books.progress import DELETED_UNREAD, Election, PartitionKey
from kafka2011.services.audit.books.reports import GAPS_MAX
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore
from kafka2011.services.audit.books.writer import BooksWriter
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.endpoints import BadQuery, audit_endpoints, selection_from
from kafka2011.services.audit.judging import Judged
from kafka2011.services.audit.metrics import AuditCollector
from kafka2011.services.audit.report import KEPT_MS, REPORTS_LOST, Json
from kafka2011.services.audit.restarts import Restart
from kafka2011.services.audit.summary import TOPICS_MAX, AuditSummary
from kafka2011.services.audit.verdicts import NOT_HEARD, STATES
from tests.support.clock import ManualClock
from tests.unit.services.audit.samples import SERVER, T0, WINDOW_MS, heartbeat, report

LATENESS_MS = 1_000
LIVE_VIEWS, LIVE_AUDIT = PartitionKey("live", PAGE_VIEW, 1, 0), PartitionKey("live", AUDIT, 1, 0)
OFFLINE_VIEWS = PartitionKey("offline", PAGE_VIEW, 11, 0)
OFFLINE_AUDIT = PartitionKey("offline", AUDIT, 11, 0)
PARTITIONS = (LIVE_VIEWS, LIVE_AUDIT, OFFLINE_VIEWS, OFFLINE_AUDIT)
RESTART = {"name": "mirror-1", "time_ms": T0 + 1}


class Service:
    """Books of two tiers whose readers are up to date."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        self.clock = ManualClock(T0)
        self.restarts_file = tmp_path / "restarts.json"
        self.config = AuditConfig(
            live_zk_connect="live:1",
            offline_zk_connect="offline:1",
            window_ms=WINDOW_MS,
            lateness_ms=LATENESS_MS,
            restarts_file=self.restarts_file,
            **settings,
        )
        self.state = AuditState(
            self.config.tiers,
            WINDOW_MS,
            self.clock,
            cells_max=self.config.cells_max,
            exempt=self.config.exempt,
        )
        self.answers = AuditSummary(self.state, self.config, self.clock)
        self.reports = 0
        for key in PARTITIONS:
            self.state.begin(key, 0)
        self.catch_up()

    def catch_up(self) -> None:
        for key in PARTITIONS:
            self.state.set_read_to(key, self.clock())
        for tier in self.config.tiers:
            self.state.set_discovered(tier, self.clock())

    def add(self, reported: int, live: int, offline: int, window: int = T0) -> None:
        """Messages of one window that were reported, and counted in the tiers."""
        payload = report(self.reports, [(PAGE_VIEW, window, reported)])
        self.reports += 1
        self.state.reports.add(LIVE_AUDIT, [payload], 1)
        self.state.add_messages(LIVE_VIEWS, {(window, SERVER): live}, {}, 1)
        self.state.add_messages(OFFLINE_VIEWS, {(window, SERVER): offline}, {}, 1)

    def confirm(self) -> None:
        """The mirror has passed everything in the live tier."""
        self.state.confirm("offline", PAGE_VIEW, {BrokerPartition(1, 0): 1}, self.clock())

    def read(self) -> Json:
        """The summary a second later, when everything is read."""
        self.clock.advance(1000)
        self.catch_up()
        return self.answers.summary()

    def later(self, is_final: bool = False) -> Json:
        """The summary after the time for which the last one was kept."""
        self.clock.advance(1000)
        return self.answers.summary(is_final)

    def settle(self) -> Json:
        """The summary when the window and the lateness are over, and all is read."""
        self.clock.current_ms = T0 + WINDOW_MS + LATENESS_MS
        self.catch_up()
        return self.answers.summary()

    def cells(self, **query: str) -> Json:
        return self.answers.cells(selection_from(query))


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def verdicts(summary: Json) -> dict[str, int]:
    """The number of cells by verdict."""
    return {state: number for state, number in summary["verdicts"].items() if number}


def test_of_what_is_not_read_yet_no_tier_is_complete(service: Service) -> None:
    found = service.answers.summary()
    assert (found["cells"], found["balanced"]) == (0, False)
    assert {tier["verdict"] for tier in found["tiers"].values()} == {"pending"}


def test_all_who_ask_during_a_judgement_are_served_by_one_more(service: Service) -> None:
    """However long it takes. Each had one of its own, one after the other: beside a page that is
    open, an audit that caught up answered nothing for minutes."""
    askers, asked, moments = 20, threading.Semaphore(0), []
    judging = service.answers._judging[False]

    def slow(restarts: list[Restart]) -> Judged:
        found = judged(restarts)
        moments.append(found.at_ms)
        for _ in range(askers) if len(moments) == 1 else ():
            assert asked.acquire(timeout=20), "not all have asked"
        return found

    def clock() -> int:
        service.clock.advance(KEPT_MS)
        asked.release()
        return service.clock()

    judged, judging.judged = judging.judged, slow  # type: ignore[method-assign]
    service.answers._clock = clock
    with ThreadPoolExecutor(askers) as pool:
        found = list(pool.map(lambda _: service.answers.summary(), range(askers)))
    assert len(moments) == 2
    assert {each["now_ms"] for each in found} == {*moments}
    service.clock.current_ms -= 60_000
    assert service.answers.summary()["now_ms"] == service.clock(), "the clock went back"


def test_the_verdicts_of_a_topic_are_those_of_all_its_cells(service: Service) -> None:
    service.add(5, live=5, offline=4)
    service.settle()
    service.state.reports.add(LIVE_AUDIT, [report(0, [("new", T0, 5)], server="other")], 2)
    summary = service.later()
    found = {topic: verdicts(of_topic) for topic, of_topic in summary["topics"].items()}
    assert found == {PAGE_VIEW: {"complete": 1, "behind": 1}, "new": {"behind": 2}}
    assert verdicts(summary) == {"complete": 1, "behind": 3}


def test_what_was_deleted_unread_is_unknown_not_missing(service: Service) -> None:
    """It may have been there, whole, while the audit was away."""
    service.add(5, live=5, offline=3)
    service.state.skip(OFFLINE_VIEWS, 1, 500, DELETED_UNREAD)
    service.confirm()
    service.settle()
    summary = service.read()
    assert verdicts(summary) == {"complete": 1, "unknown": 1}
    assert summary["tiers"]["offline"]["unknown"] == 2
    assert summary["exit_status"] == 1
    cell = service.cells(verdict="unknown")["cell_list"][0]["tiers"]["offline"]
    assert cell["reason"] == f"not all was read: {DELETED_UNREAD}"


def test_what_an_unclean_election_cut_after_it_was_read_is_a_loss_that_no_cell_lacks(
    service: Service, tmp_path: Path
) -> None:
    """It stays counted; the page said *Nothing is lost*, and the command that the audit balances.
    A broker that was away and came back, and retention behind all tiers, are no loss."""
    service.add(5, live=5, offline=5)
    service.confirm()
    service.settle()
    service.state.set_unreachable("live", "broker 1", "it does not answer", 1)
    service.later()
    service.state.set_reachable("live", "broker 1", 1)
    service.state.set_earliest(LIVE_VIEWS, 1)
    summary = service.read()
    assert (summary["losses"], summary["balanced"]) == ([], True)
    assert conclusion(_as_report(summary, [])).startswith("The audit balances")

    service.state.set_earliest(LIVE_VIEWS, 0)
    reason = "unclean election of a in epoch 2"
    service.state.add_elections("live", 1, [Election(2, service.clock(), {LIVE_VIEWS: 0}, reason)])
    summary = service.read()
    lost = {"tier": "live", "topics": [AUDIT, PAGE_VIEW]}  # neither is known to be in that copy
    lost["what"] = "an unclean election lost a range of a log of live"
    assert verdicts(summary) == {"complete": 2}
    assert (
        summary["unread"][0]["what"] == f"live page-view 1-0: from offset 0 to 1 is lost: {reason}"
    )
    assert conclusion(_as_report(summary, [])) == f"Nothing is missing so far ({lost['what']})"
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=service.config.tiers)
    store.write(take_changes(service.state))
    load_books(again := AuditState(service.config.tiers, WINDOW_MS, service.clock), store)
    for books in (service.state, again):
        found = AuditSummary(books, service.config, service.clock).summary()
        assert [each["what"] for each in found["losses"]] == [lost["what"]]


def test_what_a_producer_counts_in_windows_that_do_not_fit_is_unknown(service: Service) -> None:
    """Its numbers were put into the first of the windows: missing there, extra in the others."""
    service.add(5, live=5, offline=5)
    made_ms = T0 + 2 * WINDOW_MS
    wide = report(0, [(PAGE_VIEW, T0, 9)], server="wide", window_ms=2 * WINDOW_MS, time_ms=made_ms)
    service.state.reports.add(LIVE_AUDIT, [wide], 2)
    for start_ms, count in ((T0, 4), (T0 + WINDOW_MS, 5)):
        for key in (LIVE_VIEWS, OFFLINE_VIEWS):
            service.state.add_messages(key, {(start_ms, "wide"): count}, {}, 1)
    service.confirm()
    service.clock.advance(4 * WINDOW_MS)
    service.catch_up()
    summary = service.read()
    assert summary["exit_status"] == 1
    [gap] = summary["unknown"]
    assert gap["what"] == "monitoring event 0 of wide (run-1) not read"
    assert any("wide counts in windows of 20000 ms" in note for note in summary["notes"])
    found = {
        (cell["server"], cell["window_start_ms"] - T0): cell["tiers"]["live"]["verdict"]
        for cell in service.cells()["cell_list"]
    }
    assert found == {
        (SERVER, 0): "complete",
        ("wide", 0): "unknown 4",
        ("wide", WINDOW_MS): "unknown 5",
    }


def test_a_sequence_that_is_used_again_for_other_counts_is_no_repeat(service: Service) -> None:
    """A journal restored from a backup does so. What it reported was dropped, and its losses hidden
    behind *balances*."""
    for _ in range(3):
        service.add(5, live=5, offline=5)
    same = report(1, [(PAGE_VIEW, T0, 5)])
    service.state.reports.add(LIVE_AUDIT, [same], 2)
    service.confirm()
    assert service.settle()["exit_status"] == 0
    for number, sequence in enumerate((1, 2, 3), 1):
        again = report(sequence, [(PAGE_VIEW, T0, 7)], time_ms=T0 + 9000 + number)
        service.state.reports.add(LIVE_AUDIT, [again], 2 + number)
    for _ in range(2):
        summary = service.read()
        [gap] = summary["unknown"]
        assert gap["what"] == (
            "monitoring events 1 to 2 of frontend-1 (run-1) not counted: the sequence was used "
            "before, as by a journal restored from a backup"
        )
        assert (gap["after_ms"], gap["before_ms"]) == (T0, T0 + 9002)
        assert summary["exit_status"] == 1
        assert verdicts(summary) == {"missing": 2}  # of the third, whose sequence is new
        store = AuditStore(
            service.restarts_file.with_name("audit.sqlite"),
            window_ms=WINDOW_MS,
            tiers=service.config.tiers,
        )
        store.write(take_changes(service.state))
        service.state = AuditState(service.config.tiers, WINDOW_MS, service.clock)
        load_books(service.state, store)
        store.close()
        service.answers = AuditSummary(service.state, service.config, service.clock)
        service.confirm()
        service.catch_up()


@pytest.mark.parametrize("is_first_in_range", [False, True])
def test_whichever_of_two_events_with_one_sequence_is_read_first_the_other_is_no_repeat(
    service: Service, is_first_in_range: bool
) -> None:
    """With partitions read side by side, that of the restored journal may be read first; the five
    that are lost were *complete*."""
    begin = [] if is_first_in_range else [(0, 5, T0 + 1), (1, 5, T0 + 2)]
    events = [*begin, (2, 7, T0 + 9000), (3, 7, T0 + 9001), (2, 5, T0 + 3), (0, 5, T0 + 1)]
    events += [(1, 5, T0 + 2), (2, 7, T0 + 9000)]
    for sequence, count, time_ms in events:
        payload = report(sequence, [(PAGE_VIEW, T0, count)], time_ms=time_ms)
        service.state.reports.add(LIVE_AUDIT, [payload], 1)
    for key in (LIVE_VIEWS, OFFLINE_VIEWS):
        service.state.add_messages(key, {(T0, SERVER): 24}, {}, 1)
    service.confirm()
    summary = service.settle()
    [gap] = summary["unknown"]
    assert (gap["first"], gap["last"], gap["before_ms"]) == (2, 2, T0 + 3)
    assert gap["after_ms"] == (0 if is_first_in_range else T0 + 2)
    assert verdicts(summary) == {"unknown": 2}


def test_reports_that_were_deleted_unread_make_no_message_extra(service: Service) -> None:
    """The books were restored from a backup, or the audit was away, for longer than the retention
    of topic `audit`: the reports of a producer that has ended since are gone."""
    service.add(5, live=5, offline=5)
    service.state.skip(LIVE_AUDIT, 1, 900, DELETED_UNREAD)
    for key in (LIVE_VIEWS, OFFLINE_VIEWS):
        service.state.add_messages(key, {(T0, "frontend-2"): 3}, {}, 2)
        service.state.add_messages(key, {(T0 + SLACK_MS + WINDOW_MS, SERVER): 4}, {}, 3)
    service.clock.current_ms = T0 + SLACK_MS + 3 * WINDOW_MS
    service.confirm()
    for _ in range(2):
        summary = service.read()
    assert verdicts(summary) == {"complete": 2, "unknown": 2, "extra": 2}
    [unknown] = service.cells(verdict="unknown")["cell_list"]
    assert unknown["server"] == "frontend-2"
    assert unknown["tiers"]["live"]["reason"] == (
        "not all reports were read: deleted by the broker before the audit read it"
    )


def test_a_window_is_pending_until_it_and_the_lateness_are_over(service: Service) -> None:
    service.add(5, live=5, offline=4)
    summary = service.answers.summary()
    assert verdicts(summary) == {"pending": 2}
    assert (summary["exit_status"], summary["balanced"]) == (0, False)
    summary = service.settle()
    assert verdicts(summary) == {"complete": 1, "behind": 1}
    assert (summary["exit_status"], summary["balanced"]) == (0, False)


def test_messages_are_missing_when_the_mirror_has_passed_them(service: Service) -> None:
    service.add(5, live=5, offline=4)
    late = service.settle()["tiers"]["offline"]["behind_by"]
    assert late == {"messages": 1, "bytes": 1, "ms": WINDOW_MS + LATENESS_MS}
    service.clock.advance(1000)
    service.confirm()
    assert verdicts(service.answers.summary()) == {"complete": 1, "behind": 1}, "more may be there"
    summary = service.read()
    assert summary["tiers"]["offline"]["verdict"] == "missing 1"
    assert summary["tiers"]["offline"]["behind_by"] == {"messages": 0, "bytes": 0, "ms": 0}
    assert summary["exit_status"] == 1


def test_messages_are_missing_at_once_when_they_were_deleted_before_the_mirror_came(
    service: Service,
) -> None:
    service.add(5, live=5, offline=4)
    service.state.confirm("offline", PAGE_VIEW, {BrokerPartition(1, 0): 0}, service.clock())
    service.settle()
    service.state.set_earliest(LIVE_VIEWS, 1)
    service.state.asked("offline", service.clock())
    summary = service.later()
    assert summary["tiers"]["offline"]["verdict"] == "missing 1"
    assert summary["deleted"] == [
        {
            "tier": "offline",
            "source": "live",
            "topic": PAGE_VIEW,
            "place": "1-0",
            "first": 0,
            "last": 1,
            "what": "live page-view 1-0: from offset 0 to 1 was deleted before offline had "
            "confirmed it",
        }
    ]
    assert summary["notes"] == []
    service.confirm()
    later = service.read()
    assert later["deleted"] == []
    assert later["notes"] == [summary["deleted"][0]["what"]], "it stays known which range it was"
    assert later["tiers"]["offline"]["verdict"] == "missing 1"
    assert service.state.remarks.kept() == later["notes"]


def test_what_the_mirror_took_before_it_was_deleted_is_not_missing_while_it_is_not_read(
    service: Service,
) -> None:
    """The mirror was late, copied all, and the source deleted it before the audit had read the
    copy: it was *missing*, and noted for good as deleted before it was confirmed."""
    service.add(5, live=5, offline=0)
    service.state.confirm("offline", PAGE_VIEW, {BrokerPartition(1, 0): 0}, service.clock())
    service.settle()
    service.clock.advance(3_600_000)
    for key in PARTITIONS:
        service.state.set_read_to(key, service.clock(), 500 if key == OFFLINE_VIEWS else 0)
    service.confirm()
    service.state.set_earliest(LIVE_VIEWS, 1)
    service.clock.advance(1000)
    service.state.asked("offline", service.clock())
    late = service.later()
    assert late["tiers"]["offline"]["verdict"] == "behind 5"
    assert (late["deleted"], late["exit_status"]) == ([], 0)
    service.state.add_messages(OFFLINE_VIEWS, {(T0, SERVER): 5}, {}, 10)
    summary = service.read()
    assert summary["tiers"]["offline"]["verdict"] == "complete"
    assert (summary["balanced"], summary["notes"]) == (True, [])


def test_a_mirror_at_the_edge_of_retention_has_one_note_for_each_topic(service: Service) -> None:
    """It had one for each range, and they pushed out all others."""
    service.state.note("kept", is_kept=True)
    mirror = BrokerPartition(1, 0)
    for end in range(10, 1000, 10):
        service.state.add_messages(LIVE_VIEWS, {(T0, SERVER): 1}, {}, end)
        service.state.set_earliest(LIVE_VIEWS, end - 5)
        service.state.asked("offline", service.clock())
        service.state.confirm("offline", PAGE_VIEW, {mirror: end}, service.clock())
        service.read()
    what = "live page-view 1-0: from offset 980 to 985 was deleted before offline had confirmed it"
    assert service.state.remarks.kept() == ["kept", what]


def test_what_the_mirror_had_not_confirmed_of_a_lost_log_is_not_said_to_come(
    service: Service,
) -> None:
    """It may have read more of it, until it says an offset of the new log."""
    service.add(5, live=5, offline=2)
    mirror = BrokerPartition(1, 0)
    service.state.add_messages(LIVE_VIEWS, {(T0, SERVER): 0}, {}, 500)
    service.state.confirm("offline", PAGE_VIEW, {mirror: 300}, service.clock())
    assert service.settle()["tiers"]["offline"]["verdict"] == "behind 3"
    service.state.skip(LIVE_VIEWS, 500, 0, "the log ends at 0")
    summary = service.read()
    assert summary["tiers"]["offline"]["verdict"] == "unknown 3"
    assert (summary["exit_status"], len(summary["unknown"])) == (1, 1)
    assert summary["notes"][-1].endswith("not known while its offset is 300 to 500")
    window = T0 + 5 * WINDOW_MS
    service.state.reports.add(LIVE_AUDIT, [report(1, [(PAGE_VIEW, window, 6)])], 2)
    service.state.add_messages(LIVE_VIEWS, {(window, SERVER): 6}, {}, 600)
    service.clock.current_ms = window + WINDOW_MS + LATENESS_MS
    for said, verdict in ((300, "unknown 3, behind 6"), (200, "missing 3, behind 6")):
        service.state.confirm("offline", PAGE_VIEW, {mirror: said}, service.clock())
        assert service.read()["tiers"]["offline"]["verdict"] == verdict
        assert service.state.unconfirmed("live") == [LIVE_VIEWS]
    service.state.confirm("offline", PAGE_VIEW, {mirror: 600}, service.clock())
    assert service.read()["tiers"]["offline"]["verdict"] == "missing 9"


def test_an_offset_of_the_mirror_that_the_log_does_not_have_says_nothing(service: Service) -> None:
    """Books that begin after the live broker lost its disk, while the mirror stands."""
    service.add(6, live=6, offline=0)
    service.state.confirm("offline", PAGE_VIEW, {BrokerPartition(1, 0): 10_000}, service.clock())
    assert service.settle()["tiers"]["offline"]["verdict"] == "behind 6"
    summary = service.read()
    assert summary["tiers"]["offline"]["verdict"] == "behind 6"
    assert summary["notes"] == [
        f"live {PAGE_VIEW} 1-0: its log, or the end of it, was lost: offline had taken it up to "
        "offset 10000, and how much it has of what is there now is not known while its offset "
        "is 10000"
    ]


def test_a_topic_that_no_broker_has_registered_is_behind_and_then_unknown(
    service: Service,
) -> None:
    """A broker without ZooKeeper has what was reported, and registers its first log later."""
    service.state.reports.add(LIVE_AUDIT, [report(0, [("new", T0, 5)])], 1)
    summary = service.settle()
    for tier in ("live", "offline"):
        assert summary["tiers"][tier]["verdict"] == "behind 5"
    (cell,) = service.cells()["cell_list"]
    assert cell["tiers"]["live"]["reason"] == "no broker of live has registered the topic yet"
    assert (summary["exit_status"], summary["balanced"]) == (0, False)
    service.clock.advance(GAP_WAIT_MS)
    summary = service.read()
    assert summary["tiers"]["live"]["verdict"] == "unknown 5"
    assert summary["exit_status"] == 1
    key = LIVE_VIEWS._replace(topic="new")
    service.state.expect(*key)
    service.state.set_read_to(key, service.clock())
    assert service.read()["tiers"]["live"]["verdict"] == "missing 5"


def test_what_is_copied_by_a_mirror_of_another_group_is_unknown_and_the_setting_is_named(
    service: Service,
) -> None:
    """Nothing would ever be missing: the audit asks a group that copies nothing how far it is."""
    service.add(5, live=5, offline=4)
    summary = service.settle()
    assert (summary["tiers"]["offline"]["verdict"], summary["notes"]) == ("behind 1", [])
    service.clock.advance(GAP_WAIT_MS)
    summary = service.read()
    assert summary["tiers"]["offline"]["verdict"] == "unknown 1"
    assert summary["notes"] == [
        f"messages of {PAGE_VIEW} arrive at offline, but consumer group mirror "
        "(audit.mirror.group) has no offset of that topic at live: how far offline has come is "
        "not known"
    ]
    assert summary["exit_status"] == 1
    service.confirm()
    summary = service.read()
    assert (summary["tiers"]["offline"]["verdict"], summary["notes"]) == ("missing 1", [])


def test_a_topic_that_the_mirror_has_not_begun_to_copy_is_behind(service: Service) -> None:
    service.add(5, live=5, offline=0)
    service.state.reports.add(OFFLINE_AUDIT, [report(0, [(PAGE_VIEW, T0, 3)], server="etl")], 1)
    service.state.add_messages(OFFLINE_VIEWS, {(T0, "etl"): 3}, {}, 2)
    service.settle()
    service.clock.advance(GAP_WAIT_MS)
    summary = service.read()
    assert (summary["tiers"]["offline"]["verdict"], summary["notes"]) == ("behind 5", [])


def test_a_gap_of_monitoring_events_is_unknown_until_it_is_filled(service: Service) -> None:
    service.add(5, live=5, offline=5)
    service.reports = 2
    service.add(0, live=0, offline=0)
    summary = service.settle()
    (gap,) = summary["unknown"]
    assert (gap["server"], gap["first"], gap["last"]) == (SERVER, 1, 1)
    assert verdicts(summary) == {"unknown": 2}
    assert (summary["exit_status"], summary["balanced"]) == (1, False)
    service.reports = 1
    service.add(0, live=0, offline=0)
    summary = service.read()
    assert (summary["unknown"], summary["exit_status"]) == ([], 0)
    assert verdicts(summary) == {"complete": 2}


def test_windows_of_a_gap_are_not_folded_before_it_is_filled(
    tmp_path: Path, service: Service
) -> None:
    """They were complete in the lines of topics and tiers, while the status was 1."""
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=service.config.tiers)
    writer = BooksWriter(service.config, service.state, store, service.clock)
    service.add(5, live=5, offline=5)
    service.reports = 2
    service.add(0, live=0, offline=0)
    counts = {(T0, "frontend-2"): 1}
    service.state.reports.add(LIVE_AUDIT, [report(0, [(PAGE_VIEW, T0, 1)], server="frontend-2")], 1)
    for key in (LIVE_VIEWS, OFFLINE_VIEWS):
        service.state.add_messages(key, counts, {}, 1)
    service.confirm()
    service.clock.advance(3 * 3_600_000)
    service.read()
    writer.write()
    assert [key.server for key in service.state.ledger.cells] == [SERVER], "the other has no gap"
    summary = service.read()
    assert {tier["verdict"] for tier in summary["tiers"].values()} == {"unknown"}
    assert summary["topics"][PAGE_VIEW]["tiers"]["live"]["verdict"] == "unknown"
    service.reports = 1
    service.add(0, live=0, offline=0)
    service.clock.advance(3_600_000)
    assert service.read()["exit_status"] == 0
    writer.write()
    assert not service.state.ledger.cells


def test_a_report_that_a_broker_without_answer_may_have_leaves_its_windows_pending(
    service: Service,
) -> None:
    service.add(5, live=5, offline=5)
    service.reports = 2
    service.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    service.state.begin(LIVE_AUDIT._replace(broker_id=2), 0)
    service.add(0, live=0, offline=0)
    summary = service.settle()
    (gap,) = summary["awaited"]
    assert (gap["server"], gap["first"], gap["last"]) == (SERVER, 1, 1)
    assert verdicts(summary) == {"pending": 2}
    assert (summary["unknown"], summary["exit_status"], summary["balanced"]) == ([], 0, False)
    [cell] = service.cells()["cell_list"]
    assert {tier["reason"] for tier in cell["tiers"].values()} == {"live broker 2 does not answer"}
    service.clock.advance(GAP_WAIT_MS)
    service.catch_up()
    summary = service.answers.summary()
    assert verdicts(summary) == {"unknown": 2}
    assert gap["what"].endswith(
        f" of {SERVER} (run-1) not read: on a broker that does not answer, or lost"
    )
    [unknown] = summary["unknown"]
    assert unknown == gap | {"what": f"monitoring event 1 of {SERVER} (run-1) not read"}
    assert (summary["awaited"], summary["exit_status"]) == ([], 1)


def test_messages_without_a_header_are_named_beside_what_is_missing(service: Service) -> None:
    """Either may be the other, read in a form that is not the topic's."""
    service.add(5, live=5, offline=4)
    service.state.add_messages(OFFLINE_VIEWS, {(-1, ""): 1}, {}, 1)
    assert service.settle()["notes"] == [], "behind is not missing"
    service.clock.advance(1000)
    service.confirm()
    assert service.read()["notes"] == [
        f"offline {PAGE_VIEW}: 1 message has no header in the form id (event.forms): "
        "what is missing may be there"
    ]


def test_what_is_not_read_to_its_end_is_not_judged_as_final(service: Service) -> None:
    service.add(5, live=5, offline=5)
    assert not_read(service.read()) == []
    service.state.set_read_to(OFFLINE_VIEWS, service.clock(), 70)
    [unread] = not_read(service.answers.summary(is_final=True))
    assert unread["what"] == "the newest messages of offline are not counted yet"


def test_what_a_broker_has_that_is_away_is_not_judged_as_final(service: Service) -> None:
    """Nothing of it was in `not_read`, so that --final had status 0, and the metric said that all
    was counted."""
    service.add(5, live=5, offline=5)
    service.confirm()
    service.settle()
    reason = "live broker 2 does not answer"
    service.state.set_unreachable("live", "broker 2", reason, 2)
    service.state.begin(LIVE_VIEWS._replace(broker_id=2), 0)
    service.state.begin(LIVE_AUDIT._replace(broker_id=2), 0)
    summary = service.later(is_final=True)
    assert [each["what"] for each in not_read(summary)] == [reason]
    assert _as_report(summary, [])["not_read"] == [reason]
    assert [tier["caught_up"] for tier in summary["tiers"].values()] == [False, True]
    caught_up = {tier: f'kafka2011_audit_caught_up{{tier="{tier}"}}' for tier in summary["tiers"]}
    assert {f"{caught_up['live']} 0.0", f"{caught_up['offline']} 1.0"} <= {
        *metrics_of(service).splitlines()
    }


def test_many_reports_that_are_awaited_hide_no_report_that_is_lost(service: Service) -> None:
    """The list of both ended where a hundred were awaited."""
    servers = [f"awaited-{number:03d}" for number in range(120)]

    def add(number: int, *of: str) -> None:
        payloads = [report(number, [(PAGE_VIEW, T0, 1)], server=server) for server in of]
        service.state.reports.add(LIVE_AUDIT, payloads, 1)

    add(0, *servers, "zz")
    add(2, "zz")
    service.settle()
    away = LIVE_AUDIT._replace(broker_id=2)
    service.state.begin(away, 0)
    service.state.set_read_to(away, service.clock())
    service.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    service.clock.advance(1000)
    add(2, *servers)
    summary = service.read()
    assert [gap["server"] for gap in summary["unknown"]] == ["zz"]
    assert len(summary["awaited"]) == 50
    assert summary["exit_status"] == 1


@pytest.mark.parametrize("instance", ["run-1", "run-1+1300"])  # the other sent something again
def test_a_goodbye_shows_the_loss_of_the_last_monitoring_event(
    service: Service, instance: str
) -> None:
    service.add(5, live=5, offline=5)
    goodbye = heartbeat(T0 + 500, instance=instance, is_last=True, last_sequence=1)
    service.state.reports.add(LIVE_AUDIT, [goodbye], 2)
    summary = service.settle()
    assert [(gap["first"], gap["last"]) for gap in summary["unknown"]] == [(1, 1)]
    assert summary["exit_status"] == 1


def test_a_log_that_began_anew_is_unknown_behind_what_was_read(service: Service) -> None:
    service.add(5, live=5, offline=5)
    service.state.skip(LIVE_VIEWS, 1, 0, "the log was lost or replaced")
    summary = service.settle()
    assert [each["what"] for each in summary["unknown"]] == [
        "live page-view 1-0 was lost beyond offset 1"
    ]
    assert summary["exit_status"] == 1


def test_where_retention_took_the_oldest_reports_their_absence_is_no_gap(service: Service) -> None:
    service.state.skip(LIVE_AUDIT, 0, 50, "deleted by the broker before the audit read it")
    service.reports = 7
    service.add(5, live=5, offline=5)
    assert service.settle()["unknown"] == []
    service.reports = 9
    service.add(0, live=0, offline=0)
    assert [(gap["first"], gap["last"]) for gap in service.read()["unknown"]] == [(8, 8)]


def test_a_topic_that_is_not_reported_is_not_audited(service: Service) -> None:
    service.add(5, live=5, offline=5)
    service.state.ledger.add_counts("live", "json", {(-1, "unreadable-header"): 10_500})
    summary = service.settle()
    assert (summary["exit_status"], summary["balanced"]) == (0, True)
    assert verdicts(summary) == {"complete": 2, "not audited": 2}
    json_topic = summary["topics"]["json"]
    assert (json_topic["is_audited"], json_topic["tiers"]["live"]["counted"]) == (False, 10_500)
    live = summary["tiers"]["live"]
    assert (live["count"], live["not_audited"], live["expected"]) == (10_505, 10_500, 5)
    assert service.cells(verdict="incomplete")["cells_found"] == 0


def test_a_topic_whose_reports_may_be_among_those_lost_is_unknown(service: Service) -> None:
    """It was *not audited, since no producer reports it*. A window outside the gap, another
    server's, and messages without a header stay so."""
    service.add(5, live=5, offline=5)
    service.reports += 1  # the report that is lost
    for window in (T0, T0 + WINDOW_MS):
        service.add(5, live=5, offline=5, window=window)
    of_window = {T0: 7, T0 + 9 * WINDOW_MS: 2, T0 - 9 * WINDOW_MS: 1}
    for tier in service.config.tiers:
        counts = {(start_ms, SERVER): count for start_ms, count in of_window.items()}
        counts |= {(T0, "elsewhere"): 3, (-1, "unreadable-header"): 4}
        service.state.ledger.add_counts(tier, "access-log", counts)
    service.confirm()
    service.clock.current_ms = T0 + 12 * WINDOW_MS
    service.catch_up()
    summary = service.read()
    found = {
        (cell["window_start_ms"], cell["server"]): cell["tiers"]["live"]
        for cell in service.cells(topic="access-log")["cell_list"]
    }
    lost = found.pop((T0, SERVER))
    assert (lost["verdict"], lost["reason"]) == ("unknown 7", REPORTS_LOST)
    assert {tier["verdict"] for tier in found.values()} == {"not audited"}
    assert summary["exit_status"] == 1
    topic = summary["topics"]["access-log"]
    assert (topic["is_audited"], topic["tiers"]["live"]["verdict"]) == (True, "unknown 7")


def test_a_topic_whose_reports_may_have_been_deleted_unread_is_unknown(service: Service) -> None:
    service.state.skip(LIVE_AUDIT, 1, 500, DELETED_UNREAD)
    service.add(5, live=5, offline=5)
    counts = {(start_ms, SERVER): 7 for start_ms in (T0, T0 + 9 * SLACK_MS)}
    counts[-1, "unreadable-header"] = 4
    service.state.ledger.add_counts("live", "access-log", counts)
    service.settle()
    service.clock.current_ms = T0 + 12 * SLACK_MS
    service.catch_up()
    service.read()
    found = {
        cell["window_start_ms"]: cell["tiers"]["live"]["verdict"]
        for cell in service.cells(topic="access-log")["cell_list"]
    }
    assert found == {-1: "not audited", T0: "unknown 7", T0 + 9 * SLACK_MS: "not audited"}


def test_the_lag_of_a_tier_is_not_known_before_its_logs_were_looked_at(service: Service) -> None:
    """It was 0, as when all is read: after a start, and while a broker was away."""

    def lags(answers: AuditSummary) -> list[int | None]:
        tiers = answers.summary()["tiers"]
        return [tiers[tier]["lag_bytes"] for tier in ("live", "offline")]

    assert lags(service.answers) == [0, 0]
    service.state.set_read_to(LIVE_VIEWS, service.clock(), lag_bytes=70)
    assert lags(service.answers) == [70, 0]
    service.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    assert lags(service.answers) == [None, 0]
    assert 'kafka2011_audit_lag_bytes{tier="live"} NaN' in metrics_of(service)
    service.state.begin(OFFLINE_VIEWS._replace(partition=1), 0)
    assert lags(service.answers) == [None, None]
    new = AuditState(service.config.tiers, WINDOW_MS, service.clock)
    assert lags(AuditSummary(new, service.config, service.clock)) == [None, None]


def test_what_cannot_be_read_does_not_balance(service: Service) -> None:
    """Its books said so as of before: all may have changed since."""
    service.add(5, live=5, offline=5)
    assert service.settle()["balanced"]
    service.state.set_unreachable("live", "ZooKeeper", "live ZooKeeper does not answer")
    summary = service.later()
    assert (summary["balanced"], summary["exit_status"]) == (False, 0)
    assert _as_report(summary, [])["not_read"] == ["live ZooKeeper does not answer"]
    service.state.set_reachable("live", "ZooKeeper")
    service.state.set_read_to(LIVE_AUDIT, service.clock(), lag_bytes=100)
    summary = service.later()
    assert not summary["balanced"]
    assert _as_report(summary, [])["not_read"] == [
        "the newest reports of the producers are not counted yet"
    ]
    assert [each["what"] for each in not_read(summary)] == [
        "the newest reports of the producers are not counted yet"
    ]


def test_after_a_pause_nothing_is_folded_before_what_came_meanwhile_is_read(
    tmp_path: Path, service: Service
) -> None:
    """Old windows were folded by the clock, and all was said to balance while nothing could be
    read; producers that reported before the pause were forgotten, and their next event was a gap.
    """
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=service.config.tiers)
    service.add(5, live=5, offline=5)
    BooksWriter(service.config, service.state, store, service.clock).write()
    service.clock.advance(8 * 24 * 3_600_000)
    again = AuditState(service.config.tiers, WINDOW_MS, service.clock)
    load_books(again, store)
    writer = BooksWriter(service.config, again, store, service.clock)
    writer.write()
    assert len(again.ledger.cells) == 1
    again.reports.add(LIVE_AUDIT, [report(1, [(PAGE_VIEW, T0, 3)])], 2)
    assert not again.reports.gaps().unknown
    for key in PARTITIONS:
        again.set_read_to(key, service.clock())
    for tier in service.config.tiers:
        again.set_discovered(tier, service.clock())
    service.clock.advance(10_000)
    for key in (LIVE_VIEWS, OFFLINE_VIEWS):
        again.add_messages(key, {(T0, SERVER): 3}, {}, 2)
    writer.write()
    assert len(again.ledger.cells) == 0
    assert again.ledger.folded["offline", PAGE_VIEW].missing == 0


def test_a_producer_that_reports_once_a_week_has_no_gap(tmp_path: Path, service: Service) -> None:
    """Its events so far were forgotten after a week, and the next one began with a gap: unknown,
    for ever. A restart makes no difference, and a repeat is still recognised."""
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=service.config.tiers)
    service.add(5, live=5, offline=5)
    service.add(0, live=0, offline=0)
    service.clock.advance(8 * 24 * 3_600_000)
    service.catch_up()
    BooksWriter(service.config, service.state, store, service.clock).write()
    assert not service.state.ledger.seen, "it is not gone through at each judgement"
    again = AuditState(service.config.tiers, WINDOW_MS, service.clock)
    load_books(again, store)
    BooksWriter(service.config, again, store, service.clock).write()
    for state in (service.state, again):
        for key in PARTITIONS:
            state.set_read_to(key, service.clock())
        state.reports.add(LIVE_AUDIT, [report(1, [(PAGE_VIEW, T0, 9)]), report(2, [])], 5)
        assert list(state.ledger.report_gaps(service.clock())) == []
        assert not state.ledger.cells, "the second event came again"
        state.reports.add(LIVE_AUDIT, [report(4, [])], 6)
        gaps = [(gap.first, gap.last) for _, gap in state.ledger.report_gaps(service.clock())]
        assert gaps == [(3, 3)]


# --- what retention had deleted before the books began -------------------------------------------

OLD, FIRST = T0 - 5 * WINDOW_MS, T0 - WINDOW_MS


def test_what_retention_had_deleted_before_the_books_began_is_not_audited(service: Service) -> None:
    """Messages whose reports were deleted were called extra for ever, reports whose messages were
    deleted missing, and what a producer had reported before a gap."""
    later = T0 + 2 * WINDOW_MS
    service.state.skip(LIVE_AUDIT, 0, 400, "deleted")
    service.state.skip(LIVE_VIEWS, 0, 900, "deleted")
    assert service.state.ledger.retained.reports_from_ms == T0, "nothing is known of before"
    service.clock.current_ms = later
    reports = [
        report(7, [(PAGE_VIEW, OLD, 3)], time_ms=FIRST - SLACK_MS),
        report(8, [(PAGE_VIEW, T0 - WINDOW_MS, 4), (PAGE_VIEW, T0, 4)], time_ms=T0 + 5_000),
        report(9, [(PAGE_VIEW, T0 + WINDOW_MS, 5)], time_ms=later),
    ]
    for end, payload in enumerate(reports, 500):
        service.state.reports.add(LIVE_AUDIT, [payload], end)
    assert service.state.is_without_beginning(LIVE_VIEWS)
    service.state.begins(LIVE_VIEWS, [])
    service.state.begins(LIVE_VIEWS, [0, later, later])  # the first clock is wrong
    assert not service.state.is_without_beginning(LIVE_VIEWS)
    service.state.add_messages(LIVE_VIEWS, {(OLD, SERVER): 1, (T0, SERVER): 2}, {}, 901)
    service.state.add_messages(LIVE_VIEWS, {(T0 + WINDOW_MS, SERVER): 5}, {}, 902)
    offline = {(OLD, SERVER): 9, (T0 - WINDOW_MS, SERVER): 4, (T0, SERVER): 4}
    service.state.add_messages(OFFLINE_VIEWS, offline | {(T0 + WINDOW_MS, SERVER): 5}, {}, 5)
    service.confirm()
    service.clock.current_ms = later + LATENESS_MS
    summary = service.read()
    assert summary["retained_from"] == [
        {"tier": "live", "topic": AUDIT, "from_ms": FIRST},
        {"tier": "live", "topic": PAGE_VIEW, "from_ms": T0},
    ]
    found = {
        (cell["window_start_ms"] - T0) // WINDOW_MS: [
            cell["tiers"][tier]["state"] for tier in ("live", "offline")
        ]
        for cell in service.cells()["cell_list"]
    }
    assert found == {
        -5: ["not audited", "not audited"],
        -1: ["not audited", "complete"],
        0: ["missing", "complete"],  # it began when the cut was seen: whole, whatever a clock says
        1: ["complete", "complete"],
    }
    assert sum("retention had deleted" in note for note in summary["notes"]) == 2


def said_of(service: Service) -> tuple[list[str], bool, str]:
    """The verdicts by tier, whether all balances, and the last line of the command."""
    summary = service.answers.summary()
    found = [tier["verdict"] for tier in summary["tiers"].values()]
    assert [each["verdict"] for each in summary["topics"][PAGE_VIEW]["tiers"].values()] == found
    said = conclusion(_as_report(summary, []))
    return found, summary["balanced"], said.partition(" (")[0]


def test_what_was_not_audited_at_all_is_not_called_complete(
    tmp_path: Path, service: Service
) -> None:
    """Sums over nothing but such cells were complete and balanced, folded or not."""
    service.clock.current_ms = T0 + 7_200_000
    service.state.skip(LIVE_AUDIT, 0, 500, "deleted")
    service.state.reports.add(LIVE_AUDIT, [heartbeat(T0 + 3_600_000)], 600)
    service.add(5, live=3, offline=0)
    service.confirm()
    service.read()
    nothing = (["not audited"] * 2, False, "Nothing of what was produced can be audited")
    assert said_of(service) == nothing
    assert service.answers.summary()["exit_status"] == 0
    assert service.state.ledger.fold(T0 + WINDOW_MS) == 1
    service.read()
    assert said_of(service) == nothing
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=service.config.tiers)
    store.write(take_changes(service.state))
    load_books(again := AuditState(service.config.tiers, WINDOW_MS, service.clock), store)
    assert again.ledger.folded == service.state.ledger.folded

    service.add(5, live=5, offline=5, window=T0 + 7_200_000)
    service.clock.advance(WINDOW_MS)
    service.read()
    part = (
        ["complete of what can be audited"] * 2,
        False,
        "Nothing is missing of what can be audited",
    )
    assert said_of(service) == part
    assert service.state.ledger.fold(service.clock()) == 1
    service.read()
    assert said_of(service) == part


def joined(service: Service, hours: int) -> Json:
    """The summary after a broker came whose log of monitoring events has lost its beginning, so
    many hours after the books began."""
    key = LIVE_AUDIT._replace(broker_id=3)
    service.clock.advance(hours * 3_600_000)
    service.state.expect(*key)
    service.state.skip(key, 0, 500, "deleted")
    service.clock.advance(3_600_000)
    payloads = [
        heartbeat(service.clock(), server="frontend-3"),
        report(3, [], server="frontend-3", time_ms=service.clock()),
    ]
    service.state.reports.add(key, payloads, 600)
    service.clock.advance(1000)
    service.state.set_read_to(key, service.clock())
    service.catch_up()
    return service.answers.summary()


def test_a_broker_that_comes_later_withdraws_no_verdict(service: Service) -> None:
    """What its log lacked was taken for deleted before the audit began, and what was known to be
    missing was *not audited*, with status 0."""
    service.add(5, live=5, offline=4)
    service.settle()
    service.confirm()
    assert service.read()["tiers"]["offline"]["verdict"] == "missing 1"
    summary = joined(service, hours=2)
    assert summary["tiers"]["offline"]["verdict"] == "missing 1"
    assert summary["retained_from"] == []
    assert [gap["server"] for gap in summary["unknown"]] == ["frontend-3"]
    assert summary["unread_ranges"] == 1


def test_a_log_that_began_anew_and_is_cut_withdraws_no_verdict(service: Service) -> None:
    """It is read from offset 0 again: that is no beginning of the audit."""
    service.add(5, live=5, offline=4)
    service.settle()
    service.confirm()
    service.state.skip(LIVE_AUDIT, 1, 0, "the log was lost or replaced")
    service.clock.advance(3_600_000)
    service.state.skip(LIVE_AUDIT, 0, 500, "deleted")
    summary = service.read()
    assert (summary["tiers"]["offline"]["missing"], summary["retained_from"]) == (1, [])


def test_brokers_that_start_beside_the_audit_excuse_what_is_older_than_the_books(
    tmp_path: Path, service: Service
) -> None:
    """A restart of the service meanwhile makes no difference."""
    service.add(5, live=5, offline=4)
    service.add(5, live=5, offline=4, window=OLD)
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=service.config.tiers)
    service.state.begin(LIVE_AUDIT._replace(broker_id=3), 0)
    BooksWriter(service.config, service.state, store, service.clock).write()
    again = AuditState(service.config.tiers, WINDOW_MS, ManualClock(T0 + 60_000))
    load_books(again, store)
    again.skip(LIVE_AUDIT._replace(broker_id=3), 0, 500, "deleted")
    assert again.ledger.retained.from_ms == {("live", AUDIT): T0}
    service.settle()
    service.confirm()
    summary = joined(service, hours=0)
    assert summary["retained_from"] == [{"tier": "live", "topic": AUDIT, "from_ms": T0}]
    assert summary["tiers"]["offline"]["missing"] == 1


def test_an_event_that_retention_cannot_have_deleted_is_a_gap_all_the_same(
    service: Service,
) -> None:
    other = LIVE_AUDIT._replace(partition=1)
    service.state.begin(other, 0)
    for key in (LIVE_AUDIT, other):
        service.state.skip(key, 0, 400, "deleted")
    service.state.reports.add(LIVE_AUDIT, [report(7, [], time_ms=T0 - 120_000)], 500)
    service.state.reports.add(other, [report(9, [], time_ms=T0 - 60_000)], 500)
    service.state.reports.add(other, [report(10, [], time_ms=T0 + 500)], 600)
    service.state.reports.add(LIVE_AUDIT, [report(12, [], time_ms=T0 + 90_000)], 600)
    service.state.set_read_to(other, service.clock() + 1_000)
    gaps = [(gap["first"], gap["last"]) for gap in service.read()["unknown"]]
    assert gaps == [(11, 11)]
    service.clock.current_ms = T0 + WINDOW_MS * 100
    late = heartbeat(T0 + 95_000, last_sequence=20, is_last=True)
    service.state.reports.add(LIVE_AUDIT, [late], 700)
    service.state.set_read_to(other, service.clock() + 1_000)
    gaps = [(gap["first"], gap["last"]) for gap in service.read()["unknown"]]
    assert gaps == [(11, 11), (13, 20)]


def test_a_producer_that_was_idle_when_its_reports_were_deleted_has_no_gap(
    service: Service,
) -> None:
    """An idle producer writes nothing in its windows: the event behind the gap may come at any
    time. It was unknown, for ever. What a run lacks that began later is a gap all the same."""
    service.state.skip(LIVE_AUDIT, 0, 400, "deleted")
    first = [report(n, [], server="frontend-2", time_ms=T0 - 60_000) for n in range(3)]
    service.state.reports.add(LIVE_AUDIT, first, 500)
    service.clock.advance(720_000)
    service.state.reports.add(LIVE_AUDIT, [report(41, [], time_ms=service.clock())], 600)
    assert service.read()["unknown"] == []
    service.clock.advance(720_000)
    again = report(2, [], instance="run-2", time_ms=service.clock())
    service.state.reports.add(LIVE_AUDIT, [again], 700)
    assert [(gap["first"], gap["last"]) for gap in service.read()["unknown"]] == [(0, 1)]


def test_more_read_than_reported_so_far_is_said(service: Service) -> None:
    service.add(5, live=8, offline=5)
    tiers = service.answers.summary()["tiers"]
    assert tiers["live"]["unreported"] == 3
    assert [tiers[tier]["lacking"] for tier in tiers] == [0, 0]


def test_what_a_tier_lacks_is_not_made_up_for_by_what_another_cell_has_more(
    service: Service,
) -> None:
    """`make live` showed 0 behind beside a dead broker: the difference of two totals."""
    service.add(5, live=8, offline=5)
    service.add(5, live=3, offline=0, window=T0 + WINDOW_MS)
    tiers = service.answers.summary()["tiers"]
    assert [tiers[tier]["lacking"] for tier in tiers] == [2, 5]


def test_final_judges_open_windows_too(service: Service) -> None:
    service.add(5, live=5, offline=0)
    assert verdicts(service.answers.summary(is_final=True)) == {"complete": 1, "behind": 1}
    service.add(0, live=0, offline=5)
    summary = service.later(is_final=True)
    assert summary["balanced"]
    assert (summary["produced"], summary["tiers"]["offline"]["count"]) == (5, 5)


def test_a_reader_that_is_behind_keeps_cells_pending(service: Service) -> None:
    service.add(5, live=0, offline=0)
    service.clock.advance(WINDOW_MS + LATENESS_MS + 5000)
    assert verdicts(service.answers.summary()) == {"pending": 2}
    service.catch_up()
    assert verdicts(service.later()) == {"missing": 2}


def test_a_broker_that_is_away_is_the_reason_given(service: Service) -> None:
    reason = "offline broker 11 does not answer"
    service.state.set_unreachable("offline", "broker 11", reason, 11)
    service.add(5, live=5, offline=0)
    assert reason in service.settle()["notes"]
    (cell,) = service.cells()["cell_list"]
    offline = cell["tiers"]["offline"]
    assert (offline["verdict"], offline["reason"]) == ("behind 5", reason)
    assert cell["tiers"]["live"]["verdict"] == "complete"


@pytest.mark.parametrize(
    ("settings", "offline", "found"),
    [
        ({}, 6, {"complete": 1, "extra": 1}),
        # Where no restarts are kept.
        ({"redelivery_expected": True}, 6, {"complete": 1, "redelivered": 1}),
        ({"exempt": frozenset({("offline", PAGE_VIEW)})}, 0, {"complete": 1}),
    ],
    ids=["default", "redelivery is expected", "the topic is exempt"],
)
def test_settings_excuse(
    tmp_path: Path, settings: dict[str, Any], offline: int, found: dict[str, int]
) -> None:
    service = Service(tmp_path, **settings)
    service.add(5, live=5, offline=offline)
    summary = service.settle()
    assert verdicts(summary) == found
    assert summary["exit_status"] == ("extra" in found)
    assert summary["balanced"] == ("extra" not in found)


def test_restarts_are_read_at_each_judgement(service: Service) -> None:
    service.add(5, live=6, offline=6)
    service.restarts_file.write_text('{"name": 3}')
    summary = service.settle()
    assert (verdicts(summary), summary["exit_status"]) == ({"extra": 2}, 1)
    assert any("restarts.json" in note for note in summary["notes"])
    service.restarts_file.write_text(json.dumps([RESTART]))
    summary = service.later()
    assert (verdicts(summary), summary["exit_status"]) == ({"redelivered": 2}, 0)
    assert summary["restarts"] == [RESTART]


@pytest.mark.parametrize(
    ("query", "ages", "found", "left_out"),
    [
        ({}, range(10), 10, 0),
        ({"verdict": "incomplete"}, [0, 2, 4, 6, 8], 5, 0),
        ({"verdict": "behind"}, [0, 2, 4, 6, 8], 5, 0),
        ({"topic": "other"}, [], 0, 0),
        ({"server": SERVER, "limit": "4"}, [6, 7, 8, 9], 10, 6),
        ({"limit": "4", "offset": "8"}, [0, 1], 10, 0),
        ({"window_start_ms": str(T0 - 9 * WINDOW_MS)}, [9], 1, 0),
        # Of old windows only incomplete ones; what the limit cuts are the oldest.
        ({"newest": "3"}, [0, 1, 2, 4, 6, 8], 6, 0),
        ({"newest": "3", "limit": "4"}, [0, 1, 2, 4], 6, 2),
    ],
)
def test_cells_are_selected_and_paged(
    service: Service, query: dict[str, str], ages: list[int], found: int, left_out: int
) -> None:
    """Of ten windows, every second is missing offline."""
    for age in range(10):
        service.add(1, live=1, offline=age % 2, window=T0 - age * WINDOW_MS)
    service.settle()
    page = service.cells(**query)
    shown = [(T0 - cell["window_start_ms"]) // WINDOW_MS for cell in page["cell_list"]]
    assert sorted(shown) == list(ages)
    assert (page["cells_found"], page["cells_left_out"]) == (found, left_out)


def test_windows_of_the_future_are_said_and_push_none_of_the_present_out(
    service: Service,
) -> None:
    for age in range(4):
        service.add(1, live=1, offline=1, window=T0 - age * WINDOW_MS)
    ahead = T0 + 10**9 // WINDOW_MS * WINDOW_MS
    for number in range(3):
        service.add(1, live=1, offline=1, window=ahead + number * WINDOW_MS)
    summary = service.settle()
    assert summary["notes"][0] == (
        f"3 windows begin more than a minute from now, by the clock of {SERVER}: pending until then"
    )
    page = service.cells(newest="2")
    shown = [(T0 - cell["window_start_ms"]) // WINDOW_MS for cell in page["cell_list"]]
    assert sorted(shown) == [0, 1]


@pytest.mark.parametrize(
    "query",
    [
        *({"limit": "-1"}, {"offset": "x"}, {"newest": ""}, {"window": "3"}, {"verdict": ""}),
        *({"verdict": "foo"}, {"verdict": "Missing"}, {"final": "yes"}, {"window_start_ms": "x"}),
    ],
)
def test_a_bad_query_gets_400_with_the_reason(service: Service, query: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        selection_from(query)
    status, _, body = audit_endpoints(service.answers, list)["/audit"](query)
    assert (status, list(json.loads(body))) == (400, ["error"])


def test_the_verdicts_that_there_are_are_named(service: Service) -> None:
    endpoint = audit_endpoints(service.answers, list)["/audit"]
    status, _, body = endpoint({"verdict": "foo"})
    assert (status, json.loads(body)["error"]) == (
        400,
        "verdict 'foo' is unknown; there are: pending, complete, behind, missing, unknown, extra, "
        "redelivered, not audited, incomplete",
    )
    for verdict in (*STATES, "incomplete"):
        assert endpoint({"verdict": verdict})[0] == 200
    assert endpoint({"window_start_ms": "-1"})[0] == 200
    assert endpoint({"topic": "nosuch"})[0] == 200
    assert audit_endpoints(service.answers, list)["/audit/summary"]({"final": "yes"})[0] == 400


def test_the_summary_stays_small_whatever_there_is(service: Service) -> None:
    for number in range(300):
        counts = {(T0, f"server-{n}"): 1 for n in range(20)}
        service.state.ledger.add_counts("live", f"topic-{number:03d}", counts)
        service.state.note(f"note {number}")
    endpoints = audit_endpoints(service.answers, lambda: [{"group": "online"}])
    status, _, body = endpoints["/audit/summary"]({})
    assert json.loads(endpoints["/audit/groups"]({})[2]) == {"groups": [{"group": "online"}]}
    assert status == 200
    assert len(body) < 200_000
    assert json.loads(body)["topics_left_out"] == 100


def test_a_loss_in_one_of_very_many_topics_is_in_the_sums_and_the_topic_is_listed(
    service: Service,
) -> None:
    """The command made its totals and its exit status of the topics that were listed."""
    names = [f"topic-{number:03d}" for number in range(300)]
    service.state.reports.add(LIVE_AUDIT, [report(0, [(name, T0, 1) for name in names])], 1)
    for name in names:
        for tier in ("live", "offline"):
            key = PartitionKey(tier, name, 1, 0)
            service.state.begin(key, 0)
            service.state.set_read_to(key, T0 + WINDOW_MS + LATENESS_MS)
            is_lost = name in ("topic-100", "topic-299")
            service.state.ledger.add_counts(tier, name, {(T0, SERVER): 0 if is_lost else 1})
    service.settle()
    summary = service.answers.summary(topic="topic-250")
    told = _as_report(summary, [])
    assert (told["exit_status"], summary["exit_status"]) == (1, 1)
    assert told["totals"]["tiers"]["live"]["missing"] == 2
    assert {"topic-100", "topic-299", "topic-250"} <= told["topics"].keys()
    assert "99 more topics are in the sums and not listed" in told["notes"]
    assert service.answers.summary(topic="nosuch")["topics_left_out"] == 100


def metrics_of(service: Service) -> str:
    registry = CollectorRegistry()
    registry.register(AuditCollector(service.answers))
    return generate_latest(registry).decode()


def test_of_a_topic_that_need_not_reach_a_tier_nothing_is_expected_there_when_it_is_folded(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path, exempt=frozenset({("offline", PAGE_VIEW)}), fold_after_ms=0)
    service.add(5, live=5, offline=0)
    before = service.settle()
    assert service.state.ledger.fold(T0 + WINDOW_MS) == 1
    after = service.later()
    for summary in (before, after):
        assert list(summary["topics"][PAGE_VIEW]["tiers"]) == ["live"]
        assert summary["totals"]["tiers"]["offline"]["expected"] == 0
    assert (after["produced"], after["cells"]) == (5, 1)


def test_what_need_not_come_makes_no_tier_behind(tmp_path: Path) -> None:
    """What is exempt, and what no producer reports, was behind for ever: an alert without end."""
    service = Service(tmp_path, exempt=frozenset({("offline", PAGE_VIEW)}))
    service.add(5, live=5, offline=0)
    of_others = LIVE_VIEWS._replace(topic="json")
    service.state.begin(of_others, 0)
    service.state.add_messages(of_others, {(-1, "unreadable-header"): 5}, {}, 100)
    service.state.set_read_to(of_others, service.clock())
    service.settle()
    service.clock.advance(86_400_000)
    service.state.set_read_to(of_others, service.clock())
    report_of = _as_report(service.read(), [])
    nothing = {"messages": 0, "bytes": 0, "ms": 0}
    assert report_of["behind_by"] == {"live": nothing, "offline": nothing}
    assert 'kafka2011_audit_behind_seconds{tier="offline"} 0.0' in metrics_of(service)
    service.state.reports.add(LIVE_AUDIT, [report(1, [("json", T0, 0), ("json", T0, 5)])], 2)
    assert service.read()["tiers"]["offline"]["behind_by"]["bytes"] == 100


def test_every_gap_is_in_the_metric(service: Service) -> None:
    """It was the length of a list that ends at fifty."""
    for sequence in range(0, 160, 2):
        service.state.reports.add(LIVE_AUDIT, [report(sequence, [])], 1)
    service.settle()
    assert "kafka2011_audit_gaps 79.0" in metrics_of(service)


def test_metrics_say_what_the_summary_says(service: Service) -> None:
    service.add(5, live=5, offline=3)
    service.clock.advance(1000)
    service.state.add_messages(LIVE_VIEWS, {}, {120: 10}, 1)
    service.confirm()
    service.settle()
    assert set(metrics_of(service).splitlines()) >= {
        "kafka2011_audit_produced_messages_total 5.0",
        'kafka2011_audit_counted_messages_total{tier="offline"} 3.0',
        'kafka2011_audit_messages{tier="offline",topic="page-view",verdict="missing"} 2.0',
        'kafka2011_audit_behind_seconds{tier="offline"} 0.0',
        "kafka2011_audit_gaps 0.0",
        'kafka2011_audit_delay_seconds{quantile="0.99",tier="live"} 0.12',
        "kafka2011_audit_balances 0.0",
    }


def test_a_server_that_stops_beating_is_silent_until_it_is_heard_again(service: Service) -> None:
    service.state.reports.add(
        LIVE_AUDIT, [heartbeat(T0), heartbeat(T0, server="other", is_last=True)], 1
    )
    assert service.answers.summary()["silent"] == []
    service.clock.advance(2_001)
    assert service.later()["silent"] == []  # the clock alone says nothing: a reader may be behind
    service.catch_up()
    summary = service.later()
    assert summary["silent"] == [{"tier": "live", "server": SERVER, "since_ms": T0}]
    assert any(
        f"{SERVER} (it writes to live) has been silent since 2011-03-13" in note
        for note in summary["notes"]
    )
    assert f'server_silent_seconds{{server="{SERVER}",tier="live"}} 4.001' in metrics_of(service)
    service.state.reports.add(LIVE_AUDIT, [heartbeat(T0 + 4_000), heartbeat(T0 + 10)], 2)
    service.catch_up()
    assert service.later()["silent"] == []


def test_a_server_is_not_called_silent_while_a_broker_without_answer_may_have_its_heartbeats(
    service: Service,
) -> None:
    """The page called the site silent, which ran and waited for a broker that was paused."""
    service.state.begin(LIVE_AUDIT._replace(broker_id=2), 0)
    service.state.set_read_to(LIVE_AUDIT._replace(broker_id=2), T0)
    service.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    service.state.reports.add(LIVE_AUDIT, [heartbeat(T0)], 1)
    service.clock.advance(30_000)
    service.catch_up()
    assert service.later()["silent"] == []
    service.clock.advance(GAP_WAIT_MS)  # as gone for good
    service.catch_up()
    assert [each["server"] for each in service.later()["silent"]] == [SERVER]


# --- a clock that goes back ----------------------------------------------------------------------

DAY_MS = 86_400_000


def test_an_answer_of_a_clock_that_was_ahead_is_not_given_again(service: Service) -> None:
    """It was, until the clock came there again: a loss was hidden for a day."""
    service.add(5, live=5, offline=5)
    service.confirm()
    service.clock.advance(DAY_MS)
    assert service.read()["balanced"]
    service.clock.current_ms = T0 + 2 * WINDOW_MS
    service.add(9, live=9, offline=4, window=T0 + WINDOW_MS)
    service.catch_up()
    service.confirm()
    service.clock.advance(LATENESS_MS)
    summary = service.read()
    assert (summary["tiers"]["offline"]["verdict"], summary["exit_status"]) == ("missing 5", 1)


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_what_a_clock_that_was_ahead_put_on_record_does_not_delay_a_verdict(
    tmp_path: Path, service: Service, *, is_opened_again: bool
) -> None:
    """A loss was behind, and a lost report no gap, until the clock came there again."""
    service.clock.advance(DAY_MS)
    service.catch_up()
    goodbye = heartbeat(service.clock(), is_last=True)
    service.state.reports.add(LIVE_AUDIT, [goodbye, report(7, [], server="other")], 2)
    service.add(5, live=6, offline=4)
    service.confirm()
    service.clock.current_ms = T0 + 3 * WINDOW_MS
    if is_opened_again:
        tiers = service.config.tiers
        store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=tiers)
        store.write(take_changes(service.state))
        service.state = AuditState(tiers, WINDOW_MS, service.clock)
        load_books(service.state, store)
        service.answers = AuditSummary(service.state, service.config, service.clock)
    for _ in range(2):
        service.confirm()
        service.read()
    summary = service.read()
    assert [summary["tiers"][tier]["verdict"] for tier in ("live", "offline")] == [
        "extra 1",
        "missing 1",
    ]
    assert [gap["server"] for gap in summary["unknown"]] == ["other"]


# --- more than was reported ----------------------------------------------------------------------


def offset_of(service: Service, key: PartitionKey) -> int:
    return service.state.position(key) or 0


def copies(service: Service, key: PartitionKey, count: int, window: int = T0) -> None:
    """Messages of one window more at a tier, read now."""
    end = offset_of(service, key) + count
    service.state.add_messages(key, {(window, SERVER): count}, {}, end)


def soon(service: Service) -> Json:
    """The summary before the lateness is over, when everything is read."""
    service.clock.advance(LATENESS_MS // 3)
    service.catch_up()
    return service.answers.summary()


def away(service: Service) -> None:
    """The live broker stops answering; all else is read on."""
    service.clock.advance(1000)
    service.state.set_unreachable("live", "broker 1", "live broker 1 does not answer", 1)
    for key in (OFFLINE_VIEWS, OFFLINE_AUDIT):
        service.state.set_read_to(key, service.clock())
    for tier in service.config.tiers:
        service.state.set_discovered(tier, service.clock())


def test_what_was_extra_stays_so_when_a_broker_goes_away_whose_reports_were_read(
    service: Service,
) -> None:
    """It became *nothing is missing so far*, status 0, as long as any broker was away."""
    service.add(5, live=7, offline=5)
    service.settle()
    service.confirm()
    found = service.read()
    assert (verdicts(found), found["exit_status"]) == ({"extra": 1, "complete": 1}, 1)
    for _ in range(2):
        away(service)
        found = service.answers.summary()
        assert (verdicts(found), found["exit_status"]) == ({"extra": 1, "complete": 1}, 1)
    # A partition there of which nothing was read may have the report.
    service.state.begin(LIVE_AUDIT._replace(partition=1), 0)
    assert verdicts(service.later()) == {"pending": 1, "complete": 1}


def test_what_was_missing_stays_so_when_a_broker_goes_away_that_was_read(service: Service) -> None:
    """It became *behind*, status 0, for as long as any live broker was away."""
    service.add(5, live=4, offline=4)
    service.settle()
    service.confirm()
    found = service.read()
    assert (verdicts(found), found["exit_status"]) == ({"missing": 2}, 1)
    for _ in range(2):
        away(service)
        found = service.answers.summary()
        assert (verdicts(found), found["exit_status"]) == ({"missing": 2}, 1)
    # Of what is reported after that the broker may have what is not there.
    service.add(1, live=0, offline=0)
    away(service)
    assert verdicts(service.answers.summary()) == {"behind": 2}


def test_what_is_reported_before_a_broker_that_was_never_read_goes_away_is_behind(
    service: Service,
) -> None:
    service.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    service.clock.advance(1)
    service.add(5, live=4, offline=4)
    service.settle()
    service.confirm()
    assert verdicts(service.read()) == {"behind": 2}
    service.state.set_unreachable("live", "broker 1", "live broker 1 does not answer", 1)
    assert verdicts(service.later()) == {"behind": 2}


def test_what_was_read_since_a_broker_went_away_may_be_reported_there(service: Service) -> None:
    service.add(5, live=5, offline=5)
    service.settle()
    service.confirm()
    service.read()
    service.state.reports.add(LIVE_AUDIT, [heartbeat(service.clock(), is_last=True)], 2)
    away(service)
    copies(service, OFFLINE_VIEWS, 2)
    for _ in range(3):
        away(service)
        assert verdicts(service.answers.summary()) == {"pending": 1, "complete": 1}
    service.state.set_reachable("live", "broker 1", 1)
    assert verdicts(service.read()) == {"extra": 1, "complete": 1}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_has_no_header_is_extra_whatever_reports_are_not_read(
    service: Service, *, is_deleted: bool
) -> None:
    service.add(5, live=5, offline=5)
    service.state.add_messages(LIVE_VIEWS, {(-1, "unreadable-header"): 1}, {}, 2)
    service.settle()
    service.confirm()
    assert verdicts(service.read()) == {"complete": 3, "extra": 1}
    if is_deleted:
        service.state.skip(LIVE_AUDIT, 5, 9, DELETED_UNREAD)
    away(service)
    # Nothing of the broker was read since the service started.
    service.state.begin(LIVE_AUDIT._replace(partition=1), 0)
    found = service.later()
    assert (verdicts(found), found["exit_status"]) == ({"complete": 3, "extra": 1}, 1)


def test_of_a_topic_whose_reports_none_has_read_what_has_no_header_is_pending(
    service: Service,
) -> None:
    service.state.begin(LIVE_AUDIT._replace(broker_id=2), 0)
    service.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    service.state.add_messages(LIVE_VIEWS, {(-1, "unreadable-header"): 1}, {}, 2)
    assert verdicts(service.settle()) == {"not audited": 1, "pending": 1}


@pytest.fixture
def idle(service: Service) -> Service:
    """An hour after its last window balanced; its frontend sends heartbeats."""
    service.add(5, live=5, offline=5)
    service.settle()
    service.confirm()
    service.clock.advance(3_600_000)
    service.state.reports.add(LIVE_AUDIT, [heartbeat(service.clock())], 2)
    assert service.read()["balanced"]
    return service


def test_late_messages_are_pending_until_their_report_is_read(idle: Service) -> None:
    """They were extra, with exit status 1, as long as it took."""
    late = T0 + 2 * WINDOW_MS
    copies(idle, LIVE_VIEWS, 7, late)
    for _ in range(2):
        summary = soon(idle)
        assert summary["tiers"]["live"]["verdict"] == "pending"
        assert (summary["tiers"]["live"]["unreported"], summary["exit_status"]) == (7, 0)
        [cell] = idle.cells(verdict="pending")["cell_list"]
        assert cell["tiers"]["live"]["reason"].startswith("not reported yet")
    idle.state.reports.add(LIVE_AUDIT, [report(1, [(PAGE_VIEW, late, 7)])], 3)
    assert idle.read()["tiers"]["live"]["verdict"] == "complete"


def test_what_a_paused_frontend_has_not_reported_is_pending_until_it_goes_on(
    tmp_path: Path, idle: Service
) -> None:
    copies(idle, LIVE_VIEWS, 3)
    idle.clock.advance(60_000)
    summary = idle.read()
    assert [each["server"] for each in summary["silent"]] == [SERVER]
    assert (summary["tiers"]["live"]["verdict"], summary["exit_status"]) == ("pending", 0)
    # Nor do books that were opened again, or a crowd, say more than they know.
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=idle.config.tiers)
    store.write(take_changes(idle.state))
    again = AuditState(idle.config.tiers, WINDOW_MS, idle.clock)
    load_books(again, store)
    assert again.cells() == {
        key: replace(cell, reported_ms=idle.clock()) for key, cell in idle.state.cells().items()
    }
    idle.state.reports.add(LIVE_AUDIT, [heartbeat(idle.clock())], 3)
    assert idle.read()["tiers"]["live"]["verdict"] == "redelivered 3", "it stood still"
    idle.clock.advance(60_000)
    assert idle.read()["tiers"]["live"]["verdict"] == "redelivered 3", "it was heard since"
    idle.state.reports.add(LIVE_AUDIT, [report(1, [(PAGE_VIEW, T0, 3)])], 4)
    assert idle.read()["tiers"]["live"]["verdict"] == "complete"


def reason_at_live(service: Service) -> str:
    """Why the cell that has more than was reported is pending at live."""
    [cell] = service.cells(verdict="pending")["cell_list"]
    reason: str = cell["tiers"]["live"]["reason"]
    return reason


def test_a_frontend_is_called_silent_only_where_its_reports_are_read(idle: Service) -> None:
    """While a broker did not answer, and for a look after it went on, its reports may stand there
    unread; what is counted was said to wait for a producer that had not been heard again."""
    second = PartitionKey("live", AUDIT, 2, 0)
    idle.state.begin(second, 0)
    copies(idle, LIVE_VIEWS, 3)
    idle.clock.advance(LATENESS_MS + 100)
    idle.catch_up()
    idle.state.set_read_to(second, idle.clock())
    assert idle.answers.summary()["silent"] == []
    assert reason_at_live(idle) == NOT_REPORTED, "its next heartbeat is not due yet"
    idle.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    idle.clock.advance(60_000)
    idle.read()
    assert reason_at_live(idle) == "live broker 2 does not answer"
    idle.state.set_reachable("live", "broker 2", 2)
    idle.read()
    assert reason_at_live(idle) == REPORTS_BEHIND
    idle.state.set_read_to(second, idle.clock())
    summary = idle.later()
    assert reason_at_live(idle) == NOT_HEARD
    assert [each["server"] for each in summary["silent"]] == [SERVER]
    idle.clock.advance(60_000)
    idle.later()
    assert reason_at_live(idle) == REPORTS_BEHIND, "it may have been heard since"


def test_copies_are_extra_whether_or_not_the_frontend_is_heard_that_reported_all(
    idle: Service,
) -> None:
    copies(idle, OFFLINE_VIEWS, 3)
    assert soon(idle)["tiers"]["offline"]["verdict"] == "pending"
    idle.clock.advance(60_000)
    summary = idle.read()
    assert (summary["tiers"]["offline"]["verdict"], len(summary["silent"])) == ("extra 3", 1)
    copies(idle, LIVE_VIEWS, 2)
    idle.clock.advance(60_000)
    tiers = idle.read()["tiers"]
    assert [tiers[tier]["verdict"] for tier in ("live", "offline")] == ["pending", "extra 1"]


def test_copies_of_a_mirror_that_began_again_are_never_called_extra(idle: Service) -> None:
    """They were until the heartbeat of its new instance was read."""
    beat = heartbeat(idle.clock(), server="mirror-1")
    idle.state.reports.add(OFFLINE_AUDIT, [beat], 1)
    idle.read()
    copies(idle, OFFLINE_VIEWS, 3)
    assert soon(idle)["tiers"]["offline"]["verdict"] == "pending"
    beat = heartbeat(idle.clock(), server="mirror-1", instance="run-2")
    idle.state.reports.add(OFFLINE_AUDIT, [beat], 2)
    assert idle.read()["tiers"]["offline"]["verdict"] == "redelivered 3"


# --- too many cells ------------------------------------------------------------------------------


class Crowd(Service):
    """150 windows where 100 may be open, and the writer of their books."""

    def __init__(self, tmp_path: Path, *, offline: int) -> None:
        super().__init__(tmp_path, cells_max=100)
        store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=self.config.tiers)
        self.writer = BooksWriter(self.config, self.state, store, self.clock)
        for number in range(150):
            self.add(2, live=2, offline=offline, window=T0 + number * WINDOW_MS)
        self.confirm()
        self.clock.current_ms = T0 + 150 * WINDOW_MS + LATENESS_MS

    def write(self, cells_left: int) -> Json:
        """The summary after the books were written."""
        assert self.writer.write()
        assert len(self.state.ledger.cells) == cells_left
        return self.later()


def test_in_a_crowd_redelivered_cells_do_not_turn_into_extra_ones(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, offline=3)
    crowd.restarts_file.write_text("garbage")
    crowd.catch_up()
    crowd.write(cells_left=150)  # what cannot be judged stays
    crowd.restarts_file.write_text(json.dumps([RESTART | {"time_ms": T0 + 149 * WINDOW_MS}]))
    crowd.catch_up()
    summary = crowd.write(cells_left=90)
    offline = summary["tiers"]["offline"]
    assert (offline["redelivered"], offline["extra"]) == (150, 0)
    assert summary["exit_status"] == 0


def test_in_a_crowd_pending_cells_do_not_turn_into_missing_ones(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, offline=0)  # the offline reader is behind
    assert crowd.write(cells_left=150)["exit_status"] == 0
    # A broker that does not answer may still have them.
    crowd.state.set_unreachable("offline", "broker 11", "offline broker 11 is away", 11)
    crowd.catch_up()
    crowd.write(cells_left=150)
    crowd.state.set_reachable("offline", "broker 11", 11)
    summary = crowd.write(cells_left=90)
    assert (summary["tiers"]["offline"]["missing"], summary["exit_status"]) == (300, 1)


def test_in_a_crowd_what_may_still_be_reported_does_not_turn_into_extra_for_good(
    tmp_path: Path,
) -> None:
    crowd = Crowd(tmp_path, offline=2)
    crowd.catch_up()
    for number in range(150):
        copies(crowd, LIVE_VIEWS, 1, T0 + number * WINDOW_MS)
    end = offset_of(crowd, LIVE_VIEWS)
    crowd.state.confirm("offline", PAGE_VIEW, {BrokerPartition(1, 0): end}, crowd.clock())
    crowd.write(cells_left=150)
    crowd.clock.advance(WINDOW_MS)
    crowd.catch_up()
    assert crowd.write(cells_left=90)["tiers"]["live"]["extra"] == 150


def test_in_a_crowd_what_a_silent_producer_may_report_does_not_turn_into_extra_for_good(
    tmp_path: Path,
) -> None:
    crowd = Crowd(tmp_path, offline=2)
    crowd.state.reports.add(LIVE_AUDIT, [heartbeat(crowd.clock())], 151)
    crowd.clock.advance(1)
    for number in range(150):
        copies(crowd, LIVE_VIEWS, 1, T0 + number * WINDOW_MS)
    end = offset_of(crowd, LIVE_VIEWS)
    crowd.state.confirm("offline", PAGE_VIEW, {BrokerPartition(1, 0): end}, crowd.clock())
    crowd.clock.advance(WINDOW_MS)
    crowd.catch_up()
    live = crowd.write(cells_left=150)["tiers"]["live"]
    assert (live["unreported"], live["pending_cells"]) == (150, 150)
    goodbye = heartbeat(crowd.clock(), is_last=True)
    crowd.state.reports.add(LIVE_AUDIT, [goodbye], 152)
    crowd.clock.advance(WINDOW_MS)
    crowd.catch_up()
    assert crowd.write(cells_left=90)["tiers"]["live"]["redelivered"] == 150, "it was silent"


def test_a_number_that_the_store_cannot_hold_does_not_end_the_service(
    tmp_path: Path, service: Service
) -> None:
    tiers = service.config.tiers
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=tiers)
    writer = BooksWriter(service.config, service.state, store, service.clock)
    service.state.add_messages(LIVE_VIEWS, {(T0, SERVER): 2**63}, {}, 1)
    assert [writer.write() for _ in range(3)] == [False] * 3
    assert not writer.is_healthy


def test_what_is_wrong_has_an_alert_however_many_topics_have_open_windows(service: Service) -> None:
    """The metrics have the sums of 200 topics; those with open windows came in the order of their
    names, so that the 201st lost its messages without a word."""
    service.add(5, live=4, offline=4)
    window = T0 + WINDOW_MS
    for number in range(TOPICS_MAX + 1):
        payload = report(service.reports, [(f"a{number:03d}", window, 1)])
        service.reports += 1
        service.state.reports.add(LIVE_AUDIT, [payload], 1)
    service.settle()
    summary = service.read()
    assert len(summary["topics"]) == TOPICS_MAX
    assert summary["topics"][PAGE_VIEW]["tiers"]["live"]["missing"] == 1
    line = f'kafka2011_audit_messages{{tier="live",topic="{PAGE_VIEW}",verdict="missing"}} 1.0'
    assert line in metrics_of(service)


@pytest.mark.parametrize("topics", [[], [PAGE_VIEW]])
def test_the_command_sums_the_cells_that_it_lists_while_messages_arrive(
    service: Service, monkeypatch: pytest.MonkeyPatch, topics: list[str]
) -> None:
    def moving() -> int:
        service.add(0, live=1, offline=0)
        service.clock.advance(1000)
        return service.clock()

    endpoints = audit_endpoints(AuditSummary(service.state, service.config, moving), list)

    def ask(_: str, path: str, query: dict[str, str]) -> Json:
        found: Json = json.loads(endpoints[path](query)[2])
        return found

    monkeypatch.setattr(audit, "_ask", ask)
    moving()
    found = audit._asked("", topics, all_cells=False, is_final=False, wait_s=0)
    (cell,) = found["cells"]
    sums = found["topics"][PAGE_VIEW]["tiers"]["live"]
    assert cell["tiers"]["live"]["counted"] == sums["counted"] > 0
    assert found["totals"]["tiers"]["live"]["counted"] == sums["counted"]


def test_the_command_waits_for_the_topics_that_it_is_asked_about_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a running deployment something is always pending."""
    service.add(5, live=5, offline=5)
    other = report(service.reports, [("click", T0 + 10 * WINDOW_MS, 1)])
    service.reports += 1
    service.settle()
    endpoints = audit_endpoints(AuditSummary(service.state, service.config, service.clock), list)
    looks: list[str] = []
    monkeypatch.setattr(audit, "_ask", lambda _, path, query: json.loads(endpoints[path](query)[2]))

    def later(_seconds: float) -> None:
        looks.append("")
        service.state.reports.add(LIVE_AUDIT, [other], 1)
        service.read()

    clock = SimpleNamespace(sleep=later, monotonic=lambda: float(len(looks)))
    monkeypatch.setattr(audit, "time", clock)
    asked = {"all_cells": False, "is_final": False}
    audit._asked("", [PAGE_VIEW], wait_s=60, **asked)
    assert not looks, "all of it is judged"
    audit._asked("", [PAGE_VIEW, "click"], wait_s=3, **asked)
    assert len(looks) == 3, "it is not there yet, and then pending"
    looks.clear()
    audit._asked("", [PAGE_VIEW], wait_s=60, **asked)
    assert not looks
    audit._asked("", [], wait_s=3, **asked)
    assert len(looks) == 3


@pytest.mark.parametrize("topics", [[], [PAGE_VIEW]])
@pytest.mark.parametrize("is_read", [True, False])
def test_the_command_judges_as_final_only_what_was_read_after_it_was_asked(
    service: Service, monkeypatch: pytest.MonkeyPatch, topics: list[str], *, is_read: bool
) -> None:
    """The report that is on the brokers' disks already, and not read: the messages above it were
    *extra*. Nothing was known of it, as the readers had been at the end when they last looked."""
    service.add(5, live=7, offline=7)
    service.confirm()
    service.read()
    endpoints = audit_endpoints(service.answers, list)
    pauses: list[float] = []

    def ask(_: str, path: str, query: dict[str, str]) -> Json:
        service.clock.advance(KEPT_MS)
        found: Json = json.loads(endpoints[path](query)[2])
        return found

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if is_read and len(pauses) == 3:
            service.add(2, live=0, offline=0)
            service.clock.advance(KEPT_MS)
            service.catch_up()

    monkeypatch.setattr(audit, "_ask", ask)
    now_s = SimpleNamespace(sleep=pause, monotonic=lambda: float(len(pauses)))
    monkeypatch.setattr(audit, "time", now_s)
    found = audit._asked("", topics, all_cells=True, is_final=True, wait_s=0)
    unread = [each["what"] for each in found["unknown"]]
    if is_read:
        assert (unread, found["exit_status"], len(pauses)) == ([], 0, 3)
        assert [cell["tiers"]["live"]["state"] for cell in found["cells"]] == ["complete"]
    else:
        assert len(pauses) == audit.FINAL_READ_S
        assert unread == [
            "the newest messages of live are not counted yet",
            "the newest messages of offline are not counted yet",
            "the newest reports of the producers are not counted yet",
        ]


def test_the_command_does_not_wait_for_what_is_away(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.add(5, live=5, offline=5)
    service.state.set_unreachable("live", "broker 2", "live broker 2 does not answer", 2)
    endpoints = audit_endpoints(service.answers, list)
    monkeypatch.setattr(audit, "_ask", lambda _, path, query: json.loads(endpoints[path](query)[2]))
    now_s = SimpleNamespace(sleep=pytest.fail, monotonic=lambda: 0.0)
    monkeypatch.setattr(audit, "time", now_s)
    found = audit._asked("", [], all_cells=True, is_final=True, wait_s=0)
    assert "live broker 2 does not answer" in [each["what"] for each in found["unknown"]]


def test_a_gap_beyond_all_that_are_listed_makes_its_windows_unknown(service: Service) -> None:
    """Those of other producers fill the list; the windows were *complete*, and folded as that."""
    of_another = [report(2 * n + 1, [], server="other", time_ms=T0) for n in range(GAPS_MAX)]
    service.state.reports.add(LIVE_AUDIT, of_another, 1)
    second = report(1, [(PAGE_VIEW, T0, 3)], time_ms=T0 + 100)
    service.state.reports.add(LIVE_AUDIT, [second], 2)
    for key in (LIVE_VIEWS, OFFLINE_VIEWS):
        service.state.add_messages(key, {(T0, SERVER): 3}, {}, 1)
    service.confirm()
    service.clock.advance(3 * WINDOW_MS)
    service.catch_up()
    assert verdicts(service.read())["unknown"] == 2
    service.state.fold(T0 + 2 * WINDOW_MS, 0)
    assert verdicts(service.read())["unknown"] == 2


def test_gaps_beyond_all_that_are_listed_are_counted_and_keep_their_times(
    service: Service,
) -> None:
    """They were one span of each server, and one in the number of those left out."""
    of_another = [report(2 * n + 1, [], server="other", time_ms=T0) for n in range(2 * GAPS_MAX)]
    service.state.reports.add(LIVE_AUDIT, of_another, 1)
    own = [report(0, [], time_ms=T0), report(2, [], time_ms=T0 + WINDOW_MS)]
    middle = report(3, [(PAGE_VIEW, T0 + 50 * WINDOW_MS, 3)], time_ms=T0 + 51 * WINDOW_MS)
    last = [report(4 + n, [], time_ms=T0 + (100 + n) * WINDOW_MS) for n in (0, 2)]
    service.state.reports.add(LIVE_AUDIT, [*own, middle, *last], 2)
    for key in (LIVE_VIEWS, OFFLINE_VIEWS):
        service.state.add_messages(key, {(T0 + 50 * WINDOW_MS, SERVER): 3}, {}, 1)
    service.confirm()
    service.clock.advance(200 * WINDOW_MS)
    service.catch_up()
    found = service.read()
    assert len(found["unknown"]) + found["unknown_left_out"] == 2 * GAPS_MAX + 2
    assert verdicts(found) == {"complete": 2}


@pytest.mark.parametrize("back_ms", [0, 3_600_000])
def test_a_lost_event_of_a_producer_whose_clock_was_set_back_is_of_the_windows_between(
    service: Service, back_ms: int
) -> None:
    base = T0 + 2 * back_ms
    service.clock.current_ms = base
    ahead = base + back_ms - WINDOW_MS
    first = report(0, [(PAGE_VIEW, ahead, 7)], time_ms=base + back_ms)
    third = report(2, [(PAGE_VIEW, base, 1)], time_ms=base + WINDOW_MS + 10)
    service.state.reports.add(LIVE_AUDIT, [first, third], 2)
    for key in (LIVE_VIEWS, OFFLINE_VIEWS):
        service.state.add_messages(key, {(ahead, SERVER): 7, (base, SERVER): 6}, {}, 1)
    service.confirm()
    service.clock.advance(3 * 3_600_000)
    service.catch_up()
    assert service.read()["exit_status"] == 1
    assert {
        tier["verdict"] for cell in service.cells()["cell_list"] for tier in cell["tiers"].values()
    } >= {"unknown 5"}
    assert verdicts(service.answers.summary()) == {"unknown": 4}


@pytest.mark.parametrize("key", [LIVE_VIEWS, LIVE_AUDIT], ids=["messages", "reports"])
@pytest.mark.parametrize("is_known", [False, True], ids=["found later", "known and empty"])
def test_what_a_log_lost_unread_from_its_start_is_unknown_once_the_books_have_begun(
    tmp_path: Path, key: PartitionKey, is_known: bool
) -> None:
    """Retention came while the audit was away. Messages were *missing*, reports made *extra*."""
    service = Service(tmp_path)
    hour_ms = 3_600_000
    known = {LIVE_VIEWS, LIVE_AUDIT} - (set() if is_known else {key})
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=("live",))
    service.state = AuditState(("live",), WINDOW_MS, service.clock)
    for each in sorted(known):
        service.state.begin(each, 0)
    service.state.set_discovered("live", service.clock())
    store.write(take_changes(service.state))
    service.clock.advance(30 * hour_ms)
    state = AuditState(("live",), WINDOW_MS, service.clock)
    load_books(state, store)
    if not is_known:
        state.expect(*key)
    state.set_discovered("live", service.clock())
    window = T0 + 20 * hour_ms
    state.skip(key, 0, 9000, DELETED_UNREAD)
    if state.is_without_beginning(key):
        state.begins(key, [window])
    reported, there = (5, 2) if key is LIVE_VIEWS else (2, 5)
    first = report(0, [(PAGE_VIEW, window, reported)], time_ms=window + WINDOW_MS)
    state.reports.add(LIVE_AUDIT, [first], 9100)
    state.add_messages(LIVE_VIEWS, {(window, SERVER): there}, {}, 9100)
    service.clock.advance(5000)
    for each in (LIVE_VIEWS, LIVE_AUDIT):
        state.set_read_to(each, service.clock())
    state.set_discovered("live", service.clock())
    found = AuditSummary(state, replace(service.config, offline_zk_connect=""), service.clock)
    assert verdicts(found.summary()) == {"unknown": 1}
