"""`kafka2011 audit`: has every message arrived in every tier? And `kafka2011 audit serve`.

Queries the running audit service; without one, or with --recount, counts everything itself,
message by message, and compares guids. Exit status 0 when nothing is missing, extra or unknown, 1
when something is or a tier is further behind than --max-behind, 2 when there is nothing to query or
to count.
"""

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from kafka2011.cli.commands import AUDIT
from kafka2011.cli.launcher import launch
from kafka2011.cli.options import AsJson, PropertiesFile, Settings

if TYPE_CHECKING:
    from kafka2011.events.forms import Forms
    from kafka2011.services.audit.recount.counting import RecountPlan
    from kafka2011.services.audit.recount.sources import DiskSource, Source

app = typer.Typer(add_completion=False, help=(__doc__ or "").partition("\n\n")[0])

ASK_TIMEOUT_S = 30.0
PAGE_CELLS = 5_000
WAIT_POLL_S = 0.25
OFFLINE_BROKER_ID_FIRST = 11  # where no state file has the datacenter of a broker

Json = dict[str, Any]


@app.command()
def serve(file: PropertiesFile = None, set_: Settings = None) -> None:
    """Run the audit service until SIGTERM."""
    launch(AUDIT, file, set_)


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    *,
    var: Annotated[
        Path, typer.Option("--dir", "--var", help="directory of the embedded deployment")
    ] = Path("var"),
    url: Annotated[
        str | None, typer.Option("--url", help="the service's metrics address, http://host:port")
    ] = None,
    as_json: AsJson = False,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="only this topic; repeatable")
    ] = None,
    all_cells: Annotated[
        bool, typer.Option("--all", help="list every cell, complete ones included")
    ] = False,
    is_final: Annotated[
        bool,
        typer.Option("--final", help="the producers have stopped: judge open windows as well"),
    ] = False,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait", help="longest wait until nothing is pending, behind or missing, seconds"
        ),
    ] = 0.0,
    max_behind_s: Annotated[
        float | None,
        typer.Option(
            "--max-behind", help="exit status 1 when a tier is further behind than this, seconds"
        ),
    ] = None,
    is_recount: Annotated[
        bool, typer.Option("--recount", help="read every message again and compare guids")
    ] = False,
    live_dirs: Annotated[
        list[Path] | None, typer.Option("--live-dir", help="recount: log.dir of a live broker")
    ] = None,
    offline_dirs: Annotated[
        list[Path] | None, typer.Option("--offline-dir", help="recount: log.dir, offline broker")
    ] = None,
    warehouse_dir: Annotated[
        Path | None,
        typer.Option("--warehouse", "--warehouse-dir", help="recount: the warehouse's directory"),
    ] = None,
    forms: Annotated[
        str | None,
        typer.Option(
            "--event-forms",
            "--forms",
            help="recount from files: event.forms of the topics; "
            "unset: those of the deployment in --dir, else *:id",
        ),
    ] = None,
) -> None:
    """Show whether every message arrived in every tier."""
    if context.invoked_subcommand is not None:
        return
    from kafka2011.runtime import logs

    logs.configure("audit", level="WARNING")  # unconfigured, log lines would go to standard output
    dirs = _Directories(var, live_dirs or [], offline_dirs or [], warehouse_dir, forms)
    service = None if dirs.given else _service_url(var, url)
    summary = _ask(service, "/audit/summary", {}) if service else None
    if url is not None and summary is None:
        _refuse(f"no audit service answers at {url}")
    if summary is not None and service is not None and not is_recount:
        report = _asked(service, topic or [], all_cells, is_final, wait_s)
    else:
        report = _recounted(dirs, summary, topic or [], is_final, show_progress=not as_json)
    if max_behind_s is not None and furthest_behind_ms(report) > max_behind_s * 1000:
        report["exit_status"] = 1
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        from kafka2011.cli.audit_table import new_console, print_report

        print_report(new_console(), report, show_all=all_cells)
    raise SystemExit(report["exit_status"])


def _refuse(text: str) -> NoReturn:
    print(f"kafka2011 audit: {text}", file=sys.stderr)
    raise SystemExit(2)


# --- the running service ---------------------------------------------------------------------


def _service_url(var: Path, url: str | None) -> str | None:
    if url is not None:
        return (url if "://" in url else f"http://{url}").rstrip("/")
    state = _state(var / "run" / "audit.json")
    address = state.get("metrics_address")
    return f"http://{address}" if address else None


def _state(path: Path) -> Json:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _ask(service: str, path: str, query: dict[str, str]) -> Json | None:
    """The JSON at a path of the service; None without a usable answer."""
    address = f"{service}{path}?{urllib.parse.urlencode(query)}"
    if not address.startswith(("http://", "https://")):
        _refuse(f"not an address: {service}")
    try:
        with urllib.request.urlopen(address, timeout=ASK_TIMEOUT_S) as answer:  # noqa: S310
            found = json.loads(answer.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _asked(
    service: str, topics: Sequence[str], all_cells: bool, is_final: bool, wait_s: float
) -> Json:
    """The service's report in the same form as a recount's."""
    final = {"final": "1"} if is_final else {}
    deadline = time.monotonic() + wait_s
    while True:
        summary = _ask(service, "/audit/summary", final)
        if summary is None:
            _refuse(f"the audit service at {service} stopped answering")
        is_open = any(summary["verdicts"][state] for state in ("pending", "behind", "missing"))
        if not is_open or time.monotonic() >= deadline:
            break
        time.sleep(WAIT_POLL_S)
    cells = _cells(service, {**final, **({} if all_cells else {"verdict": "incomplete"})}, topics)
    if topics:
        summary["topics"] = {n: t for n, t in summary["topics"].items() if n in topics}
    return _as_report(summary, cells)


def _cells(service: str, query: dict[str, str], topics: Sequence[str]) -> list[Json]:
    found: list[Json] = []
    for selection in [{"topic": topic} for topic in topics] or [{}]:
        offset = 0
        while True:
            page = _ask(
                service,
                "/audit",
                {**query, **selection, "limit": str(PAGE_CELLS), "offset": str(offset)},
            )
            if page is None:
                _refuse(f"the audit service at {service} stopped answering")
            found += page["cell_list"]
            offset += len(page["cell_list"])
            if not page["cells_left_out"]:
                break
    return found


def _as_report(summary: Json, cells: list[Json]) -> Json:
    from kafka2011.services.audit.report import status_of, totals_json

    tiers = list(summary["tiers"])
    totals = totals_json(summary["topics"], tiers)
    unread = [
        f"{u['tier']} {u['topic']} {u['place']}: {u['first']} to {u['last']} was not read: "
        f"{u['reason']}"
        for u in summary["unread"]
    ] + [
        f"{d['source']} {d['topic']} {d['place']}: {d['first']} to {d['last']} was deleted before "
        f"{d['tier']} had taken it"
        for d in summary["deleted"]
    ]
    return {
        "source": summary["source"],
        "now_ms": summary["now_ms"],
        "window_ms": summary["window_ms"],
        "tiers": tiers,
        "topics": summary["topics"],
        "totals": totals,
        "verdicts": summary["verdicts"],
        "cells": cells,
        "delays": {
            tier: {name: figures[f"delay_{name}"] for name in ("p50_ms", "p99_ms", "p999_ms")}
            for tier, figures in summary["tiers"].items()
        },
        "behind_by": {tier: figures["behind_by"] for tier, figures in summary["tiers"].items()},
        "unknown": summary["unknown"],
        "deleted": summary["deleted"],
        "notes": summary["notes"] + unread,
        "restarts": summary["restarts"],
        "silent": summary["silent"],
        "exit_status": status_of(totals, summary["unknown"]),
    }


def furthest_behind_ms(report: Json) -> int:
    """The age of the oldest message that has not arrived at some tier, ms."""
    return max((tier["ms"] for tier in report["behind_by"].values()), default=0)


# --- the recount -----------------------------------------------------------------------------


class _Directories:
    """The directories to recount; those not given are found below `var`."""

    def __init__(
        self,
        var: Path,
        live: list[Path],
        offline: list[Path],
        warehouse: Path | None,
        forms: str | None,
    ) -> None:
        self.var = var
        self._forms = forms
        self._dirs = {"live": live, "offline": offline}
        self.given = bool(live or offline or warehouse)
        self._warehouse = warehouse

    def sources(self) -> "list[Source]":
        """The log directories, those of the offline brokers with how far they were loaded."""
        from dataclasses import replace

        from kafka2011.services.audit.recount.warehouse_rows import loaded_offsets

        warehouse = self.warehouse()
        loaded = loaded_offsets(warehouse) if warehouse is not None else None
        return [
            replace(source, confirmed=loaded) if source.tier == "offline" else source
            for source in self._directories()
        ]

    def _directories(self) -> "list[DiskSource]":
        from kafka2011.services.audit.recount.segment_files import LogDirectory, log_roots
        from kafka2011.services.audit.recount.sources import DiskSource

        found: list[DiskSource] = []
        if self.given:
            for tier, tops in self._dirs.items():
                for top in tops:
                    roots = log_roots(top)
                    if not roots:
                        _refuse(f"no <topic>-<partition> directories with segments in {top}")
                    found += [DiskSource(LogDirectory(tier, str(top), root)) for root in roots]
            return found
        for top in sorted(self.var.glob("broker-*")):
            for root in log_roots(top):
                found.append(DiskSource(LogDirectory(self._tier_of(top), top.name, root)))
        return found

    def forms(self) -> "Forms":
        """Forms of the topics' events: --event-forms, else those of the deployment under `var`."""
        from kafka2011.events.forms import parse_forms

        text = self._forms
        if text is None and not self.given:
            environment = _state(self.var / "run" / "audit.json").get("environment", {})
            text = environment.get("KAFKA2011_EVENT_FORMS")
        try:
            return parse_forms(text or "")
        except ValueError as error:
            _refuse(f"--event-forms: {error}")

    def _tier_of(self, top: Path) -> str:
        datacenter = _state(self.var / "run" / f"{top.name}.json").get("datacenter")
        if datacenter in ("live", "offline"):
            return str(datacenter)
        number = top.name.rpartition("-")[2]
        is_offline = number.isdecimal() and int(number) >= OFFLINE_BROKER_ID_FIRST
        return "offline" if is_offline else "live"

    def warehouse(self) -> Path | None:
        if self.given:
            return self._warehouse
        place = self.var / "warehouse"
        is_expected = place.is_dir() or (self.var / "run" / "loader.json").exists()
        return place if is_expected else None


def _recounted(
    dirs: _Directories,
    summary: Json | None,
    topics: Sequence[str],
    is_final: bool,
    *,
    show_progress: bool,
) -> Json:
    """Count everything again: through the brokers while they run, else from their files."""
    from kafka2011.services.audit.recount.counting import recount
    from kafka2011.services.audit.restarts import read_restarts

    now_ms = time.time_ns() // 1_000_000
    try:
        restarts = read_restarts(dirs.var / "run" / "restarts.json")
    except ValueError as error:
        _refuse(str(error))
    notes: list[str] = []
    close: list[Callable[[], None]] = []
    try:
        if summary is None:
            plan = _disk_plan(dirs, topics, restarts)
        else:
            plan = _brokers_plan(
                summary,
                topics,
                restarts,
                notes=notes,
                close=close,
                is_final=is_final,
                now_ms=now_ms,
            )
        report = _with_progress(
            lambda progress: recount(plan, now_ms=now_ms, progress=progress), show_progress
        )
    finally:
        for step in close:
            step()
    report["notes"] = notes + report["notes"]
    return report


def _disk_plan(dirs: _Directories, topics: Sequence[str], restarts: Sequence[Any]) -> "RecountPlan":
    from kafka2011.services.audit.recount.counting import RecountPlan

    sources = dirs.sources()
    warehouse = dirs.warehouse()
    tiers = [tier for tier in ("live", "offline") if any(s.tier == tier for s in sources)]
    if not tiers:
        _refuse(f"no audit service answers and no broker logs are below {dirs.var} (see --dir)")
    if warehouse is not None:
        tiers.append("warehouse")
    return RecountPlan(
        tiers=tiers,
        sources=sources,
        warehouse_dir=warehouse,
        topics=topics or None,
        restarts=restarts,
        source_name="disk",
        forms=dirs.forms(),
    )


def _brokers_plan(
    summary: Json,
    topics: Sequence[str],
    restarts: Sequence[Any],
    *,
    notes: list[str],
    close: list[Callable[[], None]],
    is_final: bool,
    now_ms: int,
) -> "RecountPlan":
    from kafka2011.coordination.errors import CoordinationError
    from kafka2011.coordination.zookeeper import ZooKeeperRegistry
    from kafka2011.events.forms import parse_forms
    from kafka2011.runtime.config import address_map
    from kafka2011.services.audit.recount.counting import RecountPlan
    from kafka2011.services.audit.recount.sources import ClusterSource, group_offsets
    from kafka2011.services.audit.recount.warehouse_rows import loaded_offsets
    from kafka2011.services.audit.server_filter import server_filter

    places = summary["places"]
    sources: list[Source] = []
    for tier in summary["tiers"]:
        zk_connect = places.get(f"{tier}.zk.connect")
        if not zk_connect:
            continue
        registry = ZooKeeperRegistry(zk_connect)
        try:
            registry.start()
            close.append(registry.close)
            confirmed = None
            if tier == "live" and "offline" in summary["tiers"]:
                confirmed = group_offsets(registry, places.get("audit.mirror.group", "mirror"))
            elif "warehouse" in summary["tiers"] and tier == list(summary["tiers"])[-2]:
                confirmed = loaded_offsets(Path(places["warehouse.dir"]))
            sources.append(
                ClusterSource(
                    tier, registry, notes.append, address_map(places["address.map"]), confirmed
                )
            )
        except CoordinationError as error:
            _refuse(f"ZooKeeper of {tier} at {zk_connect}: {error}")
    return RecountPlan(
        tiers=list(summary["tiers"]),
        sources=sources,
        warehouse_dir=Path(places["warehouse.dir"]) if places["warehouse.dir"] else None,
        window_ms=summary["window_ms"],
        lateness_ms=max(tier["lateness_ms"] for tier in summary["tiers"].values()),
        judged_at_ms=None if is_final else now_ms,
        topics=topics or None,
        restarts=restarts,
        source_name="brokers",
        forms=parse_forms(places.get("event.forms", "")),
        is_ours=server_filter(
            places.get("audit.servers.whitelist", ""), places.get("audit.servers.blacklist", "")
        ),
    )


def _with_progress(work: Callable[[Callable[[str, int], None]], Json], show_progress: bool) -> Json:
    if not show_progress or not sys.stderr.isatty():
        return work(lambda *_: None)
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        return work(lambda what, count: status.update(f"{what}: {count:,} messages"))
