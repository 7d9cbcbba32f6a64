"""Judged cells and their sums as JSON, in one form for the running service and the recount.

Pure. `kafka2011 audit --json` prints it, its table and the dashboard are made from it.
docs/audit.md describes the fields.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka2011.services.audit.books.ledger import Cell, CellKey, FoldedTotals
from kafka2011.services.audit.verdicts import STATES, GuidCounts, Verdict

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
        return all(tier is None or tier.verdict.state == "complete" for tier in self.tiers)

    @property
    def verdicts(self) -> list[Verdict]:
        return [tier.verdict for tier in self.tiers if tier is not None]


# (key, index of the tier, expected, counted) -> verdict, with the counts by guid where compared
Judge = Callable[[CellKey, int, int, int], tuple[Verdict, GuidCounts | None]]


def judge_cells(
    cells: Mapping[CellKey, Cell],
    tiers: Sequence[str],
    judge: Judge,
    exempt: Iterable[tuple[str, str]] = (),
) -> list[JudgedCell]:
    """Every cell judged, ordered by topic, window and server."""
    excused = set(exempt)
    lines = []
    for key, cell in sorted(cells.items()):
        parts: list[JudgedTier | None] = []
        for index, expected in enumerate(cell.expected):
            if (tiers[index], key.topic) in excused:
                parts.append(None)
                continue
            counted = cell.counted[index]
            verdict, found = judge(key, index, expected, counted)
            parts.append(JudgedTier(expected, counted, verdict, found))
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
        "missing": 0,
        "extra": 0,
        "redelivered": 0,
        "pending_cells": 0,
    }


def _add(into: Json, part: JudgedTier) -> None:
    into["expected"] += part.expected
    into["counted"] += part.counted
    for name in ("missing", "extra", "redelivered"):
        into[name] += getattr(part.verdict, name)
    into["pending_cells"] += part.verdict.state == "pending"


def sum_text(total: Json) -> str:
    """The verdict on a sum of cells."""
    parts = [f"{name} {total[name]}" for name in ("missing", "extra", "redelivered") if total[name]]
    if total["pending_cells"]:
        parts.append(f"pending {total['expected'] - total['counted']:+d}" if parts else "pending")
    return ", ".join(parts) or "complete"


def topics_json(
    lines: Sequence[JudgedCell],
    tiers: Sequence[str],
    folded: Mapping[tuple[str, str], FoldedTotals] | None = None,
) -> dict[str, Json]:
    """Sums by topic, folded windows included, and their verdict."""
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
    for topic in found.values():
        for total in topic["tiers"].values():
            total["verdict"] = sum_text(total)
    return dict(sorted(found.items()))


def totals_json(topics: Mapping[str, Json], tiers: Sequence[str]) -> Json:
    """Sums over all topics."""
    totals: Json = {
        "cells": sum(topic["cells"] for topic in topics.values()),
        "produced": sum(topic["produced"] for topic in topics.values()),
        "tiers": {},
    }
    for tier in tiers:
        total = _empty_sum()
        for topic in topics.values():
            for name in total:
                total[name] += topic["tiers"].get(tier, {}).get(name, 0)
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


def status_of(totals: Json) -> int:
    """The exit status: 0 when nothing is missing or extra, else 1. Pending cells and redelivered
    messages do not count."""
    bad = sum(tier["missing"] + tier["extra"] for tier in totals["tiers"].values())
    return 1 if bad else 0


def report_json(
    lines: Sequence[JudgedCell],
    tiers: Sequence[str],
    *,
    source: str,
    window_ms: int,
    now_ms: int,
    notes: Sequence[str] = (),
    restarts: Sequence[Json] = (),
    folded: Mapping[tuple[str, str], FoldedTotals] | None = None,
    shown: Sequence[JudgedCell] | None = None,
) -> Json:
    """The whole report; `shown` are the cells to list (default: all of `lines`)."""
    listed = lines if shown is None else shown
    topics = topics_json(lines, tiers, folded)
    totals = totals_json(topics, tiers)
    return {
        "source": source,
        "now_ms": now_ms,
        "window_ms": window_ms,
        "tiers": list(tiers),
        "topics": topics,
        "totals": totals,
        "verdicts": verdict_counts(lines),
        "cells": [cell_json(line, tiers) for line in listed],
        "notes": list(notes),
        "restarts": list(restarts),
        "exit_status": status_of(totals),
    }
