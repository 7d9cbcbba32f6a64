"""Judges a history: what was sent and confirmed, what readers saw, what the log holds at the end.

A history is a file of JSON lines, written while brokers are killed. A message is named by its
producer, the producer's connection and a sequence number, and is sent exactly once under that name:
what is sent again after a broken connection gets the new connection's number. So a name may stand
in the log once at most, and exactly once if its producer got a barrier behind it.

    {"f": "send",    "id": "3.7.41", "partition": 0, "crc": 123}     before the bytes leave
    {"f": "durable", "id": "3.7.41"}                                 a barrier covered it
    {"f": "poll",    "id": "3.7.41", "partition": 0, "offset": 900, "crc": 123}
    {"f": "latest",  "reader": "7", "partition": 0, "offset": 980}   the end that a reader was shown
    {"f": "leads",   "epoch": 4, "by": "a"}                          opened to clients
    {"f": "fault",   "kind": "SIGKILL"}
    {"f": "final",   "id": ..., "partition": 0, "offset": 900, "next_offset": 980, "crc": 123}
    {"f": "end",     "partition": 0, "offset": 98000}                the latest offset at the end

Nothing but the standard library, so that a saved history can be judged anywhere:
`python -m tests.faults.checker FILE` prints the verdict and exits with 1 when something is wrong.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN_MAX = 5  # examples of each kind of violation


@dataclass
class Verdict:
    """Counts of what happened, and every violation by its kind."""

    sent: int = 0
    durable: int = 0
    polled: int = 0
    kept: int = 0
    faults: int = 0
    violations: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.violations

    def add(self, kind: str, what: str) -> None:
        self.violations.setdefault(kind, []).append(what)

    def __str__(self) -> str:
        lines = [
            f"{self.faults} faults, {self.sent} messages sent, {self.durable} confirmed durable, "
            f"{self.polled} polled, {self.kept} in the log at the end"
        ]
        for kind, found in self.violations.items():
            lines.append(f"{kind}: {len(found)}, for example {'; '.join(found[:SHOWN_MAX])}")
        if self.is_good:
            lines.append(
                "lost 0, vanished 0, phantom 0, twice 0, changed 0, reordered 0, gaps 0, "
                "ends that fell 0, epochs with two leaders 0"
            )
        return "\n".join(lines)


def read_history(path: Path) -> Iterable[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def check(history: Iterable[dict[str, Any]]) -> Verdict:
    """Judge a whole history, the final reading included."""
    verdict = Verdict()
    sent: dict[str, tuple[int, int]] = {}  # id -> partition, crc
    durable: set[str] = set()
    shown: dict[tuple[int, int], str] = {}  # partition, offset -> id
    polled: set[str] = set()
    final: dict[int, list[dict[str, Any]]] = {}
    ends: dict[int, int] = {}
    latest: dict[tuple[str, int], int] = {}  # reader, partition -> the end that it was shown
    leaders: dict[int, str] = {}  # by epoch
    for event in history:
        match event["f"]:
            case "send":
                sent[event["id"]] = (event["partition"], event["crc"])
            case "durable":
                durable.add(event["id"])
            case "fault":
                verdict.faults += 1
            case "end":
                ends[event["partition"]] = event["offset"]
            case "latest":
                before = latest.setdefault((event["reader"], event["partition"]), 0)
                if event["offset"] < before:
                    verdict.add("fell", f"{event} behind {before}")
                latest[event["reader"], event["partition"]] = event["offset"]
            case "leads":
                if leaders.setdefault(event["epoch"], event["by"]) != event["by"]:
                    verdict.add("two leaders", f"{event}, {leaders[event['epoch']]} before")
            case "poll" | "final" as kind:
                _check_shown(verdict, event, sent, shown)
                if kind == "poll":
                    polled.add(event["id"])
                else:
                    final.setdefault(event["partition"], []).append(event)
    for (reader, partition), offset in latest.items():
        if ends.get(partition, offset) < offset:
            verdict.add("fell", f"{partition}: {ends[partition]}, {reader} was shown {offset}")
    kept = Counter(event["id"] for events in final.values() for event in events)
    verdict.sent, verdict.durable, verdict.polled = len(sent), len(durable), len(polled)
    verdict.kept = sum(kept.values())
    for name in sorted(durable - kept.keys()):
        verdict.add("lost", f"{name} was confirmed durable and is not in the log")
    for name in sorted(polled - kept.keys()):
        verdict.add("vanished", f"{name} was polled and is not in the log")
    for name, count in kept.items():
        if count > 1:
            verdict.add("twice", f"{name} stands {count} times in the log, sent once")
    for partition in sorted(final.keys() | ends.keys()):
        _check_log(verdict, partition, final.get(partition, []), ends.get(partition, 0))
    return verdict


def _check_shown(
    verdict: Verdict,
    event: dict[str, Any],
    sent: dict[str, tuple[int, int]],
    shown: dict[tuple[int, int], str],
) -> None:
    """What a reader was shown: sent, to that partition, unchanged, and always the same there."""
    name, partition, offset = event["id"], event["partition"], event["offset"]
    before = sent.get(name)
    if before is None:
        verdict.add("phantom", f"{name} at {partition}:{offset} was never sent")
    elif before != (partition, event["crc"]):
        verdict.add("changed", f"{name} at {partition}:{offset} is not what was sent")
    if shown.setdefault((partition, offset), name) != name:
        verdict.add(
            "inconsistent", f"{partition}:{offset} showed {shown[partition, offset]} and {name}"
        )


def _check_log(verdict: Verdict, partition: int, events: list[dict[str, Any]], end: int) -> None:
    """Offsets without a gap from 0 to the end; each connection's messages in the order sent."""
    position = 0
    last: dict[str, int] = {}  # producer.connection -> sequence
    for event in events:
        if event["offset"] != position:
            verdict.add("gap", f"{partition}: {event['offset']} follows {position}")
        position = event["next_offset"]
        connection, _, sequence = event["id"].rpartition(".")
        if int(sequence) <= last.get(connection, -1):
            verdict.add("reordered", f"{partition}: {event['id']} stands behind {last[connection]}")
        last[connection] = int(sequence)
    if position != end:
        verdict.add("gap", f"{partition}: the log ends at {end}, its messages at {position}")


def main() -> int:
    verdict = check(read_history(Path(sys.argv[1])))
    print(verdict)
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
