"""All sections of the dashboard as plain rows, from what was observed. Pure: time is passed in.

`SectionRows` keeps what needs memory and turns each sample into sections: name -> key -> row, all
of it JSON. flows.py, topics.py, groups.py and audit_cells.py make most of them; events and the
state of the whole deployment are made here.
"""

from collections import deque

from kafka2011.services.dashboard.process_states import (
    DOWN,
    LAGGING,
    SILENT,
    STARTING,
    STARTING_MS,
    STOPPED,
)
from kafka2011.services.dashboard.rows.audit_cells import AuditRows
from kafka2011.services.dashboard.rows.flows import FlowRows
from kafka2011.services.dashboard.rows.groups import EVENT_AFTER_MS, GroupRows
from kafka2011.services.dashboard.rows.replica_sets import (
    NOTHING_CONFIRMED,
    UNDER_REPLICATED,
    WHOLE,
    set_rows,
)
from kafka2011.services.dashboard.rows.site import SiteRows
from kafka2011.services.dashboard.rows.topics import TopicRows
from kafka2011.services.dashboard.rows.validated import group_verdicts
from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedProcess,
    Row,
    Rows,
)
from kafka2011.services.rates import Rates

EVENTS_KEPT = 200


class SectionRows:
    """The memory behind the sections."""

    def __init__(self, history_ms: int, lag_ms_max: int) -> None:
        self._history_ms = history_ms
        self._lag_ms_max = lag_ms_max
        self._audit = AuditRows(history_ms, self.add_event)
        self._begin()
        self._now_ms = 0  # of the sample before
        self._events: deque[tuple[str, Row]] = deque(maxlen=EVENTS_KEPT)
        self._event_count = 0
        self._steps_back = 0  # of the clock: the page shows what came after one above the rest
        self._states: dict[str, str] = {}
        self._faults: dict[str, list[str]] = {}
        self._set_states: dict[str, str] = {}
        self._had_processes = False

    def _begin(self) -> None:
        """Make what compares times empty."""
        self._rates = Rates()
        self._flows = FlowRows(self._rates, self._lag_ms_max)
        self._storage = TopicRows(self._rates, self._flows.broker_ids, self._flows.followers)
        self._groups = GroupRows(self._history_ms, self.add_event)
        self._site = SiteRows()
        self._audit.begin()
        self._empty_since_ms = 0  # since when no process but ZooKeepers had registered

    def _take_time(self, seen: Observations) -> None:
        """Begin anew when the clock went back: what is of times to come can be compared with
        nothing until then, and with a false result after."""
        if seen.now_ms < self._now_ms:
            self._begin()
            self._steps_back += 1
            for process in seen.processes.values():
                process.health.forget_times()
            text = "the clock of the dashboard's machine went back: rates and lines begin anew"
            self.add_event(seen.now_ms, "warn", "dashboard", text)
        self._now_ms = seen.now_ms

    def sections(self, seen: Observations) -> dict[str, Rows]:
        now = seen.now_ms
        self._take_time(seen)
        self._flows.name_brokers(seen)
        processes = self._flows.process_rows(seen)  # first: it judges which brokers are away
        partitions = self._storage.partition_rows(seen)
        for process in seen.processes.values():
            self._note_state(process, processes[process.key]["state"], now)
            if process.kind == "proxy":
                self._note_faults(process, processes[process.key]["faults"], now)
        sets = set_rows(seen)
        for key, row in sets.items():
            self._note_set(key, row, now)
        groups = self._groups.sections(seen.clusters, partitions, now)
        validated = group_verdicts(seen.processes.values())
        sections = {
            **groups,
            "validated": validated,
            **self._site.sections(seen.site, now),
            "processes": processes,
            "sets": sets,
            "edges": self._flows.edge_rows(seen, processes),
            "partitions": partitions,
            "topics": self._storage.topic_rows(seen, partitions, groups["group_partitions"]),
            "audit": self._audit.rows(seen.audit, now, seen.audit_unheard_ms)
            | ({"cells": dict(seen.cells_read)} if seen.cells_read else {}),
            "cells": seen.cells,
            "latency": self._audit.latency.rows(),
            "flow": self._audit.flow.rows(),
            "loader": {"status": dict(seen.loader)} if seen.loader else {},
            "commits": seen.commits,
            "reports": seen.reports,
            "meta": {"deployment": self._meta(seen, processes)},
            "events": dict(self._events),
        }
        self._rates.forget(now)
        return sections

    def add_event(self, now_ms: int, kind: str, subject: str, text: str) -> None:
        """Add an event; `kind` is bad, warn, good or info."""
        self._event_count += 1
        row = {"at_ms": now_ms, "kind": kind, "subject": subject, "text": text}
        self._events.append((f"{self._steps_back:03d}-{self._event_count:09d}", row))

    def _note_state(self, process: ObservedProcess, state: str, now_ms: int) -> None:
        before = self._states.get(process.key)
        if state == "slow" or (state == STOPPED and not process.health.was_seen):
            return  # one slow answer, or never seen running: no event
        if state == LAGGING and now_ms - process.health.since_ms < EVENT_AFTER_MS:
            return  # a pause of the machine, or a burst
        self._states[process.key] = state
        if before is None or before == state:
            return
        kind = {"down": "bad", "silent": "warn", "lagging": "warn", "up": "good"}.get(state, "info")
        text = "does not answer in time" if state == SILENT else f"is {state}"
        if state == DOWN and process.health.reason:
            text += f": {process.health.reason}"
        self.add_event(now_ms, kind, process.key, f"{process.name} {text}")

    def _note_faults(self, process: ObservedProcess, faults: list[str], now_ms: int) -> None:
        before = self._faults.get(process.key, [])
        self._faults[process.key] = faults
        if faults != before and not process.health.failures:
            kind, text = ("warn", ", ".join(faults)) if faults else ("good", "no faults")
            self.add_event(now_ms, kind, process.key, f"{process.name}: {text}")

    def _note_set(self, key: str, row: Row, now_ms: int) -> None:
        before = self._set_states.get(key, WHOLE)
        self._set_states[key] = row["state"]
        if row["state"] == before:
            return
        kind = {WHOLE: "good", UNDER_REPLICATED: "warn", NOTHING_CONFIRMED: "bad"}
        self.add_event(now_ms, kind.get(row["state"], "bad"), key, row["text"])

    def _meta(self, seen: Observations, processes: Rows) -> Row:
        states = [row["state"] for row in processes.values()]
        answering = any(cluster.is_answering for cluster in seen.clusters.values())
        working = [
            row for row in processes.values() if row["kind"] not in ("zookeeper", "dashboard")
        ]
        running = [row for row in working if row["state"] not in (DOWN, STOPPED, STARTING)]
        self._had_processes = self._had_processes or bool(running)
        state = "running"
        if not answering and not running:
            state = "stopped" if self._had_processes else "not found"
        elif working and not running and self._had_processes:
            state = "stopped"
        elif not working:
            self._empty_since_ms = self._empty_since_ms or seen.now_ms
            state = "starting" if seen.now_ms - self._empty_since_ms < STARTING_MS else "empty"
        return {
            "state": state,
            "counts": {name: states.count(name) for name in sorted(set(states))},
            "clusters": {
                name: {"answering": cluster.is_answering, "reason": cluster.reason}
                for name, cluster in seen.clusters.items()
            },
        }
