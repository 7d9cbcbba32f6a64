"""Answers what the running service is asked: the summary, the cells, the metrics.

Reads the books, judges every cell by the clock, and builds JSON (docs/audit.md). Judging looks at
every open cell, so an answer is kept for a moment and given again.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.runtime.clock import Clock
from kafka2011.runtime.metrics import Answer
from kafka2011.services.audit.books.delays import DelaySummary
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.books.restarts import read_restarts
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.report import (
    Json,
    Line,
    judge_cells,
    line_json,
    status_of,
    topics_json,
    totals_json,
    verdict_counts,
)
from kafka2011.services.audit.verdicts import Restart, Verdict, is_excused, judge, settles_at_ms

KEPT_MS = 200
CELLS_DEFAULT = 1_000
CELLS_MAX = 10_000
TOPICS_MAX = 200
NOTES_SHOWN = 50
UNREAD_SHOWN = 50
SILENT_SHOWN = 200
PARAMETERS = {
    "topic", "server", "window_start_ms", "verdict", "newest", "final", "limit", "offset",
}  # fmt: skip


class Judged(NamedTuple):
    """All cells at one moment."""

    at_ms: int
    lines: list[Line]
    restarts: list[Restart]
    topics: dict[str, Json]
    totals: Json


class BadQuestion(ValueError):
    """A query that cannot be answered; the text says why."""


class AuditAnswers:
    """Answers over one set of books. Every method may be called from any thread."""

    def __init__(self, state: AuditState, config: AuditConfig, clock: Clock) -> None:
        self._state = state
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[bool, Judged] = {}

    # --- judging -----------------------------------------------------------------------------

    def judged(self, is_final: bool = False) -> Judged:
        """Every open cell judged now; with `is_final` as if all windows were over."""
        with self._lock:
            kept = self._kept.get(is_final)
            if kept is None or self._clock() - kept.at_ms >= KEPT_MS:
                kept = self._kept[is_final] = self._judge(is_final)
            return kept

    def _judge(self, is_final: bool) -> Judged:
        state, config = self._state, self._config
        tiers = state.ledger.tiers
        window_ms = state.ledger.window_ms
        with state.lock:  # one moment for the numbers and for how far they were read
            now_ms = self._clock()
            progress = [state.tier_view(tier).progress for tier in tiers]
            reports = state.reports_progress()
            cells = state.cells()
            folded = dict(state.ledger.folded)
        lateness = [config.lateness_of(tier) for tier in tiers]
        restarts = self._restarts()

        def judge_one(
            key: CellKey, index: int, expected: int, counted: int
        ) -> tuple[Verdict, None]:
            settles_ms = settles_at_ms(key.window_start_ms, window_ms, lateness[index])
            excused = is_excused(key.window_start_ms, restarts, config.redelivery_grace_ms)
            verdict = judge(
                expected,
                counted,
                settles_ms=0 if is_final else settles_ms,
                now_ms=now_ms,
                tier=progress[index],
                reports=reports,
                is_excused=excused or (config.redelivery_expected and key.window_start_ms >= 0),
            )
            return verdict, None

        lines = judge_cells(cells, tiers, judge_one, config.exempt)
        topics = topics_json(lines, tiers, folded)
        return Judged(now_ms, lines, restarts, topics, totals_json(topics, tiers))

    def _restarts(self) -> list[Restart]:
        try:
            return read_restarts(self._config.restarts_file)
        except ValueError as error:
            self._state.note(str(error))
            return []

    # --- pages -------------------------------------------------------------------------------

    def summary(self, is_final: bool = False) -> Json:
        """Totals, verdict counts, delays and lag by tier; a few kilobytes whatever happened."""
        judged = self.judged(is_final)
        state = self._state
        tiers: Json = {}
        for tier in state.ledger.tiers:
            view = state.tier_view(tier)
            total = judged.totals["tiers"][tier]
            with state.lock:
                delays = state.delays[tier].summary()
                recent = state.delays[tier].recent(judged.at_ms)
            tiers[tier] = {
                "count": total["counted"],
                **{name: value for name, value in total.items() if name != "counted"},
                "delay_p50_ms": delays.p50_ms,
                "delay_p99_ms": delays.p99_ms,
                "delay_p999_ms": delays.p999_ms,
                "delay_max_ms": delays.max_ms,
                "delay_count": delays.count,
                "recent": asdict(recent),
                "lateness_ms": self._config.lateness_of(tier),
                "lag_bytes": view.lag_bytes,
                "partitions": view.partitions,
                "caught_up": view.is_caught_up,
                "read_to_ms": view.progress.read_to_ms,
                "away": view.progress.away,
            }
        topics = dict(list(judged.topics.items())[:TOPICS_MAX])
        unequal = any(
            tier["missing"] or tier["extra"] or tier["pending_cells"]
            for tier in judged.totals["tiers"].values()
        )
        return {
            "source": "service",
            "now_ms": judged.at_ms,
            "final": is_final,
            "window_ms": state.ledger.window_ms,
            "produced": judged.totals["produced"],
            "produced_bytes": state.ledger.produced_bytes,
            "cells": judged.totals["cells"],
            "tiers": tiers,
            "verdicts": verdict_counts(judged.lines),
            "balanced": judged.totals["produced"] > 0 and not unequal,
            "exit_status": status_of(judged.totals),
            "topics": topics,
            "topics_left_out": max(0, len(judged.topics) - TOPICS_MAX),
            "notes": state.notes()[:NOTES_SHOWN],
            "unread": self._unread(),
            "unread_ranges": state.unread_count,
            "reports_rejected": state.reports_rejected,
            "silent": [
                {"tier": sender.tier, "server": sender.server, "since_ms": since_ms}
                for sender, since_ms in state.silent()[:SILENT_SHOWN]
            ],
            "restarts": [{"name": r.name, "time_ms": r.time_ms} for r in judged.restarts],
            "places": self._places(),
        }

    def _unread(self) -> list[Json]:
        with self._state.lock:
            newest = list(self._state.unread)[-UNREAD_SHOWN:]
        return [entry._asdict() for _, entry in newest]

    def _places(self) -> Json:
        """Where a recount finds the same messages."""
        config = self._config
        return {
            "live.zk.connect": config.live_zk_connect,
            "offline.zk.connect": config.offline_zk_connect,
            "event.forms": str(config.event_forms),
            "warehouse.dir": str(config.warehouse_dir.resolve()) if config.warehouse_dir else "",
            "address.map": ",".join(
                f"{a[0]}:{a[1]}={b[0]}:{b[1]}" for a, b in config.address_map.items()
            ),
            "audit.servers.whitelist": config.servers_whitelist,
            "audit.servers.blacklist": config.servers_blacklist,
        }

    def cells(self, query: Mapping[str, str]) -> Json:
        """The summary and the cells that `query` asks for.

        `topic`, `server`, `window_start_ms`: only those. `verdict`: cells with that state at some
        tier, or `incomplete` for all but complete ones. `newest`: of windows before that many only
        what is not complete. `final=1`. `limit` (1000, at most 10000) and `offset` for more.
        Raises BadQuestion.
        """
        unknown = set(query) - PARAMETERS
        if unknown:
            raise BadQuestion(f"unknown parameter {min(unknown)!r}")
        limit = min(_whole(query, "limit", CELLS_DEFAULT), CELLS_MAX)
        offset = _whole(query, "offset", 0)
        is_final = query.get("final", "0") == "1"
        wanted = [line for line in self.judged(is_final).lines if _matches(line, query)]
        if "newest" in query:
            wanted = _newest(wanted, _whole(query, "newest", 0))
        tiers = self._state.ledger.tiers
        shown = wanted[offset : offset + limit]
        return {
            **self.summary(is_final),
            "cells_found": len(wanted),
            "cells_left_out": max(0, len(wanted) - offset - len(shown)),
            "cell_list": [line_json(line, tiers) for line in shown],
        }

    # --- HTTP --------------------------------------------------------------------------------

    def pages(self) -> dict[str, Callable[[Mapping[str, str]], Answer]]:
        """Path -> function of the query."""
        return {
            "/audit": lambda query: _answer(lambda: self.cells(query)),
            "/audit/summary": lambda query: _answer(
                lambda: self.summary(query.get("final", "0") == "1")
            ),
        }


def _matches(line: Line, query: Mapping[str, str]) -> bool:
    if query.get("topic", line.key.topic) != line.key.topic:
        return False
    if query.get("server", line.key.server) != line.key.server:
        return False
    window = str(line.key.window_start_ms)
    if query.get("window_start_ms", window) != window:
        return False
    verdict = query.get("verdict")
    if verdict == "incomplete":
        return not line.is_complete
    return verdict is None or any(found.state == verdict for found in line.verdicts)


def _newest(lines: list[Line], count: int) -> list[Line]:
    """Those of the newest `count` windows, and those before that are not complete."""
    windows = sorted({line.key.window_start_ms for line in lines}, reverse=True)
    newest = set(windows[:count])
    return [line for line in lines if line.key.window_start_ms in newest or not line.is_complete]


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 9:
        raise BadQuestion(f"{name} must be a whole number")
    return int(text)


def _answer(make: Callable[[], Json]) -> Answer:
    try:
        return 200, "application/json", json.dumps(make()).encode() + b"\n"
    except BadQuestion as error:
        return 400, "application/json", json.dumps({"error": str(error)}).encode() + b"\n"


class AuditCollector(Collector):
    """The audit as Prometheus metrics, made at each scrape."""

    def __init__(self, answers: AuditAnswers) -> None:
        self._answers = answers

    def collect(self) -> Iterator[Metric]:
        summary = self._answers.summary()
        prefix = "kafka2011_audit_"
        produced = CounterMetricFamily(prefix + "produced_messages", "reported by producers")
        produced.add_metric((), summary["produced"])
        counted = CounterMetricFamily(
            prefix + "counted_messages", "read at the tier", labels=("tier",)
        )
        wrong = GaugeMetricFamily(
            prefix + "messages",
            "messages by verdict",
            labels=("tier", "topic", "verdict"),
        )
        pending = GaugeMetricFamily(prefix + "pending_cells", "cells to judge", labels=("tier",))
        delay = GaugeMetricFamily(
            prefix + "delay_seconds",
            "producer to tier, last one to two minutes",
            labels=("tier", "quantile"),
        )
        lag = GaugeMetricFamily(prefix + "lag_bytes", "not read yet", labels=("tier",))
        caught_up = GaugeMetricFamily(
            prefix + "caught_up", "1: all that is visible is counted", labels=("tier",)
        )
        for tier, told in summary["tiers"].items():
            counted.add_metric((tier,), told["count"])
            pending.add_metric((tier,), told["pending_cells"])
            lag.add_metric((tier,), told["lag_bytes"])
            caught_up.add_metric((tier,), float(told["caught_up"]))
            _add_delays(delay, tier, DelaySummary(**told["recent"]))
        for topic, told in summary["topics"].items():
            for tier, total in told["tiers"].items():
                for verdict in ("missing", "extra", "redelivered"):
                    wrong.add_metric((tier, topic, verdict), total[verdict])
        cells = GaugeMetricFamily(prefix + "cells", "cells by verdict", labels=("verdict",))
        for verdict, count in summary["verdicts"].items():
            cells.add_metric((verdict,), count)
        unread = CounterMetricFamily(prefix + "unread_ranges", "passed over unread")
        unread.add_metric((), summary["unread_ranges"])
        rejected = CounterMetricFamily(prefix + "rejected_reports", "not monitoring events")
        rejected.add_metric((), summary["reports_rejected"])
        silent = GaugeMetricFamily(
            prefix + "server_silent_seconds",
            "since the last heartbeat of a server that missed several",
            labels=("tier", "server"),
        )
        for sender in summary["silent"]:
            silent_s = max(0, summary["now_ms"] - sender["since_ms"]) / 1000
            silent.add_metric((sender["tier"], sender["server"]), silent_s)
        balances = GaugeMetricFamily(prefix + "balances", "1: nothing is missing or extra")
        balances.add_metric((), 1.0 - summary["exit_status"])
        return iter(
            (
                produced,
                counted,
                wrong,
                pending,
                delay,
                lag,
                caught_up,
                cells,
                unread,
                rejected,
                silent,
                balances,
            )
        )


def _add_delays(family: GaugeMetricFamily, tier: str, delays: DelaySummary) -> None:
    for quantile, value_ms in (
        ("0.5", delays.p50_ms),
        ("0.99", delays.p99_ms),
        ("0.999", delays.p999_ms),
    ):
        if value_ms is not None:
            family.add_metric((tier, quantile), value_ms / 1000)
