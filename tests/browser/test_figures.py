"""What the page says is what the tools say, once nothing moves."""

import json
import os
import signal
import time
from typing import Any

from tests.browser.conftest import Deployment
from tests.support.waiting import wait_until

Figures = dict[str, Any]
STILL_S = 6.0
# Heartbeats go on whether or not anything else does.
AUDIT_TOPIC = "audit"


def of_the_page(deployment: Deployment) -> Figures:
    summary = deployment.rows("audit").get("summary") or {}
    return {
        "topics": {
            (row["dc"], row["topic"], row["partition"]): (row["start"], row["watermark"])
            for row in deployment.rows("partitions").values()
            if row["topic"] != AUDIT_TOPIC
        },
        "groups": {
            (row["group"], row["topic"], row["partition"]): (
                row["offset"], row["end"], row["lag_bytes"], row["owner"],
            )
            for row in deployment.rows("group_partitions").values()
        },
        "audit": counted(summary.get("topics") or {}),
    }  # fmt: skip


def of_the_tools(deployment: Deployment) -> Figures:
    topics: Figures = {}
    groups: Figures = {}
    for dc in ("live", "offline"):
        port = deployment.state(f"zookeeper-{dc}")["ports"]["client"]
        place = ("--zookeeper", f"127.0.0.1:{port}", "--json")
        for row in json.loads(deployment.kafka2011("topics", "describe", *place)):
            if row["topic"] == AUDIT_TOPIC:
                continue
            partition = f"{row['broker']}-{row['partition']}"
            topics[dc, row["topic"], partition] = (row["start"], row["end"])
        for name in json.loads(deployment.kafka2011("groups", "list", *place)):
            told = json.loads(deployment.kafka2011("groups", "describe", *place, name))
            for row in told["partitions"]:
                partition = f"{row['broker']}-{row['partition']}"
                groups[name, row["topic"], partition] = (
                    row["offset"], row["end"], row["lag"], row["owner"] or "",
                )  # fmt: skip
    audit = deployment.kafka2011("audit", "--var", str(deployment.root), "--json")
    return {"topics": topics, "groups": groups, "audit": counted(json.loads(audit)["topics"])}


def counted(topics: Figures) -> Figures:
    """What was produced and counted; verdicts still change when a window's time is over."""
    return {
        name: (told["produced"], {tier: found["counted"] for tier, found in told["tiers"].items()})
        for name, told in topics.items()
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


def test_figures_are_those_of_the_tools(deployment: Deployment) -> None:
    frontend = deployment.state("frontend-1")["pid"]
    os.killpg(frontend, signal.SIGSTOP)  # nothing new, and all that is there arrives
    still: list[tuple[float, Figures]] = []
    tools: Figures = {}

    def is_still() -> bool:
        # The page looks at groups every few seconds, so its own stillness takes some looks.
        page, now_s = of_the_page(deployment), time.monotonic()
        if not still or page != still[0][1] or any(row[2] for row in page["groups"].values()):
            still[:] = [(now_s, page)]
        return now_s - still[0][0] > STILL_S

    def is_the_same() -> bool:
        tools.update(of_the_tools(deployment))
        return tools == of_the_page(deployment)

    try:
        wait_until(is_still, "nothing moves on the page", timeout_s=150)
        wait_until(is_the_same, lambda: differences(tools, of_the_page(deployment)), 60)
    finally:
        os.killpg(frontend, signal.SIGCONT)
    assert len(tools["topics"]) > 20
    assert len(tools["groups"]) > 20
