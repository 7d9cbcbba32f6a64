"""Judged cells and their sums as JSON, in one form for the running service and the recount.

Pure. `kafka2011 audit --json` prints it, its table and the dashboard are made from it.
docs/audit.md describes the fields.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka2011.consumer.counting.verdicts import NOT_REPORTED
from kafka2011.events.forms import Forms
from kafka2011.events.sequences import USED_AGAIN, Gap
from kafka2011.services.audit.books.ledger import (
    Cell,
    CellKey,
    FoldedTotals,
    Instance,
    may_count,
)
from kafka2011.services.audit.books.passage import Backlog
from kafka2011.services.audit.books.progress import TABLE, UnreadRange
from kafka2011.services.audit.books.retained import Retained
from kafka2011.services.audit.verdicts import (
    NOT_HEARD,
    NUMBERS,
    STATES,
    UNREADABLE_WINDOW,
    GuidCounts,
    Verdict,
)

Json = dict[str, Any]

KEPT_MS = 200  # an answer of the service is not older than this, `now_ms` says of when it is


@dataclass(frozen=True, slots=True)
class JudgedTier:
    """One cell at one tier. `found` only where every guid was compared."""

    expected: int
    counted: int
    verdict: Verdict
    found: GuidCounts | None = None


@dataclass(frozen=True, slots=True)
class JudgedCell:
    """One cell judged. `tiers` by index; None: the topic need not reach that tier."""

    key: CellKey
    produced: int
    tiers: tuple[JudgedTier | None, ...]

    @property
    def is_complete(self) -> bool:
        return all(
            tier is None or tier.verdict.state in ("complete", "not audited") for tier in self.tiers
        )

    @property
    def verdicts(self) -> list[Verdict]:
        return [tier.verdict for tier in self.tiers if tier is not None]


# Verdicts on a cell by tier, each with the counts by guid where these were compared.
Judge = Callable[[CellKey, Cell], Sequence[tuple[Verdict, GuidCounts | None]]]

NOT_AUDITED = Verdict("not audited", reason="no report of this topic was found")
REPORTS_LOST = "no report of the topic was read, and it may be among those that were not"
NOT_WHOLE = Verdict("not audited", reason="retention had deleted a part before the audit began")


def reported_topics(cells: Mapping[CellKey, Cell]) -> set[str]:
    """The topics of which a producer has reported anything; others are not audited."""
    return {key.topic for key, cell in cells.items() if any(cell.produced)}


def judge_cells(
    cells: Mapping[CellKey, Cell],
    tiers: Sequence[str],
    judge: Judge,
    reported: Container[str],
    exempt: Iterable[tuple[str, str]] = (),
    *,
    retained: Retained | None = None,
    is_report_lost: Callable[[CellKey], bool] = lambda _: False,
) -> list[JudgedCell]:
    """Every cell judged, ordered by topic, window and server; `reported` as `reported_topics`.

    `is_report_lost`: whether a report that was not read may have counted messages of the cell, so
    that a topic without any is *unknown* there, not *not audited*.
    """
    retained = retained or Retained()
    excused = set(exempt)
    lines = []
    for key, cell in sorted(cells.items()):
        parts: list[JudgedTier | None] = []
        verdicts = judge(key, cell)
        is_unknown = key.topic not in reported and is_report_lost(key)
        for tier, expected, counted, (verdict, found) in zip(
            tiers, cell.expected, cell.counted, verdicts, strict=True
        ):
            if (tier, key.topic) in excused:
                parts.append(None)
                continue
            shown = verdict
            if verdict.state != "pending" or verdict.reason in (NOT_HEARD, NOT_REPORTED):
                if retained.is_cut(tier, key.topic, key.window_start_ms):
                    shown = NOT_WHOLE if key.topic in reported else NOT_AUDITED
                elif is_unknown:
                    shown = _unreported(verdict)
                elif key.topic not in reported:
                    shown = NOT_AUDITED
            parts.append(JudgedTier(expected, counted, shown, found))
        lines.append(JudgedCell(key, sum(cell.produced), tuple(parts)))
    return lines


def _unreported(verdict: Verdict) -> Verdict:
    """The verdict on a cell of a topic whose reports may be among those that are lost."""
    if verdict.state == "pending":
        return verdict
    unknown = verdict.unknown + verdict.missing + verdict.extra + verdict.redelivered
    return Verdict("unknown", unknown=unknown, behind=verdict.behind, reason=REPORTS_LOST)


def cell_json(line: JudgedCell, tiers: Sequence[str]) -> Json:
    """One judged cell."""
    found_tiers: Json = {}
    for tier, part in zip(tiers, line.tiers, strict=True):
        if part is None:
            continue
        found_tiers[tier] = {
            "expected": part.expected,
            "counted": part.counted,
            "verdict": part.verdict.text,
            **asdict(part.verdict),
        }
        if part.found is not None:
            found_tiers[tier]["distinct"] = part.found.distinct
            found_tiers[tier]["equal"] = part.found.equal
    return {
        "topic": line.key.topic,
        "window_start_ms": line.key.window_start_ms,
        "server": line.key.server,
        "produced": line.produced,
        "complete": line.is_complete,
        "tiers": found_tiers,
    }


# The fields of a sum over cells at one tier. `audited_cells`: all but those not audited. `lacking`:
# fewer than reported, whatever the verdict is, pending ones too.
FIELDS = (
    *("expected", "counted", *NUMBERS, "unreported", "lacking"),
    *("pending_cells", "unknown_cells", "not_audited_cells", "audited_cells"),
)
PART_COMPLETE = "complete of what can be audited"


class Sums:
    """Sums over judged cells, from which the JSON of topics and tiers is made.

    What was added can be taken away again: all are sums of whole numbers.
    """

    def __init__(self, lines: Iterable[JudgedCell] = (), tiers: Sequence[str] = ()) -> None:
        self.cells: Counter[str] = Counter()  # by topic
        self.produced: Counter[str] = Counter()
        self.tiers: dict[tuple[str, str], Counter[str]] = {}  # (topic, tier) -> FIELDS
        self.states: Counter[tuple[str, str]] = Counter()  # (cell, tier) pairs by (topic, state)
        self.late: Counter[tuple[str, int]] = Counter()  # messages behind by (tier, window)
        for line in lines:
            self._add_line(line, tiers)

    def _add_line(self, line: JudgedCell, tiers: Sequence[str]) -> None:
        topic, start_ms, _ = line.key
        self.cells[topic] += 1
        self.produced[topic] += line.produced
        for tier, part in zip(tiers, line.tiers, strict=True):
            if part is None:
                continue
            verdict = part.verdict
            self.states[topic, verdict.state] += 1
            if verdict.behind and start_ms >= 0:
                self.late[tier, start_ms] += verdict.behind
            into = self.tiers.setdefault((topic, tier), Counter())
            into["expected"] += part.expected
            into["counted"] += part.counted
            if verdict.state == "not audited":
                into["not_audited_cells"] += 1
                continue
            into["audited_cells"] += 1
            if verdict.state == "complete":
                continue
            for name in NUMBERS:
                into[name] += getattr(verdict, name)
            into["lacking"] += max(0, part.expected - part.counted)
            into["unknown_cells"] += verdict.state == "unknown" or verdict.unknown > 0
            if verdict.state == "pending":
                into["pending_cells"] += 1
                into["unreported"] += max(0, part.counted - part.expected)

    def add(self, other: "Sums") -> None:
        for mine, found in self._pairs(other):
            mine.update(found)

    def take_away(self, other: "Sums") -> None:
        """Subtract `other`, which was added before."""
        for mine, found in self._pairs(other):
            mine.subtract(found)
            for gone in [name for name in found if not mine[name]]:
                del mine[gone]
        for pair in [pair for pair in other.tiers if not self.tiers[pair]]:
            del self.tiers[pair]

    def _pairs(self, other: "Sums") -> Iterator[tuple[Counter[Any], Counter[Any]]]:
        yield self.cells, other.cells
        yield self.produced, other.produced
        yield self.states, other.states
        yield self.late, other.late
        for name, found in other.tiers.items():
            yield self.tiers.setdefault(name, Counter()), found


def _empty_sum() -> Json:
    return dict.fromkeys(FIELDS, 0)


def sum_text(total: Json) -> str:
    """The verdict on a sum of cells."""
    parts = [f"{name} {total[name]}" for name in NUMBERS if total[name]]
    if total["unknown_cells"] and not total["unknown"]:
        parts.append("unknown")
    if total["pending_cells"]:
        parts.append("pending")
    if parts or not total["not_audited_cells"]:
        return ", ".join(parts) or "complete"
    return PART_COMPLETE if total["audited_cells"] else "not audited"


def topics_json(
    sums: Sums,
    tiers: Sequence[str],
    folded: Mapping[tuple[str, str], FoldedTotals] | None = None,
    exempt: Collection[tuple[str, str]] = (),
) -> dict[str, Json]:
    """Sums by topic, folded windows included, and their verdict; none at the tiers that the topic
    need not reach (`exempt`: tier and topic).

    `is_audited` is false for topics that no producer has reported anything of: they are counted,
    and the audit says nothing of them.
    """
    found: dict[str, Json] = {}

    def topic_of(name: str) -> Json:
        verdicts = {state: sums.states[name, state] for state in STATES}
        return found.setdefault(
            name, {"cells": 0, "produced": 0, "verdicts": verdicts, "tiers": {}}
        )

    for name, cells in sums.cells.items():
        topic = topic_of(name)
        topic["cells"], topic["produced"] = cells, sums.produced[name]
        for tier in tiers:
            known = sums.tiers.get((name, tier))
            if known is not None:
                topic["tiers"][tier] = {field: known[field] for field in FIELDS}
    for (tier, name), old in (folded or {}).items():
        topic = topic_of(name)
        topic["produced"] += old.produced
        if tier == tiers[0]:
            topic["cells"] += old.cells
        if (tier, name) in exempt:
            continue
        total = topic["tiers"].setdefault(tier, _empty_sum())
        for field in ("expected", "counted", "missing", "extra", "redelivered"):
            total[field] += getattr(old, field)
        total["lacking"] += old.missing
        total["not_audited_cells"] += old.not_audited
        total["audited_cells"] += old.cells - old.not_audited
    waiting = {
        name
        for (name, _), known in sums.tiers.items()
        if known["pending_cells"] or known["unknown_cells"]
    }
    for name, topic in found.items():
        topic["is_audited"] = topic["produced"] > 0 or name in waiting
        for total in topic["tiers"].values():
            if not topic["is_audited"]:
                total.update(dict.fromkeys(NUMBERS, 0))
            total["verdict"] = sum_text(total) if topic["is_audited"] else "not audited"
    return dict(sorted(found.items()))


def totals_json(topics: Mapping[str, Json], tiers: Sequence[str]) -> Json:
    """Sums over all audited topics; `counted` includes the others, too (`not_audited`)."""
    audited = [topic for topic in topics.values() if topic["is_audited"]]
    totals: Json = {
        "cells": sum(topic["cells"] for topic in audited),
        "produced": sum(topic["produced"] for topic in audited),
        "tiers": {},
    }
    for tier in tiers:
        total = _empty_sum()
        for topic in audited:
            for name in total:
                total[name] += topic["tiers"].get(tier, {}).get(name, 0)
        total["not_audited"] = sum(
            topic["tiers"].get(tier, {}).get("counted", 0)
            for topic in topics.values()
            if not topic["is_audited"]
        )
        total["counted"] += total["not_audited"]
        total["verdict"] = sum_text(total) if audited else "not audited" if topics else "pending"
        totals["tiers"][tier] = total
    return totals


def verdict_counts(topics: Iterable[Json]) -> dict[str, int]:
    """Number of (cell, tier) pairs by state, of topics as of `topics_json`."""
    found = [topic["verdicts"] for topic in topics]
    return {state: sum(each[state] for each in found) for state in STATES}


def status_of(totals: Json, unknown: Sequence[Json] = ()) -> int:
    """The exit status: 0 when nothing is missing, extra or unknown, else 1.

    Pending cells, redelivered messages and tiers that are behind do not count. `unknown` are gaps
    that may concern any cell or none.
    """
    bad = sum(
        tier["missing"] + tier["extra"] + tier["unknown_cells"] for tier in totals["tiers"].values()
    )
    return 1 if bad or unknown else 0


def unknown_json(
    gaps: Iterable[tuple[Instance, Gap]], lost_logs: Iterable[UnreadRange] = (), place: str = ""
) -> list[Json]:
    """What the audit cannot know: monitoring events and ends of logs that were not read. `place`,
    after the text of each event, says where it may be. `gaps`: of how many gaps one is the span.

    `after_ms` and `before_ms` bound the times of the messages that may be concerned.
    """
    found = [
        {
            "what": _gap_text(instance, gap, place),
            "server": instance.server,
            "instance": instance.instance,
            "first": gap.first,
            "last": gap.last,
            "after_ms": gap.after_ms,
            "before_ms": gap.before_ms,
            **({"gaps": gap.parts} if gap.parts > 1 else {}),
        }
        for instance, gap in gaps
    ]
    found += [
        {
            "what": f"{lost.tier} {lost.topic}: {lost.reason}"
            if lost.place == TABLE
            else f"{lost.tier} {lost.topic} {lost.place} was lost beyond offset {lost.first}",
            "tier": lost.tier,
            "topic": lost.topic,
            "place": lost.place,
            "first": lost.first,
            "before_ms": lost.time_ms,
        }
        for lost in lost_logs
    ]
    return found


def retained_json(retained: Retained) -> list[Json]:
    """The logs that are not whole: windows of the topic that began before `from_ms` are not audited
    at the tier; for topic `audit`, those of every topic at every tier."""
    return [
        {"tier": tier, "topic": topic, "from_ms": from_ms}
        for (tier, topic), from_ms in sorted(retained.from_ms.items())
    ]


def _gap_text(instance: Instance, gap: Gap, place: str) -> str:
    if gap.parts > 1:
        return f"{gap.parts:,} more gaps in the events of {instance.server} not read{place}"
    events = f"events {gap.first} to {gap.last}" if gap.first < gap.last else f"event {gap.first}"
    run = instance.instance.removesuffix(USED_AGAIN)
    if run != instance.instance:
        why = "not counted: the sequence was used before, as by a journal restored from a backup"
        return f"monitoring {events} of {instance.server} ({run}) {why}"
    return f"monitoring {events} of {instance.server} ({run}) not read{place}"


def is_in_gap(key: CellKey, window_ms: int, unknown: Iterable[Json]) -> bool:
    """Whether a monitoring event that was not read may have counted messages of the cell."""
    return any(
        gap.get("server") == key.server
        and may_count(
            after_ms=gap["after_ms"],
            before_ms=gap["before_ms"],
            window_start_ms=key.window_start_ms,
            window_ms=window_ms,
        )
        for gap in unknown
    )


def unreadable_notes(
    lines: Iterable[JudgedCell], topics: Mapping[str, Json], tiers: Sequence[str], forms: Forms
) -> list[str]:
    """A line for each tier and topic of which some messages are missing and others cannot be read:
    the latter may be the missing ones, in a form other than `forms` says.

    `lines`: at least those of UNREADABLE_WINDOW; `topics` as of `topics_json`.
    """
    found = [
        (line.key.topic, tier, part.counted)
        for line in lines
        if line.key.window_start_ms == UNREADABLE_WINDOW
        for tier, part in zip(tiers, line.tiers, strict=True)
        if part is not None and part.counted and topics[line.key.topic]["tiers"][tier]["missing"]
    ]
    return [
        f"{tier} {topic}: {count:,} message{' has' if count == 1 else 's have'} no header in the "
        f"form {forms.of(topic).value} (event.forms): what is missing may be there"
        for topic, tier, count in found
    ]


def behind_by(
    tiers: Sequence[str],
    sums: Sums,
    window_ms: int,
    now_ms: int,
    backlogs: Sequence[Backlog] | None = None,
) -> dict[str, Json]:
    """How far each tier is behind: messages, bytes in the tier before (None without `backlogs`),
    and the age of the oldest, ms. What a tier lacks, every later tier lacks as well."""
    found: dict[str, Json] = {}
    before_ms = 0
    for index, tier in enumerate(tiers):
        late = _behind(tier, sums, backlogs[index] if backlogs else Backlog(), window_ms, now_ms)
        if late["messages"]:
            late["ms"] = max(late["ms"], before_ms)
        if backlogs is None:
            late["bytes"] = None
        found[tier], before_ms = late, late["ms"]
    return found


def _behind(tier: str, sums: Sums, backlog: Backlog, window_ms: int, now_ms: int) -> Json:
    late = {start_ms: number for (of, start_ms), number in sums.late.items() if of == tier}
    messages, oldest_ms = sum(late.values()), backlog.since_ms or now_ms
    if late:
        oldest_ms = min(oldest_ms, min(late) + window_ms)
    return {
        "messages": messages,
        "bytes": backlog.bytes,
        "ms": max(0, now_ms - oldest_ms) if messages or backlog.bytes else 0,
    }


def report_json(
    lines: Sequence[JudgedCell],
    tiers: Sequence[str],
    *,
    source: str,
    window_ms: int,
    now_ms: int,
    notes: Sequence[str] = (),
    restarts: Sequence[Json] = (),
    unknown: Sequence[Json] = (),
    retained: Retained | None = None,
    forms: Forms,
) -> Json:
    """The whole report of a recount."""
    sums = Sums(lines, tiers)
    topics = topics_json(sums, tiers)
    behind = behind_by(tiers, sums, window_ms, now_ms)
    totals = totals_json(topics, tiers)
    return {
        "source": source,
        "now_ms": now_ms,
        "window_ms": window_ms,
        "tiers": list(tiers),
        "topics": topics,
        "totals": totals,
        "verdicts": verdict_counts(topics.values()),
        "cells": [cell_json(line, tiers) for line in lines],
        "notes": [*unreadable_notes(lines, topics, tiers, forms), *notes],
        "restarts": list(restarts),
        "behind_by": behind,
        "unknown": list(unknown),
        "awaited": [],
        "retained_from": retained_json(retained or Retained()),
        "not_read": [],
        "deleted": [],
        "exit_status": status_of(totals, unknown),
    }
