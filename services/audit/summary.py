"""The running service's summary and its list of cells as JSON (docs/audit.md describes the fields).

The open cells are judged by the clock (`judging`); the result is kept for `KEPT_MS`.
"""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from kafka2011.runtime.clock import Clock
from kafka2011.services.audit.books.progress import UNREAD_MAX, TierProgress
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.judging import MIRRORED, Judged, Judging
from kafka2011.services.audit.losses import losses_of, unread_text
from kafka2011.services.audit.report import (
    KEPT_MS,
    PART_COMPLETE,
    Json,
    JudgedCell,
    behind_by,
    cell_json,
    retained_json,
    status_of,
    topics_json,
    totals_json,
    unreadable_notes,
    verdict_counts,
)
from kafka2011.services.audit.restarts import Restart, read_restarts
from kafka2011.services.audit.verdicts import UNREADABLE_WINDOW

TOPICS_MAX = 200
NOTES_SHOWN = 50
UNREAD_SHOWN = 50
SILENT_SHOWN = 200
AHEAD_MS = 60_000  # a window that begins later is of a clock that is ahead
NAMES_SHOWN = 5
NAME_CHARACTERS = 60


class Moment(NamedTuple):
    """All cells at one moment."""

    at_ms: int
    cells: Judged
    restarts: list[Restart]
    topics: dict[str, Json]
    totals: Json
    behind: dict[str, Json]  # by tier
    retained: list[Json]


@dataclass(frozen=True, kw_only=True)
class CellSelection:
    """Which cells to list; None selects all.

    `verdict`: cells with that state at some tier, or `incomplete` for all but complete ones.
    `newest`: that many windows; of older ones only incomplete cells, and none of the future.
    `is_final`: judge windows that are still open, too.
    """

    topic: str | None = None
    server: str | None = None
    window_start_ms: str | None = None
    verdict: str | None = None
    newest: int | None = None
    is_final: bool = False
    limit: int = 1_000
    offset: int = 0

    @property
    def names_cells(self) -> bool:
        """Whether it selects only some of the cells of its windows."""
        return any((self.topic, self.server, self.window_start_ms, self.verdict))

    def has(self, line: JudgedCell) -> bool:
        key = line.key
        for wanted, found in (
            (self.topic, key.topic),
            (self.server, key.server),
            (self.window_start_ms, str(key.window_start_ms)),
        ):
            if wanted is not None and wanted != found:
                return False
        if self.verdict == "incomplete":
            return not line.is_complete
        return self.verdict is None or any(v.state == self.verdict for v in line.verdicts)


class AuditSummary:
    """Judges one set of books. Every method may be called from any thread."""

    def __init__(self, state: AuditState, config: AuditConfig, clock: Clock) -> None:
        self._state = state
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._judging = {
            is_final: Judging(state, config, is_final=is_final) for is_final in (False, True)
        }
        self._kept: dict[bool, Moment] = {}

    # --- judging -----------------------------------------------------------------------------

    def judged(self, is_final: bool = False) -> Moment:
        """Every open cell judged now; with `is_final` as if all windows were over.

        However many ask while one judgement is made, and however long that takes, one more serves
        them all: *now* is when each asked, not when its turn came.
        """
        asked_ms = self._clock()
        with self._lock:
            kept = self._kept.get(is_final)
            if kept is None or not asked_ms - KEPT_MS < kept.at_ms <= self._clock():
                kept = self._kept[is_final] = self._judge(is_final)
            return kept

    def _judge(self, is_final: bool) -> Moment:
        ledger = self._state.ledger
        restarts = self._restarts()
        found = self._judging[is_final].judged(restarts)
        topics = topics_json(found.sums, ledger.tiers, found.folded, ledger.exempt)
        behind = behind_by(ledger.tiers, found.sums, ledger.window_ms, found.at_ms, found.backlogs)
        totals = totals_json(topics, ledger.tiers)
        with self._state.lock:
            retained = retained_json(ledger.retained)
        return Moment(found.at_ms, found, restarts, topics, totals, behind, retained)

    def _restarts(self) -> list[Restart]:
        found = self._state.reports.restarts()
        try:
            found += read_restarts(self._config.restarts_file)
        except ValueError as error:
            self._state.note(str(error))
        return sorted(found, key=lambda restart: restart.time_ms)

    # --- JSON --------------------------------------------------------------------------------

    def summary(self, is_final: bool = False, topic: str | None = None) -> Json:
        """Totals, verdict counts, delays and lag by tier; a few kilobytes whatever happened.

        Has the sums of TOPICS_MAX topics, first those in which something is wrong, then those in
        which something is open, and of `topic`.
        """
        return self._summary(self.judged(is_final), is_final, topic)

    def _summary(self, judged: Moment, is_final: bool, topic: str | None) -> Json:
        state = self._state
        tiers = {tier: self._tier(tier, judged) for tier in state.ledger.tiers}
        topics = self._topics(judged, topic)
        reports = state.reports.progress()
        unknown = judged.cells.unknown
        unread, deleted = self._unread(), self._deleted()
        elections = [
            {"tier": tier, "time_ms": election.at_ms, "reason": election.reason}
            for tier, election in state.elections().items()
        ]
        losses = losses_of(
            judged.topics, unread=unread, deleted=deleted, unclean_elections=elections
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
            "verdicts": verdict_counts(judged.topics.values()),
            "reports_caught_up": reports.is_caught_up,
            "reports_read_to_ms": reports.read_to_ms,
            "balanced": _is_balanced(judged, tiers, reports),
            "exit_status": status_of(judged.totals, unknown),
            "unknown": unknown[:UNREAD_SHOWN],
            "unknown_left_out": sum(each.get("gaps", 1) for each in unknown[UNREAD_SHOWN:]),
            "awaited": judged.cells.awaited[:UNREAD_SHOWN],
            "retained_from": judged.retained,
            "deleted": deleted[:UNREAD_SHOWN],
            "losses": losses,
            "topics": topics,
            "topics_left_out": len(judged.topics) - len(topics),
            "totals": judged.totals,
            "notes": self._notes(judged),
            "unread": [each | {"what": unread_text(each)} for each in unread[-UNREAD_SHOWN:]],
            "unread_ranges": state.progress.unread_count,
            "reports_rejected": state.reports.rejected,
            "silent": [
                {"tier": sender.tier, "server": sender.server, "since_ms": since_ms}
                for sender, since_ms in state.reports.silent()[:SILENT_SHOWN]
            ],
            "unclean_elections": elections,
            "restarts": [{"name": r.name, "time_ms": r.time_ms} for r in judged.restarts],
            "places": self._places(),
        }

    def _tier(self, tier: str, judged: Moment) -> Json:
        """The sums, delays and lag of one tier."""
        state = self._state
        progress = state.progress_of(tier)
        total = judged.totals["tiers"][tier]
        with state.lock:
            delays = state.delays[tier].summary()
            recent = state.delays[tier].recent(judged.at_ms)
        return {
            "count": total["counted"],
            **{name: value for name, value in total.items() if name != "counted"},
            "behind_by": judged.behind[tier],
            "delay_p50_ms": delays.p50_ms,
            "delay_p99_ms": delays.p99_ms,
            "delay_p999_ms": delays.p999_ms,
            "delay_max_ms": delays.max_ms,
            "delay_count": delays.count,
            "recent": asdict(recent),
            "lateness_ms": self._config.lateness_of(tier),
            "lag_bytes": progress.lag_bytes,
            "partitions": progress.partitions,
            "caught_up": progress.is_caught_up and not progress.unreachable,
            "read_to_ms": progress.read_to_ms,
            "away": progress.unreachable,
        }

    def _topics(self, judged: Moment, topic: str | None) -> dict[str, Json]:
        """The sums and lags of the topics that are shown, `topic` among them."""
        by_need = sorted(judged.topics, key=lambda name: (_need(judged.topics[name]), name))
        shown = {*by_need[:TOPICS_MAX], *({topic} & judged.topics.keys())}
        with self._state.lock:
            lags = self._state.progress.lags_bytes()
        return {
            name: found | {"lag_bytes": lags.get(name, {})}
            for name, found in judged.topics.items()
            if name in shown
        }

    def _notes(self, judged: Moment) -> list[str]:
        return [
            *self._unreadable(judged),
            *self._unfollowed(judged.cells),
            *_ahead(judged.cells),
            *self._state.notes(),
        ][:NOTES_SHOWN]

    def _unreadable(self, judged: Moment) -> list[str]:
        found = judged.cells.windows.get(UNREADABLE_WINDOW)
        lines = found.lines if found else []
        return unreadable_notes(lines, judged.topics, self._state.ledger.tiers, self._config.forms)

    def _unfollowed(self, judged: Judged) -> list[str]:
        """A note on topics whose mirror is not the one that is asked, if there are any."""
        topics = sorted(judged.unfollowed)
        if not topics:
            return []
        more = f" and {len(topics) - NAMES_SHOWN} more" if len(topics) > NAMES_SHOWN else ""
        what = "that topic" if len(topics) == 1 else "these topics"
        return [
            f"messages of {', '.join(topics[:NAMES_SHOWN])}{more} arrive at {MIRRORED}, but "
            f"consumer group {self._config.mirror_group} (audit.mirror.group) has no offset of "
            f"{what} at live: how far {MIRRORED} has come is not known"
        ]

    def _unread(self) -> list[Json]:
        """All ranges that are kept, oldest first."""
        with self._state.lock:
            kept = self._state.progress.newest_unread(2 * UNREAD_MAX)
        return [entry._asdict() for entry in kept]

    def _deleted(self) -> list[Json]:
        """Ranges that a tier deleted before the next had confirmed them."""
        with self._state.lock:
            found = self._state.passages.deleted()
        return [
            {
                "tier": each.tier,
                "source": each.source.tier,
                "topic": each.source.topic,
                "place": each.source.place,
                "first": each.first,
                "last": each.last,
                "what": each.what,
            }
            for each in found
        ]

    def _places(self) -> Json:
        """The settings with which a recount reads the same messages."""
        config = self._config
        return {
            "live.zk.connect": config.live_zk_connect,
            "offline.zk.connect": config.offline_zk_connect,
            **config.forms.settings(),
            "warehouse.dir": str(config.warehouse_dir.resolve()) if config.warehouse_dir else "",
            "address.map": ",".join(
                f"{a[0]}:{a[1]}={b[0]}:{b[1]}" for a, b in config.address_map.items()
            ),
            "audit.mirror.group": config.mirror_group,
            "audit.servers.whitelist": config.servers_whitelist,
            "audit.servers.blacklist": config.servers_blacklist,
        }

    def cells(self, selection: CellSelection) -> Json:
        """The summary and the selected cells, of one moment."""
        judged = self.judged(selection.is_final)
        wanted = _selected(judged.cells, selection)
        tiers = self._state.ledger.tiers
        shown = wanted[selection.offset : selection.offset + selection.limit]
        return {
            **self._summary(judged, selection.is_final, selection.topic),
            "cells_found": len(wanted),
            "cells_left_out": max(0, len(wanted) - selection.offset - len(shown)),
            "cell_list": [cell_json(line, tiers) for line in shown],
        }


def _is_balanced(judged: Moment, tiers: Mapping[str, Json], reports: TierProgress) -> bool:
    """Whether something was produced, all of it is complete or redelivered, no gap is open or
    awaited, and everything is read."""
    is_read = reports.is_caught_up and not reports.unreachable
    is_read = is_read and all(each["caught_up"] for each in tiers.values())
    unequal = any(
        tier[name]
        for tier in judged.totals["tiers"].values()
        for name in (
            *("missing", "behind", "extra"),
            *("unknown_cells", "pending_cells", "not_audited_cells"),
        )
    )
    is_open = unequal or judged.cells.unknown or judged.cells.awaited
    return judged.totals["produced"] > 0 and is_read and not is_open


def _need(topic: Json) -> int:
    """The rank of a topic among those that are listed: 0 if something is wrong, 1 if open."""
    tiers = topic["tiers"].values()
    if any(tier[name] for tier in tiers for name in ("missing", "unknown_cells", "extra")):
        return 0
    quiet = ("complete", "not audited", PART_COMPLETE)
    return 2 if all(tier["verdict"] in quiet for tier in tiers) else 1


def _ahead(judged: Judged) -> list[str]:
    """A note on windows of the future, if there are any."""
    ahead = [start_ms for start_ms in judged.windows if start_ms > judged.at_ms + AHEAD_MS]
    if not ahead:
        return []
    lines = (line for start_ms in ahead for line in judged.windows[start_ms].lines)
    servers = sorted({line.key.server[:NAME_CHARACTERS] for line in lines})
    more = f" and {len(servers) - NAMES_SHOWN} more" if len(servers) > NAMES_SHOWN else ""
    windows = "1 window begins" if len(ahead) == 1 else f"{len(ahead)} windows begin"
    return [
        f"{windows} more than a minute from now, by the clock of "
        f"{', '.join(servers[:NAMES_SHOWN])}{more}: pending until then"
    ]


def _selected(judged: Judged, selection: CellSelection) -> list[JudgedCell]:
    """The selected cells by topic, window and server; with `newest` those of the newest windows
    that have any, and the incomplete ones of older windows, newest window first, and none of the
    future, which would hide the present ones."""
    found: list[JudgedCell] = []
    windows = 0
    for start_ms, window in sorted(judged.windows.items(), reverse=True):
        if selection.newest is not None and start_ms > judged.at_ms + AHEAD_MS:
            continue
        is_old = selection.newest is not None and windows >= selection.newest
        lines = window.incomplete if is_old else window.lines
        if selection.names_cells:
            lines = [line for line in lines if selection.has(line)]
        windows += bool(lines)
        found += lines
    if selection.newest is None:
        return sorted(found, key=lambda line: line.key)
    return sorted(found, key=lambda line: (-line.key.window_start_ms, line.key))
