"""The audit as a table for people. The data is that of `--json` (docs/audit.md)."""

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

NOTES_LISTED = 20

Json = dict[str, Any]

STYLES = {
    "complete": "green",
    "pending": "yellow",
    "missing": "bold red",
    "extra": "red",
    "redelivered": "cyan",
}
SOURCES = {
    "service": "as the audit service counted",
    "disk": "recounted from the files",
    "brokers": "recounted through the brokers",
}


def print_report(console: Console, report: Json, *, show_all: bool = False) -> None:
    """Sums by topic, then the cells that are not complete (all of them with `show_all`)."""
    cells = report["cells"]
    listed = cells if show_all else [cell for cell in cells if not cell["complete"]]
    console.print(_topics(report))
    if listed:
        console.print(_cells(report, listed))
    for line in notes_of(report):
        console.print(Text(line))
    console.print(Text(conclusion(report), style="bold" if report["exit_status"] else "bold green"))


def _topics(report: Json) -> Table:
    title = f"Audit, {SOURCES.get(report['source'], report['source'])}"
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("topic")
    for heading in ("windows", "produced"):
        table.add_column(heading, justify="right")
    for tier in report["tiers"]:
        table.add_column(tier, justify="right")
        table.add_column("", no_wrap=True)
    for name, topic in report["topics"].items():
        table.add_row(*_row(printable(name), topic, report["tiers"]))
    table.add_section()
    table.add_row(*_row("all topics", report["totals"], report["tiers"]))
    return table


def _row(name: str, topic: Json, tiers: list[str]) -> list[Text | str]:
    row: list[Text | str] = [name, f"{topic['cells']:,}", f"{topic['produced']:,}"]
    for tier in tiers:
        total = topic["tiers"].get(tier)
        if total is None:
            row += ["", Text("exempt", style="dim")]
        else:
            row += [f"{total['counted']:,}", _styled(total["verdict"])]
    return row


def _cells(report: Json, cells: list[Json]) -> Table:
    servers = {cell["server"] for cell in cells}
    table = Table(title="Windows", title_justify="left", header_style="bold")
    table.add_column("topic")
    table.add_column("window")
    if len(servers) > 1 or report["source"] != "service":
        table.add_column("server")
    table.add_column("produced", justify="right")
    for tier in report["tiers"]:
        table.add_column(tier, justify="right")
        table.add_column("")
    for cell in cells:
        row: list[Text | str] = [printable(cell["topic"]), window_text(cell["window_start_ms"])]
        if len(servers) > 1 or report["source"] != "service":
            row.append(printable(cell["server"]))
        row.append(f"{cell['produced']:,}")
        for tier in report["tiers"]:
            told = cell["tiers"].get(tier)
            if told is None:
                row += ["", Text("exempt", style="dim")]
                continue
            reason = told["reason"]
            verdict = _styled(told["verdict"])
            if reason and told["state"] != "pending":
                verdict.append(f" ({reason})", style="dim")
            row += [f"{told['counted']:,}", verdict]
        table.add_row(*row)
    return table


def _styled(verdict: str) -> Text:
    return Text(verdict, style=STYLES.get(verdict.split(" ", 1)[0], ""))


def window_text(start_ms: int) -> str:
    """`2011-06-12 10:20:30`, UTC; `no header` for messages that have none."""
    if start_ms < 0:
        return "no header"
    try:
        moment = datetime.fromtimestamp(start_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{start_ms} ms"
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    return text if start_ms % 1000 == 0 else f"{text}.{start_ms % 1000:03d}"


def printable(text: str) -> str:
    """Names come from messages: nothing in them may move the cursor."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def notes_of(report: Json) -> list[str]:
    lines = [f"note: {printable(note)}" for note in report["notes"][:NOTES_LISTED]]
    left = len(report["notes"]) - NOTES_LISTED
    if left > 0:
        lines.append(f"note: ... and {left} more (--json shows them)")
    if report["restarts"]:
        names = sorted({restart["name"] for restart in report["restarts"]})
        lines.append(f"started again during the run: {', '.join(map(printable, names))}")
    return lines


def conclusion(report: Json) -> str:
    """The last line: what the exit status says, in words."""
    totals = report["totals"]["tiers"]
    parts = []
    for name in ("missing", "extra", "redelivered"):
        found = [f"{totals[tier][name]:,} in {tier}" for tier in totals if totals[tier][name]]
        if found:
            parts.append(f"{name}: {', '.join(found)}")
    pending = report["verdicts"]["pending"]
    if pending:
        parts.append(f"{pending:,} cells are pending")
    if report["exit_status"]:
        return "The audit does not balance. " + "; ".join(parts)
    if not report["totals"]["produced"]:
        return "Nothing was produced yet."
    said = f"The audit balances: {report['totals']['produced']:,} messages in every tier"
    if pending:
        said = "Nothing is missing so far"
    return said + (f" ({'; '.join(parts)})" if parts else "")
