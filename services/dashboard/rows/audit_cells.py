"""The audit as rows: its cells, the tiers' totals, their rates and delays. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka2011.services.dashboard.rows.groups import AddEvent
from kafka2011.services.dashboard.rows.history import History, rounded
from kafka2011.services.dashboard.sampling.observations import Rows
from kafka2011.services.rates import MessageRates

SERIES_STEP_MS = 2_000
SHOWN = (
    "produced", "produced_bytes", "cells", "tiers", "verdicts", "balanced", "window_ms",
    "notes", "restarts", "unread_ranges", "topics", "topics_left_out", "silent",
    "unknown", "awaited", "losses", "unread", "deleted", "retained_from", "now_ms",
    "reports_caught_up", "reports_read_to_ms",
)  # fmt: skip

WORSE = (
    "not audited", "complete", "redelivered", "pending", "behind", "extra", "unknown", "missing",
)  # fmt: skip
NUMBERS = {  # as the page names them, by the audit's names
    "counted": "counted", "expected": "expected", "missing": "missing", "unknown": "unknown",
    "behind": "behind", "extra": "extra", "redelivered": "again",
}  # fmt: skip
WINDOWS_SHOWN = 60


class AuditRows:
    """Rates and delays over time, and what was missing last; `add_event` receives the events."""

    def __init__(self, history_ms: int, add_event: AddEvent) -> None:
        self._history_ms = history_ms
        self._add_event = add_event
        self._missing: dict[str, int] = {}
        self._silent: set[str] = set()
        self._answer: Mapping[str, Any] | None = None
        self._rows: Rows = {}
        self.begin()

    def begin(self) -> None:
        """Make the rates and the lines over time empty."""
        self._rates = MessageRates()
        self.latency = History(self._history_ms, SERIES_STEP_MS)
        self.flow = History(self._history_ms, SERIES_STEP_MS)

    def rows(self, audit: Mapping[str, Any] | None, now_ms: int, unheard_since_ms: int = 0) -> Rows:
        """The summary, measured once per answer: the same answer again is no new measurement. While
        the audit does not answer (`unheard_since_ms`) the last summary stays, without rates."""
        if audit is not None and audit is not self._answer:
            self._answer = audit
            self._rows = {"summary": self._summary(audit, now_ms)}
        if unheard_since_ms and self._rows:
            rates = dict.fromkeys(self._rows["summary"]["rates"])
            outdated = {"rates": rates, "unheard_since_ms": unheard_since_ms}
            return {"summary": self._rows["summary"] | outdated}
        return self._rows

    def _summary(self, audit: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        tiers: dict[str, Any] = audit["tiers"]
        self.latency.note(
            now_ms,
            {
                f"{tier}_{name}": found.get("recent", {}).get(f"{name}_ms")
                for tier, found in tiers.items()
                for name in ("p50", "p99", "p999")
            },
        )
        rates = {name: rounded(rate) for name, rate in self._rates.note(audit).items()}
        self.flow.note(now_ms, rates)
        for tier, found in tiers.items():
            self._note_missing(tier, found, now_ms)
        self._note_silent(audit.get("silent") or [], now_ms)
        return {name: audit.get(name) for name in SHOWN} | {"rates": rates}

    def _note_silent(self, silent: Sequence[Mapping[str, Any]], now_ms: int) -> None:
        """Add events for changes in `silent`: servers whose heartbeats stopped with no goodbye."""
        names = {f"{sender['server']} ({sender['tier']})" for sender in silent}
        for name in sorted(names - self._silent):
            self._add_event(now_ms, "bad", "audit", f"server {name} fell silent: no heartbeat")
        for name in sorted(self._silent - names):
            self._add_event(now_ms, "good", "audit", f"server {name} sends heartbeats again")
        self._silent = names

    def _note_missing(self, tier: str, sums: Mapping[str, Any], now_ms: int) -> None:
        missing, unknown = int(sums.get("missing", 0)), int(sums.get("unknown", 0))
        before = self._missing.get(tier, 0)
        self._missing[tier] = missing
        if missing > before:
            self._add_event(now_ms, "bad", "audit", f"{missing:,} messages missing in {tier}")
        elif missing < before:
            left = f"{missing:,} messages still missing" if missing else "nothing missing any more"
            # What was missing may only have become unknown.
            kind, more = ("warn", f", {unknown:,} unknown") if unknown else ("good", "")
            self._add_event(now_ms, kind, "audit", f"{left} in {tier}{more}")


def whole_windows(cells: list[dict[str, Any]], left_out: int) -> tuple[list[dict[str, Any]], int]:
    """The cells, given newest window first, and how many are left out. If some already were, the
    last window is left out, too: sums over a part of its servers would be wrong."""
    if left_out and cells[0]["window_start_ms"] != cells[-1]["window_start_ms"]:
        whole = [one for one in cells if one["window_start_ms"] != cells[-1]["window_start_ms"]]
        return whole, left_out + len(cells) - len(whole)
    return cells, left_out


def cell_rows(cells: list[dict[str, Any]]) -> Rows:
    """The audit's cells (topic, window, server) as one row per topic and window.

    Each tier gets the worst verdict of its servers and the sums of their numbers. Of windows older
    than the newest WINDOWS_SHOWN, complete cells are left out.
    """
    newest = set(sorted({cell["window_start_ms"] for cell in cells})[-WINDOWS_SHOWN:])
    rows: Rows = {}
    for cell in cells:
        if cell["window_start_ms"] not in newest and cell.get("complete"):
            continue
        row = rows.setdefault(
            f"{cell['topic']}|{cell['window_start_ms']}",
            {
                "topic": cell["topic"],
                "window": cell["window_start_ms"],
                "produced": 0,
                "servers": 0,
                "tiers": {},
            },
        )
        row["produced"] += cell.get("produced", 0)
        row["servers"] += 1
        for tier, found in cell.get("tiers", {}).items():
            state = found.get("state", "pending")
            merged = row["tiers"].setdefault(
                tier,
                {"state": state, **dict.fromkeys(NUMBERS.values(), 0)},
            )
            for source, name in NUMBERS.items():
                merged[name] += found.get(source) or 0
            if _badness(state) > _badness(merged["state"]):
                merged["state"] = state
    return rows


def _badness(state: str) -> int:
    return WORSE.index(state) if state in WORSE else WORSE.index("pending")
