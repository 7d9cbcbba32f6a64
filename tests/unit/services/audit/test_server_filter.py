"""Two live datacenters into one offline one: every message belongs to exactly one audit."""

from pathlib import Path

import pytest

from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.services.audit.books.ledger import CellKey, Ledger
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.recount.counting import RecountPlan, recount
from kafka2011.services.audit.recount.segment_files import LogDirectory
from kafka2011.services.audit.recount.sources import DiskSource
from kafka2011.services.audit.server_filter import server_filter
from tests.unit.services.audit.samples import T0, WINDOW_MS, end_of, event, report, write_log

TIERS = ("live", "offline")
EAST, WEST = server_filter("", "west-.*"), server_filter("west-.*", "")


def test_one_rule_and_its_opposite_count_every_server_exactly_once() -> None:
    assert EAST is not None
    assert WEST is not None
    for server in ("frontend-1", "west-frontend-1", "", "unreadable-header", "not-west-1"):
        assert EAST(server) is not WEST(server)


def test_without_a_rule_every_server_counts() -> None:
    assert server_filter("", "") is None


@pytest.mark.parametrize(("whitelist", "blacklist"), [("a", "b"), ("(", ""), ("", "(")])
def test_an_invalid_rule_is_refused(whitelist: str, blacklist: str) -> None:
    with pytest.raises(ValueError, match=r"audit\.servers"):
        AuditConfig(
            live_zk_connect="live:1", servers_whitelist=whitelist, servers_blacklist=blacklist
        )


def test_behind_the_live_tier_the_others_messages_are_left_out() -> None:
    offline = {(T0, "east-1"): 3, (T0, "west-1"): 5}
    ledger = Ledger(TIERS, WINDOW_MS, is_ours=EAST)
    # What is in the own live tier is never left out, whatever its server.
    ledger.add_counts("live", PAGE_VIEW, {(T0, "east-1"): 3, (T0, "west-1"): 1})
    ledger.add_counts("offline", PAGE_VIEW, offline)
    counted = {key.server: cell.counted for key, cell in ledger.cells.items()}
    assert counted == {"east-1": [3, 3], "west-1": [1, 0]}
    other = Ledger(TIERS, WINDOW_MS, is_ours=WEST)
    other.add_counts("offline", PAGE_VIEW, offline)
    assert set(other.cells) == {CellKey(PAGE_VIEW, T0, "west-1")}


@pytest.mark.parametrize(
    ("tier", "server", "counts"),
    [("offline", "west-1", False), ("offline", "east-1", True), ("live", "west-1", True)],
)
def test_the_others_reports_of_the_offline_tier_are_left_out(
    tier: str, server: str, counts: bool
) -> None:
    ledger = Ledger(TIERS, WINDOW_MS, is_ours=EAST)
    found = ledger.add_report(
        tier, server=server, instance="run-1", sequence=0, counts=[], now_ms=T0
    )
    assert found is counts


@pytest.mark.parametrize("lost", [0, 2])
def test_each_recount_finds_the_losses_of_its_datacenter_alone(tmp_path: Path, lost: int) -> None:
    """Two live brokers with the same id, each its own; one offline broker."""
    live = {}
    mirrored: list[bytes] = []
    for name, count in (("east-1", 10), ("west-1", 7)):
        live[name] = LogDirectory("live", "broker-1", tmp_path / name)
        views = [event(number, server=name) for number in range(count)]
        counts = report(0, [(PAGE_VIEW, T0, count)], server=name)
        write_log(live[name].path, PAGE_VIEW, 0, message_set.encode(views))
        write_log(live[name].path, AUDIT, 0, message_set.encode([counts]))
        mirrored += views
    offline = LogDirectory("offline", "broker-11", tmp_path / "offline")
    write_log(offline.path, PAGE_VIEW, 0, message_set.encode(mirrored[: 17 - lost]))
    for name, is_ours, count, missing in (("east-1", EAST, 10, 0), ("west-1", WEST, 7, lost)):
        sources = [DiskSource(live[name], end_of(live[name])), DiskSource(offline)]
        found = recount(RecountPlan(tiers=TIERS, sources=sources, is_ours=is_ours), now_ms=T0)
        total = found["totals"]["tiers"]["offline"]
        assert (total["counted"], total["missing"]) == (count - missing, missing)
        assert found["exit_status"] == bool(missing)
