"""Compares what a group has counted with what the producers reported. Pure.

No verdict comes too early. Messages that the group has not reached are behind; they are missing
only once it is past the ends that the logs had when their report was read. Windows before counting
began are not judged, and a window whose report is lost is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.counting.partition_counts import PartitionCounts
from kafka2011.consumer.counting.reported import Reported, Window
from kafka2011.events.header import UNREADABLE
from kafka2011.events.windows import window_start

LATENESS_MS_MAX = 60_000
# A report or heartbeat that explains why more was counted than reported is read within this time:
# three heartbeats, so that a producer that stands still is silent by then.
REPORT_WAIT_MS = 15_000
NOT_REPORTED = "not reported yet"
REPORTS_BEHIND = "producers' reports not read yet"
RESTART_GRACE_MS = 600_000  # windows that began up to this long after a restart may have repeats
NAMES_SAID, NAME_CHARACTERS = 3, 60  # of servers, in a reason

State = Literal[
    "missing", "unknown", "extra", "behind", "redelivered", "pending", "complete", "not audited"
]
WORST_FIRST: tuple[State, ...] = (
    "missing",
    "unknown",
    "extra",
    "behind",
    "redelivered",
    "complete",
    "pending",
    "not audited",
)
NUMBERED: tuple[State, ...] = WORST_FIRST[:5]  # states with a number of messages


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """The verdict on one window of a topic; `number`: how many messages are missing, extra, ...;
    of one that is pending, how many more than is reported so far."""

    start_ms: int
    expected: int
    counted: int
    state: State
    number: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TopicVerdict:
    """The verdict on a topic: the worst of its windows since counting began.

    `counted_from_ms`: windows before that are not judged. `complete_to_ms`: everything between
    these two times is complete; None where nothing is. `counted` is the number of messages in the
    windows judged, `again` the number of messages that were read once more.
    """

    topic: str
    state: State
    counted: int
    expected: int
    counted_from_ms: int
    complete_to_ms: int | None
    again: int
    numbers: Mapping[str, int]
    open_windows: tuple[WindowVerdict, ...]  # those not complete, the oldest first


@dataclass(frozen=True, slots=True)
class Validated:
    """The verdicts of one look, by topic. `unread`: why reports may be missing; windows that ended
    after `read_to_ms` are pending then."""

    topics: Mapping[str, TopicVerdict]
    read_to_ms: int
    unread: str = ""

    @property
    def state(self) -> State:
        """The worst of the topics; pending where nothing is complete since the last of them is
        counted."""
        found = worst(topic.state for topic in self.topics.values())
        return "pending" if found == "complete" and self.complete_to_ms is None else found

    @property
    def complete_to_ms(self) -> int | None:
        """The time up to which every judged topic is complete; None if any has none, if no topic
        was judged, or if it is not after `counted_from_ms`."""
        judged = [t for t in self.topics.values() if t.state not in ("pending", "not audited")]
        ends = [topic.complete_to_ms for topic in judged]
        end_ms = min((end for end in ends if end is not None), default=0)
        return None if None in ends or end_ms <= self.counted_from_ms else end_ms

    @property
    def counted_from_ms(self) -> int:
        """The time from which on every audited topic is judged; 0: all of them from the
        beginning."""
        audited = [topic for topic in self.topics.values() if topic.state != "not audited"]
        return max((topic.counted_from_ms for topic in audited), default=0)

    def number(self, state: State) -> int:
        """How many messages of all topics are in this state: behind, missing, ..."""
        return sum(topic.numbers.get(state, 0) for topic in self.topics.values())


@dataclass(frozen=True, slots=True)
class Look:
    """What is known at one moment.

    `counts` are those of the group's partitions, None where they cannot be read; `ends` are, for
    each reported window, the ends of the topic's partitions after its last report was read. The
    reports of all brokers are read up to `read_to_ms`, which is before `now_ms`.
    `is_final`: the producers have stopped, and open windows are judged too. `counted_ms`: when the
    last messages of a window (topic, start, server) were seen in the counts, if not long ago.
    """

    reported: Reported
    counts: Mapping[TopicPartition, PartitionCounts | None]
    ends: Mapping[Window, Mapping[TopicPartition, int]]
    read_to_ms: int
    now_ms: int
    is_final: bool = False
    counted_ms: Mapping[tuple[str, int, str], int] = field(default_factory=dict)

    @property
    def lateness_ms(self) -> int:
        return min(self.reported.window_ms, LATENESS_MS_MAX)


def worst(states: Iterable[State]) -> State:
    """The worst of the states; `not audited` if there are none."""
    return min(states, key=WORST_FIRST.index, default="not audited")


def judge(look: Look) -> dict[str, TopicVerdict]:
    """The verdict on each topic that the group has counted."""
    by_topic: dict[str, list[PartitionCounts | None]] = {}
    for name, counts in look.counts.items():
        by_topic.setdefault(name.topic, []).append(counts)
    return {topic: _topic(look, topic, counts) for topic, counts in sorted(by_topic.items())}


def _topic(look: Look, topic: str, partitions: Sequence[PartitionCounts | None]) -> TopicVerdict:
    counted: dict[int, dict[str, int]] = {}
    for partition in partitions:
        for (start, server), count in partition.cells.items() if partition else ():
            servers = counted.setdefault(start, {})
            servers[server] = servers.get(server, 0) + count
    read = [partition for partition in partitions if partition is not None]
    since_ms = max((partition.since_ms for partition in read), default=0)
    since_ms = max(since_ms, look.reported.kept_from_ms)
    if len(read) < len(partitions):
        since_ms = max(since_ms, look.read_to_ms + 1)
    reported = {start for name, start in look.reported.expected if name == topic}
    if topic in look.reported.topics:
        verdicts = [
            _window(look, topic, start, counted.get(start, {}))
            for start in sorted(reported | counted.keys())
            if start >= since_ms or start == UNREADABLE[0]
        ]
        state = worst(verdict.state for verdict in verdicts) if verdicts else "pending"
    else:
        verdicts, state = [], "not audited" if look.reported.is_whole else "pending"
    numbers: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.number:
            numbers[verdict.state] = numbers.get(verdict.state, 0) + verdict.number
    return TopicVerdict(
        topic,
        state,
        sum(verdict.counted for verdict in verdicts),
        sum(verdict.expected for verdict in verdicts),
        since_ms,
        _complete_to(look, verdicts, since_ms) if verdicts else None,
        sum(partition.again for partition in read),
        numbers,
        tuple(verdict for verdict in verdicts if verdict.state != "complete"),
    )


def _window(look: Look, topic: str, start: int, counted: Mapping[str, int]) -> WindowVerdict:
    servers = look.reported.expected.get((topic, start), {})
    expected, found = sum(servers.values()), sum(counted.values())

    def said(state: State, number: int = 0, reason: str = "") -> WindowVerdict:
        return WindowVerdict(start, expected, found, state, number, reason)

    if start == UNREADABLE[0]:
        return said("extra", found, "messages whose header cannot be read")
    lateness_ms = look.lateness_ms
    settles_ms = start + look.reported.window_ms + lateness_ms
    if not look.is_final and look.read_to_ms < settles_ms:
        return said("pending", reason="window open" if look.now_ms < settles_ms else REPORTS_BEHIND)
    if look.reported.is_awaited(start, lateness_ms):
        return said("pending", reason="a monitoring event is on its way")
    short = sum(max(0, n - counted.get(server, 0)) for server, n in servers.items())
    over = {
        server: n - servers.get(server, 0)
        for server, n in counted.items()
        if n > servers.get(server, 0)
    }
    if short and not _has_passed(look, topic, start):
        return said("behind", short)
    if look.reported.is_lost(start, lateness_ms):
        return said("unknown", short + sum(over.values()), "a monitoring event was not read")
    if short:
        return said("missing", short)
    if not over:
        return said("complete")
    if any(_may_be_reported(look, topic, start, server) for server in over):
        return said("pending", sum(over.values()), NOT_REPORTED)
    if all(_is_excused(look, server, start) for server in over):
        return said(
            "redelivered",
            sum(over.values()),
            "its producer was started again, or had a send that was not confirmed: sent again, or "
            "never reported",
        )
    names = [server[:NAME_CHARACTERS] for server in sorted(over)]
    more = f" and {len(names) - NAMES_SAID} more" if len(names) > NAMES_SAID else ""
    reason = f"more than was reported by {', '.join(names[:NAMES_SAID])}{more}"
    return said("extra", sum(over.values()), reason)


def _has_passed(look: Look, topic: str, start: int) -> bool:
    """Whether the group has read everything that was there when the last report was read."""
    ends = look.ends.get((topic, start))
    if ends is None:
        return False
    for name, end in ends.items():
        counts = look.counts.get(name)
        if end and (counts is None or counts.end < end):
            return False
    return True


def _may_be_reported(look: Look, topic: str, start: int, server: str) -> bool:
    """Whether a report of what was counted of a window may still come."""
    counted_ms = look.counted_ms.get((topic, start, server))
    if counted_ms is None or look.is_final:
        return False
    due_ms = counted_ms + REPORT_WAIT_MS
    # A producer that was heard since then has reported it, whatever becomes of it later.
    return look.read_to_ms < due_ms or look.reported.heard_ms(server) < due_ms


def _is_excused(look: Look, server: str, start: int) -> bool:
    restarts = look.reported.restarted_ms(server)
    return any(start <= restart + RESTART_GRACE_MS for restart in restarts)


def _complete_to(look: Look, verdicts: Sequence[WindowVerdict], since_ms: int) -> int | None:
    """The start of the first window that is not complete; else the end of the newest that could be,
    which is never in the future, whatever a fast clock says. None if no window is complete."""
    window_ms = look.reported.window_ms
    newest = max(verdict.start_ms for verdict in verdicts) + window_ms
    settled_ms = look.read_to_ms - look.lateness_ms
    present = window_start(look.read_to_ms, window_ms) + window_ms
    end = min(newest, present) if look.is_final else window_start(settled_ms, window_ms)
    good = ("complete", "redelivered")
    for verdict in verdicts:
        if verdict.state not in good and verdict.start_ms >= 0:
            end = min(end, verdict.start_ms)
    return end if end > since_ms and any(verdict.state in good for verdict in verdicts) else None
