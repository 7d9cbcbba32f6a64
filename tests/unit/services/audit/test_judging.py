"""The running service's verdicts: what is kept of the last time is what judging anew would say."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.sequences import GAP_WAIT_MS
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.services.audit.books.progress import Election, PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.judging import Judged, Judging
from kafka2011.services.audit.report import Json, topics_json
from kafka2011.services.audit.restarts import Restart
from tests.support.clock import ManualClock
from tests.unit.services.audit.samples import T0, WINDOW_MS, report

LATENESS_MS = 1_000
TOPICS = (PAGE_VIEW, "search", "exempt")
NEW = "new"  # whose partitions are not registered yet
SERVERS = ("frontend-1", "frontend-2")
LIVE = [PartitionKey("live", topic, 1, 0) for topic in TOPICS]
OFFLINE = [PartitionKey("offline", topic, 11, 0) for topic in TOPICS]
REPORTS = [PartitionKey("live", AUDIT, 1, 0), PartitionKey("offline", AUDIT, 11, 0)]
CONFIG = AuditConfig(
    live_zk_connect="live:1",
    offline_zk_connect="offline:1",
    window_ms=WINDOW_MS,
    lateness_ms=LATENESS_MS,
    redelivery_grace_ms=WINDOW_MS,
    exempt=frozenset({("offline", "exempt")}),
)


class Books:
    """Books of two tiers, judged twice: by one that keeps, and each time by a new one."""

    def __init__(self) -> None:
        self.clock = ManualClock(T0)
        self.state = AuditState(CONFIG.tiers, WINDOW_MS, self.clock, exempt=CONFIG.exempt)
        self.judging = {final: self.new(is_final=final) for final in (False, True)}
        self.restarts: list[Restart] = []
        self.ends: dict[PartitionKey, int] = {}
        self.sequence = 0
        for key in (*LIVE, *OFFLINE, *REPORTS):
            self.state.begin(key, 0)
            self.ends[key] = 0

    def new(self, *, is_final: bool = False) -> Judging:
        return Judging(self.state, CONFIG, is_final=is_final)

    def count(self, key: PartitionKey, window: int, server: str, number: int) -> None:
        self.ends[key] += 10
        start_ms = T0 + window * WINDOW_MS if window >= 0 else -1
        self.state.add_messages(key, {(start_ms, server): number}, {}, self.ends[key])

    def report(self, topic: str, window: int, server: str, number: int, skips: int = 0) -> None:
        self.sequence += 1 + skips
        counts = [(topic, T0 + max(0, window) * WINDOW_MS, number)]
        payload = report(self.sequence - 1, counts, server=server, time_ms=self.clock())
        self.state.reports.add(REPORTS[0], [payload], self.sequence)

    def confirm(self, topic: str, offset: int) -> None:
        at = {BrokerPartition(1, 0): offset}
        self.state.confirm("offline", topic, at, self.clock())
        self.state.asked("offline", self.clock())

    def catch_up(self) -> None:
        for key in self.ends:
            self.state.set_read_to(key, self.clock())
        for tier in CONFIG.tiers:
            self.state.set_discovered(tier, self.clock())

    def elect(self, key: PartitionKey, end: int, epoch: int) -> None:
        ends = {key: end}
        self.state.add_elections(
            key.tier, key.broker_id, [Election(epoch, self.clock(), ends, "an election")]
        )
        self.ends[key] = self.state.position(key) or 0


def shown(judged: Judged) -> Json:
    windows = sorted(judged.windows.items())
    return {
        "lines": [line for _, window in windows for line in window.lines],
        "incomplete": [line for _, window in windows for line in window.incomplete],
        "topics": topics_json(judged.sums, CONFIG.tiers, judged.folded),
        "states": +judged.sums.states,
        "late": judged.sums.late,
        "unknown": judged.unknown,
        "awaited": judged.awaited,
    }


windows = st.integers(-1, 3)
topics = st.integers(0, len(TOPICS) - 1)
servers = st.sampled_from(SERVERS)
numbers = st.integers(0, 3)
Step = tuple[str, Mapping[str, int | str]]


def step(name: str, **values: st.SearchStrategy[int] | st.SearchStrategy[str]) -> object:
    return st.tuples(st.just(name), st.fixed_dictionaries(dict(values)))


STEPS = st.one_of(
    step("count", tier=st.integers(0, 1), topic=topics, window=windows, server=servers, n=numbers),
    step("report", topic=topics, window=windows, server=servers, n=numbers),
    step("pass", topic=topics, window=windows, server=servers, n=numbers),
    step("gap", topic=topics, window=windows, server=servers, n=numbers),
    step("confirm", topic=topics, back=st.sampled_from([0, 0, 0, 10, 20])),
    step("advance", ms=st.sampled_from([500, WINDOW_MS, 5 * WINDOW_MS, GAP_WAIT_MS])),
    step("catch up"),
    step("catch up"),
    step("away", tier=st.integers(0, 1)),
    step("back", tier=st.integers(0, 1)),
    step("restart"),
    step("report new", window=windows, server=servers, n=numbers),
    step("register new", tier=st.integers(0, 1)),
    step("register reports", tier=st.integers(0, 1)),
    step("delete", topic=topics, n=st.integers(0, 30), is_asked=st.integers(0, 1)),
    step("lose", topic=topics),
    step("elect", topic=topics, n=st.integers(0, 20)),
    step("fold"),
)


def done(books: Books, name: str, values: Mapping[str, int]) -> None:
    state, topic = books.state, values.get("topic", 0)
    window, server, number = values.get("window", 0), str(values.get("server")), values.get("n", 0)
    at = values.get("tier", 0)
    tier = CONFIG.tiers[at]
    match name:
        case "count":
            books.count((LIVE, OFFLINE)[values["tier"]][topic], window, server, number)
        case "report":
            books.report(TOPICS[topic], window, server, number)
        case "pass":  # as everything should go
            books.report(TOPICS[topic], window, server, number)
            books.count(LIVE[topic], window, server, number)
            books.count(OFFLINE[topic], window, server, number)
            books.confirm(TOPICS[topic], books.ends[LIVE[topic]])
        case "gap":
            books.report(TOPICS[topic], window, server, number, skips=1)
        case "confirm":
            books.confirm(TOPICS[topic], max(0, books.ends[LIVE[topic]] - values["back"]))
        case "advance":
            books.clock.advance(values["ms"])
        case "catch up":
            books.catch_up()
        case "away":
            state.set_unreachable(tier, "broker", f"{tier} does not answer", REPORTS[at].broker_id)
        case "back":
            state.set_reachable(tier, "broker", REPORTS[at].broker_id)
        case "report new":
            books.report(NEW, window, server, number)
        case "register new":
            state.expect(*REPORTS[at]._replace(topic=NEW))
        case "register reports":
            state.expect(*REPORTS[at]._replace(partition=1))
        case "restart":
            books.restarts.append(Restart("mirror", books.clock() - 5 * WINDOW_MS))
        case "delete":
            state.set_earliest(LIVE[topic], number)
            if values["is_asked"]:
                state.asked("offline", books.clock())
        case "lose":
            state.skip(LIVE[topic], books.ends[LIVE[topic]], 0, "the log was lost")
            books.ends[LIVE[topic]] = 0
        case "elect":
            books.elect(LIVE[topic], number, 1 + len(books.restarts))
        case "fold":
            state.fold(books.clock() - 2 * WINDOW_MS, 0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=30))
def test_what_is_kept_is_what_judging_anew_says(steps: list[tuple[str, Mapping[str, int]]]) -> None:
    books = Books()
    for name, values in steps:
        done(books, name, MappingProxyType(values))
        for is_final, judging in books.judging.items():
            anew = books.new(is_final=is_final).judged(books.restarts)
            assert shown(judging.judged(books.restarts)) == shown(anew)


def settled(offline: int = 5) -> Books:
    """Three windows that are over, read and passed, of five messages each."""
    books = Books()
    for window in range(3):
        done(books, "pass", {"topic": 0, "window": window, "server": 1, "n": offline})
        done(books, "report", {"topic": 0, "window": window, "server": 1, "n": 5 - offline})
        done(books, "count", {"tier": 0, "window": window, "server": 1, "n": 5 - offline})
    books.confirm(PAGE_VIEW, books.ends[LIVE[0]])
    books.clock.advance(4 * WINDOW_MS)
    books.catch_up()
    return books


def states(books: Books) -> Counter[str]:
    found = books.judging[False].judged(books.restarts)
    assert shown(found) == shown(books.new().judged(books.restarts))
    assert {topic for topic, _ in found.sums.states} == {PAGE_VIEW}
    return Counter({state: n for (_, state), n in found.sums.states.items() if n})


def test_only_windows_that_changed_are_judged_again() -> None:
    books = settled()
    judging = books.judging[False]
    before = judging.judged([]).windows
    assert not any(window.incomplete for window in before.values())
    books.clock.advance(1)
    done(books, "report", {"topic": 0, "window": 1, "server": 1, "n": 1})
    books.catch_up()
    after = judging.judged([]).windows
    same = [after[start_ms] is before[start_ms] for start_ms in sorted(before)]
    assert same == [True, False, True]


def test_what_concerns_every_window_is_seen_in_all() -> None:
    books = settled(offline=4)
    assert states(books) == {"complete": 3, "missing": 3}
    books.confirm(PAGE_VIEW, 0)  # the mirror begins anew
    books.catch_up()
    assert states(books) == {"complete": 3, "behind": 3}
    books.confirm(PAGE_VIEW, books.ends[LIVE[0]])
    books.catch_up()
    assert states(books) == {"complete": 3, "missing": 3}
    books.clock.advance(1)
    done(books, "gap", {"topic": 0, "window": 0, "server": 1, "n": 0})
    books.catch_up()
    assert states(books)["unknown"] == 3  # nothing can be said of what may have been counted


def test_what_was_reported_late_is_missing_when_the_tier_was_read_again() -> None:
    books = settled()
    books.clock.advance(1)
    done(books, "report", {"topic": 0, "window": 0, "server": 1, "n": 1})
    assert states(books) == {"complete": 4, "behind": 2}
    books.catch_up()
    assert states(books) == {"complete": 4, "missing": 2}
