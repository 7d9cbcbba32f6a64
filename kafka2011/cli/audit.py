"""`kafka2011 audit`: has every message arrived in every tier? And `kafka2011 audit serve`.

Queries the running audit service; without one, or with --recount, counts everything itself,
message by message, and compares guids. Exit status 0 when nothing is missing, extra or unknown, 1
when something is or a tier is further behind than --max-behind, 2 when there is nothing to query or
to count.
"""

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.cli.audit_recount import Directories, recounted, refuse, state_of
from kafka2011.cli.commands import AUDIT
from kafka2011.cli.connections import deployment_directory, zookeeper_address
from kafka2011.cli.launcher import launch
from kafka2011.cli.options import (
    ZOOKEEPER_HELP,
    AsJson,
    PropertiesFile,
    Settings,
    warehouse_option,
)
from kafka2011.events.topics import AUDIT as AUDIT_TOPIC
from kafka2011.runtime import direct_http
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.audit.losses import unread_text
from kafka2011.services.audit.report import KEPT_MS, status_of, totals_json, verdict_counts

app = typer.Typer(add_completion=False, help=(__doc__ or "").partition("\n\n")[0])

ASK_TIMEOUT_S = 30.0
PAGE_CELLS = 5_000
WAIT_POLL_S = 0.25
FINAL_READ_S = 10  # the service's reading takes a fraction of a second where everything answers
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OF_TOPIC = re.compile(r"\S+ (?P<topic>\S+)(?: \d+-\d+)?: ")

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
        Path | None,
        typer.Option(
            "--dir",
            "--var",
            help="directory of the deployment (default: that which runs here, or var)",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="the service's metrics address, http://host:port")
    ] = None,
    as_json: AsJson = False,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="only this topic; repeatable")
    ] = None,
    all_cells: Annotated[
        bool,
        typer.Option(
            "--all",
            help="list every cell, complete ones included, but for old windows in the totals alone",
        ),
    ] = False,
    is_final: Annotated[
        bool,
        typer.Option("--final", help="the producers have stopped: judge open windows as well"),
    ] = False,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait",
            min=0,
            help="longest wait until nothing is pending, behind or missing, seconds",
        ),
    ] = 0.0,
    max_behind_s: Annotated[
        float | None,
        typer.Option(
            "--max-behind",
            min=0,
            help="exit status 1 when a tier is further behind than this, seconds",
        ),
    ] = None,
    is_recount: Annotated[
        bool, typer.Option("--recount", help="read every message again and compare guids")
    ] = False,
    live_dirs: Annotated[
        list[Path] | None,
        typer.Option("--live-dir", help="recount: log.dir of a live broker; repeatable"),
    ] = None,
    offline_dirs: Annotated[
        list[Path] | None,
        typer.Option("--offline-dir", help="recount: log.dir of an offline broker; repeatable"),
    ] = None,
    warehouse_dir: Annotated[
        StoragePath | None,
        warehouse_option(
            "--warehouse", "--warehouse-dir", about="recount: directory of the warehouse"
        ),
    ] = None,
    live_zookeeper: Annotated[
        str | None,
        typer.Option(
            "--live-zookeeper",
            help="recount of directories: ZooKeeper of live, to know how far its mirror had come; "
            f"{ZOOKEEPER_HELP}",
        ),
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
    var = deployment_directory(var)
    dirs = Directories(
        var=var,
        live=live_dirs or [],
        offline=offline_dirs or [],
        warehouse=warehouse_dir,
        live_zookeeper=live_zookeeper
        and zookeeper_address(live_zookeeper, option="--live-zookeeper"),
        forms=forms,
    )
    service = None if dirs.given else _service_url(var, url)
    summary = _ask(service, "/audit/summary", {}) if service else None
    if url is not None and summary is None:
        refuse(f"no audit service answers at {url}; without --url, that of --dir is asked")
    if summary is None and not dirs.given:
        _check_is_stopped(var, is_recount=is_recount)
    if summary is not None and service is not None and not is_recount:
        report = _asked(service, topic or [], all_cells, is_final, wait_s)
        if not topic:  # a group's line covers all its topics
            report["groups"] = (_ask(service, "/audit/groups", {}) or {}).get("groups", [])
    else:
        report = recounted(dirs, summary, topic or [], is_final, show_progress=not as_json)
        _check_known(topic or [], report["topics"])
        if topic:
            report["unknown"] = unknown_of(report["topics"], report["unknown"])
            report["exit_status"] = status_of(report["totals"], report["unknown"])
    from kafka2011.cli.audit_table import beyond_limit, new_console, print_report

    too_late = "" if max_behind_s is None else beyond_limit(report, max_behind_s)
    if too_late:
        report["exit_status"] = 1
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        is_here = url is None and report["source"] in ("disk", "service") and not dirs.given
        place = f" in {var}" if is_here else ""
        print_report(new_console(), report, show_all=all_cells, place=place, too_late=too_late)
    raise SystemExit(report["exit_status"])


# --- the running service ---------------------------------------------------------------------


def _service_url(var: Path, url: str | None) -> str | None:
    if url is not None:
        return (url if "://" in url else f"http://{url}").rstrip("/")
    from kafka2011.runtime.process_state import is_running

    state = state_of(var / "run" / "audit.json")
    address = state.get("metrics_address")
    # If it has ended, another deployment may have its port by now, and any process its id.
    is_here = is_running({"name": "audit", **state})
    return f"http://{address}" if address and is_here else None


def _check_is_stopped(var: Path, *, is_recount: bool) -> None:
    """Refuse to count files that are being written: the numbers would be of different moments. A
    demo that still runs may recount its own, as its brokers have ended."""
    from kafka2011.runtime.process_state import is_running, read_states
    from kafka2011.services.embedded.control import to_paste
    from kafka2011.services.embedded.running import runs

    brokers = (state for state in read_states(var) if "broker" in state.get("ports", {}))
    are_written = any(is_running(state) for state in brokers)
    if runs(var) and (are_written or not is_recount):
        refuse(
            f"the audit of the deployment that runs in {var} does not answer: it is starting, "
            f"busy or paused, or has ended ({to_paste(var, 'status')}); files are counted when the "
            "deployment is stopped"
        )


def _ask(service: str, path: str, query: dict[str, str]) -> Json | None:
    """The JSON at a path of the service; None without a usable answer."""
    address = f"{service}{path}?{urllib.parse.urlencode(query)}"
    if not address.startswith(("http://", "https://")):
        refuse(f"not an address: {service}")
    try:
        is_here = urllib.parse.urlsplit(address).hostname in LOOPBACK
        with (direct_http.opener.open if is_here else urllib.request.urlopen)(
            address, timeout=ASK_TIMEOUT_S
        ) as answer:
            found = json.loads(answer.read())
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None  # also where something else listens there
    return found if isinstance(found, dict) else None


def _asked(
    service: str, topics: Sequence[str], all_cells: bool, is_final: bool, wait_s: float
) -> Json:
    """The service's report in the same form as a recount's. A final one is of everything that was
    there when it was asked for, or says what of it is not read."""
    final = {"final": "1"} if is_final else {}
    began_s = time.monotonic()
    read_ms = _summary(service, final)["now_ms"] + KEPT_MS if is_final else 0
    while time.monotonic() < began_s + wait_s and _is_open(service, final, topics, read_ms):
        time.sleep(WAIT_POLL_S)
    while is_final and time.monotonic() < began_s + FINAL_READ_S:
        summary = _summary(service, final)
        is_away = any(figures["away"] for figures in summary["tiers"].values())
        if is_away or not not_read(summary, read_ms):
            break
        time.sleep(WAIT_POLL_S)
    query = final if all_cells else {**final, "verdict": "incomplete"}
    summary, cells = _judged(service, query, topics)
    if is_final:
        summary["unknown"] += not_read(summary, read_ms)
    _check_known(topics, summary["topics"])
    return _as_report(of_topics(summary, cells, topics) if topics else summary, cells)


def _is_open(service: str, final: dict[str, str], topics: Sequence[str], read_ms: int) -> bool:
    """Whether something may still arrive or be judged, of the topics if any are named."""
    if topics:
        summary, cells = _judged(service, {**final, "verdict": "incomplete"}, topics)
        if not summary["topics"].keys() >= {*topics}:
            return True
        summary = of_topics(summary, cells, topics)
    else:
        summary = _summary(service, final)
    waits = any(summary["verdicts"][state] for state in ("pending", "behind", "missing"))
    return waits or (bool(final) and bool(not_read(summary, read_ms)))


def _summary(service: str, final: dict[str, str]) -> Json:
    summary = _ask(service, "/audit/summary", final)
    if summary is None:
        refuse(f"the audit service at {service} stopped answering")
    return summary


def not_read(summary: Json, to_ms: int = 0) -> list[Json]:
    """What the service has not read to its end, nor up to `to_ms` of its own clock, tiers and
    producers' reports, or cannot read at present: to judge open windows as if everything were there
    would be a guess."""
    unread = [
        {
            "what": figures["away"] or f"the newest messages of {tier} are not counted yet",
            "tier": tier,
        }
        for tier, figures in summary["tiers"].items()
        if figures["away"] or not figures["caught_up"] or figures["read_to_ms"] < to_ms
    ]
    # A service of another version does not say.
    are_read = summary.get("reports_caught_up", True)
    if not are_read or summary.get("reports_read_to_ms", to_ms) < to_ms:
        unread.append({"what": "the newest reports of the producers are not counted yet"})
    return [each | {"topic": AUDIT_TOPIC} for each in unread]


def of_topics(summary: Json, cells: list[Json], topics: Sequence[str]) -> Json:
    """The summary reduced to what concerns these topics; `cells` has all their open cells."""
    known = {name: topic for name, topic in summary["topics"].items() if name in topics}
    concerned = {AUDIT_TOPIC, *topics}  # a lost monitoring event may have counted any
    unknown = summary["unknown"]
    if all("verdicts" in topic for topic in known.values()):
        verdicts = verdict_counts(known.values())
    else:  # a service of an older version: of what is open
        found = Counter(part["state"] for cell in cells for part in cell["tiers"].values())
        verdicts = {state: found[state] for state in summary["verdicts"]}
    return summary | {
        "topics": known,
        "topics_left_out": 0,
        "totals": totals_json(known, list(summary["tiers"])),
        "notes": notes_without(summary["topics"].keys() - topics, summary["notes"]),
        "verdicts": verdicts,
        # If the list is cut, what was left out may concern these topics.
        "unknown": unknown if summary.get("unknown_left_out", 1) else unknown_of(known, unknown),
        "awaited": unknown_of(known, summary["awaited"]),
        "unread": [each for each in summary["unread"] if each["topic"] in concerned],
        "deleted": [each for each in summary["deleted"] if each["topic"] in topics],
        "losses": [
            each
            for each in summary.get("losses", [])
            if not each["topics"] or not concerned.isdisjoint(each["topics"])
        ],
        "retained_from": [
            each for each in summary.get("retained_from", []) if each["topic"] in concerned
        ],
        "tiers": {
            tier: figures
            | {
                "behind_by": _behind(tier, cells, summary),
                "caught_up": figures["caught_up"] or _is_counted(tier, known, figures),
            }
            for tier, figures in summary["tiers"].items()
        },
    }


def _is_counted(tier: str, topics: Json, figures: Json) -> bool:
    """Whether all that a tier has of these topics is counted, even while others grow."""
    lags = [topic.get("lag_bytes") for topic in topics.values()]  # None of an older service
    return figures["read_to_ms"] > 0 and all(lag is not None and not lag.get(tier) for lag in lags)


def unknown_of(topics: Json, unknown: Iterable[Json]) -> list[Json]:
    """The gaps and lost logs that concern these topics. Those of monitoring events do if one of the
    topics is audited."""
    is_audited = any(topic["is_audited"] for topic in topics.values())
    return [
        each
        for each in unknown
        if each.get("topic") in topics
        or (is_audited and each.get("topic", AUDIT_TOPIC) == AUDIT_TOPIC)
    ]


def _behind(tier: str, cells: Iterable[Json], summary: Json) -> Json:
    """How far a tier is behind by these cells, in the form of `behind_by`; bytes are unknown."""
    late = [
        (cell["window_start_ms"] + summary["window_ms"], number)
        for cell in cells
        if (number := cell["tiers"].get(tier, {}).get("behind"))
    ]
    oldest_ms = min((end_ms for end_ms, _ in late), default=summary["now_ms"])
    return {
        "messages": sum(number for _, number in late),
        "bytes": None,
        "ms": max(0, summary["now_ms"] - oldest_ms),
    }


def notes_without(others: Collection[str], notes: Iterable[str]) -> list[str]:
    """The notes without those that begin with a tier and one of the topics `others`."""
    return [
        note for note in notes if not ((said := _OF_TOPIC.match(note)) and said["topic"] in others)
    ]


def _check_known(topics: Sequence[str], known: Collection[str]) -> None:
    """Refuse a topic that is not known: its audit would be complete."""
    for topic in topics:
        if topic not in known:
            others = f"; there are: {', '.join(sorted(known))}" if known else ""
            hint = suggestion(topic, known) or others
            refuse(f"there are no messages of topic {topic!r}{hint}")


def _judged(service: str, query: dict[str, str], topics: Sequence[str]) -> tuple[Json, list[Json]]:
    """The summary and the cells, of one moment: that of the first page, for each topic."""
    cells: list[Json] = []
    summary: Json = {}
    own: Json = {}
    for selected in [{"topic": topic} for topic in topics] or [{}]:
        offset = 0
        while True:
            page = _ask(
                service,
                "/audit",
                {**query, **selected, "limit": str(PAGE_CELLS), "offset": str(offset)},
            )
            if page is None:
                refuse(f"the audit service at {service} stopped answering")
            if offset == 0:
                summary = page
                own |= {
                    name: found
                    for name, found in page["topics"].items()
                    if name in selected.values()
                }
            cells += page["cell_list"]
            offset += len(page["cell_list"])
            if not page["cells_left_out"]:
                break
    summary["topics"] |= own
    return summary, cells


def _as_report(summary: Json, cells: list[Json]) -> Json:
    tiers = list(summary["tiers"])
    # A service of an older version sums only the topics that it lists.
    totals = summary.get("totals") or totals_json(summary["topics"], tiers)
    left_out = summary.get("topics_left_out", 0)
    more = [f"{left_out:,} more topics are in the sums and not listed"] if left_out else []
    ranges = [unread_text(each) for each in summary["unread"]]
    ranges += [each["what"] for each in summary["deleted"]]
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
        "unknown_left_out": summary.get("unknown_left_out", 0),
        "awaited": summary["awaited"],
        "retained_from": summary.get("retained_from", []),
        "not_read": [each["what"] for each in not_read(summary)],
        "deleted": summary["deleted"],
        "losses": summary.get("losses", []),  # a service of an older version does not say
        "notes": summary["notes"] + ranges + more,
        "restarts": summary["restarts"],
        "silent": summary["silent"],
        "exit_status": status_of(totals, summary["unknown"]),
    }
