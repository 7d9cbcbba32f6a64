"""Pages left open for hours do not grow: the views' own code, fed with hundreds of changes at once,
and a tab of each view on its real stream for `SOAK_S` seconds (`make soak-dashboard SOAK_S=3600`),
beside the server that feeds them."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Deployment, Open, read_script

SOAK_S = float(os.environ.get("SOAK_S", "6"))
GROWTH_BYTES_MAX = 2_500_000
NODES_MAX = 500  # of growth: elements that a view forgot would come by every change
VIEWS = ("topology", "audit", "groups", "topics", "latency", "jobs", "break")


@pytest.mark.parametrize("view", VIEWS)
def test_hundreds_of_changes_leave_a_view_as_large_as_it_was(open_page: Open, view: str) -> None:
    page = open_page("jobs")
    page.get_by_role("heading", name="Load job").wait_for()
    grown_bytes, grown_nodes = page.evaluate(read_script("feed.js"), [view, 200])
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
        sizes = ", ".join(f"{name} {used:,} B {nodes:,}" for name, (used, nodes) in last.items())
        print(f"{time.monotonic() - began:5.0f} s: {sizes}", flush=True)
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
    values = {metric["name"]: int(metric["value"]) for metric in metrics}
    return values["JSHeapUsedSize"], values["Nodes"]


def resident_bytes(pid: int) -> int:
    """VmRSS of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
