"""What the page says of rows that no deployment has at will: the test writes the stream, and sets
the browser's clock. No server: every request is answered from the page's own files.
"""

import datetime
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka2011.services.dashboard.routes import HEADERS, load_static
from tests.browser.conftest import HERE, expect
from tests.support.waiting import DEADLINE_S

PAGE = "http://dashboard.localhost"
AT_MS = 1_300_000_000_000  # the server's time; the browser's clock is an hour ahead
AHEAD_MS = 3_600_000
COMPLETE = {"tiers": {}, "verdicts": {"complete": 1}, "produced": 1}
AGES = {"p50_ms": None, "p99_ms": None, "shown": 0, "is_after_pause": False}
Fed = Callable[..., Any]


def clock(at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))


def said(page: Any, *, at_ms: int = AT_MS, age_ms: int = 0, **parts: Any) -> None:
    """A message of the stream. `age_ms`: how old its sample is when it is sent."""
    message = {"id": at_ms, "at_ms": at_ms, "age_ms": age_ms, "pause_ms": 1000, **parts}
    page.evaluate("message => say(message)", message)


@pytest.fixture
def fed(browser: Any) -> Iterator[Fed]:
    """Opens a view with these sections; at the end nothing may have failed."""
    files = load_static()
    wrong: list[str] = []
    pages: list[Any] = []

    def answer(route: Any) -> None:
        path = route.request.url.removeprefix(PAGE).partition("?")[0].lstrip("/")
        kind, body = files.get(path or "index.html") or ("application/json", b'{"cells": []}')
        route.fulfill(body=body, headers={**HEADERS, "Content-Type": kind})

    def open_fed(view: str, *, is_fed: bool = True, **sections: Any) -> Any:
        page = browser.new_page()
        pages.append(page)
        page.set_default_timeout(DEADLINE_S * 1000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
        page.route("**/*", answer)
        page.clock.install(time=datetime.datetime.fromtimestamp((AT_MS + AHEAD_MS) / 1000))
        page.add_init_script(path=HERE / "fed_stream.js")
        page.goto(f"{PAGE}/#/{view}")
        deployment = {"state": "running", "counts": {"up": 1}}
        every = {"meta": {"deployment": deployment}, "audit": {"summary": COMPLETE}}
        if is_fed:
            said(page, sections={**every, **sections})
        return page

    yield open_fed
    for page in pages:
        page.close()
    assert wrong == []


NOTHING = re.compile(r"\bNo |Nothing|\b0 |load job does not answer|is registered|:\d\d:")


@pytest.mark.parametrize(
    "view", ["topology", "site", "audit", "topics", "groups", "latency", "messages", "jobs"]
)
def test_before_its_first_values_a_page_says_nothing_of_them(fed: Fed, view: str) -> None:
    """It said that there is no alert, and no abuse, and that the load job does not answer."""
    page = fed(view, is_fed=False)
    expect(page.locator(".tile.verdict")).to_contain_text("Waiting for the audit")
    expect(page.locator("main")).not_to_be_empty()
    assert NOTHING.findall(page.locator("main").inner_text()) == []
    page.set_viewport_size({"width": 700, "height": 900})  # what draws itself anew
    page.clock.fast_forward(1000)
    assert NOTHING.findall(page.locator("main").inner_text()) == []


def test_what_a_process_has_not_said_yet_is_not_said(fed: Fed) -> None:
    job = {"name": "loader", "kind": "loader", "dc": "offline", "state": "up"}
    page = fed("jobs", processes={"offline/loader": job})
    card = page.locator("section", has=page.get_by_role("heading", name="Load job"))
    expect(card).to_contain_text("waiting for its first answer")
    expect(page.get_by_role("region", name="Loads")).to_contain_text("Waiting")
    change = {"set": {"offline/loader": {**job, "state": "down"}}}
    said(page, at_ms=AT_MS + 1000, changes={"processes": change})
    expect(card).to_contain_text("the load job does not answer")
    loads = page.get_by_role("region", name="Loads")
    expect(loads).to_contain_text("The load job does not answer")
    expect(loads).not_to_contain_text("Waiting")
    page = fed("site")
    expect(page.locator(".verdict-line").first).to_have_text("Waiting for the process “site”")
    assert "abuses the site" not in page.locator("main").inner_text()


def test_values_that_the_server_no_longer_renews_are_said_to_be_of_their_time(fed: Fed) -> None:
    page = fed("topology")
    banner, verdict = page.locator("#banner"), page.locator(".tile.verdict")
    expect(verdict).to_contain_text("Nothing is lost")
    expect(banner).to_be_hidden()
    page.clock.fast_forward(30_000)
    expect(banner).to_contain_text(f"These values are of {clock(AT_MS)}")
    expect(verdict).to_contain_text(f"Counts are as of {clock(AT_MS)}")
    expect(verdict).not_to_contain_text("Nothing is lost")
    expect(page.locator("#link")).to_have_text(f"as of {clock(AT_MS)}")
    said(page, at_ms=AT_MS + 31_000, changes={})
    expect(banner).to_be_hidden()
    expect(verdict).to_contain_text("Nothing is lost")
    page = fed("topology")
    said(page, age_ms=60_000, sections={"audit": {"summary": COMPLETE}})
    expect(page.locator("#banner")).to_contain_text(f"These values are of {clock(AT_MS)}")


def test_while_a_broker_does_not_answer_nothing_is_missing_so_far(fed: Fed) -> None:
    away = "live broker 1 does not answer: connection refused"
    tiers = {"live": {"away": away, "count": 1}, "offline": {"away": "", "count": 1}}
    verdicts = {"complete": 1, "pending": 2}
    summary = COMPLETE | {"tiers": tiers, "verdicts": verdicts}
    verdict = fed("topology", audit={"summary": summary}).locator(".tile.verdict")
    expect(verdict).to_contain_text("Nothing is missing so far")
    expect(verdict).to_contain_text(f"{away}; 1 of 1 verdicts complete, 2 not judged yet")
    tiers["live"] |= {"behind": 7, "behind_by": {"ms": 41_000}}
    verdict = fed("topology", audit={"summary": summary}).locator(".tile.verdict")
    expect(verdict).to_contain_text("live is 41 s behind")
    expect(verdict).to_contain_text(f"{away}; 1 of 1 verdicts complete")


def test_before_anything_is_judged_nothing_is_called_lost_or_not(fed: Fed) -> None:
    def summary(complete: int) -> dict[str, Any]:
        cells = {"cells": 1 + complete, "is_audited": True}
        topic = cells | {"tiers": {"live": {"pending_cells": 1, "count": 1}}}
        verdicts = {"complete": complete, "pending": 1}
        return {"summary": COMPLETE | {"verdicts": verdicts, "topics": {"page-view": topic}}}

    page = fed("topology", audit=summary(0))
    verdict = page.locator(".tile.verdict")
    expect(verdict).to_contain_text("Not judged yet")
    expect(verdict).to_contain_text("0 of 0 verdicts complete, 1 not judged yet")
    said(page, changes={"audit": {"set": summary(1)}})
    expect(verdict).to_contain_text("Nothing is lost")


def test_while_much_is_not_counted_yet_nothing_is_missing_so_far(fed: Fed) -> None:
    """The first tile was green while the audit had gigabytes to read. What is in flight for a
    moment is no news."""

    def summary(age_ms: int, **figures: bool) -> dict[str, Any]:
        read_to_ms = AT_MS - age_ms
        tier = {"caught_up": True, "read_to_ms": read_to_ms} | figures
        audit = COMPLETE | {"now_ms": AT_MS, "reports_read_to_ms": read_to_ms}
        if "reports_caught_up" in figures:
            return {"summary": audit | figures}
        return {"summary": audit | {"tiers": {"live": tier}}}

    page = fed("topology", audit=summary(3_600_000, caught_up=False))
    verdict = page.locator(".tile.verdict")
    expect(verdict).to_contain_text("Nothing is missing so far")
    expect(verdict).to_contain_text("the newest messages of live are not counted yet; 1 of 1")
    for nothing_new in (summary(500, caught_up=False), summary(500, reports_caught_up=False)):
        said(page, changes={"audit": {"set": nothing_new}})
        expect(verdict).to_contain_text("Nothing is lost")
        said(page, changes={"audit": {"set": summary(3_600_000, reports_caught_up=False)}})
        expect(verdict).to_contain_text("the newest reports of the producers are not counted yet")


def test_what_retention_had_deleted_is_not_called_proved(fed: Fed) -> None:
    """The first tile was green where nothing could be judged."""

    def summary(verdict: str) -> dict[str, Any]:
        tiers = {tier: {"verdict": verdict, "away": ""} for tier in ("live", "offline")}
        cut = [{"tier": "live", "topic": "audit", "from_ms": AT_MS}]
        return {"summary": COMPLETE | {"tiers": tiers, "retained_from": cut}}

    page = fed("topology", audit=summary("not audited"))
    verdict = page.locator(".tile.verdict")
    expect(verdict).to_contain_text("Nothing of what was produced can be audited")
    said(page, changes={"audit": {"set": summary("complete of what can be audited")}})
    expect(verdict).to_contain_text("Nothing is missing of what can be audited")


def test_what_an_unclean_election_lost_is_not_called_not_lost(fed: Fed) -> None:
    """It was counted before the election, so that no cell lacks it: the first tile was green."""

    def summary(**parts: Any) -> dict[str, Any]:
        tiers = {"live": {"away": "", "count": 1}}
        verdicts = {"complete": 1512, "redelivered": 66}
        return {"summary": COMPLETE | {"tiers": tiers, "verdicts": verdicts} | parts}

    what = "live page-view 3-0: from offset 4111411 to 4659935 is lost: unclean election of a"
    loss = {"tier": "live", "what": "an unclean election lost a range of a log of live"}
    lost = {"losses": [loss], "unread": [{"what": what}], "deleted": []}
    page = fed("audit", audit=summary(**lost))
    verdict = page.locator(".tile.verdict")
    expect(verdict).to_have_class(re.compile("warn"))
    expect(verdict).to_contain_text("Nothing is missing so far")
    counts = "1,512 of 1,578 verdicts complete, 66 redelivered"
    expect(verdict).to_contain_text(f"{loss['what']} (see the notes of Audit); {counts}")
    expect(page.get_by_role("listitem").filter(has_text=what)).to_be_visible()
    # Nor where a broker is away beside it, which alone is no loss once it is back.
    away = {"live": {"away": "live broker 1 does not answer", "count": 1}}
    said(page, changes={"audit": {"set": summary(**lost | {"tiers": away})}})
    expect(verdict).to_contain_text(f"{away['live']['away']}; {loss['what']}")
    said(page, changes={"audit": {"set": summary(losses=[], unread=[], deleted=[], tiers=away)}})
    expect(verdict).to_contain_text("Nothing is missing so far")
    said(page, changes={"audit": {"set": summary(losses=[], unread=[], deleted=[])}})
    expect(verdict).to_contain_text("Nothing is lost")


def test_a_broker_that_hangs_is_named_before_the_audit_calls_it_away(fed: Fed) -> None:
    rows = {
        f"live/{name}": {"name": name, "kind": kind, "state": "silent", "dc": "live"}
        for name, kind in (("broker-2", "broker"), ("site", "site"))
    }
    verdict = fed("jobs", processes=rows).locator(".tile.verdict")
    expect(verdict).to_contain_text("Nothing is missing so far")
    expect(verdict).to_contain_text("No answer: broker-2; 1 of 1 verdicts complete")


def test_the_loaders_lag_is_said_to_be_of_its_look_and_no_0_where_it_is_not_known(
    fed: Fed,
) -> None:
    status = {"rows_loaded": 0, "loads": 0, "last_load_ms": 0, "quarantined": 0, "tables": {}}
    status |= {"recent": [], "latency_ms": {}, "problems": []}
    unknown = {"lag_bytes": None, "lag_looked_ms": None}
    page = fed("jobs", loader={"status": status | unknown})
    shown = page.locator("dt", has_text="Not loaded yet").locator("xpath=../dd")
    expect(shown).to_have_text("–")
    known = status | {"lag_bytes": 5_000_000, "lag_looked_ms": AT_MS}
    said(page, changes={"loader": {"set": {"status": known}}})
    expect(shown).to_have_text(re.compile(rf"^5.* MB at {clock(AT_MS)}$"))
    said(page, changes={"loader": {"set": {"status": known | {"lag_bytes": None}}}})
    expect(shown).to_have_text("–")


def test_each_process_is_counted_in_one_state(fed: Fed) -> None:
    counts = {"up": 13, "slow": 1, "lagging": 2, "down": 1}
    page = fed("topology", meta={"deployment": {"state": "running", "counts": counts}})
    expect(page.locator("#link")).to_have_text("✕ 14 up · 2 lagging · 1 down")


def test_a_pause_as_long_as_the_one_before_is_no_failure(fed: Fed) -> None:
    page = fed("topology")
    said(page, pause_ms=60_000, age_ms=50_000, changes={})
    expect(page.locator(".tile.verdict")).to_contain_text("Nothing is lost")
    page.clock.fast_forward(15_000)
    expect(page.locator("#banner")).to_be_hidden()
    page.clock.fast_forward(10_000)
    expect(page.locator("#banner")).to_contain_text("These values are of")


def use(at_ms: int) -> dict[str, Any]:
    return {"at_ms": at_ms, "events": 9, "missed_bytes": 0, "begun_anew": 0, "findings": []} | {
        "watched": 0, "planted": 0, "planted_found": 0, "false_alarms": None,
    }  # fmt: skip


def operations(measured_ms: int) -> dict[str, Any]:
    calls = {"calls": 0, "errors": 0, "p50_ms": None, "p99_ms": None}
    lists: dict[str, Any] = {name: [] for name in ("alerts", "over", "hosts", "slowest")}
    process = {"name": "live/site", "answers": True, "cpu": "NaN", "memory": None, "calls": 0}
    return {"measured_ms": measured_ms, "processes": [process], "calls": calls} | lists | {
        "at_ms": measured_ms, "events": 0, "missed_bytes": 0, "begun_anew": 0,
    }  # fmt: skip


def test_what_is_old_is_old_by_the_servers_clock(fed: Fed) -> None:
    group = {"dc": "live", "state": "OK", "reason": "it reads", "members": {}, "partitions": 1}
    group |= {"lag_bytes": 0, "lag_ms": 0, "unowned": 0, "looked_ms": AT_MS}
    rows = {name: {**group, "group": name} for name in ("one", "two")}
    page = fed("groups", groups={f"live/{name}": row for name, row in rows.items()})
    table = page.get_by_role("region", name="Consumer groups")
    expect(table).to_contain_text("it reads")
    expect(table).not_to_contain_text("as of")
    # One group is looked at again; what is said of the other says of when it is, unchanged.
    later_ms = AT_MS + 16_000
    change = {"set": {"live/one": {**rows["one"], "looked_ms": later_ms}}}
    said(page, at_ms=later_ms, changes={"groups": change})
    expect(table.locator("tr", has_text="two")).to_contain_text(f"(as of {clock(AT_MS)})")
    expect(table.locator("tr", has_text="one")).not_to_contain_text("as of")
    said(page, at_ms=later_ms + 16_000, changes={})
    expect(table.locator("tr", has_text="one")).to_contain_text(f"(as of {clock(later_ms)})")


def test_the_verdicts_of_the_site_do_not_stay_when_it_changes_no_more(fed: Fed) -> None:
    rows = {"abuse": use(AT_MS), "operations": operations(AT_MS), "latency": AGES}
    page = fed("site", site=rows)
    verdict = page.locator(".verdict-line").first
    measured = page.get_by_label("State of operations")
    expect(verdict).to_have_text("No new events at present")
    expect(measured).to_have_text("✓ All 1 processes answer")
    broker = {"name": "broker-1", "kind": "broker", "dc": "live", "broker_id": 1}
    change = {"set": {"live/broker-1": {**broker, "state": "silent"}}}
    said(page, at_ms=AT_MS + 1000, changes={"processes": change})
    expect(verdict).to_have_text("Not known how fresh: broker-1 (no answer)")
    said(page, at_ms=AT_MS + 31_000, changes={})
    silent = f"The process “site” does not answer; these figures are of {clock(AT_MS)}"
    expect(verdict).to_have_text(silent)
    expect(measured).to_have_text(f"Nothing was measured since {clock(AT_MS)}")


def test_a_site_that_is_minutes_behind_compares_nothing(fed: Fed) -> None:
    """Places were clicked to 173 %, and campaigns that passed their budget were behind it."""
    place = {"position": 0, "shown": 1_703, "clicked": 2_950}
    query = {"query": "lamp", "searches": 4, "clicks": 9, "without": 1}
    counts = {"searches": 4, "without": 1, "empty": 0, "is_exact": True}
    found = {**counts, "queries": [query], "results": [], "positions": [place]}
    campaign = {"campaign": "c", "impressions": 10, "clicks": 5, "spent": 1, "budget": 2}
    paced = {**campaign, "pace": None, "serve": None, "verdict": "not known"}
    ads = {**use(AT_MS), "campaigns": [paced], "is_exact": True}

    def rows(behind_ms: int | None) -> dict[str, Any]:
        behind = {"behind_ms": behind_ms, "is_late": behind_ms != 10_000}
        return {"search": use(AT_MS) | found | behind, "ads": ads | behind, "latency": AGES}

    process = {"name": "site", "kind": "site", "dc": "live", "state": "lagging"}
    page = fed("site", site=rows(120_000), processes={"live/site": process})
    body, verdict = page.locator("main"), page.locator(".verdict-line").first
    expect(verdict).to_contain_text("Late: up to 2 min 0 s behind (search, ads)")
    expect(page.locator(".late:visible")).to_have_count(2)
    expect(body).to_contain_text("2,950 clicked, 1,703 shown")
    expect(body).to_contain_text("10 impressions, 5 clicks")
    text = body.inner_text()
    assert "%" not in text.replace("0 %", ""), text  # nothing was found without a result
    said(page, changes={"site": {"set": rows(None)}})
    expect(body).to_contain_text("is not known yet")
    said(page, changes={"site": {"set": rows(10_000)}})
    expect(body).to_contain_text("173 %")
    expect(page.locator(".late:visible")).to_have_count(0)
    expect(verdict).to_have_text("Not known how fresh: site (lagging)")


def test_how_fresh_is_not_known_after_a_pause(fed: Fed) -> None:
    page = fed("site", site={"abuse": use(AT_MS), "latency": {**AGES, "is_after_pause": True}})
    expect(page.locator(".verdict-line").first).to_contain_text("Not known yet how fresh")


def test_the_views_of_trending_are_said_to_be_those_of_items(fed: Fed) -> None:
    """What was counted was less than the views of the page, and the line did not say of what."""
    found = {"viewed": [], "shared": [], "related": {"to_ms": 0}, "from_ms": AT_MS}
    trending = {**use(AT_MS), **found, "views": 2, "shares": 1, "is_exact": True}
    page = fed("site", site={"trending": trending, "latency": AGES})
    expect(page.locator("body")).to_contain_text(
        f"2 views and 1 share of items (what is not /, /home or /search) since {clock(AT_MS)}"
    )


def test_older_cells_that_the_grid_has_no_room_for_are_counted_below_it(fed: Fed) -> None:
    """They were in the numbers of the tiers, and nowhere to be seen."""

    def cells(wrong: int, state: str = "missing") -> dict[str, Any]:
        rows = {}
        for number in range(60):
            window = AT_MS - 10_000 * (60 - number)
            found = {"state": state, state: 1} if number < wrong else {"state": "complete"}
            tiers = {"live": found}
            rows[f"orders|{window}"] = {"topic": "orders", "window": window, "tiers": tiers}
        return rows

    for wrong, in_them in (
        (6, "in 2 squares of them something is missing"),
        (4, "nothing in them is missing"),
    ):
        page = fed("audit", cells=cells(wrong))
        expect(page.get_by_label("live missing 1")).to_have_count(4)
        shown = page.locator(".audit-cells thead th").count() - 1
        line = re.compile(rf"{60 - shown} older windows of those read here have no room; {in_them}")
        expect(page.get_by_text(line)).to_have_count(1)
    page = fed("audit", cells=cells(1, state="redelivered"))
    expect(page.get_by_text("in 1 square of them something is missing")).to_have_count(1)


def test_the_last_window_of_a_topic_is_named_only_where_it_is_known(fed: Fed) -> None:
    """Of older windows the page has those that are not complete: complete ones came after them,
    and the row said of a redelivered one that it was the topic's last."""
    windows = [AT_MS - 10_000 * (60 - number) for number in range(60)]
    old = AT_MS - 86_400_000
    states = {("other", window): "complete" for window in windows}
    states |= {("grades", old): "redelivered", ("orders", windows[0]): "complete"}
    cells = {
        f"{topic}|{window}": {"topic": topic, "window": window, "tiers": {"live": {"state": state}}}
        for (topic, window), state in states.items()
    }
    known = COMPLETE | {"topics": {name: {"tiers": {}} for name in ("folded", "grades", "orders")}}
    page = fed("audit", cells=cells, audit={"summary": known})

    def row(topic: str) -> Any:
        return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=topic))

    def day(at_ms: int) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_ms / 1000))

    nothing, listed = "nothing in these windows; ", "kafka2011 audit --topic {} --all lists"
    expect(row("grades")).to_contain_text(
        f"{nothing}its last incomplete one began at {day(old)}; {listed.format('grades')} all "
        "that are not folded into the totals"
    )
    expect(row("orders")).to_contain_text(f"{nothing}its last began at {day(windows[0])}")
    expect(row("orders")).not_to_contain_text("kafka2011")
    expect(row("folded")).to_contain_text(f"{nothing}{listed.format('folded')} those before")


def test_a_cell_of_messages_without_a_header_has_no_time(fed: Fed) -> None:
    cell = {"topic": "orders", "window": -1, "tiers": {"live": {"state": "unknown", "unknown": 2}}}
    page = fed("audit", cells={"orders|-1": cell})
    button = page.get_by_label("orders, no header: live unknown 2")
    expect(button).to_have_attribute("title", "orders, no header: live unknown 2")
    button.click()
    detail = page.locator("#detail")
    expect(detail.get_by_role("heading")).to_have_text("orders, no header")
    expect(detail).to_contain_text("Messages without a header, which belong to no window")
    expect(detail).not_to_contain_text("19")


def test_a_group_whose_name_begins_as_anothers_is_another(fed: Fed) -> None:
    """A key is the group's, a bar and a time; names may have bars."""
    series = {"live/a|1000": {"bytes": 1}, "live/a|3000": {"bytes": 2}}
    series |= {"live/a|b|2000": {"bytes": 999}, "live/a|b|4000": {"bytes": 999}}
    moves = {
        f"{key}|{at_ms}": {"at_ms": at_ms, "before_ms": at_ms, "moved": 1, "members": members}
        for key, at_ms, members in (("live/a", 1000, {"mine": 3}), ("live/a|b", 2000, {"not": 7}))
    }
    page = fed("groups?group=live/a", lag_series=series, rebalances=moves)
    lag = page.get_by_role("img", name=re.compile("^Lag, bytes: lag 2 B"))
    expect(lag).to_be_visible()
    paths = lag.locator("path[d]")
    drawn = [path.get_attribute("d") for path in paths.all()]
    assert [re.sub(r"[\d. ]+", "", path or "") for path in drawn] == ["ML"]
    expect(page.get_by_role("img", name=re.compile("^Rebalances"))).to_have_attribute(
        "aria-label", "Rebalances. a: mine owns 3"
    )


def test_groups_that_are_not_drawn_are_counted(fed: Fed) -> None:
    """The time line ended at the twentieth without a word."""
    row = {
        "dc": "live",
        "state": "OK",
        "reason": "",
        "members": {},
        "partitions": 0,
        "looked_ms": AT_MS,
    }
    names = [f"g{number:04d}" for number in range(1000)]
    page = fed("groups", groups={f"live/{name}": {**row, "group": name} for name in names})
    expect(page.get_by_text("The first 20 of 1,000 groups by name.")).to_be_visible()
    some = {f"live/{name}": {**row, "group": name} for name in names[:20]}
    said(page, at_ms=AT_MS + 1000, sections={"groups": some})
    expect(page.get_by_text("groups by name.")).to_be_hidden()


def test_what_came_after_the_clock_went_back_stands_above_what_came_before(fed: Fed) -> None:
    texts = {
        "000-000000001": (9000, "a"),
        "001-000000002": (1000, "b"),
        "001-000000003": (900, "c"),
    }
    events = {
        key: {"at_ms": at_ms, "kind": "info", "subject": "", "text": text}
        for key, (at_ms, text) in texts.items()
    }
    page = fed("topology", events=events)
    lines = page.get_by_role("list", name="Events, newest first").get_by_role("listitem")
    expect(lines).to_contain_text(["b", "c", "a"])


def test_a_deployment_in_which_nothing_registers_says_what_is_shown(fed: Fed) -> None:
    page = fed("topology", meta={"deployment": {"state": "empty", "counts": {"up": 1}}})
    expect(page.locator("#banner")).to_contain_text("No process is registered.")


def test_a_partition_that_is_not_measured_has_no_figures(fed: Fed) -> None:
    figures = dict.fromkeys(("start", "end", "watermark", "segments", "bytes_s"))
    row = {"dc": "live", "topic": "x", "partition": "8-0", "broker": "broker 8", **figures}
    page = fed("topics", partitions={"live/x/8-0": {**row, "state": "not measured"}})
    cells = page.get_by_role("row", name="broker 8").get_by_role("cell")
    expect(cells).to_have_text(
        ["x", "live", "8-0", "broker 8", "not measured", *["–"] * 6, "messages"]
    )


@pytest.mark.parametrize("width", [1280, 400])
def test_names_as_long_as_they_may_be_stay_in_their_place(fed: Fed, width: int) -> None:
    topic, group, process = "t" * 249, "g" * 200, "live-broker.example.com-" + "w" * 60
    group_row = {"dc": "live", "group": group, "state": "OK", "members": {}, "topics": [topic]}
    group_row |= {"reason": f"{topic} 1-0: it reads", "partitions": 1, "looked_ms": AT_MS}
    counts = {"state": "missing", "missing": 7, "counted": 1}
    cell = {"topic": topic, "window": AT_MS - 10_000, "produced": 8, "servers": 1}
    kinds = {process: "broker", "r" * 60: "registry", "zookeeper-live": "zookeeper"}
    row = {"dc": "live", "state": "up", "facts": {}, "since_ms": AT_MS}
    sections = {
        "processes": {f"live/{k}": {**row, "name": k, "kind": kind} for k, kind in kinds.items()},
        "groups": {f"live/{group}": group_row},
        "partitions": {"p": {"dc": "live", "topic": topic, "partition": "1-0", "state": "online"}},
        "cells": {f"{topic}|{cell['window']}": {**cell, "tiers": {"live": counts}}},
    }
    views = ["topology", f"groups?group=live/{group}", f"topics?dc=live&topic={topic}"]
    for view in [*views, "messages", "audit"]:
        page = fed(view, **sections)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("new Promise(requestAnimationFrame)")
        beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(beyond) <= 0, view
        if view == "topology":
            outside = """() => [...document.querySelectorAll(".node")].filter((node) => {
                const [name, box] = [".name", ".box"].map((of) => node.querySelector(of).getBBox());
                return name.x + name.width > box.x + box.width;
            }).map((node) => node.textContent)"""
            assert page.evaluate(outside) == []
    grid, name, shown = (
        page.locator(f".audit-cells{rest}") for rest in ("", " tbody th", " .cell")
    )
    right_of_name = name.evaluate("e => e.getBoundingClientRect().right")
    assert shown.evaluate("e => e.getBoundingClientRect().left") >= right_of_name
    assert right_of_name < grid.evaluate("e => e.getBoundingClientRect().right")
    expect(name).to_have_attribute("title", topic)


def test_a_message_stays_of_the_partition_that_it_was_read_from(fed: Fed) -> None:
    """What is chosen after it was read is of the messages to come."""
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url.removeprefix(f"{PAGE}/api/"))
        message = {"offset": 7, "next": 9, "number": 2, "size": 2, "error": "", "text": "x"}
        ends = {"start": 7, "next": 9, "earliest": 0, "latest": 20, "scanned": 1, "ended": "count"}
        ends["next_skip"] = 3
        route.fulfill(json={**ends, "messages": [message], "steps": [], "verdict": "Found"})

    rows = {
        f"live/{topic}/{partition}": {"dc": "live", "topic": topic, "partition": partition}
        for topic, partition in (("a", "1-0"), ("b", "2-3"))
    }
    page = fed("messages", partitions=rows)
    page.route("**/api/*", answer)
    page.get_by_role("button", name="Show").click()
    message = page.locator("details.message")
    expect(message).to_have_count(1)
    page.get_by_label("Topic").select_option("b")
    message.locator("summary").click()
    link = page.get_by_role("link", name="Link to this offset")
    expect(link).to_have_attribute("href", "#/messages?dc=live&topic=a&partition=1-0&offset=7")
    page.get_by_role("button", name="Where is it?").click()
    expect(message).to_contain_text("Found")
    page.get_by_role("button", name="Later messages").click()
    expect(page.locator("details.message[open]")).to_have_count(0)
    assert asked[-2] == "trace?dc=live&topic=a&partition=1-0&offset=7&number=2"
    assert "topic=a&broker=1&number=0" in asked[-1]
    assert asked[-1].endswith("offset=9&skip=3")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("main p[role=status]")).to_have_text(re.compile("Live: up to offset 9"))
    assert "topic=b&broker=2&number=3" in asked[-1]
    page.get_by_label("Topic").select_option("a")
    expect(message).to_have_count(1)
    assert "topic=a&broker=1&number=0" in asked[-1]
    assert "offset" not in asked[-1]


def test_a_long_history_is_drawn(fed: Fed) -> None:
    page = fed("topology")
    drawn = page.evaluate(
        """async () => {
            const { Chart } = await import("/chart.js");
            const lines = [{ name: "a", css: "live" }];
            return [false, true].map((log) => {
                const one = new Chart({ title: "x", lines, format: String, log });
                const point = (_, n) => [n * 2000, { a: n === 9 ? "NaN" : 1 + n % 100 }];
                one.set(Array.from({ length: 200000 }, point));
                return /NaN/.test(one.svg.outerHTML);
            });
        }"""
    )
    assert drawn == [False, False]


def test_numbers_that_are_none_are_said_to_be_unknown(fed: Fed) -> None:
    page = fed("topology")
    found = page.evaluate(
        """async () => {
            const text = await import("/format.js");
            const { whole, bytes, perSecond, rate, duration, clock, moment } = text;
            const all = { whole, bytes, perSecond, rate, duration, clock, moment };
            const values = [null, undefined, NaN, "NaN", "Infinity", Infinity, "x", 9e18, 1e300];
            const said = {};
            for (const [name, say] of Object.entries(all)) said[name] = values.map(say);
            const rows = values.map((value) => ({ state: "OK", lag_bytes: value, lag_ms: value }));
            rows.push({ state: "UNKNOWN", lag_bytes: null, lag_ms: null });
            rows.push({ state: "OK", lag_bytes: 5, lag_ms: null }, { state: "OK", lag_bytes: 5 });
            said.lag = rows.map(text.lag);
            said.behind = rows.map(text.behind);
            said.zero = [whole, bytes, perSecond, rate, duration].map((say) => say(0));
            return said;
        }"""
    )
    none, unknown = ["–", "–"], ["?"] * 5
    for name in ("whole", "bytes", "perSecond", "rate", "duration"):
        assert found[name][:7] == none + unknown, name
        assert not any("NaN" in each for each in found[name]), name
    assert found["clock"] == ["–", "–", "?", "?", "?", "?", "?", "?", "?"]
    assert found["moment"] == ["–", "–", "?", "?", "?", "?", "?", "?", "?"]
    assert found["lag"][:7] == none + unknown
    assert found["behind"][:7] == none + unknown
    assert (found["lag"][9:], found["behind"][9:]) == (["?", "5 B", "5 B"], ["?", "?", "?"])
    assert found["zero"] == ["0", "0 B", "0/s", "0 B/s", "0 ms"]
