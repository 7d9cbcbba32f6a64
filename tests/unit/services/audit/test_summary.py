"""The service's summary, cells and metrics: bounded, in the recount's form."""

import json
from collections.abc import Container
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore
from kafka2011.services.audit.books.writer import BooksWriter
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.endpoints import BadQuery, audit_endpoints, selection_from
from kafka2011.services.audit.metrics import AuditCollector
from kafka2011.services.audit.report import Json
from kafka2011.services.audit.summary import AuditSummary
from tests.support.clock import ManualClock
from tests.unit.services.audit.samples import SERVER, T0, WINDOW_MS, heartbeat, report

LATENESS_MS = 1_000
SETTLED = T0 + WINDOW_MS + LATENESS_MS


class Service:
    """Books of two tiers whose readers are up to date."""

    def __init__(self, tmp_path: Path, **settings: object) -> None:
        self.clock = ManualClock(T0)
        self.config = AuditConfig(
            live_zk_connect="live:1",
            offline_zk_connect="offline:1",
            window_ms=WINDOW_MS,
            lateness_ms=LATENESS_MS,
            restarts_file=tmp_path / "restarts.json",
            **settings,  # type: ignore[arg-type]
        )
        self.state = AuditState(
            self.config.tiers,
            WINDOW_MS,
            self.clock,
            cells_max=self.config.cells_max,
            exempt=self.config.exempt,
        )
        self.answers = AuditSummary(self.state, self.config, self.clock)
        self.keys = [
            PartitionKey(tier, topic, broker, 0)
            for tier, broker in (("live", 1), ("offline", 11))
            for topic in (PAGE_VIEW, AUDIT)
        ]
        for key in self.keys:
            self.state.begin(key, 0)
        self.catch_up()

    def catch_up(self) -> None:
        for key in self.keys:
            self.state.set_read_to(key, self.clock())
        for tier in self.config.tiers:
            self.state.set_discovered(tier, self.clock())

    def five_reported(self, live: int, offline: int) -> "Service":
        """Five messages of one window reported, so many counted in the tiers."""
        self.produce(0, 5)
        self.count(0, live)
        self.count(1, offline)
        return self

    def produce(self, sequence: int, count: int, window: int = T0) -> None:
        self.state.add_reports(self.keys[1], [report(sequence, [(PAGE_VIEW, window, count)])], 1)

    def count(self, tier: int, count: int, window: int = T0) -> None:
        self.state.add_messages(self.keys[2 * tier], {(window, SERVER): count}, {}, 1)

    def cells(self, query: dict[str, str]) -> Json:
        return self.answers.cells(selection_from(query))

    def settle(self) -> Json:
        """The window and the lateness are over, and all is read. Returns the summary."""
        self.clock.current_ms = SETTLED
        self.catch_up()
        return self.answers.summary()


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def test_a_window_is_pending_until_it_and_the_lateness_are_over(service: Service) -> None:
    summary = service.five_reported(5, 4).answers.summary()
    assert summary["verdicts"]["pending"] == 2
    assert (summary["exit_status"], summary["balanced"]) == (0, False)
    summary = service.settle()
    states = {state: number for state, number in summary["verdicts"].items() if number}
    assert states == {"complete": 1, "missing": 1}
    assert summary["tiers"]["offline"]["verdict"] == "missing 1"
    assert summary["exit_status"] == 1


def test_final_judges_open_windows_too(service: Service) -> None:
    service.produce(0, 5)
    service.count(0, 5)
    assert service.answers.summary(is_final=True)["verdicts"]["missing"] == 1
    service.count(1, 5)
    service.clock.advance(1000)
    summary = service.answers.summary(is_final=True)
    assert summary["balanced"]
    assert (summary["produced"], summary["tiers"]["offline"]["count"]) == (5, 5)


def test_a_reader_that_is_behind_keeps_cells_pending(service: Service) -> None:
    service.produce(0, 5)
    service.clock.current_ms = SETTLED + 5000
    assert service.answers.summary()["verdicts"]["pending"] == 2
    service.catch_up()
    service.clock.advance(1000)
    assert service.answers.summary()["verdicts"]["missing"] == 2


def test_a_broker_that_is_away_is_the_reason_given(service: Service) -> None:
    reason = "offline broker 11 does not answer"
    service.state.set_unreachable("offline", "broker 11", reason, 11)
    assert reason in service.five_reported(5, 0).settle()["notes"]
    (cell,) = service.cells({})["cell_list"]
    offline = cell["tiers"]["offline"]
    assert (offline["verdict"], offline["reason"]) == ("missing 5", reason)
    assert cell["tiers"]["live"]["verdict"] == "complete"


def test_restarts_are_read_at_each_judgement(service: Service, tmp_path: Path) -> None:
    assert service.five_reported(6, 6).settle()["exit_status"] == 1
    restart = {"name": "mirror-1", "time_ms": T0 + 1}
    (tmp_path / "restarts.json").write_text(json.dumps([restart]))
    service.clock.advance(1000)
    service.catch_up()
    summary = service.answers.summary()
    assert summary["verdicts"]["redelivered"] == 2
    assert (summary["exit_status"], summary["restarts"]) == (0, [restart])


def test_a_broken_restarts_file_excuses_nothing_and_is_noted(
    service: Service, tmp_path: Path
) -> None:
    (tmp_path / "restarts.json").write_text('{"name": 3}')
    summary = service.five_reported(6, 6).settle()
    assert summary["exit_status"] == 1
    assert any("restarts.json" in note for note in summary["notes"])


def test_where_no_restarts_are_kept_redelivery_can_be_expected_by_setting(tmp_path: Path) -> None:
    service = Service(tmp_path, redelivery_expected=True)
    assert service.five_reported(6, 6).settle()["exit_status"] == 0


def test_an_exempt_topic_owes_the_tier_nothing(tmp_path: Path) -> None:
    service = Service(tmp_path, exempt=frozenset({("offline", PAGE_VIEW)}))
    service.produce(0, 5)
    service.count(0, 5)
    service.settle()
    summary = service.answers.summary()
    assert summary["balanced"]
    assert "offline" not in summary["topics"][PAGE_VIEW]["tiers"]


def ten_windows(service: Service, incomplete: Container[int]) -> None:
    """One message in each of ten windows, by age; those of `incomplete` are missing offline."""
    for age in range(10):
        service.produce(age, 1, T0 - age * WINDOW_MS)
        for tier in (0,) if age in incomplete else (0, 1):
            service.count(tier, 1, T0 - age * WINDOW_MS)
    service.settle()


@pytest.mark.parametrize(
    ("query", "found", "shown", "left_out"),
    [
        ({}, 10, 10, 0),
        ({"verdict": "incomplete"}, 5, 5, 0),
        ({"verdict": "missing"}, 5, 5, 0),
        ({"topic": "other"}, 0, 0, 0),
        ({"server": SERVER, "limit": "4"}, 10, 4, 6),
        ({"limit": "4", "offset": "8"}, 10, 2, 0),
        ({"window_start_ms": str(T0 - 9 * WINDOW_MS)}, 1, 1, 0),
    ],
)
def test_cells_are_selected_and_paged(
    service: Service, query: dict[str, str], found: int, shown: int, left_out: int
) -> None:
    ten_windows(service, incomplete=range(0, 10, 2))
    page = service.cells(query)
    assert (page["cells_found"], len(page["cell_list"])) == (found, shown)
    assert page["cells_left_out"] == left_out


def test_of_old_windows_only_incomplete_ones_can_be_selected(service: Service) -> None:
    ten_windows(service, incomplete=[7])
    page = service.cells({"newest": "3"})
    ages = sorted((T0 - cell["window_start_ms"]) // WINDOW_MS for cell in page["cell_list"])
    assert ages == [0, 1, 2, 7]
    assert page["cells_found"] == 4


@pytest.mark.parametrize(
    "query", [{"limit": "-1"}, {"offset": "x"}, {"newest": ""}, {"window": "3"}]
)
def test_a_bad_query_gets_400_with_the_reason(service: Service, query: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        selection_from(query)
    status, _, body = audit_endpoints(service.answers)["/audit"](query)
    assert status == 400
    assert "error" in json.loads(body)


def test_the_summary_stays_small_whatever_there_is(service: Service) -> None:
    for number in range(300):
        counts = {(T0, f"server-{n}"): 1 for n in range(20)}
        service.state.ledger.add_counts("live", f"topic-{number:03d}", counts)
        service.state.note(f"note {number}")
    status, _, body = audit_endpoints(service.answers)["/audit/summary"]({})
    assert status == 200
    assert len(body) < 200_000
    assert json.loads(body)["topics_left_out"] == 100


def metrics_of(service: Service) -> str:
    registry = CollectorRegistry()
    registry.register(AuditCollector(service.answers))
    return generate_latest(registry).decode()


def test_metrics_say_what_the_summary_says(service: Service) -> None:
    service.produce(0, 5)
    service.count(0, 5)
    service.count(1, 3)
    service.state.add_messages(service.keys[0], {}, {120: 10}, 2)
    service.settle()
    page = metrics_of(service)
    for line in (
        "kafka2011_audit_produced_messages_total 5.0",
        'kafka2011_audit_counted_messages_total{tier="offline"} 3.0',
        'kafka2011_audit_messages{tier="offline",topic="page-view",verdict="missing"} 2.0',
        'kafka2011_audit_delay_seconds{quantile="0.99",tier="live"} 0.12',
        "kafka2011_audit_balances 0.0",
    ):
        assert line in page


def test_a_server_that_stops_beating_is_silent_until_it_is_heard_again(service: Service) -> None:
    audit = service.keys[1]

    def silent() -> list[Json]:
        found: list[Json] = service.answers.summary()["silent"]
        return found

    service.state.add_reports(
        audit, [heartbeat(T0), heartbeat(T0, server="other", is_last=True)], 1
    )
    assert silent() == []
    service.clock.advance(3_001)  # the clock alone says nothing: the readers may be behind
    assert silent() == []
    service.catch_up()
    service.clock.advance(1_000)
    assert silent() == [{"tier": "live", "server": SERVER, "since_ms": T0}]
    summary = service.answers.summary()
    assert any(f"{SERVER} (live) is silent since 2011-03-13" in note for note in summary["notes"])
    assert f'server_silent_seconds{{server="{SERVER}",tier="live"}} 4.001' in metrics_of(service)
    service.state.add_reports(audit, [heartbeat(T0 + 4_000), heartbeat(T0 + 10)], 2)
    service.catch_up()
    service.clock.advance(1_000)
    assert silent() == []


# --- too many cells ------------------------------------------------------------------------------


class Crowd(Service):
    """150 windows where 100 may be open, and the writer of their books."""

    def __init__(self, tmp_path: Path, *, offline: int) -> None:
        super().__init__(tmp_path, cells_max=100)
        store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW_MS, tiers=self.config.tiers)
        self.writer = BooksWriter(self.config, self.state, store, self.clock)
        for number in range(150):
            window = T0 + number * WINDOW_MS
            self.produce(number, 2, window)
            self.count(0, 2, window)
            self.count(1, offline, window)
        self.clock.current_ms = T0 + 150 * WINDOW_MS + LATENESS_MS

    def write(self, cells_left: int) -> Json:
        """The summary after the books were written."""
        assert self.writer.write()
        assert len(self.state.ledger.cells) == cells_left
        self.clock.advance(1000)
        return self.answers.summary()


def test_redelivered_cells_do_not_turn_into_extra_ones_where_there_are_many(
    tmp_path: Path,
) -> None:
    crowd = Crowd(tmp_path, offline=3)
    restarts = [{"name": "mirror", "time_ms": T0 + 149 * WINDOW_MS}]
    (tmp_path / "restarts.json").write_text(json.dumps(restarts))
    crowd.catch_up()
    summary = crowd.write(cells_left=90)
    offline = summary["tiers"]["offline"]
    assert (offline["redelivered"], offline["extra"]) == (150, 0)
    assert summary["exit_status"] == 0


def test_restarts_that_cannot_be_read_keep_all_cells_open(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, offline=3)
    (tmp_path / "restarts.json").write_text("garbage")
    crowd.catch_up()
    crowd.write(cells_left=150)


def test_pending_cells_do_not_turn_into_missing_ones_where_there_are_many(
    tmp_path: Path,
) -> None:
    crowd = Crowd(tmp_path, offline=0)  # the offline reader is behind
    assert crowd.write(cells_left=150)["exit_status"] == 0
    # A broker that does not answer may still have them.
    crowd.state.set_unreachable("offline", "broker 11", "offline broker 11 is away", 11)
    crowd.catch_up()
    crowd.write(cells_left=150)
    crowd.state.set_reachable("offline", "broker 11", 11)
    summary = crowd.write(cells_left=90)
    assert (summary["tiers"]["offline"]["missing"], summary["exit_status"]) == (300, 1)
