"""The page Site says what the live brokers' segment files say, and is fresh."""

import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafka2011.services.dashboard.config import DashboardConfig
from tests.browser.conftest import Deployment, Open, expect
from tests.support import site_recount
from tests.support.waiting import wait_until


@pytest.fixture
def site(open_page: Open) -> Any:
    return open_page("site")


def in_the_files(
    deployment: Deployment, use: str, topic: str, field: str
) -> Counter[tuple[int, str]]:
    """Events of the topic by (bucket, value of the field), up to the use's checkpoint."""
    url = deployment.state("dashboard")["environment"]["KAFKA2011_SCHEMA_REGISTRY_URL"]
    codec = DashboardConfig(live_zk_connect="none:1", schema_registry_url=url).topic_codec()
    checkpoint = site_recount.checkpoint_of(deployment.root / "site", use)
    events = site_recount.events_of(Path(deployment.root), checkpoint, codec)
    return Counter(
        (event["header"]["time"] // 10_000 * 10_000, event[field].partition("?")[0])
        for found, event in events
        if found == topic
    )


def test_the_page_says_what_the_files_say(deployment: Deployment, site: Any) -> None:
    """Between the checkpoint before and the one behind the page's answer."""
    expect(site.locator(".bars[aria-label='Queries'] li").first).to_have_attribute(
        "data-count", re.compile(r"[1-9]\d*")
    )
    before = in_the_files(deployment, "search", "search", "query")

    def events_of_checkpoint() -> int:
        found = site_recount.checkpoint_of(deployment.root / "site", "search")
        return int(found["state"]["events"])

    events = events_of_checkpoint()
    shown: dict[str, Any] = {}

    def is_shown() -> bool:
        shown.update(deployment.answered("site", "search"))
        return bool(shown["events"] >= events)

    wait_until(is_shown, "an answer that is not older than the checkpoint")
    wait_until(
        lambda: events_of_checkpoint() > shown["events"],
        "a checkpoint that has what the page shows",
    )
    behind = in_the_files(deployment, "search", "search", "query")

    def since(counts: Counter[tuple[int, str]], query: str) -> int:
        start = shown["from_ms"]
        return sum(n for (at, each), n in counts.items() if each == query and at >= start)

    assert shown["queries"]
    for row in shown["queries"]:
        query = row["query"]
        assert since(before, query) <= row["searches"] <= since(behind, query), query


def test_the_planted_abusers_are_found_and_no_other(site: Any) -> None:
    expect(site.locator(".findings [data-subject]")).to_have_count(5)
    expect(site.get_by_text("5 of 5", exact=True)).to_be_visible()
    expect(site.get_by_text("0 findings")).to_be_visible()


def test_every_box_has_something_to_show(site: Any) -> None:
    for label in ("Most viewed", "Most shared", "Queries", "Results clicked", "Campaigns"):
        expect(site.locator(f"[aria-label='{label}'] li").nth(1)).to_be_visible()
    expect(site.locator(".feed [data-post]").first).to_be_visible()
    expect(site.locator(".verdict-line").first).to_contain_text(re.compile("Fresh|Late"))


def test_another_members_feed_is_shown_on_request(deployment: Deployment, site: Any) -> None:
    member = str(deployment.answered("site", "newsfeed")["member"])
    site.get_by_label("Number of the member").fill(member)
    site.get_by_role("button", name="Show", exact=True).click()
    expect(site.get_by_text(f"member {int(member):,}")).to_be_visible()
    site.get_by_label("Number of the member").fill("77777777")
    site.get_by_role("button", name="Show", exact=True).click()
    expect(site.get_by_text("For Member 77777777")).to_be_visible()


def test_operations_show_what_the_kernel_and_the_files_say(
    deployment: Deployment, site: Any
) -> None:
    table = site.get_by_role("region", name="Processes, as measured")
    for name in ("live/broker-1", "live/site", "offline/loader"):
        expect(table.get_by_role("row").filter(has_text=name)).to_contain_text("answers")
    expect(site.locator("[aria-label='Machines'] li").filter(has_text="Processor")).to_have_count(1)

    def with_calls() -> Any:
        found = deployment.answered("site", "operations")
        return found if found["slowest"] else None

    found = wait_until(with_calls, "calls in the last minute")
    shown = {row["name"]: row for row in found["processes"]}
    kernel = Path(f"/proc/{deployment.state('broker-1')['pid']}/statm").read_text().split()[1]
    resident = int(kernel) * os.sysconf("SC_PAGE_SIZE")
    assert resident / 2 < shown["live/broker-1"]["memory"] < resident * 2
    assert found["hosts"][0]["cpu_max"] == os.cpu_count()
    # The slowest calls of the minute, as the segment files have them.
    url = deployment.state("dashboard")["environment"]["KAFKA2011_SCHEMA_REGISTRY_URL"]
    codec = DashboardConfig(live_zk_connect="none:1", schema_registry_url=url).topic_codec()
    logs = (deployment.root / "site", "operations")
    slowest = found["slowest"][0]

    def stored() -> set[tuple[str, float]]:
        events = site_recount.events_of(
            Path(deployment.root), site_recount.checkpoint_of(*logs), codec
        )
        return {
            (event["callee"], round(event["took_ms"], 3))
            for topic, event in events
            if topic == "service-call"
        }

    wait_until(
        lambda: (slowest["callee"], slowest["took_ms"]) in stored(),
        "a checkpoint that has the slowest call",
    )


def test_a_process_that_hangs_is_an_alert_until_it_goes_on(
    deployment: Deployment, site: Any
) -> None:
    alert = "[data-alert='does not answer|live/online-1']"
    deployment.signal("online-1", signal.SIGSTOP)
    try:
        expect(site.locator(f"[aria-label='Alerts'] {alert}")).to_be_visible()
        expect(site.get_by_label("State of operations")).to_have_class(re.compile("bad"))
    finally:
        deployment.signal("online-1", signal.SIGCONT)
    expect(site.locator(f"[aria-label='Alerts'] {alert}")).to_have_count(0)
    expect(site.locator(f"[aria-label='Alerts that are over'] {alert}").first).to_be_visible()
