"""Pages left open for hours do not grow: the views' own code, fed with hundreds of changes at once,
and a tab of each view on its real stream for `SOAK_S` seconds (`make soak-dashboard SOAK_S=3600`),
beside the server that feeds them."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Deployment, Open

SOAK_S = float(os.environ.get("SOAK_S", "6"))
GROWTH_BYTES_MAX = 2_500_000
NODES_MAX = 500  # of growth: elements that a view forgot would come by every change
VIEWS = {"topology": "topology", "audit": "audit", "groups": "groups", "topics": "topics",
         "latency": "latency", "jobs": "jobs", "break": "breakIt"}  # fmt: skip

# A store as the page has it, with the rows that were on the page, moved on by a second each time.
FEED = """async ([view, name, turns]) => {
    const module = await import(`/views/${view}.js`);
    if (!window.kept) {
        const told = await (await fetch("/api/snapshot")).json();
        window.kept = told.sections;
    }
    const sections = structuredClone(window.kept);
    const store = {
        rows: (section) => sections[section] || {},
        list: (section) => Object.entries(sections[section] || {}),
        get meta() { return sections.meta.deployment; },
        get audit() { return sections.audit.summary || null; },
    };
    const root = document.createElement("main");
    document.body.append(root);
    const shown = module[name](root, { store, show() {}, hide() {} }, new URLSearchParams(""));
    const all = new Set(Object.keys(sections));
    const heap = () => { gc(); return performance.memory.usedJSHeapSize; };
    const history = (section, at) => {
        const rows = sections[section];
        const keys = Object.keys(rows);
        if (!keys.length) return;
        rows[String(at)] = { ...rows[keys.at(-1)] };
        if (keys.length >= 450) delete rows[keys[0]];
    };
    let first = 0, firstNodes = 0;
    const base = Date.now();
    for (let turn = 0; turn < turns; turn += 1) {
        for (const row of Object.values(sections.processes)) { row.in_s += 1; row.out_s += 1; }
        for (const row of Object.values(sections.partitions)) { row.end += 7; row.watermark += 7; }
        for (const row of Object.values(sections.groups)) row.looked_ms += 1000;
        history("latency", base + turn * 2000);
        history("flow", base + turn * 2000);
        const number = 100000 + turn;
        const text = `event ${turn}`;
        sections.events[number] = { at_ms: base + turn, kind: "info", subject: "x", text };
        if (turn > 100) delete sections.events[number - 100];
        if (sections.audit.summary) sections.audit.summary.produced += 500;
        if (turn % 10 === 0) {
            const cells = Object.values(sections.cells);
            const oldest = Math.min(...cells.map((cell) => cell.window));
            for (const cell of cells.filter((found) => found.window === oldest)) {
                delete sections.cells[`${cell.topic}|${cell.window}`];
                const window = base + turn * 1000;
                sections.cells[`${cell.topic}|${window}`] = { ...cell, window };
            }
        }
        shown.update(all);
        if (turn === Math.floor(turns / 4)) {
            first = heap();
            firstNodes = root.getElementsByTagName("*").length;
        }
        if (turn % 50 === 0) await new Promise((done) => setTimeout(done, 0));
    }
    const grown = [heap() - first, root.getElementsByTagName("*").length - firstNodes];
    if (shown.close) shown.close();
    root.remove();
    return grown;
}"""


@pytest.mark.parametrize("view", VIEWS)
def test_hundreds_of_changes_leave_a_view_as_large_as_it_was(open_page: Open, view: str) -> None:
    page = open_page("jobs")
    page.get_by_role("heading", name="Load job").wait_for()
    grown_bytes, grown_nodes = page.evaluate(FEED, [view, VIEWS[view], 200])
    assert grown_bytes < GROWTH_BYTES_MAX, f"{view} grew by {grown_bytes:,} bytes"
    assert grown_nodes < NODES_MAX, f"{view} grew by {grown_nodes} elements"


# Left open side by side: each view of a deployment that moves.
TABS = ("topology", "audit", "topics", "groups", "latency", "messages")
# Lines over time fill for a quarter of the hour (dashboard.history.ms); what comes after is growth.
WARM_SHARE = 4
SERVER_GROWTH_BYTES_MAX = 5_000_000
# The audit gets columns until its width is full, and four more for old windows that are wrong. One
# element forgotten every second of the hour would be 2,700.
TAB_NODES_MAX = 1_500


@pytest.mark.timeout(900 + SOAK_S)  # as long as it is asked for, and not the others' ten minutes
def test_pages_on_their_streams_do_not_grow(open_page: Open, deployment: Deployment) -> None:
    pages: list[Any] = [open_page(view) for view in TABS]
    pages[0].locator("g.node").first.wait_for()
    pages[-1].get_by_role("button", name="Live tail").click()
    sessions = [page.context.new_cdp_session(page) for page in pages]
    for session in sessions:
        session.send("Performance.enable")
    pid = deployment.state("dashboard")["pid"]
    began = time.monotonic()
    warm: dict[str, tuple[int, int]] = {}
    last: dict[str, tuple[int, int]] = {}
    while time.monotonic() - began < SOAK_S:
        pages[0].wait_for_timeout(min(60_000, SOAK_S * 1000 / WARM_SHARE))
        last = {view: used_by(session) for view, session in zip(TABS, sessions, strict=True)}
        last["server"] = (resident_bytes(pid), 0)
        if time.monotonic() - began >= SOAK_S / WARM_SHARE and not warm:
            warm = last
        told = ", ".join(f"{name} {used:,} B {nodes:,}" for name, (used, nodes) in last.items())
        print(f"{time.monotonic() - began:5.0f} s: {told}", flush=True)
    for name, (used, nodes) in last.items():
        most = SERVER_GROWTH_BYTES_MAX if name == "server" else GROWTH_BYTES_MAX
        grown, more = used - warm[name][0], nodes - warm[name][1]
        assert grown < most, f"{name} grew by {grown:,} bytes"
        assert more < TAB_NODES_MAX, f"{name} grew by {more:,} nodes"


def used_by(session: Any) -> tuple[int, int]:
    """(bytes of the JS heap, DOM nodes attached or not) of a tab, rubbish collected."""
    for _ in range(3):  # nodes are let go a round after the objects that held them
        session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    told = {metric["name"]: int(metric["value"]) for metric in metrics}
    return told["JSHeapUsedSize"], told["Nodes"]


def resident_bytes(pid: int) -> int:
    """VmRSS of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
