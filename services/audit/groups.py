"""What the consumer groups that count say of themselves: whether they have read what was produced.

A group is a branch from the live tier, not a tier of the chain: each of its members validates all
of it (`consumer.counting`) and has the verdict on its page /status. The first member that answers
speaks for its group. Nothing is read or judged here.
"""

import json
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from kafka2011.consumer.counting.verdicts import NUMBERED
from kafka2011.coordination.processes import ProcessRecord

Json = dict[str, Any]

MEMBER_KIND = "online-consumer"
SAID = (*NUMBERED, "pending")  # a pending message waits for a report, before it is extra
EXPLAINED = ("unknown", "extra")  # verdicts of a group whose reasons are given
ASK_TIMEOUT_S = 3.0
# Not through a proxy, whatever the environment says.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def member_status(address: str) -> Json | None:
    """/status of a member at `host:port`; None without a usable answer."""
    try:
        with _opener.open(f"http://{address}/status", timeout=ASK_TIMEOUT_S) as answer:
            found = json.loads(answer.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def validated_groups(
    processes: Iterable[ProcessRecord],
    ask: Callable[[str], Json | None] = member_status,
) -> list[Json]:
    """One row for each group whose members count and answer, by name.

    Its state, messages expected, counted and with each verdict, the `reasons` of those in
    EXPLAINED, from when on all is judged (ms, 0: from the beginning), up to when all is read and
    complete (ms, None where nothing is), up to when the reports are read (ms, 0: never), and why
    some may be unread.
    """
    found: dict[str, Json] = {}
    for process in processes:
        if process.kind != MEMBER_KIND or not process.metrics_address:
            continue
        status = ask(process.metrics_address) or {}
        validated = status.get("validated")
        group = str(status.get("group", ""))
        if not validated or group in found:
            continue
        topics = validated["topics"].values()
        found[group] = {
            "group": group,
            "state": validated["state"],
            "expected": sum(topic["expected"] for topic in topics),
            "counted": sum(topic["counted"] for topic in topics),
            **{name: sum(topic.get(name, 0) for topic in topics) for name in SAID},
            "reasons": {
                state: sorted(
                    {
                        window["reason"]
                        for topic in topics
                        for window in topic.get("windows", ())
                        if window["state"] == state
                    }
                )
                for state in EXPLAINED
            },
            "counted_from_ms": max(
                (
                    topic.get("counted_from_ms", 0)
                    for topic in topics
                    if topic["state"] != "not audited"
                ),
                default=0,
            ),
            "complete_to_ms": validated["complete_to_ms"],
            "read_to_ms": validated["read_to_ms"],
            "unread": validated["unread"],
        }
    return [found[group] for group in sorted(found)]


def verdict_text(row: Json, why: Callable[[str], str] = lambda _verdict: "") -> str:
    """`missing 3, behind 12`, or the state; `why(verdict)` follows each."""
    said = [f"{name} {row[name]:,}{why(name)}" for name in SAID if row.get(name)]
    state = row["state"]
    if not row.get(state):  # without a number, like unknown
        said.insert(0, f"{state}{why(state)}")
    return ", ".join(said)
