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
from kafka2011.services.audit.report import Json
from kafka2011.services.audit.server_filter import server_filter
from tests.unit.services.audit.samples import T0, WINDOW_MS, event, report, write_log

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
    ledger = Ledger(TIERS, WINDOW_MS, is_ours=EAST)
    ledger.add_counts("live", PAGE_VIEW, {(T0, "east-1"): 3, (T0, "west-1"): 1})
    ledger.add_counts("offline", PAGE_VIEW, {(T0, "east-1"): 3, (T0, "west-1"): 5})
    counted = {key.server: cell.counted for key, cell in ledger.cells.items()}
    # What is in the own live tier is never left out, whatever its server.
    assert counted == {"east-1": [3, 3], "west-1": [1, 0]}
    other = Ledger(TIERS, WINDOW_MS, is_ours=WEST)
    other.add_counts("offline", PAGE_VIEW, {(T0, "east-1"): 3, (T0, "west-1"): 5})
    assert set(other.cells) == {CellKey(PAGE_VIEW, T0, "west-1")}


def test_the_others_reports_of_the_offline_tier_are_left_out() -> None:
    ledger = Ledger(TIERS, WINDOW_MS, is_ours=EAST)
    facts = {"instance": "run-1", "sequence": 0, "counts": [], "now_ms": T0}
    assert not ledger.add_report("offline", server="west-1", **facts)  # type: ignore[arg-type]
    assert ledger.add_report("offline", server="east-1", **facts)  # type: ignore[arg-type]
    assert ledger.add_report("live", server="west-1", **facts)  # type: ignore[arg-type]


class TwoLive:
    """Segment files: two live brokers with the same id, each its own; one offline broker."""

    def __init__(self, root: Path, lost_in_the_west: int = 0) -> None:
        self.live = {}
        self.offline = LogDirectory("offline", "broker-11", root / "offline")
        mirrored: list[bytes] = []
        for name, count in (("east-1", 10), ("west-1", 7)):
            directory = self.live[name] = LogDirectory("live", "broker-1", root / name)
            views = [event(number, server=name) for number in range(count)]
            write_log(directory.path, PAGE_VIEW, 0, message_set.encode(views))
            counts = report(0, [(PAGE_VIEW, T0, count)], server=name)
            write_log(directory.path, AUDIT, 0, message_set.encode([counts]))
            mirrored += views
        kept = mirrored[: len(mirrored) - lost_in_the_west]
        write_log(self.offline.path, PAGE_VIEW, 0, message_set.encode(kept))

    def recount(self, name: str) -> Json:
        return recount(
            RecountPlan(
                tiers=TIERS,
                sources=[DiskSource(self.live[name]), DiskSource(self.offline)],
                is_ours=WEST if name == "west-1" else EAST,
            ),
            now_ms=T0,
        )


def test_each_recount_balances_by_itself(tmp_path: Path) -> None:
    both = TwoLive(tmp_path)
    for name, count in (("east-1", 10), ("west-1", 7)):
        found = both.recount(name)
        assert found["exit_status"] == 0
        assert found["totals"]["tiers"]["offline"]["counted"] == count


def test_a_loss_is_found_by_the_audit_of_its_datacenter_alone(tmp_path: Path) -> None:
    both = TwoLive(tmp_path, lost_in_the_west=2)
    assert both.recount("east-1")["exit_status"] == 0
    west = both.recount("west-1")
    assert west["exit_status"] == 1
    assert west["totals"]["tiers"]["offline"]["missing"] == 2
