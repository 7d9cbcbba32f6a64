"""Judges the open cells of the running service, window by window, and keeps what cannot change.

Once a window is over, passed by every tier and completely read, its verdicts change only with its
cells, or with what is true of the whole audit. Such a window is kept with its sums and not judged
again: a query costs in proportion to the windows that still change.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import add
from typing import NamedTuple

from kafka2011.consumer.counting.verdicts import REPORTS_BEHIND
from kafka2011.events.topics import AUDIT
from kafka2011.services.audit.books.heartbeats import Beat
from kafka2011.services.audit.books.ledger import Cell, CellKey, FoldedTotals
from kafka2011.services.audit.books.passage import Backlog, Passage, TopicWindow
from kafka2011.services.audit.books.progress import TABLE, WAREHOUSE, Doubt, TierProgress
from kafka2011.services.audit.books.retained import LogName, Retained
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.report import (
    Json,
    JudgedCell,
    Sums,
    is_in_gap,
    judge_cells,
    reported_topics,
    unknown_json,
)
from kafka2011.services.audit.restarts import Restart, excused_up_to_ms
from kafka2011.services.audit.verdicts import (
    UNREADABLE_WINDOW,
    TierView,
    Verdict,
    doubted,
    judge,
    settles_at_ms,
)

MIRRORED = "offline"  # the tier that a mirror fills

Changes = tuple[int, int | None]  # the last of a window's cells, and of their offsets


class Basis(NamedTuple):
    """What the verdicts of every window depend on besides its own cells."""

    went_back: int  # of the passages
    troubles: tuple[tuple[str, str], ...]  # of each tier: what is unreachable, what was lost
    reports: str  # what is unreachable of the monitoring events
    unknown: list[Json]
    awaited: list[Json]
    reported: frozenset[str]
    retained: tuple[tuple[LogName, int], ...]
    registered: frozenset[tuple[str, str]]  # (tier, topic) of which a partition is known
    doubts: dict[tuple[str, str], list[Doubt]]  # by tier and topic


class Reading(NamedTuple):
    """The moment of a judgement: how far each tier and the reports are read, until when what was
    redelivered is excused, how far each tier has taken the windows that are judged, the last
    heartbeats of each server whose messages are more than it reported (`AuditState.beats`), and the
    topics that are mirrored by another group than the one that is asked."""

    now_ms: int
    progress: list[TierProgress]
    reports: TierProgress
    excused_ms: int
    passages: dict[TopicWindow, list[Passage]]
    beats: dict[str, list[Beat | None]]
    unfollowed: frozenset[str]


class Look(NamedTuple):
    """What is judged of the books at one moment: the cells that are not kept, and by which each of
    their windows is known to be judged for good: its `changes`, none of `moving` (their starts),
    begun by `settled_ms`, reported by `read_ms`."""

    cells: dict[CellKey, Cell]
    basis: Basis
    reading: Reading
    folded: dict[tuple[str, str], FoldedTotals]
    backlogs: list[Backlog]  # by tier
    changes: dict[int, Changes]
    moving: set[int]
    settled_ms: float
    read_ms: int


@dataclass(slots=True)
class JudgedWindow:
    """The cells of one window judged, in their order."""

    lines: list[JudgedCell]
    incomplete: list[JudgedCell]
    sums: Sums
    reported_ms: int  # the last of its cells'
    is_excused: bool
    changes: Changes


@dataclass(frozen=True, slots=True)
class Judged:
    """All open cells at one moment, by the start of their window, and their sums."""

    at_ms: int
    windows: dict[int, JudgedWindow]
    sums: Sums
    folded: dict[tuple[str, str], FoldedTotals]
    backlogs: list[Backlog]  # by tier
    unfollowed: frozenset[str]  # topics mirrored by another group than the one that is asked
    unknown: list[Json]
    awaited: list[Json]


class Judging:
    """Judges one set of books again and again; one thread at a time. `is_final`: as if all windows
    were over."""

    def __init__(self, state: AuditState, config: AuditConfig, *, is_final: bool = False) -> None:
        self._state = state
        self._config = config
        self._is_final = is_final
        self._tiers = state.ledger.tiers
        self._window_ms = state.ledger.window_ms
        self._lateness = [config.lateness_of(tier) for tier in self._tiers]
        self._basis: Basis | None = None
        self._kept: dict[int, JudgedWindow] = {}
        self._kept_sums = Sums()
        self._whole_to_ms = 0  # of the reports, at the last look

    def judged(self, restarts: list[Restart]) -> Judged:
        """All open cells now. `restarts` excuse what was redelivered."""
        look = self._look(excused_up_to_ms(restarts, self._config.redelivery_grace_ms))
        found = self._judge_windows(look)
        sums = Sums()
        sums.add(self._kept_sums)
        for start_ms in found.keys() - self._kept.keys():
            sums.add(found[start_ms].sums)
        return Judged(
            look.reading.now_ms,
            {**self._kept, **found},
            sums,
            look.folded,
            look.backlogs,
            look.reading.unfollowed,
            look.basis.unknown,
            look.basis.awaited,
        )

    def _look(self, excused_ms: int) -> Look:
        state, tiers = self._state, self._tiers
        with state.lock:  # one moment for the numbers and for how far they were read
            now_ms = state.now()
            state.settle_passages()
            progress = [state.progress_of(tier) for tier in tiers]
            reports = state.reports.progress()
            folded = dict(state.ledger.folded)
            settled_ms = self._settled_ms(now_ms, progress, reports)
            read_ms = min(each.read_to_ms for each in progress)
            changes: dict[int, Changes] = {
                start_ms: (window.change, state.passages.changes.get(start_ms))
                for start_ms, window in state.ledger.windows.items()
            }
            self._drop_changed(changes, settled_ms, read_ms, excused_ms)
            cells = state.cells(changes.keys() - self._kept.keys())
            basis = self._basis_of(cells, folded, progress, reports)
            # Less is known to be read: there is a log of reports of which nothing was.
            is_less = reports.whole_to_ms < self._whole_to_ms
            self._whole_to_ms = reports.whole_to_ms
            if basis != self._basis or is_less:
                cells |= state.cells(self._kept)
                self._basis, self._kept, self._kept_sums = basis, {}, Sums()
            windows = {TopicWindow(key.topic, key.window_start_ms) for key in cells}
            passages = {window: state.passages_of(window) for window in windows}
            moving = {window for window in windows if any(passages[window])}
            moving |= state.unregistered(cells)
            # Those of now: what was read since may have been sent again after one.
            shown = excused_up_to_ms(state.reports.restarts(), self._config.redelivery_grace_ms)
            over = {key.server for key, cell in cells.items() if cell.is_over}
            beats = {server: state.reports.beats(server) for server in over}
            unfollowed = state.unfollowed(MIRRORED) if MIRRORED in tiers else frozenset()
            backlogs = [state.backlog(tier, basis.reported) for tier in tiers[:-1]]
        return Look(
            cells,
            basis,
            Reading(now_ms, progress, reports, max(excused_ms, shown), passages, beats, unfollowed),
            folded,
            [Backlog(), *backlogs],
            changes,
            {window.window_start_ms for window in moving},
            settled_ms,
            read_ms,
        )

    def _basis_of(
        self,
        cells: dict[CellKey, Cell],
        folded: dict[tuple[str, str], FoldedTotals],
        progress: list[TierProgress],
        reports: TierProgress,
    ) -> Basis:
        """What all verdicts depend on now; `cells` are those that are not kept."""
        state = self._state
        reported = {topic for topic, number in self._kept_sums.produced.items() if number}
        reported |= {topic for (_, topic), old in folded.items() if old.produced}
        reported |= reported_topics(cells)
        gaps = state.reports.gaps()
        lost = [
            each
            for each in state.progress.lost_logs()
            if each.place != TABLE or self._is_judged(each.tier, each.topic, reported)
        ]
        return Basis(
            state.passages.went_back,
            tuple((each.unreachable, each.loss) for each in progress),
            reports.unreachable,
            unknown_json(gaps.unknown, lost),
            unknown_json(gaps.awaited, place=": on a broker that does not answer, or lost"),
            frozenset(reported),
            tuple(state.ledger.retained.from_ms.items()),
            state.registered(),
            state.progress.doubts(),
        )

    def _judge_windows(self, look: Look) -> dict[int, JudgedWindow]:
        """The windows of the cells judged, by their start. Those that cannot change are kept."""
        by_window: dict[int, dict[CellKey, Cell]] = {}
        for key, cell in look.cells.items():
            by_window.setdefault(key.window_start_ms, {})[key] = cell
        found = {}
        for start_ms, part in by_window.items():
            lines = self._lines(part, look.reading, look.basis)
            judged = found[start_ms] = JudgedWindow(
                lines,
                [line for line in lines if not line.is_complete],
                Sums(lines, self._tiers),
                max(cell.reported_ms for cell in part.values()),
                self._is_excused(start_ms, look.reading.excused_ms),
                look.changes[start_ms],
            )
            is_over = start_ms <= look.settled_ms and judged.reported_ms <= look.read_ms
            if is_over and start_ms not in look.moving and not _is_unreported(judged):
                self._kept[start_ms] = judged
                self._kept_sums.add(judged.sums)
        return found

    def _drop_changed(
        self, changes: dict[int, Changes], settled_ms: float, read_ms: int, excused_ms: int
    ) -> None:
        """Keep only windows whose verdicts are what they were."""
        for start_ms, kept in list(self._kept.items()):
            if (
                kept.changes != changes.get(start_ms)
                or start_ms > settled_ms
                or kept.reported_ms > read_ms
                or kept.is_excused != self._is_excused(start_ms, excused_ms)
            ):
                self._drop(start_ms)

    def _is_judged(self, tier: str, topic: str, reported: Container[str]) -> bool:
        return topic in reported and (tier, topic) not in self._config.exempt

    def _drop(self, start_ms: int) -> None:
        self._kept_sums.take_away(self._kept.pop(start_ms).sums)

    def _settled_ms(
        self, now_ms: int, progress: list[TierProgress], reports: TierProgress
    ) -> float:
        """The latest start (ms) of a window that is over, lateness included, and to whose end each
        tier and the reports are read."""
        if self._is_final:
            return float("inf")
        ends = [
            min(now_ms, each.read_to_ms, reports.read_to_ms) - self._window_ms - late_ms
            for each, late_ms in zip(progress, self._lateness, strict=True)
        ]
        return max(UNREADABLE_WINDOW, min(ends))

    def _is_excused(self, start_ms: int, excused_ms: int) -> bool:
        expected = self._config.redelivery_expected and start_ms >= 0
        return expected or UNREADABLE_WINDOW < start_ms <= excused_ms

    def _absent(self, tier: str, topic: str, basis: Basis) -> str:
        """Why a tier may have messages of a topic without a partition that the audit knows."""
        if tier == WAREHOUSE or (tier, topic) in basis.registered:
            return ""
        return f"no broker of {tier} has registered the topic yet"

    def _unfollowed(self, tier: str, topic: str, reading: Reading) -> str:
        if tier != MIRRORED or topic not in reading.unfollowed:
            return ""
        return (
            f"consumer group {self._config.mirror_group} (audit.mirror.group) has no offset of the "
            "topic, whose messages arrive"
        )

    def _lines(
        self, cells: dict[CellKey, Cell], reading: Reading, basis: Basis
    ) -> list[JudgedCell]:
        def judge_one(key: CellKey, cell: Cell) -> list[tuple[Verdict, None]]:
            is_awaited = is_in_gap(key, self._window_ms, basis.awaited)
            reports = reading.reports
            if key.window_start_ms <= UNREADABLE_WINDOW and key.topic in basis.reported:
                reports = replace(reports, unreachable="")  # none can explain what has no header
            verdicts = judge(
                self._views(key, cell, reading, basis),
                now_ms=reading.now_ms,
                reports=reports,
                reported_ms=cell.reported_ms,
                has_gap=is_in_gap(key, self._window_ms, basis.unknown),
                awaited=(reports.unreachable or REPORTS_BEHIND) if is_awaited else "",
                is_excused=self._is_excused(key.window_start_ms, reading.excused_ms),
            )
            return [
                (doubted(verdict, key.window_start_ms, doubts), None)
                for verdict, doubts in zip(
                    verdicts, self._doubts(key.topic, basis.doubts), strict=True
                )
            ]

        return judge_cells(
            cells,
            self._tiers,
            judge_one,
            basis.reported,
            self._config.exempt,
            retained=Retained(dict(basis.retained)),
            is_report_lost=lambda key: self._is_report_lost(key, basis),
        )

    def _is_report_lost(self, key: CellKey, basis: Basis) -> bool:
        """Whether a report that was not read may have counted messages of the cell. No producer
        reports what has no header."""
        return is_in_gap(key, self._window_ms, basis.unknown) or any(
            UNREADABLE_WINDOW < key.window_start_ms <= doubt.until_ms
            for tier in self._tiers
            for doubt in basis.doubts.get((tier, AUDIT), ())
        )

    def _views(self, key: CellKey, cell: Cell, reading: Reading, basis: Basis) -> list[TierView]:
        """What is known of each tier about a cell."""
        start_ms, topic = key.window_start_ms, key.topic
        views = [
            TierView(
                expected,
                counted,
                0 if self._is_final else settles_at_ms(start_ms, self._window_ms, late_ms),
                read,
                passed,
                self._absent(tier, topic, basis),
                self._unfollowed(tier, topic, reading),
            )
            for tier, expected, counted, late_ms, read, passed in zip(
                self._tiers,
                cell.expected,
                cell.counted,
                self._lateness,
                reading.progress,
                reading.passages[TopicWindow(topic, start_ms)],
                strict=True,
            )
        ]
        # When the producers have stopped, all is reported; what has no header never is.
        beats = reading.beats.get(key.server)
        if not beats or self._is_final or start_ms < 0:
            return views
        due_ms = map(add, cell.counted_ms, self._lateness)
        return [
            replace(view, due_ms=due, beat=beat)
            for view, due, beat in zip(views, due_ms, beats, strict=True)
        ]

    def _doubts(
        self, topic: str, doubts: Mapping[tuple[str, str], list[Doubt]]
    ) -> Iterator[list[Doubt]]:
        """By tier, the doubts about a topic there, and about the reports there and at the tiers
        before: what was reported on one is expected at those behind it, too."""
        of_reports: list[Doubt] = []
        for tier in self._tiers:
            of_reports += doubts.get((tier, AUDIT), ())
            yield [*doubts.get((tier, topic), ()), *of_reports]


def _is_unreported(window: JudgedWindow) -> bool:
    """Whether something in the window waits for a report, or for what explains that there is none:
    time alone changes its verdict."""
    return any(
        tier is not None and tier.verdict.state == "pending" and tier.counted > tier.expected
        for line in window.incomplete
        for tier in line.tiers
    )
