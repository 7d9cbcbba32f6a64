"""The service's HTTP endpoints: /audit/summary, /audit with a query for cells, and /audit/groups,
for which consumer groups are asked what they have read.

| parameter of /audit | |
|---|---|
| `topic`, `server`, `window_start_ms` | only those cells |
| `verdict` | cells with that verdict at some tier; `incomplete`: all but complete ones |
| `newest` | that many windows, of older ones only incomplete cells, none ahead; newest first |
| `final` | 1: judge windows that are still open, too (also of /audit/summary) |
| `limit`, `offset` | at most that many cells (1000, at most 10000), after `offset` |
"""

import json
import re
from collections.abc import Callable, Collection, Mapping

from kafka2011.runtime.metrics import Answer
from kafka2011.services.audit.report import Json
from kafka2011.services.audit.summary import AuditSummary, CellSelection
from kafka2011.services.audit.verdicts import STATES

CELLS_DEFAULT = 1_000
CELLS_MAX = 10_000
VERDICTS = (*STATES, "incomplete")
_WINDOW = re.compile(r"-?[0-9]{1,20}")
PARAMETERS = {
    "topic", "server", "window_start_ms", "verdict", "newest", "final", "limit", "offset",
}  # fmt: skip


class BadQuery(ValueError):
    """A query that cannot be answered; the text says why."""


def audit_endpoints(
    summary: AuditSummary, groups: Callable[[], list[Json]]
) -> dict[str, Callable[[Mapping[str, str]], Answer]]:
    """Path -> function of the query, for `runtime.metrics.MetricsServer`."""
    return {
        "/audit": lambda query: _answer(lambda: summary.cells(selection_from(query))),
        "/audit/groups": lambda _: _answer(lambda: {"groups": groups()}),
        "/audit/summary": lambda query: _answer(
            lambda: summary.summary(_is_final(query), query.get("topic"))
        ),
    }


def selection_from(query: Mapping[str, str]) -> CellSelection:
    """The cells that a query asks for. Raises BadQuery."""
    unknown = set(query) - PARAMETERS
    if unknown:
        raise BadQuery(f"unknown parameter {min(unknown)!r}")
    return CellSelection(
        topic=query.get("topic"),
        server=query.get("server"),
        window_start_ms=_window(query),
        verdict=_one_of(query, "verdict", VERDICTS),
        newest=_whole(query, "newest", 0) if "newest" in query else None,
        is_final=_is_final(query),
        limit=min(_whole(query, "limit", CELLS_DEFAULT), CELLS_MAX),
        offset=_whole(query, "offset", 0),
    )


def _is_final(query: Mapping[str, str]) -> bool:
    return _one_of(query, "final", ("0", "1")) == "1"


def _one_of(query: Mapping[str, str], name: str, known: Collection[str]) -> str | None:
    """The parameter, None where it is not given. Raises BadQuery for one that is not known."""
    text = query.get(name)
    if text is not None and text not in known:
        raise BadQuery(f"{name} {text!r} is unknown; there are: {', '.join(known)}")
    return text


def _window(query: Mapping[str, str]) -> str | None:
    """The window as cells have it, -1 for messages without a header. Raises BadQuery."""
    text = query.get("window_start_ms")
    if text is not None and not _WINDOW.fullmatch(text):
        raise BadQuery("window_start_ms must be a whole number of ms, or -1 for no header")
    return text


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 9:
        raise BadQuery(f"{name} must be a whole number")
    return int(text)


def _answer(make: Callable[[], Json]) -> Answer:
    try:
        return 200, "application/json", json.dumps(make()).encode() + b"\n"
    except BadQuery as error:
        return 400, "application/json", json.dumps({"error": str(error)}).encode() + b"\n"
