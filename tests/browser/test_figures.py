"""What the page says is what the tools say, once nothing moves."""

import signal
import time
from typing import Any

from tests.browser.conftest import Deployment
from tests.conftest import Run
from tests.support.waiting import wait_until

Figures = dict[str, Any]
STILL_S = 6.0
# Heartbeats go on whether or not anything else does.
AUDIT_TOPIC = "audit"


def of_the_page(deployment: Deployment) -> Figures:
    topics, groups = {}, {}
    for row in deployment.rows("partitions").values():
        if row["topic"] != AUDIT_TOPIC:
            place = row["dc"], row["topic"], row["partition"]
            topics[place] = row["start"], row["watermark"]
    for row in deployment.rows("group_partitions").values():
        place = row["group"], row["topic"], row["partition"]
        groups[place] = row["offset"], row["end"], row["lag_bytes"], row["owner"]
    summary = deployment.rows("audit").get("summary") or {}
    return {"topics": topics, "groups": groups, "audit": counted(summary.get("topics") or {})}


def of_the_tools(deployment: Deployment, run: Run) -> Figures:
    topics, groups = {}, {}
    for dc in ("live", "offline"):
        port = deployment.port(f"zookeeper-{dc}", "client")

        def told(*words: str, zookeeper: str = f"127.0.0.1:{port}") -> Any:
            return run(*words, "--zookeeper", zookeeper, "--json", status=None).json

        for row in told("topics", "describe"):
            if row["topic"] != AUDIT_TOPIC:
                place = dc, row["topic"], f"{row['broker']}-{row['partition']}"
                topics[place] = row["start"], row["end"]
        for name in told("groups", "list"):
            for row in told("groups", "describe", name)["partitions"]:
                place = name, row["topic"], f"{row['broker']}-{row['partition']}"
                groups[place] = row["offset"], row["end"], row["lag"], row["owner"] or ""
    audit = run("audit", "--var", deployment.root, "--json", status=None).json
    return {"topics": topics, "groups": groups, "audit": counted(audit["topics"])}


def counted(topics: Figures) -> Figures:
    """What was produced and counted; verdicts still change when a window's time is over."""
    return {
        name: (row["produced"], {tier: found["counted"] for tier, found in row["tiers"].items()})
        for name, row in topics.items()
    }


def differences(tools: Figures, page: Figures) -> str:
    """What a person needs to find the fault: the rows in which the two differ."""
    found = [
        f"{kind} {key}: tools {tools[kind].get(key)}, page {page[kind].get(key)}"
        for kind in page
        for key in sorted(tools[kind].keys() | page[kind].keys(), key=str)
        if tools[kind].get(key) != page[kind].get(key)
    ]
    return "page and tools differ in " + "; ".join(found[:10])


def test_figures_are_those_of_the_tools(deployment: Deployment, run: Run) -> None:
    deployment.signal("frontend-1", signal.SIGSTOP)  # nothing new, and all that is there arrives
    deployment.measure(is_on=False)
    last: Figures = {}
    since_s = 0.0
    tools: Figures = {}

    def is_still() -> bool:
        # The page looks at groups every few seconds, so its own stillness takes some looks.
        nonlocal last, since_s
        page, now_s = of_the_page(deployment), time.monotonic()
        if page != last or any(row[2] for row in page["groups"].values()):
            last, since_s = page, now_s
        return now_s - since_s > STILL_S

    def is_the_same() -> bool:
        tools.update(of_the_tools(deployment, run))
        return tools == of_the_page(deployment)

    try:
        wait_until(is_still, "nothing moves on the page", timeout_s=300)
        wait_until(is_the_same, lambda: differences(tools, of_the_page(deployment)), timeout_s=300)
    finally:
        deployment.signal("frontend-1", signal.SIGCONT)
        deployment.measure(is_on=True)
    assert len(tools["topics"]) > 20
    assert len(tools["groups"]) > 20
