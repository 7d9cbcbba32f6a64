"""What consumer groups say of themselves: whether they have read all that was produced. Pure.

Each member of a group that counts (`audit.enable`) validates the whole group and has the verdict
among its metrics; the first that answers speaks for the group.
"""

from collections.abc import Iterable
from typing import Any

from kafka2011.services.dashboard.sampling.metrics_text import by_label
from kafka2011.services.dashboard.sampling.observations import ObservedProcess

NUMBERS = "kafka2011_consumed_messages"
STATE = "kafka2011_consumed_state"
COMPLETE = "kafka2011_consumed_complete_to_seconds"
SINCE = "kafka2011_consumed_counted_from_seconds"
# As `consumer.counting.verdicts` has it, which would bring the codecs of events into this process.
WORST_FIRST = ("missing", "unknown", "extra", "behind", "redelivered")


def group_verdicts(processes: Iterable[ObservedProcess]) -> dict[str, dict[str, Any]]:
    """`<datacenter>/<group>` -> verdict, its number, up to when all is complete (ms, None
    where not known), and from when on that is so (ms, 0: from the beginning)."""
    found: dict[str, dict[str, Any]] = {}
    for process in processes:
        if process.health.failures:
            continue
        complete = by_label(process.samples, COMPLETE, "group")
        since = by_label(process.samples, SINCE, "group")
        groups = by_label(process.samples, NUMBERS, "group").keys() | complete.keys()
        for group in sorted(groups):
            numbers = {
                labels["verdict"]: int(value)
                for labels, value in process.samples.get(NUMBERS, ())
                if labels.get("group") == group
            }
            # A verdict may be unknown without a number; a member of an older version has no state.
            said = [
                labels["verdict"]
                for labels, value in process.samples.get(STATE, ())
                if value and labels.get("group") == group
            ]
            said += [word for word in WORST_FIRST if numbers.get(word)]
            seconds = complete.get(group)
            state = next(iter(said), "complete" if seconds else "pending")
            row = {
                "state": state,
                "number": numbers.get(state, 0),
                "complete_to_ms": None if seconds is None else round(seconds * 1000),
                "counted_from_ms": round(since.get(group, 0) * 1000),
            }
            found.setdefault(f"{process.datacenter}/{group}", row)
    return found
