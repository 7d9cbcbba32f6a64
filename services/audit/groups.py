"""What the consumer groups that count say of themselves: whether they have read what was produced.

A group is a branch from the live tier, not a tier of the chain: each of its members validates all
of it (`consumer.counting`) and has the verdict on its page /status. The first member that answers
speaks for its group. Nothing is read or judged here.
"""

import http.client
import json
from collections.abc import Callable, Iterable
from typing import Any

from kafka2011.consumer.counting.verdicts import NUMBERED
from kafka2011.coordination.processes import ProcessRecord
from kafka2011.runtime import direct_http
from kafka2011.runtime.clock import TIME_MS_MAX

Json = dict[str, Any]

MEMBER_KIND = "online-consumer"
SAID = (*NUMBERED, "pending")  # a pending message waits for a report, before it is extra
EXPLAINED = ("unknown", "extra")  # verdicts of a group whose reasons are given
ASK_TIMEOUT_S = 3.0


def member_status(address: str) -> Json | None:
    """/status of a member at `host:port`; None without a usable answer."""
    try:
        with direct_http.opener.open(f"http://{address}/status", timeout=ASK_TIMEOUT_S) as answer:
            found = json.loads(answer.read())
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None  # also where the address is none, or something else listens there
    return found if isinstance(found, dict) else None


def validated_groups(
    processes: Iterable[ProcessRecord],
    ask: Callable[[str], Json | None] = member_status,
) -> list[Json]:
    """One row for each group whose members count and answer, by name. What answers otherwise than a
    member is left out.

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
        group = str(status.get("group", ""))
        if not status.get("validated") or group in found:
            continue
        try:
            found[group] = _row(group, status["validated"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue  # something else than a member, with a member's name, answers there
    return [found[group] for group in sorted(found)]


def _row(group: str, validated: Json) -> Json:
    """The row of a group by what a member says. Raises KeyError, TypeError, ValueError,
    AttributeError or OverflowError where this is no such answer."""
    topics = validated["topics"].values()
    numbers = {
        name: sum(int(topic.get(name, 0)) for topic in topics)
        for name in ("expected", "counted", *SAID)
    }
    since_ms = (
        topic.get("counted_from_ms", 0) for topic in topics if topic["state"] != "not audited"
    )
    end_ms = validated["complete_to_ms"]
    return {
        "group": group,
        "state": str(validated["state"]),
        **numbers,
        "reasons": {
            state: sorted(
                {
                    str(window["reason"])
                    for topic in topics
                    for window in topic.get("windows", ())
                    if window["state"] == state
                }
            )
            for state in EXPLAINED
        },
        "counted_from_ms": _time_ms(max(since_ms, default=0)),
        "complete_to_ms": None if end_ms is None else _time_ms(end_ms),
        "read_to_ms": _time_ms(validated["read_to_ms"]),
        "unread": str(validated["unread"]),
    }


def _time_ms(value: Any) -> int:
    """A time of the years 1970 to 9999. Raises ValueError, TypeError, OverflowError."""
    time_ms = int(value)
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise ValueError(f"{time_ms} is no time")
    return time_ms


def verdict_text(row: Json, why: Callable[[str], str] = lambda _verdict: "") -> str:
    """`missing 3, behind 12`, or the state; `why(verdict)` follows each."""
    said = [f"{name} {row[name]:,}{why(name)}" for name in SAID if row.get(name)]
    state = row["state"]
    if not row.get(state):  # without a number, like unknown
        said.insert(0, f"{state}{why(state)}")
    return ", ".join(said)
