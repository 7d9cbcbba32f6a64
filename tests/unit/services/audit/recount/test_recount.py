"""The recount from segment files names exactly what was taken away or added, nothing else."""

import functools
import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.cli.audit_table import conclusion
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.replica_sets import UncleanRecord, encode_unclean
from kafka2011.events.forms import FORMS_2011, Form, Forms, forms_of
from kafka2011.events.monitoring import WINDOW_MAX_MS
from kafka2011.events.origin import origin_of
from kafka2011.events.retention import SLACK_MS
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.protocol.message_set import Codec
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.recount import segment_files
from kafka2011.services.audit.recount.counting import RecountPlan, recount
from kafka2011.services.audit.recount.elections import Loss, losses
from kafka2011.services.audit.recount.guid_comparison import GuidTally, NextTier
from kafka2011.services.audit.recount.segment_files import LogDirectory
from kafka2011.services.audit.recount.sources import (
    ClusterSource,
    Confirmed,
    DiskSource,
    LostLog,
)
from kafka2011.services.audit.report import Json
from kafka2011.services.audit.restarts import REDELIVERY_GRACE_MS, Restart
from kafka2011.services.audit.verdicts import HOW_FAR_UNKNOWN, LOST_AHEAD, GuidCounts
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker
from tests.unit.services.audit.samples import (
    SERVER,
    T0,
    WINDOW_MS,
    end_of,
    entries_of,
    event,
    heartbeat,
    report,
    write_log,
)

COUNT = 60  # messages, evenly over three windows
REPORTED = [(PAGE_VIEW, T0 + n * WINDOW_MS, COUNT // 3) for n in range(3)]
Change = Callable[[list[bytes]], list[bytes]]


class Deployment:
    """Segment files of one live and one offline broker, and their recount."""

    def __init__(self, root: Path) -> None:
        self.live = LogDirectory("live", "broker-1", root / "live")
        self.offline = LogDirectory("offline", "broker-11", root / "offline")
        views = [event(n, T0 + (n % 3) * WINDOW_MS) for n in range(COUNT)]
        write_log(self.live.path, AUDIT, 0, message_set.encode([report(0, REPORTED)]))
        write_log(self.live.path, PAGE_VIEW, 0, message_set.encode(views[::2]))
        write_log(self.live.path, PAGE_VIEW, 1, message_set.encode(views[1::2]))
        # The mirror made other partitions of them, and two segments.
        wrapped = message_set.encode_compressed(views[30:35], Codec.GZIP)
        second = wrapped + message_set.encode(views[35:])
        write_log(self.offline.path, PAGE_VIEW, 0, message_set.encode(views[:30]), second)

    def change(self, log: str, change: Change) -> None:
        """Other entries for those in the first segment of `live/page-view-0` or the like."""
        path = min((self.live.path.parent / log).iterdir())
        path.write_bytes(b"".join(change(entries_of(path.read_bytes()))))

    def recount(
        self,
        *restarts: Restart,
        mirrored: Confirmed | Literal["all"] | None = "all",
        losses: Sequence[Loss] = (),
        now_ms: int = T0 + 5 * WINDOW_MS,
        forms: Forms = FORMS_2011,
    ) -> Json:
        mirrored = end_of(self.live) if mirrored == "all" else mirrored
        sources = [DiskSource(self.live, mirrored), DiskSource(self.offline)]
        plan = RecountPlan(
            tiers=("live", "offline"),
            sources=sources,
            restarts=restarts,
            losses=losses,
            forms=forms,
        )
        return recount(plan, now_ms=now_ms)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def verdicts(found: Json) -> dict[tuple[int, str], str]:
    """(number of the window, tier) -> verdict, of those that are not complete."""
    incomplete = {
        ((cell["window_start_ms"] - T0) // WINDOW_MS, tier): judged["verdict"]
        for cell in found["cells"]
        for tier, judged in cell["tiers"].items()
        if judged["verdict"] != "complete"
    }
    is_wrong = any(
        word in text for text in incomplete.values() for word in ("missing", "extra", "unknown")
    )
    assert found["exit_status"] == is_wrong
    return incomplete


def test_everything_there_balances(deployment: Deployment) -> None:
    found = deployment.recount()
    assert verdicts(found) == {}
    assert found["totals"]["produced"] == COUNT
    assert [found["totals"]["tiers"][tier]["counted"] for tier in ("live", "offline")] == [60, 60]
    assert (found["window_ms"], found["notes"]) == (WINDOW_MS, [])


def test_messages_in_another_form_are_named_beside_what_is_missing(deployment: Deployment) -> None:
    found = deployment.recount(forms=Forms(Form.JSON))
    assert found["exit_status"] == 1
    assert found["notes"] == [
        f"{tier} {PAGE_VIEW}: 60 messages have no header in the form json (event.forms): "
        "what is missing may be there"
        for tier in ("live", "offline")
    ]


def test_a_long_history_of_reports_over_many_partitions_is_counted_whole(
    deployment: Deployment,
) -> None:
    """Read partition by partition, each report of another partition is a gap until it is read."""
    rng = random.Random(7)
    placed: dict[int, list[bytes]] = {number: [] for number in range(6)}
    for sequence in range(6_000):
        partition = 5 if sequence == 10 else rng.randrange(6)
        placed[partition].append(report(sequence, REPORTED if sequence == 10 else []))
    shutil.rmtree(deployment.live.path / f"{AUDIT}-0")
    for partition, reports in placed.items():
        write_log(deployment.live.path, AUDIT, partition, message_set.encode(reports))
    found = deployment.recount()
    assert verdicts(found) == {}
    assert found["totals"]["produced"] == COUNT


LIVE, OFFLINE, REPORTS = "live/page-view-0", "offline/page-view-0", "live/audit-0"
LIVE_1, OFFLINE_1 = {(0, "live"): "missing 1"}, {(0, "offline"): "missing 1"}
GAP = "is in no segment file"
UNREPORTED = message_set.encode([event(999, T0)])
CHANGES = {
    "lost by the mirror": ([OFFLINE], lambda views: views[1:], OFFLINE_1, GAP),
    "lost at the live broker": ([LIVE], lambda views: views[1:], LIVE_1, ""),
    "lost everywhere": ([LIVE, OFFLINE], lambda views: views[1:], LIVE_1 | OFFLINE_1, GAP),
    "lost, and a copy of another one in the window": (
        [OFFLINE],
        lambda views: [views[3], *views[1:]],
        {(0, "offline"): "missing 1, extra 1"},
        "",
    ),
    "unreported": (
        [LIVE],
        lambda views: [*views, UNREPORTED],
        {(0, "live"): "extra 1", (0, "offline"): "missing 1"},
        "",
    ),
    "a torn end, which recovery would cut": (
        [LIVE],
        lambda views: [*views, UNREPORTED[:-1]],
        {},
        "",
    ),
    "damaged": (
        [OFFLINE],
        lambda views: [views[0][:-1] + b"?", *views[1:]],
        OFFLINE_1,
        "the entry at offset 0 is damaged",
    ),
    "a damaged length, which is no torn end": (
        [LIVE],
        lambda views: [*views[:-3], b"\x40" + views[-3][1:], *views[-2:]],
        {(window, "live"): "missing 1" for window in range(3)},
        "the length of the entry there is beyond the end of the log, and entries follow it",
    ),
    "a repeated monitoring event": ([REPORTS], lambda reports: reports * 2, {}, ""),
    "a lost monitoring event": (
        [REPORTS],
        lambda _: [message_set.encode([report(1, REPORTED[:1], time_ms=T0 + 3 * WINDOW_MS)])],
        {
            (window, tier): "unknown 20" if window else "unknown"
            for window in range(3)
            for tier in ("live", "offline")
        },
        "monitoring event 0 of",
    ),
}


@pytest.mark.parametrize(
    ("logs", "change", "expected", "note"), CHANGES.values(), ids=CHANGES.keys()
)
def test_a_recount_names_exactly_what_was_changed(
    deployment: Deployment,
    logs: list[str],
    change: Change,
    expected: dict[tuple[int, str], str],
    note: str,
) -> None:
    for log in logs:
        deployment.change(log, change)
    found = deployment.recount()
    assert verdicts(found) == expected
    texts = found["notes"] + [each["what"] for each in found["unknown"]]
    assert [note in text for text in texts] == ([True] if note else [])


@pytest.mark.parametrize(
    ("name", "is_given", "expected"),
    [
        ("/data/broker-7", True, "missing 1"),
        ("/data/broker-7/logs", True, "missing 1"),
        ("/mnt/disk-7", True, "unknown 1"),
        ("/mnt/disk-1", True, "unknown 1"),
        ("/data/broker-1", True, "unknown 1"),
        ("broker-1", False, "behind 1"),  # as the deployment itself names it
        ("/data/broker-1/disk-2/logs", True, "unknown 1"),
    ],
)
def test_how_far_the_next_tier_had_come_counts_for_a_broker_that_is_known(
    deployment: Deployment, name: str, expected: str, *, is_given: bool
) -> None:
    """A loss was called behind, where the offsets were those of another broker."""
    deployment.change(OFFLINE, lambda views: views[1:])
    passed = end_of(deployment.live)
    live = DiskSource(
        replace(deployment.live, name=name),
        lambda topic, partition: passed(topic, partition) if partition.broker_id == 7 else None,
        is_given=is_given,
    )
    plan = RecountPlan(("live", "offline"), [live, DiskSource(deployment.offline)])
    found = recount(plan, now_ms=T0 + 5 * WINDOW_MS)
    assert verdicts(found) == {(0, "offline"): expected}


def test_windows_of_producers_that_do_not_fit_into_each_other_are_shown_in_wider_ones(
    deployment: Deployment,
) -> None:
    """The wider of two widths had missing and extra ones."""
    width_ms = WINDOW_MS * 3 // 2
    times = [T0 + n % 3 * WINDOW_MS for n in range(COUNT)]
    counts = Counter(time_ms - time_ms % width_ms for time_ms in times)
    odd = report(0, [(PAGE_VIEW, *each) for each in counts.items()], window_ms=width_ms)
    even = report(0, [], server="frontend-2")
    deployment.change(REPORTS, lambda _: [message_set.encode([odd, even])])
    found = deployment.recount()
    assert verdicts(found) == {}
    assert found["window_ms"] == 3 * WINDOW_MS
    assert found["notes"] == [
        "producers count in windows of 10000, 15000 ms; shown in windows of 30000 ms"
    ]


def test_widths_that_would_make_windows_of_years_are_left_out(tmp_path: Path) -> None:
    """One odd report had all windows of the recount be one of ten thousand years."""
    deployment = Deployment(tmp_path)
    odd = [
        report(0, [(PAGE_VIEW, 0, 1)], server=f"odd-{n}", window_ms=WINDOW_MAX_MS - n)
        for n in (1, 3)
    ]
    write_log(deployment.live.path, AUDIT, 1, message_set.encode(odd))
    found = deployment.recount()
    assert found["window_ms"] == WINDOW_MS
    assert [each["server"] for each in found["unknown"]] == ["odd-1", "odd-3"]
    assert sum("do not fit" in note for note in found["notes"]) == 2


def test_a_sequence_that_is_used_again_is_noticed_in_whatever_order_it_is_read(
    deployment: Deployment,
) -> None:
    again = report(0, REPORTED[:1], time_ms=T0 + 9000)
    deployment.change(REPORTS, lambda entries: [message_set.encode([again]), *entries])
    found = deployment.recount()
    assert "as by a journal restored from a backup" in found["unknown"][0]["what"]
    assert found["exit_status"] == 1


def test_what_an_unclean_election_lost_is_missing_with_set_range_and_time(
    deployment: Deployment,
) -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    value = {"version": 1, "epoch": 8, "leader": "B", "isr": ["B"], "eligible": []}
    value |= {"min_insync": 1, "members": [{"name": "b", "directory": "B"}]}
    registry.create(paths.replica_state_path(1), json.dumps(value).encode())
    # The one of epoch 9 was noted and did not take place; the first was before these windows.
    for epoch, at_ms in ((7, T0 - 1), (8, T0 + WINDOW_MS), (9, T0 + 9 * WINDOW_MS)):
        ends = {"page-view-0": 100 * epoch}
        record = UncleanRecord(epoch, at_ms, "me@here", "b", "B", {"A": "a"}, ends)
        registry.create(paths.replica_unclean_path(1, epoch), encode_unclean(record))
    deployment.change(LIVE, lambda views: views[3:])
    found = deployment.recount(losses=losses(registry, "live"))
    reasons = {
        (cell["window_start_ms"] - T0) // WINDOW_MS: cell["tiers"]["live"]["reason"]
        for cell in found["cells"]
    }
    reason = "unclean election of b in epoch 8, by me@here"
    assert reasons == {0: reason, 1: reason, 2: ""}
    assert f"live broker 1: {reason}, at " in found["notes"][1]
    assert "of page-view-0 from offset 800 on until then is lost" in found["notes"][1]
    assert len(found["notes"]) == 2


def test_copies_after_a_restart_are_redelivered_and_balance(deployment: Deployment) -> None:
    deployment.change(OFFLINE, lambda entries: entries + entries[:6])
    found = deployment.recount(Restart("mirror-1", T0 + WINDOW_MS))
    assert verdicts(found) == {(n, "offline"): "redelivered 2" for n in range(3)}
    assert found["restarts"] == [{"name": "mirror-1", "time_ms": T0 + WINDOW_MS}]
    assert verdicts(deployment.recount()) == {(n, "offline"): "extra 2" for n in range(3)}


def test_what_was_sent_and_reported_again_is_not_called_missing(deployment: Deployment) -> None:
    """The first six of live's first log: two of each window. The mirror has copied each once."""
    deployment.change(LIVE, lambda entries: entries + entries[:6])
    assert verdicts(deployment.recount()) == {(n, "live"): "extra 2" for n in range(3)}
    again = [(topic, start_ms, 2) for topic, start_ms, _ in REPORTED]
    deployment.change(REPORTS, lambda entries: [*entries, message_set.encode([report(1, again)])])
    found = deployment.recount()
    assert verdicts(found) == {(n, t): "unknown 2" for n in range(3) for t in ("live", "offline")}


def test_copies_do_not_hide_that_live_has_lost_what_was_mirrored(deployment: Deployment) -> None:
    deployment.change(LIVE, lambda entries: [*entries[3:], *entries[3:9]])
    assert verdicts(deployment.recount()) == {(n, "live"): "missing 1, extra 2" for n in range(3)}


def test_a_restart_that_a_clock_ahead_dated_excuses_no_more_than_one_of_then(
    deployment: Deployment,
) -> None:
    """It excused whatever came after it until that time."""
    deployment.change(OFFLINE, lambda entries: entries + entries[:6])
    long_before = T0 - 2 * REDELIVERY_GRACE_MS
    beats = [heartbeat(long_before), heartbeat(4_000_000_000_000, instance="2")]
    deployment.change(REPORTS, lambda entries: [message_set.encode(beats), *entries])
    found = deployment.recount()
    assert found["restarts"] == [{"name": SERVER, "time_ms": long_before}]
    assert verdicts(found) == {(n, "offline"): "extra 2" for n in range(3)}


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_k_removed_and_copied_entries_are_named_exactly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"))
    numbers = st.lists(st.integers(0, COUNT // 2 - 1), max_size=12, unique=True)
    removed, copied = data.draw(numbers), data.draw(numbers)
    copies = dict.fromkeys(copied, 2) | dict.fromkeys(removed, 0)
    deployment.change(
        OFFLINE,
        lambda entries: [
            e for number, e in enumerate(entries) for _ in range(copies.get(number, 1))
        ],
    )
    found = deployment.recount()
    missing = Counter(number % 3 for number, count in copies.items() if count == 0)
    extra = Counter(number % 3 for number, count in copies.items() if count == 2)
    expected = {}
    for window, cell in enumerate(found["cells"]):
        words = [f"missing {missing[window]}"] if missing[window] else []
        words += [f"extra {extra[window]}"] if extra[window] else []
        if words:
            expected[window, "offline"] = ", ".join(words)
        judged, there = cell["tiers"]["offline"], 20 - missing[window]
        assert (judged["expected"], judged["distinct"]) == (20, there)
        assert judged["counted"] == there + extra[window]
    assert verdicts(found) == expected


def test_what_retention_has_deleted_a_part_of_is_not_audited(deployment: Deployment) -> None:
    """Without the reports messages were called extra, without messages the reports missing."""
    log, first_ms = deployment.live.path, T0 - SLACK_MS
    whole = [(log / f"{PAGE_VIEW}-{n}" / f"{0:020d}.kafka").read_bytes() for n in range(2)]
    for number, data in enumerate(whole):
        shutil.rmtree(log / f"{PAGE_VIEW}-{number}")
        # Those of the second window were deleted, and one stands before: the clock was wrong.
        kept = [event(99, 0), *(event(n, first_ms + 2 * WINDOW_MS) for n in range(100, 130))]
        entries = enumerate(entries_of(data))
        left = b"".join(entry for n, entry in entries if (2 * n + number) % 3 != 1)
        write_log(log, PAGE_VIEW, number, message_set.encode(kept) + left, start=7_000)
    found = deployment.recount()
    states = {key: text for key, text in verdicts(found).items() if 0 <= key[0] <= 2}
    assert states == {(0, "live"): "not audited", (1, "live"): "not audited"}
    assert found["retained_from"] == [
        {"tier": "live", "topic": PAGE_VIEW, "from_ms": T0 + 2 * WINDOW_MS}
    ]

    shutil.rmtree(log / f"{AUDIT}-0")
    later = report(5, REPORTED[2:], time_ms=first_ms + 2 * WINDOW_MS)
    write_log(log, AUDIT, 0, message_set.encode([later]), start=900)
    found = deployment.recount()
    states = {key: text for key, text in verdicts(found).items() if 0 <= key[0] <= 2}
    assert states == {
        (window, tier): "not audited" for window in range(2) for tier in ("live", "offline")
    }
    assert (found["exit_status"], found["unknown"]) == (0, [])
    assert sum("retention had deleted" in note for note in found["notes"]) == 2


@pytest.mark.parametrize("topic", [PAGE_VIEW, AUDIT])
@pytest.mark.parametrize("is_damaged", [True, False])
def test_what_cannot_be_read_behind_the_cut_does_not_take_the_rest_from_the_audit(
    deployment: Deployment, topic: str, is_damaged: bool
) -> None:
    """A lost message was *not audited*, with status 0."""
    log = deployment.live.path
    whole = (log / f"{topic}-0" / f"{0:020d}.kafka").read_bytes()
    shutil.rmtree(log / f"{topic}-0")
    made_ms = T0 - 9 * SLACK_MS
    if topic == AUDIT:
        first_left = [report(n, [], server="frontend-9", time_ms=made_ms) for n in range(30)]
    else:
        first_left = [event(n, made_ms) for n in range(200, 230)]
    junk = message_set.encode([b"junk"])
    first = junk[:-1] + b"?" if is_damaged else junk * 30
    write_log(log, topic, 0, first + message_set.encode(first_left) + whole, start=7_000)
    deployment.change(OFFLINE, lambda views: views[1:])
    found = deployment.recount()
    assert verdicts(found)[0, "offline"] == "missing 1"
    assert found["retained_from"][0]["from_ms"] == made_ms + SLACK_MS


def test_a_log_of_which_retention_has_left_nothing_says_nothing_of_before(
    deployment: Deployment,
) -> None:
    write_log(deployment.live.path, AUDIT, 1, b"", start=900)
    found = deployment.recount(now_ms=T0 + WINDOW_MS + 1)
    assert verdicts(found) == {
        (window, tier): "not audited" for window in range(2) for tier in ("live", "offline")
    }


# --- the files -----------------------------------------------------------------------------------


def test_retired_segments_are_noted(tmp_path: Path) -> None:
    write_log(tmp_path, PAGE_VIEW, 0, message_set.encode([event(1)]), start=4096)
    notes: list[str] = []
    (files,) = segment_files.partition_directories(tmp_path)
    (read,) = segment_files.read_partition(files, "live broker-1", notes.append)
    assert read == (4096, [event(1)])
    assert notes == ["live broker-1 page-view-0: the bytes before offset 4096 are gone (retention)"]


@pytest.mark.parametrize("is_boundary", [True, False])
def test_a_partition_is_read_in_two_pieces_at_a_boundary(tmp_path: Path, is_boundary: bool) -> None:
    entry = message_set.encode([b"one"])
    write_log(tmp_path, PAGE_VIEW, 0, entry * 2, entry * 2)
    (files,) = segment_files.partition_directories(tmp_path)
    cut_at = 3 * len(entry) - (not is_boundary)
    found = segment_files.read_partition(files, "", print, cut_at)
    pieces = [(offset // len(entry), len(payloads)) for offset, payloads in found]
    assert pieces == [(0, 2), (2, 1), (3, 1)]


def test_segments_larger_than_a_chunk_are_read_whole(tmp_path: Path) -> None:
    large = b"x" * (5 * 1024 * 1024)
    write_log(tmp_path, PAGE_VIEW, 0, message_set.encode([b"a", large, b"b", large[:-1], b"c"]))
    (files,) = segment_files.partition_directories(tmp_path)
    found = [
        payload
        for _, payloads in segment_files.read_partition(files, "", print)
        for payload in payloads
    ]
    assert [len(payload) for payload in found] == [1, len(large), 1, len(large) - 1, 1]


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("off", [0, -1, 2, 5])
def test_no_list_goes_across_the_cut_behind_an_entry_larger_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int, off: int
) -> None:
    monkeypatch.setattr(segment_files, "CHUNK_BYTES", 50)
    bodies = [b"a" * 10, b"b" * 200, b"c" * 10, b"d" * 10, b"e" * 10]
    write_log(tmp_path, PAGE_VIEW, 0, message_set.encode(bodies))
    (files,) = segment_files.partition_directories(tmp_path)
    starts = [0, *itertools.accumulate(len(message_set.encode([body])) for body in bodies)]
    cut_at = max(0, starts[cut] + off)
    found = list(segment_files.read_partition(files, "", print, cut_at))
    assert [body for _, payloads in found for body in payloads] == bodies
    for offset, payloads in found:
        end = offset + len(message_set.encode(payloads))
        is_across = offset < cut_at < end
        assert not is_across or (off and len(payloads) == 1), "only within one entry"


def test_log_directories_are_found_below_and_quarantine_is_not(tmp_path: Path) -> None:
    write_log(tmp_path / "broker-1" / "logs", "a-b", 3, b"")
    write_log(tmp_path / "broker-1" / "quarantine", "a-b", 3, b"")
    write_log(tmp_path / "broker-1-quarantine", "a-b", 3, b"")
    assert segment_files.log_roots(tmp_path) == [tmp_path / "broker-1" / "logs"]
    (files,) = segment_files.partition_directories(tmp_path / "broker-1" / "logs")
    assert (files.topic, files.partition) == ("a-b", 3)


# --- the tally ----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_bytes_max", [20, 1000, 10**9])
def test_the_tally_is_the_same_in_memory_and_on_disk(memory_bytes_max: int) -> None:
    events = [event(number) for number in range(1000)]
    with GuidTally(2, WINDOW_MS, memory_bytes_max=memory_bytes_max) as tally:
        for start in range(0, 1000, 50):
            tally.add_payloads(0, "t", events[start : start + 50])
        tally.add_payloads(1, "t", events[10:])
        tally.add_payloads(1, "t", [*events[10:12], b"no event"])
        found = tally.compare()
    key = CellKey("t", T0, SERVER)
    assert found[key, 0] == GuidCounts(1000, 1000, lost=0, seen=1000, seen_before=0)
    assert found[key, 1] == GuidCounts(992, 990, lost=10, seen=1000, seen_before=1000)
    assert found[CellKey("t", -1, "unreadable-header"), 1].counted == 1


JSON = forms_of(
    {
        "event.forms": "orders:json",
        "event.time.field": "orders:at",
        "event.server.field": "orders:host",
    }
)


def test_equal_messages_without_guids_are_several_messages() -> None:
    """Two equal ones of which one is late are not one that is there and a copy that is not."""
    same = b'{"at":%d,"host":"shop"}' % T0
    odd = b'{"at":"never","host":"shop"}'
    guid_of = origin_of(JSON, "orders").guid
    with GuidTally(3, WINDOW_MS, forms=JSON) as tally:
        tally.add_payloads(0, "orders", [same, same, odd])
        tally.add_payloads(0, "orders", [same], next_tier=NextTier.BEHIND)
        tally.add_payloads(1, "orders", [same, same, odd])
        tally.add_rows(2, "orders", [guid_of(same), guid_of(odd)], [T0, -1], ["shop", None])
        found = tally.compare()
    key = CellKey("orders", T0, "shop")
    assert found[key, 0] == GuidCounts(3, 3, seen=3, equal=2)
    assert found[key, 1] == GuidCounts(2, 2, behind=1, seen=3, seen_before=3, equal=1)
    assert found[key, 2] == GuidCounts(1, 1, lost=1, behind=1, seen=3, seen_before=3)
    unreadable = CellKey("orders", -1, "unreadable-header")
    assert found[unreadable, 2] == GuidCounts(1, 1, seen=1, seen_before=1)


def test_the_partitions_of_a_broker_that_is_away_are_known_by_who_has_read_them() -> None:
    """ZooKeeper forgets them with the broker's session; their messages were called missing."""
    registry = InMemoryZooKeeper().client()
    registry.start(0)
    for topic in ("orders", "likes"):
        registry.create(f"/brokers/topics/{topic}")
    for name in ("2-0", "nonsense"):
        registry.create(f"/consumers/online/offsets/orders/{name}", b"9")
    notes: list[str] = []
    source = ClusterSource("live", registry, notes.append)
    away = "live broker 2 is away: its orders-0 is not read"
    assert source.unread("orders") == away
    assert source.unread("likes") == "no broker of live has registered topic likes"
    assert notes == [away]


def test_a_partition_above_a_number_that_was_lowered_is_read_or_named() -> None:
    """It is not registered any more, and its messages are on disk: they were missing."""
    with ScriptedBroker() as broker:
        registry = InMemoryZooKeeper().client()
        registry.start(0)
        address = paths.encode_broker(broker.host, broker.port, 1)
        registry.put(paths.broker_id_path(1), address)
        registry.put(paths.topic_broker_path(PAGE_VIEW, 1), paths.encode_number(1))
        broker.append(PAGE_VIEW, 0, [event(1)])
        broker.append(PAGE_VIEW, 1, [event(2)])
        for partition, offset in ((0, b"9"), (1, b"9"), (2, b"0")):
            name = BrokerPartition(1, partition)
            registry.put(paths.offset_path("mirror", PAGE_VIEW, name), offset)

        def found() -> tuple[list[bytes], str, list[str]]:
            notes: list[str] = []
            source = ClusterSource("live", registry, notes.append)
            reads = source.read(PAGE_VIEW, notes.append)
            payloads = [payload for read in reads for payload in read.payloads]
            return payloads, source.unread(PAGE_VIEW), notes

        assert found() == ([event(1), event(2)], "", [])
        broker.errors[PAGE_VIEW, 1] = 3  # our own broker serves none that is too high
        payloads, unread, notes = found()
        assert payloads == [event(1)]
        assert notes == [unread]
        assert f"live broker 1 {PAGE_VIEW}-1: not read from offset 0" in unread


class UnreadReports(DiskSource):
    """Of which a part of the monitoring events could not be read."""

    def unread(self, topic: str) -> str:
        return "live broker 2 is away: its audit-0 is not read" if topic == AUDIT else ""


@pytest.mark.parametrize("has_reports", [True, False])
def test_where_monitoring_events_are_not_read_nothing_is_known(
    tmp_path: Path, *, has_reports: bool
) -> None:
    """Messages were called extra, or their topic not audited, with status 0."""
    log = tmp_path / "broker-1"
    if has_reports:
        write_log(log, AUDIT, 0, message_set.encode([report(0, [(PAGE_VIEW, T0, 3)])]))
    write_log(log, PAGE_VIEW, 0, message_set.encode([event(n) for n in range(5)]))
    write_log(log, AUDIT, 1, b"")
    source = UnreadReports(LogDirectory("live", "broker-1", log))
    plan = RecountPlan(("live",), [source], window_ms=WINDOW_MS)
    found = recount(plan, now_ms=T0 + 10 * WINDOW_MS)
    assert found["exit_status"] == 1
    assert [each["what"] for each in found["unknown"]] == [source.unread(AUDIT)]
    assert {cell["tiers"]["live"]["state"] for cell in found["cells"]} == {"unknown"}


def test_a_topic_whose_reports_may_be_among_those_lost_is_unknown(tmp_path: Path) -> None:
    """With the log that had them it was *not audited, since no producer reports it*. So are still
    the windows outside the gap, and with no gap all."""
    log = tmp_path / "broker-1"
    later = T0 + 9 * WINDOW_MS
    write_log(log, "access-log", 0, message_set.encode([event(1), event(2, later)]))
    plan = RecountPlan(
        ("live",), [DiskSource(LogDirectory("live", "broker-1", log))], window_ms=WINDOW_MS
    )
    for lost, first in ((0, "not audited"), (1, "unknown 1")):
        shutil.rmtree(log / f"{AUDIT}-0", ignore_errors=True)
        sent = [report(lost + n, [(PAGE_VIEW, T0, 0)], time_ms=T0 + n) for n in range(3)]
        write_log(log, AUDIT, 0, message_set.encode(sent))
        found = recount(plan, now_ms=later + WINDOW_MS)
        cells = {
            cell["window_start_ms"]: cell["tiers"]["live"]["verdict"]
            for cell in found["cells"]
            if cell["topic"] == "access-log"
        }
        assert cells == {T0: first, later: "not audited"}
        assert found["exit_status"] == lost
        is_said = "no report of them was found: access-log" in conclusion(found)
        assert is_said == (not lost)


def test_an_offset_beyond_the_end_of_the_log_is_of_a_log_that_is_lost(
    deployment: Deployment,
) -> None:
    """What the mirror says of the log before says nothing of how much it has of this one."""
    deployment.change("offline/page-view-0", lambda entries: entries[3:])
    found = deployment.recount(mirrored=lambda topic, _: 10_000_000 * (topic == PAGE_VIEW))
    assert verdicts(found) == {(number, "offline"): "unknown 1" for number in range(3)}
    assert [note for note in found["notes"] if note.startswith("live")] == [
        f"live broker-1 page-view-{partition}: its log, or the end of it, is lost: offline had "
        "taken it up to offset 10000000, and what is there now begins with a message of "
        f"2011-03-13 07:06:{second} UTC and ends at offset 2875. What only the lost part had is "
        "missing; how much offline has of what is there now is not known before it has taken more "
        "of it: start the deployment, and count again"
        for partition, second in ((0, 40), (1, 50))
    ]
    reasons = {cell["tiers"]["offline"]["reason"] for cell in found["cells"]}
    assert reasons == {HOW_FAR_UNKNOWN}


@pytest.mark.parametrize(("taken", "grows_by"), [(0, 0), (1, 0), (1, 1)])
def test_an_offset_beyond_the_end_that_a_broker_says_is_of_a_lost_log_unless_it_grew(
    taken: int, grows_by: int
) -> None:
    registry = InMemoryZooKeeper().client()
    registry.start(0)
    with ScriptedBroker() as broker:
        registry.put(paths.broker_id_path(1), paths.encode_broker(broker.host, broker.port, 1))
        registry.put(paths.topic_broker_path(PAGE_VIEW, 1), paths.encode_number(1))
        end = broker.append(PAGE_VIEW, 0, [event(1)])

        def confirmed(topic: str, _partition: BrokerPartition) -> int:
            for _ in range(grows_by):
                broker.append(topic, 0, [event(2)])
            return end + taken

        notes: list[str] = []
        source = ClusterSource("live", registry, notes.append, confirmed=confirmed)
        [read] = source.read(PAGE_VIEW, notes.append)
    is_lost = taken > grows_by
    assert read.next_tier is (NextTier.UNKNOWN if is_lost else NextTier.PASSED)
    place = f"live broker 1 {PAGE_VIEW}-0"
    assert read.lost == (LostLog(place, end + taken, end) if is_lost else None)
    assert notes == []


def test_what_only_a_lost_log_had_is_missing_there_and_unknown_behind_it(
    deployment: Deployment,
) -> None:
    """The mirror may have read it and not written it yet."""
    for log in ("live/page-view-0", "live/page-view-1", "offline/page-view-0"):
        deployment.change(log, lambda entries: entries[3:])
    passed = deployment.recount()
    mirrored = {0: 10_000_000, 1: 0}
    found = deployment.recount(
        mirrored=lambda topic, partition: mirrored[partition.partition] * (topic == PAGE_VIEW)
    )
    assert {name: text for name, text in verdicts(passed).items() if name[1] == "offline"} == {
        (number, "offline"): "missing 1" for number in range(3)
    }
    live = {name: text for name, text in verdicts(found).items() if name[1] == "live"}
    assert live == {(number, "live"): "missing 2" for number in range(3)}
    offline = {text for name, text in verdicts(found).items() if name[1] == "offline"}
    assert offline == {"unknown 1"}
    assert {cell["tiers"]["offline"]["reason"] for cell in found["cells"]} == {LOST_AHEAD}


def test_a_partition_that_a_group_has_read_and_its_broker_has_not_is_lost() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start(0)
    notes: list[str] = []
    with ScriptedBroker() as broker:
        registry.put(paths.broker_id_path(1), paths.encode_broker(broker.host, broker.port, 1))
        for topic in ("orders", "likes"):
            registry.put(paths.topic_broker_path(topic, 1), paths.encode_number(1))
        for partition, offset in ((0, b"9"), (1, b"90"), (2, b"0")):
            registry.create(f"/consumers/mirror/offsets/orders/1-{partition}", offset)
        source = ClusterSource("live", registry, notes.append)
    assert notes == [
        "live broker 1 orders-1: its log is lost, which consumer groups have read up to offset 90, "
        "and the broker has no other: what only it had is missing, and unknown at the tiers behind "
        "until the next one has taken something of a new log (kafka2011 topics create orders)"
    ]
    assert (source.is_lost("orders"), source.is_lost("likes")) == (True, False)


def test_a_broker_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a minute for each of its partitions."""
    registry = InMemoryZooKeeper().client()
    registry.start(0)
    notes: list[str] = []
    patient = functools.partial(SimpleConsumer, socket_timeout_ms=50)
    monkeypatch.setattr("kafka2011.services.audit.recount.sources.SimpleConsumer", patient)
    with ScriptedBroker() as broker:
        broker.is_silent = True
        registry.put(paths.broker_id_path(1), paths.encode_broker(broker.host, broker.port, 1))
        for topic in ("orders", "likes"):
            registry.put(paths.topic_broker_path(topic, 1), paths.encode_number(2))
        source = ClusterSource("live", registry, notes.append)
        assert len(broker.frames) == 2, "a request is repeated once"
    assert [note.partition(" is not read: ")[0] for note in notes] == [
        f"live broker 1: {name}" for name in ("likes-0", "likes-1", "orders-0", "orders-1")
    ]
    assert all(source.unread(topic).endswith("no answer within 50 ms") for topic in source.topics())


def test_what_is_reported_of_a_topic_that_no_broker_has_registered_is_unknown() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start(0)
    with ScriptedBroker() as broker:
        registry.put(paths.broker_id_path(1), paths.encode_broker(broker.host, broker.port, 1))
        registry.put(paths.topic_broker_path(AUDIT, 1), paths.encode_number(1))
        broker.append(AUDIT, 0, [report(0, REPORTED)])
        source = ClusterSource("live", registry, print)
        found = recount(RecountPlan(tiers=("live",), sources=[source]), now_ms=T0)
    assert verdicts(found) == {(number, "live"): "unknown 20" for number in range(3)}
    reasons = {cell["tiers"]["live"]["reason"] for cell in found["cells"]}
    assert reasons == {f"no broker of live has registered topic {PAGE_VIEW}"}
