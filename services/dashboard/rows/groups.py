"""Consumer groups as rows: verdict with its reason, lag now and over time, rebalances. Pure.

Verdicts are those of `consumer.tools.lag_rules`. A verdict becomes an event once it has lasted:
while a group rebalances, its partitions have no owner for some seconds, which is no fault.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from kafka2011.consumer.tools.lag_rules import (
    ERRORS,
    UNKNOWN,
    Judged,
    PartitionHistory,
    Verdict,
    judge,
    worst,
)
from kafka2011.runtime.clock import has_passed
from kafka2011.services.dashboard.rows.history import History
from kafka2011.services.dashboard.rows.topics import AWAY
from kafka2011.services.dashboard.sampling.observations import (
    ObservedCluster,
    ObservedGroup,
    Row,
    Rows,
)

STEP_MS = 2_000
MOVES_KEPT = 100  # of one group; the time line shows them
EVENT_AFTER_MS = 10_000
OLD_MS = 10_000  # offsets that were read longer ago say nothing of now
# An offset that was stored longer ago is compared with an end that came after it.
SETTLED_MS = 10_000
WARN = "WARN"
NOT_KNOWN: Row = {
    "lag_bytes": None,
    "lag_ms": None,
    "state": UNKNOWN,
    "reason": "ZooKeeper does not answer: offsets and owners are as of the last sample",
}
SECTIONS = ("groups", "group_partitions", "lag_series", "rebalances")

AddEvent = Callable[[int, str, str, str], None]


class GroupHistory:
    """The history of one group."""

    def __init__(self, history_ms: int) -> None:
        self.history = History(history_ms, STEP_MS)
        self.partitions: dict[tuple[str, str], PartitionHistory] = {}
        self.moves: deque[tuple[int, Row]] = deque(maxlen=MOVES_KEPT)
        self.owners: dict[tuple[str, str], str] | None = None
        self.sampled_ms = -1
        self.looked_before_ms = -1  # the sample before that one
        self.rows: Rows = {}
        self.row: Row = {}
        self.is_old = False
        self.state = ""  # the last that became an event
        self.new_state = ""
        self.new_since_ms = 0


class GroupRows:
    """All groups of all datacenters. Events go to `add_event(now_ms, kind, subject, text)`."""

    def __init__(self, history_ms: int, add_event: AddEvent) -> None:
        self._history_ms = history_ms
        self._add_event = add_event
        self._memories: dict[str, GroupHistory] = {}
        self._found: dict[str, Rows] = {name: {} for name in SECTIONS}

    def sections(
        self, clusters: Mapping[str, ObservedCluster], partitions: Rows, now_ms: int
    ) -> dict[str, Rows]:
        """groups, group_partitions, lag_series and rebalances: the same objects as before until
        a group is sampled again."""
        is_new = False
        for datacenter, cluster in clusters.items():
            for group in cluster.groups.values():
                key = f"{datacenter}/{group.name}"
                memory = self._memories.setdefault(key, GroupHistory(self._history_ms))
                # Offsets and ends must be of one moment: an old offset beside a new end is no lag.
                if memory.sampled_ms != cluster.groups_at_ms:
                    memory.looked_before_ms = memory.sampled_ms
                    memory.sampled_ms = cluster.groups_at_ms
                    self._sample(key, memory, group, partitions, now_ms)
                    is_new = True
        for key, memory in self._memories.items():
            of = clusters.get(key.partition("/")[0])
            is_away = of is not None and not of.is_answering
            is_old = is_away and has_passed(OLD_MS, memory.sampled_ms, now_ms)
            if is_old != memory.is_old:
                memory.is_old, is_new = is_old, True
        for key in list(self._memories):
            datacenter, _, name = key.partition("/")
            of = clusters.get(datacenter)
            if of is not None and of.is_answering and name not in of.groups:
                del self._memories[key]
                is_new = True
        if is_new:
            self._found = self._collect()
        return self._found

    def _collect(self) -> dict[str, Rows]:
        found: dict[str, Rows] = {name: {} for name in SECTIONS}
        for key, memory in self._memories.items():
            now = NOT_KNOWN if memory.is_old else {}
            found["groups"][key] = memory.row | now
            found["group_partitions"].update(
                {name: row | now for name, row in memory.rows.items()} if now else memory.rows
            )
            for at, row in memory.history.rows().items():
                found["lag_series"][f"{key}|{at}"] = row
            for at_ms, move in memory.moves:
                found["rebalances"][f"{key}|{at_ms}"] = move
        return found

    def _sample(
        self, key: str, memory: GroupHistory, group: ObservedGroup, partitions: Rows, now_ms: int
    ) -> None:
        datacenter = key.partition("/")[0]
        self._note_moves(key, memory, group)
        memory.rows = _partition_rows(memory, datacenter, group, partitions, now_ms)
        memory.row = _group_row(datacenter, group, memory.rows) | {"looked_ms": memory.sampled_ms}
        self._note_verdict(key, memory, now_ms)
        memory.history.note(now_ms, {"bytes": memory.row["lag_bytes"], "ms": memory.row["lag_ms"]})

    def _note_verdict(self, key: str, memory: GroupHistory, now_ms: int) -> None:
        """Add an event for a verdict that has lasted `EVENT_AFTER_MS` and concerns the operator."""
        state = memory.row["state"]
        if not memory.state:
            memory.state = state
        if state != memory.new_state:
            memory.new_state, memory.new_since_ms = state, now_ms
        if state == memory.state or now_ms - memory.new_since_ms < EVENT_AFTER_MS:
            return
        if {memory.state, state} & (ERRORS | {WARN}):
            kind = "bad" if state in ERRORS else "warn" if state == WARN else "good"
            why = f": {memory.row['reason']}" if state in ERRORS | {WARN} else ""
            self._add_event(now_ms, kind, key, f"group {memory.row['group']} is {state}{why}")
        memory.state = state

    def _note_moves(self, key: str, memory: GroupHistory, group: ObservedGroup) -> None:
        """Keep the owners when they changed. Samples are rare while no page is open, so that the
        earlier owners are known to have held only until the sample before."""
        at_ms = memory.sampled_ms
        before, now = memory.owners, group.owners
        memory.owners = dict(now)
        moved = {p for p in set(before or {}) | set(now) if (before or {}).get(p) != now.get(p)}
        owned = owned_by_member(group)
        last = memory.moves[-1][1] if memory.moves else None
        if last is not None and not moved and last["members"] == owned:
            return
        row = {
            "at_ms": at_ms,
            "before_ms": at_ms if last is None else memory.looked_before_ms,
            "members": owned,
            "partitions": len(now),
            "moved": len(moved) if before is not None else 0,
        }
        memory.moves.append((at_ms, row))
        if before is not None and moved:
            self._add_event(
                at_ms,
                "info",
                key,
                f"group {group.name} rebalanced: {counted(len(moved), 'partition')} changed hands, "
                f"{counted(len(group.members), 'member')}",
            )


def counted(number: int, thing: str) -> str:
    """`1 member`, `2 members`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def owned_by_member(group: ObservedGroup) -> dict[str, int]:
    """How many partitions each member owns: an owner is a thread, `<consumer id>-<number>`."""
    owned = dict.fromkeys(group.members, 0)
    for owner in group.owners.values():
        member = owner.rpartition("-")[0]
        owned[member] = owned.get(member, 0) + 1
    return owned


def _partition_rows(
    memory: GroupHistory, datacenter: str, group: ObservedGroup, partitions: Rows, now_ms: int
) -> Rows:
    rows: Rows = {}
    named = set(group.owners) | set(group.offsets)
    # As in the tools: all partitions of the topics that the group reads, owned or not.
    topics = {topic for topic, _ in named}
    named |= {
        (row["topic"], row["partition"])
        for row in partitions.values()
        if row["topic"] in topics and row["dc"] == datacenter
    }
    for topic, name in sorted(named):
        found = partitions.get(f"{datacenter}/{topic}/{name}")
        is_away = found is not None and found["state"] == AWAY
        # What a broker said before it went is not the end of its log now.
        end = None if found is None or is_away else found["watermark"]
        offset, version = group.offsets.get((topic, name), (None, None))
        owner = group.owners.get((topic, name), "")
        history = memory.partitions.setdefault((topic, name), PartitionHistory())
        history.note(now_ms, offset, version, end, owner=owner)
        end_ms = found["as_of_ms"] if found is not None and found.get("as_of_ms") else now_ms
        past_end_bytes = _past_end_bytes(history, offset, end, end_ms)
        lag = None
        if offset is not None and end is not None and not past_end_bytes:
            lag = max(0, end - offset)
        verdict = judge(
            history.commits,
            lag,
            now_ms,
            is_owned=bool(owner),
            reading_since_ms=history.reading_since_ms(now_ms, offset),
            past_end_bytes=past_end_bytes,
        )
        if found is not None and is_away and offset is not None:
            verdict = replace(verdict, reason=f"{found['broker']} is away, and this log with it")
        rows[f"{datacenter}/{group.name}/{topic}/{name}"] = {
            "dc": datacenter,
            "group": group.name,
            "topic": topic,
            "partition": name,
            "owner": owner,
            "offset": offset,
            "end": end,
            "lag_bytes": lag,
            "lag_ms": history.lag_ms(now_ms, offset) if lag is not None else None,
            "state": verdict.state,
            "reason": verdict.reason,
            "complete": verdict.complete,
        }
    return rows


def _past_end_bytes(
    history: PartitionHistory, offset: int | None, end: int | None, end_ms: int
) -> int:
    """How far the offset is past the end of its log, which was read at `end_ms`; 0 while the end
    may be older than it."""
    if offset is None or end is None or not history.commits:
        return 0
    is_settled = end_ms - history.commits[-1].at_ms >= SETTLED_MS
    return max(0, offset - end) if is_settled else 0


def _group_row(datacenter: str, group: ObservedGroup, rows: Rows) -> Row:
    # As in the tools: a partition without owner and offset says nothing of the group.
    touched = [row for row in rows.values() if row["owner"] or row["offset"] is not None]
    is_unknown = any(
        row["end"] is None or (row["lag_bytes"] is None and row["offset"] is not None)
        for row in touched
    )
    verdict = worst(
        Judged(
            f"{row['topic']} {row['partition']}",
            row["lag_bytes"],
            Verdict(row["state"], row["reason"], row["complete"]),
        )
        for row in touched
    )
    lags = [row["lag_bytes"] for row in rows.values() if row["lag_bytes"] is not None]
    return {
        "dc": datacenter,
        "group": group.name,
        "members": group.members,
        "partitions": len(rows),
        "unowned": sum(1 for row in rows.values() if not row["owner"]),
        "topics": sorted({row["topic"] for row in rows.values()}),
        "lag_bytes": None if is_unknown else sum(lags),
        "lag_ms": None if is_unknown else _oldest_ms(rows.values()),
        "state": verdict.state,
        "reason": verdict.reason,
    }


def _oldest_ms(rows: Collection[Row]) -> int | None:
    """A lower bound of the oldest unread byte's age, ms; None if no age is known, or only 0 while
    others are unknown."""
    known = [row["lag_ms"] for row in rows if row["lag_ms"] is not None]
    is_vague = any(row["lag_bytes"] and row["lag_ms"] is None for row in rows)
    oldest_ms: int | None = max(known, default=None)
    return oldest_ms or (None if is_vague else oldest_ms)
