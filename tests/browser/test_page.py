"""The page in a real browser: every view, live, by keyboard, with ten thousand rows."""

import re
from typing import Any

import pytest

from kafka2011.coordination.processes import forget_process
from tests.browser.conftest import Deployment, Open, expect, read_script, show
from tests.support.processes import expect_process
from tests.support.waiting import wait_until

VIEWS = {
    "topology": "Topology",
    "site": "What the site knows right now",
    "audit": "Audit cells",
    "topics": "Brokers",
    "groups": "Consumer groups",
    "latency": "Latency",
    "messages": "Messages",
    "jobs": "Load job",
    "break": "Break it",
}
PHONE, DESK, WALL = 390, 1280, 2560


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK, WALL])
def test_every_view_at_every_width(open_page: Open, width: int, scheme: str) -> None:
    page = open_page("topology", viewport={"width": width, "height": 900}, color_scheme=scheme)
    for view, heading in VIEWS.items():
        show(page, view)
        page.get_by_role("heading", name=heading, exact=True).first.wait_for()
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{view} is wider than {width} px by {overflow}"
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("main button, main input, main select, main a")]
                .filter((found) => !(found.ariaLabel || found.textContent.trim() || found.title
                    || (found.labels && found.labels.length))).length"""
        )
        assert unnamed == 0, f"{view} has {unnamed} controls without a name"


def test_numbers_move_without_reload(open_page: Open) -> None:
    page = open_page("topology")
    tile = page.locator(".tile.live .big")
    expect(tile).not_to_have_text("–")
    before = tile.inner_text()
    expect(tile).not_to_have_text(before)


def test_every_registered_process_is_in_the_picture(
    open_page: Open, deployment: Deployment
) -> None:
    page = open_page("topology")
    page.locator("g.node").first.wait_for()

    def names() -> set[str]:
        return {row["name"] for row in deployment.rows("processes").values()}

    def drawn() -> set[str]:
        return set(page.locator("g.node text.name").all_text_contents())

    wait_until(lambda: names() | {"warehouse"} == drawn(), lambda: f"{names()} in {drawn()}")
    assert {"wan-link", "zookeeper-offline", "mirror-1", "loader"} <= names()


def test_events_with_a_key_are_drawn_around_the_balancer(open_page: Open) -> None:
    page = open_page("topology", viewport={"width": DESK, "height": 900})
    direct = "frontend-1 → broker-1: "
    page.locator("path.edge", has_text=direct).wait_for(state="attached")
    crossed = page.locator("path.edge", has_text=direct).evaluate(
        """edge => {
            const boxes = [...document.querySelectorAll("g.node")];
            const box = boxes.find((node) => node.dataset.focus === "live/balancer").getBBox();
            const length = edge.getTotalLength();
            return [...Array(100).keys()].map((part) => edge.getPointAtLength(length * part / 99))
                .filter(({ x, y }) => x > box.x && x < box.x + box.width
                    && y > box.y && y < box.y + box.height).length;
        }"""
    )
    assert crossed == 0


@pytest.mark.parametrize(
    ("width", "consumer", "silent"),
    [
        (DESK, "missing 123,456 · lag 12.3 MB", "no answer for 12 s"),
        (PHONE, "missing 123,456", "silent for 12 s"),
    ],
)
def test_what_a_box_says_fits_into_it(
    open_page: Open, width: int, consumer: str, silent: str
) -> None:
    page = open_page("topology", viewport={"width": width, "height": 900})
    page.locator("g.node").first.wait_for()
    drawn = page.evaluate(read_script("boxes.js"))
    assert drawn["bad"] == []
    assert (drawn["consumer"], drawn["silent"]) == (consumer, silent)
    assert "validatedmissing 123,456, complete up to" in drawn["facts"]


def test_a_datacenter_that_registers_is_drawn_and_one_that_is_forgotten_goes(
    open_page: Open, deployment: Deployment
) -> None:
    page = open_page("topology")
    page.locator("g.node").first.wait_for()
    panel = page.locator("svg.picture text.panel-name", has_text="West datacenter")
    west = {"west-broker-1": "broker", "west-frontend-1": "frontend"}
    with deployment.registry() as registry:
        try:
            expect(panel).to_have_count(0)
            for name, kind in west.items():
                expect_process(registry, "west", name, kind)
            expect(panel).to_be_visible()
            expect(page.locator("g.node", has_text="west-broker-1")).to_be_visible()
        finally:
            for name in west:
                forget_process(registry, "west", name)
        expect(panel).to_have_count(0)


def test_box_and_cell_open_by_keyboard_and_escape_gives_the_focus_back(open_page: Open) -> None:
    page = open_page("topology")
    box = page.locator("g.node", has_text="broker-1").first
    box.focus()
    page.keyboard.press("Enter")
    page.locator("#detail").get_by_text("Process id").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    show(page, "audit")
    # The very element: as windows pass, another cell becomes the first.
    page.locator("button.cell").first.wait_for()
    cell = page.locator("button.cell").last.element_handle()
    cell.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Server frontend-1").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    assert cell.evaluate("cell => document.activeElement === cell")


def test_the_focus_stays_on_a_cell_while_the_table_is_rewritten(open_page: Open) -> None:
    page = open_page("audit")
    page.locator("button.cell").first.wait_for()
    cell = page.locator("button.cell").last.element_handle()
    cell.focus()
    page.evaluate(
        """() => { window.rewrites = 0;
        new MutationObserver(() => { window.rewrites += 1; })
            .observe(document.querySelector('.audit-cells tbody'), { childList: true }); }"""
    )
    wait_until(lambda: page.evaluate("window.rewrites") >= 3, "the table is rewritten three times")
    assert cell.evaluate("cell => document.activeElement === cell")


def test_a_button_that_can_no_longer_be_pressed_leaves_the_focus_in_its_table(
    open_page: Open,
) -> None:
    page = open_page("break")
    pause = page.get_by_role("button", name="Pause online-1", exact=True)
    pause.focus()
    resume = page.get_by_role("button", name="Continue online-1", exact=True)
    row = page.locator("tr", has=resume)
    before = row.inner_text()
    page.keyboard.press("Enter")
    try:
        expect(row).not_to_have_text(before)
        expect(page.get_by_role("region", name="Processes to break")).to_be_focused()
    finally:
        resume.click()


def test_what_is_paused_is_continued_and_not_started_again(open_page: Open) -> None:
    page = open_page("break")
    row = page.get_by_role("region", name="Processes to break").locator("tr", has_text="online-2")

    def offered() -> list[str]:
        return row.locator("button:enabled").all_text_contents()

    page.get_by_role("button", name="Pause online-2", exact=True).last.click()
    try:
        expect(row).to_contain_text("paused")
        assert offered() == ["Kill", "Continue"]
    finally:
        row.get_by_role("button", name="Continue online-2", exact=True).click()
    expect(row).not_to_contain_text("paused")
    wait_until(lambda: offered() == ["Kill", "Pause"], lambda: f"offered: {offered()}")


def test_an_address_without_a_page_says_so_and_lists_the_pages(open_page: Open) -> None:
    page = open_page("nonsense")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    expect(page.locator("main")).to_contain_text("There is no page #/nonsense.")
    expect(page.locator("nav a[aria-current]")).to_have_count(0)
    page.locator("main").get_by_role("link", name="Audit").click()
    expect(page.get_by_role("heading", name="Audit cells")).to_be_visible()


def test_the_banner_covers_nothing_at_the_end_of_a_page(open_page: Open) -> None:
    page = open_page("topology", viewport={"width": PHONE, "height": 900})
    page.locator("tbody tr").first.wait_for()
    gap = page.evaluate(
        """async () => {
            const box = document.getElementById("banner"), other = box.cloneNode();
            box.before(other); // what the page goes on writing to
            box.id = "";
            box.hidden = false;
            box.textContent = "Down: " + "some-process-1, ".repeat(20);
            await new Promise((done) => setTimeout(done, 200));
            scrollTo(0, document.documentElement.scrollHeight);
            const last = document.querySelector("footer p");
            return box.getBoundingClientRect().top - last.getBoundingClientRect().bottom;
        }"""
    )
    assert gap > 0


def test_tables_sort_by_keyboard_and_filter(open_page: Open) -> None:
    page = open_page("topics")
    table = page.get_by_role("region", name="Topics")
    header = table.get_by_role("button", name="Size")
    header.focus()
    page.keyboard.press("Enter")
    expect(table.locator("th[aria-sort=descending]")).to_have_text("Size ↓")
    page.get_by_label("Filter").first.fill("page-view")
    expect(table.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Filter").first.fill("nothing is called so")
    expect(table).to_contain_text("No rows match the filter.")


def test_messages_are_decoded_linked_and_followed(open_page: Open) -> None:
    page = open_page("messages")
    page.locator("details.message").first.click()
    expect(page.locator("details.message pre").first).to_contain_text("guid")
    link = page.get_by_role("link", name="Link to this offset").first.get_attribute("href")
    offset = page.locator("details.message strong").first.inner_text()
    assert link.endswith(f"offset={offset.replace(',', '')}")
    page.get_by_role("button", name="Where is it?").first.click()
    way = page.get_by_role("status", name="Where this message is")
    expect(way.get_by_role("row")).to_have_count(4)
    expect(way.get_by_role("row").nth(1)).to_contain_text(f"at {offset}")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("main p[role=status]")).to_contain_text("Live")


def test_a_time_to_read_messages_from_is_utc(open_page: Open) -> None:
    page = open_page("messages")
    page.locator("details.message").first.wait_for()
    page.get_by_label("From").select_option("time")
    page.get_by_label("Time (UTC)").fill("2011-03-13T07:06:40")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(re.compile(r"time=1300000000000$"))


def test_retention_and_rebalances_are_shown(open_page: Open, deployment: Deployment) -> None:
    page = open_page("topics")
    expect(page.get_by_role("region", name="Topics")).to_contain_text("7 days")
    wait_until(lambda: deployment.rows("rebalances"), "a group has owners")
    show(page, "groups")
    expect(page.locator("svg.timeline rect.lane").first).to_be_visible()


def test_what_was_not_measured_is_dotted(open_page: Open) -> None:
    page = open_page("latency")
    drawn = page.evaluate(
        """async () => {
            const { Chart } = await import("/chart.js");
            const lines = [{ name: "a", css: "live" }];
            const one = new Chart({ title: "x", lines, format: String });
            const points = [[0, 1], [2000, 2], [60000, 3], [62000, null], [64000, 4]];
            one.set(points.map(([ms, a]) => [ms, { a }]));
            return [one.paths[0], one.gaps[0]].map(
                (path) => path.getAttribute("d").replace(/[\\d. ]+/g, ""));
        }"""
    )
    assert drawn == ["MLML", "ML"]


def drawn(page: Any, view: str, rows: dict[str, Any], *whole: str) -> str:
    return str(page.evaluate(read_script("drawn.js"), [view, rows, whole]))


def test_a_dashboard_that_may_not_break_anything_says_how_to_get_one(open_page: Open) -> None:
    page = open_page("break")
    page.get_by_role("region", name="Links to break").wait_for()
    text = drawn(page, "break", {"meta": {"deployment": {"chaos": False}}})
    assert "make live CHAOS=on" in text
    assert "Exercises" not in text
    assert "CHAOS=on" not in drawn(page, "break", {})


def test_events_are_in_the_order_of_their_time(open_page: Open) -> None:
    """A slower look adds later what it saw before."""
    page = open_page("topology")
    given = [(3000, "event C"), (1000, "event A"), (2000, "event B")]
    events = {
        f"{number:09d}": {"at_ms": at_ms, "kind": "info", "text": text}
        for number, (at_ms, text) in enumerate(given)
    }
    text = drawn(page, "topology", {"events": events}, "events")
    assert text.index("event C") < text.index("event B") < text.index("event A")


def test_the_site_is_not_called_fresh_while_what_is_new_cannot_come(open_page: Open) -> None:
    """The latency is that of what came."""
    page = open_page("site")
    broker = {"name": "broker-1", "kind": "broker", "dc": "live", "broker_id": 1}

    def said(state: str) -> str:
        processes = {"live/broker-1": {**broker, "state": state}}
        rows = {"site": {"latency": {"p50_ms": 50, "p99_ms": 100}}, "processes": processes}
        return drawn(page, "site", rows, "site", "processes")

    assert "Fresh: a click is here within 100 ms" in said("up")
    assert "Not known how fresh: broker-1 (no answer)" in said("silent")
    assert "Fresh: a click" not in said("silent")


def test_a_topic_without_a_cell_in_the_windows_shown_says_when_its_last_was(
    open_page: Open,
) -> None:
    page = open_page("audit")
    page.locator("button.cell").first.wait_for()
    windows = [("orders", 1_000_000), *(("clicks", 2_000_000 + n * 10_000) for n in range(100))]
    cells = {
        f"{topic}|{window}": {
            "topic": topic,
            "window": window,
            "tiers": {"live": {"state": "complete"}},
        }
        for topic, window in windows
    }
    text = drawn(page, "audit", {"cells": cells}, "cells")
    assert "nothing in these windows; its last began at " in text


def test_a_topic_without_a_cell_has_a_row(open_page: Open) -> None:
    """Of windows that are older than the newest 60 only cells that are not complete are read: a
    topic that had its last before them was not on the page, as if it had never been."""
    page = open_page("audit")
    page.locator("button.cell").first.wait_for()
    known = {"topics": {"readings": {}, "(other topics)": {}}, "topics_left_out": 3}
    summary = {"tiers": {}, "verdicts": {}, **known}
    text = drawn(page, "audit", {"audit": {"summary": summary}})
    assert (
        "nothing in these windows; kafka2011 audit --topic readings --all lists those before"
        in text
    )
    assert "other topics" not in text
    assert "3 more topics have a row only while they have cells here." in text


def test_a_report_that_is_awaited_is_a_note_beside_the_cells(open_page: Open) -> None:
    page = open_page("audit")
    page.locator("button.cell").first.wait_for()
    summary = {"tiers": {}, "verdicts": {}, "awaited": [{"what": "event 7 not read"}]}
    text = drawn(page, "audit", {"audit": {"summary": summary}}, "audit")
    assert "Not judged yet: event 7 not read" in text


def test_the_cells_say_of_what_time_they_are(open_page: Open) -> None:
    """They are read beside the figures below them, and on a busy machine less often."""
    page = open_page("audit")
    lead = page.locator(".lead", has_text="A cell is one topic")
    expect(lead).to_contain_text("As of ")
    at_ms = 1_300_000_000_000
    text = drawn(page, "audit", {"audit": {"cells": {"at_ms": at_ms}}})
    assert "Select a square for its cells. As of 07:06:40." in text
    expect(page.locator("footer")).to_have_text("Times are UTC, as in commands, logs and tables.")


def test_no_label_of_a_picture_is_cut_or_stands_twice(open_page: Open) -> None:
    """The topmost label of the latencies, "16 min 40 s", was cut to "6 min 40 s"; a chart without
    a value had the labels 0 ms, 1 ms and 1 ms."""
    page = open_page("latency", viewport={"width": DESK, "height": 900})
    page.locator("svg.chart").first.wait_for()
    assert page.evaluate(read_script("labels.js")) == []


def test_ten_thousand_partitions_without_a_stutter(open_page: Open) -> None:
    page = open_page("topics")
    page.locator("table").first.wait_for()
    sorts = page.evaluate(read_script("many_rows.js"))
    assert sorts < 20, f"an update takes as long as {sorts:.1f} sorts"
