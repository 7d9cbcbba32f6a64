"""Judged cells and their sums as JSON, in one form for the running service and the recount.

Pure. `kafka2011 audit --json` prints it, its table and the dashboard are made from it.
docs/audit.md describes the fields.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka2011.events.sequences import Gap
from kafka2011.services.audit.books.ledger import Cell, CellKey, FoldedTotals, Instance
from kafka2011.services.audit.books.passage import Backlog
from kafka2011.services.audit.books.progress import UnreadRange
from kafka2011.services.audit.verdicts import NUMBERS, STATES, GuidCounts, Verdict

Json = dict[str, Any]


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

NOT_AUDITED = Verdict("not audited", reason="no producer reports this topic")


def judge_cells(
    cells: Mapping[CellKey, Cell],
    tiers: Sequence[str],
    judge: Judge,
    exempt: Iterable[tuple[str, str]] = (),
    folded: Mapping[tuple[str, str], FoldedTotals] | None = None,
) -> list[JudgedCell]:
    """Every cell judged, ordered by topic, window and server.

    Topics of which no producer has reported anything are not audited.
    """
    excused = set(exempt)
    reported = {key.topic for key, cell in cells.items() if any(cell.produced)}
    reported |= {topic for (_, topic), old in (folded or {}).items() if old.produced}
    lines = []
    for key, cell in sorted(cells.items()):
        parts: list[JudgedTier | None] = []
        verdicts = judge(key, cell)
        for tier, expected, counted, (verdict, found) in zip(
            tiers, cell.expected, cell.counted, verdicts, strict=True
        ):
            if (tier, key.topic) in excused:
                parts.append(None)
                continue
            is_audited = key.topic in reported or verdict.state == "pending"
            shown = verdict if is_audited else NOT_AUDITED
            parts.append(JudgedTier(expected, counted, shown, found))
        lines.append(JudgedCell(key, sum(cell.produced), tuple(parts)))
    return lines


def cell_json(line: JudgedCell, tiers: Sequence[str]) -> Json:
    """One cell."""
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
    return {
        "topic": line.key.topic,
        "window_start_ms": line.key.window_start_ms,
        "server": line.key.server,
        "produced": line.produced,
        "complete": line.is_complete,
        "tiers": found_tiers,
    }


def _empty_sum() -> Json:
    return {
        "expected": 0,
        "counted": 0,
        **dict.fromkeys(NUMBERS, 0),
        "unreported": 0,
        "pending_cells": 0,
        "unknown_cells": 0,
    }


def _add(into: Json, part: JudgedTier) -> None:
    into["expected"] += part.expected
    into["counted"] += part.counted
    for name in NUMBERS:
        into[name] += getattr(part.verdict, name)
    into["unknown_cells"] += part.verdict.state == "unknown" or part.verdict.unknown > 0
    if part.verdict.state == "pending":
        into["pending_cells"] += 1
        into["unreported"] += max(0, part.counted - part.expected)


def sum_text(total: Json) -> str:
    """The verdict on a sum of cells."""
    parts = [f"{name} {total[name]}" for name in NUMBERS if total[name]]
    if total["unknown_cells"] and not total["unknown"]:
        parts.append("unknown")
    if total["pending_cells"]:
        parts.append("pending")
    return ", ".join(parts) or "complete"


def topics_json(
    lines: Sequence[JudgedCell],
    tiers: Sequence[str],
    folded: Mapping[tuple[str, str], FoldedTotals] | None = None,
) -> dict[str, Json]:
    """Sums by topic, folded windows included, and their verdict.

    `is_audited` is false for topics that no producer has reported anything of: they are counted,
    and the audit says nothing of them.
    """
    found: dict[str, Json] = {}

    def topic_of(name: str) -> Json:
        return found.setdefault(name, {"cells": 0, "produced": 0, "tiers": {}})

    for line in lines:
        topic = topic_of(line.key.topic)
        topic["cells"] += 1
        topic["produced"] += line.produced
        for tier, part in zip(tiers, line.tiers, strict=True):
            if part is not None:
                _add(topic["tiers"].setdefault(tier, _empty_sum()), part)
    for (tier, name), old in (folded or {}).items():
        topic = topic_of(name)
        topic["produced"] += old.produced
        if tier == tiers[0]:
            topic["cells"] += old.cells
        total = topic["tiers"].setdefault(tier, _empty_sum())
        for field in ("expected", "counted", "missing", "extra", "redelivered"):
            total[field] += getattr(old, field)
    waiting = {
        line.key.topic for line in lines if any(each.state == "pending" for each in line.verdicts)
    }
    for name, topic in found.items():
        topic["is_audited"] = topic["produced"] > 0 or name in waiting
        for total in topic["tiers"].values():
            if not topic["is_audited"]:
                total.update(dict.fromkeys(NUMBERS, 0))
            total["verdict"] = sum_text(total) if topic["is_audited"] else "not audited"
    return dict(sorted(found.items()))


def totals_json(topics: Mapping[str, Json], tiers: Sequence[str]) -> Json:
    """Sums over all topics that are audited; `counted` over the others, too (`not_audited`)."""
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
        total["verdict"] = sum_text(total)
        totals["tiers"][tier] = total
    return totals


def verdict_counts(lines: Iterable[JudgedCell]) -> dict[str, int]:
    """Number of (cell, tier) pairs by state."""
    counts: dict[str, int] = dict.fromkeys(STATES, 0)
    for line in lines:
        for verdict in line.verdicts:
            counts[verdict.state] += 1
    return counts


def status_of(totals: Json, unknown: Sequence[Json] = ()) -> int:
    """The exit status: 0 when nothing is missing, extra or unknown, else 1.

    Pending cells, redelivered messages and tiers that are behind do not count. `unknown` are gaps
    that concern no cell, or any.
    """
    bad = sum(
        tier["missing"] + tier["extra"] + tier["unknown_cells"] for tier in totals["tiers"].values()
    )
    return 1 if bad or unknown else 0


def unknown_json(
    gaps: Iterable[tuple[Instance, Gap]], lost_logs: Iterable[UnreadRange] = ()
) -> list[Json]:
    """What nothing can be said of: monitoring events and ends of logs that were not read.

    `after_ms` and `before_ms` bound the times of the messages that may be concerned.
    """
    found = [
        {
            "what": f"monitoring events {_range_text(gap)} of {instance.server} "
            f"({instance.instance}) have not been read",
            "server": instance.server,
            "instance": instance.instance,
            "first": gap.first,
            "last": gap.last,
            "after_ms": gap.after_ms,
            "before_ms": gap.before_ms,
        }
        for instance, gap in gaps
    ]
    found += [
        {
            "what": f"{lost.tier} {lost.topic} {lost.place} was lost behind offset {lost.first}",
            "tier": lost.tier,
            "topic": lost.topic,
            "place": lost.place,
            "first": lost.first,
            "before_ms": lost.time_ms,
        }
        for lost in lost_logs
    ]
    return found


def _range_text(gap: Gap) -> str:
    return str(gap.first) if gap.first == gap.last else f"{gap.first} to {gap.last}"


def is_in_gap(key: CellKey, window_ms: int, unknown: Iterable[Json]) -> bool:
    """Whether a monitoring event that was not read may have counted messages of the cell.

    It counts what was confirmed since the one before, made up to a window earlier.
    """
    return any(
        gap.get("server") == key.server
        and key.window_start_ms + 2 * window_ms > gap["after_ms"]
        and 0 <= key.window_start_ms <= gap["before_ms"]
        for gap in unknown
    )


def behind_json(
    index: int, lines: Iterable[JudgedCell], backlog: Backlog, window_ms: int, now_ms: int
) -> Json:
    """How far the tier of that index is behind: messages, bytes in the tier before, and the age of
    the oldest, ms."""
    messages, oldest_ms = 0, backlog.since_ms or now_ms
    for line in lines:
        tier = line.tiers[index]
        late = tier.verdict.behind if tier is not None else 0
        if late and line.key.window_start_ms >= 0:
            messages += late
            oldest_ms = min(oldest_ms, line.key.window_start_ms + window_ms)
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
) -> Json:
    """The whole report of a recount."""
    topics = topics_json(lines, tiers)
    behind = {
        tier: behind_json(index, lines, Backlog(), window_ms, now_ms)
        for index, tier in enumerate(tiers)
    }
    totals = totals_json(topics, tiers)
    return {
        "source": source,
        "now_ms": now_ms,
        "window_ms": window_ms,
        "tiers": list(tiers),
        "topics": topics,
        "totals": totals,
        "verdicts": verdict_counts(lines),
        "cells": [cell_json(line, tiers) for line in lines],
        "notes": list(notes),
        "restarts": list(restarts),
        "behind_by": behind,
        "unknown": list(unknown),
        "deleted": [],
        "exit_status": status_of(totals, unknown),
    }
