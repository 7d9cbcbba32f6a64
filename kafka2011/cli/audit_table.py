"""The audit as a table; the same data as `--json` (docs/audit.md)."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka2011.runtime.safe_text import one_line
from kafka2011.runtime.tables import new_table
from kafka2011.services.audit.books.progress import TABLE
from kafka2011.services.audit.groups import verdict_text
from kafka2011.services.audit.report import PART_COMPLETE
from kafka2011.services.audit.verdicts import USUAL_WAITS

NOTES_LISTED = 20
REASONS_LISTED = 3  # of a group
CELLS_LISTED = 40
WIDTH_ELSEWHERE = 120
MINUTES_FROM_MS = 120_000
NO_HEADER = "no header"
DAY_LENGTH = len("2011-06-12")
# What messages above the reported number are called: in a cell one of these, in a sum perhaps both.
SURPLUS = ("extra", "redelivered")
NEVER, EQUAL = "never reported", "copies or equal"
Surplus = tuple[str, str, str]  # (tier, one of SURPLUS, NEVER or EQUAL)

Json = dict[str, Any]

STYLES = {
    "complete": "green",
    "not": "dim",  # not audited
    "pending": "yellow",
    "behind": "blue",
    "unknown": "bold magenta",
    "missing": "bold red",
    "extra": "red",
    "redelivered": "cyan",
}
SOURCES = {
    "service": "as the audit service counted",
    "disk": "recounted from the files",
    "brokers": "recounted through the brokers",
}


def new_console() -> Console:
    """A console as wide as the terminal; wider for a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_ELSEWHERE)


def print_report(
    console: Console, report: Json, *, show_all: bool = False, place: str = "", too_late: str = ""
) -> None:
    """Print the sums by topic, then the cells that are not complete, the worst first, as many as
    are listed (all cells, by topic and time, with `show_all`), and the conclusion.

    `place`: where it was counted (` in var`), for the title; `too_late`: as `beyond_limit` has it.
    """
    cells = report["cells"]
    open_cells = [cell for cell in cells if not cell["complete"]]
    listed = cells if show_all else worst_of(open_cells)
    reasons: dict[str, int] = {}
    console.print(_topics(report, reasons, place))
    if listed:
        console.print(_cells(report, listed, reasons))
    for reason, number in reasons.items():
        console.print(Text(f"({number}) {reason}"))
    if not show_all and len(open_cells) > len(listed):
        left = len(open_cells) - len(listed)
        more = f"{left:,} more cell{'' if left == 1 else 's'}"
        console.print(f"... and {more} (--all lists all)")
    console.print()
    whole = not console.is_terminal  # a line for grep stays one line
    for line in notes_of(report):
        console.print(Text(line), soft_wrap=whole)
    style = "bold" if report["exit_status"] else "bold green"
    console.print(Text(conclusion(report, too_late), style=style), soft_wrap=whole)


def worst_of(cells: list[Json], count: int = CELLS_LISTED) -> list[Json]:
    """At most `count` of the cells: missing, unknown and extra ones, then those that are waited
    for, then the rest, such as redelivered ones; the order within each is kept."""
    return sorted(cells, key=_rank)[:count]


def _rank(cell: Json) -> int:
    words = {word for tier in cell["tiers"].values() for word in tier["verdict"].split()}
    if words & {"missing", "unknown", "extra"}:
        return 0
    return 1 if words & {"behind", "pending"} else 2


def _topics(report: Json, reasons: dict[str, int], place: str) -> Table:
    numbers = ("cells", "produced", *report["tiers"])
    title = f"Audit, {SOURCES.get(report['source'], report['source'])}{place}"
    table = new_table("topic", *numbers, "verdict", numbers=numbers, title=title)
    by_topic: defaultdict[str, Counter[Surplus]] = defaultdict(Counter)
    everywhere: Counter[Surplus] = Counter()
    for cell in report["cells"]:
        found = surplus_of(cell["tiers"])
        by_topic[cell["topic"]].update(found)
        everywhere.update(found)
    for name, topic in report["topics"].items():
        table.add_row(*_row(one_line(name), topic, report["tiers"], reasons, by_topic[name]))
    all_topics = _row("all topics", report["totals"], report["tiers"], reasons, everywhere)
    if not report["topics"]:
        all_topics[-1] = ""  # without a topic, "complete" would say too much
    table.add_row(*all_topics)
    return table


def surplus_of(tiers: Json) -> dict[Surplus, int]:
    """How many messages of a recounted cell above the reported number are no copies (NEVER), and of
    how many this is not known, since they have no guid and are equal to others (EQUAL), by tier and
    by what they are called there; {} of the service's cells, which compares no guids."""
    found: dict[Surplus, int] = {}
    for tier, part in tiers.items():
        for word in SURPLUS:
            if "distinct" in part and part[word]:
                no_copies = max(0, part[word] - (part["counted"] - part["distinct"]))
                equal = min(no_copies, part.get("equal", 0))
                found[tier, word, NEVER] = no_copies - equal
                found[tier, word, EQUAL] = equal
    return found


def _row(
    name: str,
    topic: Json,
    tiers: list[str],
    reasons: dict[str, int],
    unreported: Mapping[Surplus, int],
) -> list[Text | str]:
    return [
        name,
        f"{topic['cells']:,}",
        f"{topic['produced']:,}",
        *(_count(topic["tiers"].get(tier)) for tier in tiers),
        verdicts_text(topic["tiers"], tiers, reasons, unreported),
    ]


def _cells(report: Json, cells: list[Json], reasons: dict[str, int]) -> Table:
    """The table of cells; what all cells have in common is in its title."""
    servers = {cell["server"] for cell in cells}
    windows = {cell["window_start_ms"]: window_text(cell["window_start_ms"]) for cell in cells}
    days = {text[:DAY_LENGTH] for text in windows.values() if text != NO_HEADER}
    title = "Cells, windows"
    if len(days) == 1 and NO_HEADER not in windows.values():
        title += f" of {days.pop()}"
        windows = {start_ms: text[DAY_LENGTH + 1 :] for start_ms, text in windows.items()}
    title += " (UTC)"
    if len(servers) == 1:
        title += f", server {one_line(next(iter(servers)))}"
    names = ("topic", "window", *(["server"] if len(servers) > 1 else []))
    numbers = ("produced", *report["tiers"])
    table = new_table(*names, *numbers, "verdict", numbers=numbers, title=f"\n{title}")
    table.columns[1].no_wrap = True
    for cell in cells:
        table.add_row(
            one_line(cell["topic"]),
            windows[cell["window_start_ms"]],
            *([one_line(cell["server"])] if len(servers) > 1 else []),
            f"{cell['produced']:,}",
            *(_count(cell["tiers"].get(tier)) for tier in report["tiers"]),
            verdicts_text(cell["tiers"], report["tiers"], reasons, surplus_of(cell["tiers"])),
        )
    return table


def _count(tier_count: Json | None) -> Text:
    """The count at a tier, in the colour of its verdict."""
    if tier_count is None:
        return Text("exempt", style="dim")
    return Text(f"{tier_count['counted']:,}", style=_style(tier_count["verdict"]))


def verdicts_text(
    tier_count: Json, tiers: list[str], reasons: dict[str, int], unreported: Mapping[Surplus, int]
) -> Text:
    """`complete`, or what is wrong where: `offline, warehouse: missing 1`. Reasons, which rows may
    share, are given by number: `reasons` has the numbers so far, and gets new ones. `unreported`
    as of `surplus_of`, to tell copies from messages that no report counts."""
    by_text: dict[str, list[str]] = {}
    for tier in tiers:
        if tier not in tier_count or tier_count[tier]["verdict"] == "complete":
            continue
        reason = tier_count[tier].get("reason", "")
        is_known = not reason or tier_count[tier].get("state") == "pending"
        text = re.sub(r"\d+", lambda found: f"{int(found[0]):,}", tier_count[tier]["verdict"])
        for word in SURPLUS:
            if (tier, word, NEVER) not in unreported:
                continue
            parts = [
                what if number >= tier_count[tier][word] else f"{number:,} {what}"
                for what in (NEVER, EQUAL)
                if (number := unreported[tier, word, what])
            ]
            some = ", ".join(parts) or "copies"
            text = re.sub(rf"({word} [\d,]*\d)", rf"\1 ({some})", text)
        if not is_known:
            text += f" ({reasons.setdefault(one_line(reason), len(reasons) + 1)})"
        by_text.setdefault(text, []).append(tier)
    if not by_text:
        return Text("complete", style=STYLES["complete"])
    word, places = next(iter(by_text.items()))
    is_everywhere = len(places) == sum(tier in tier_count for tier in tiers)
    if len(by_text) == 1 and (
        word == "pending" or (is_everywhere and word in ("not audited", PART_COMPLETE))
    ):
        return Text(word, style=_style(word))
    found = Text()
    for number, (text, places) in enumerate(by_text.items()):
        found.append("\n" if number else "")
        found.append(f"{', '.join(places)}: ", style="dim")
        found.append(text, style=_style(text))
    return found


def _style(verdict: str) -> str:
    return STYLES.get(verdict.split(" ", 1)[0].rstrip(","), "")


def window_text(start_ms: int) -> str:
    """`2011-06-12 10:20:30`, UTC; `no header` for messages that have none."""
    if start_ms < 0:
        return NO_HEADER
    try:
        moment = datetime.fromtimestamp(start_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{start_ms} ms"
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    return text if start_ms % 1000 == 0 else f"{text}.{start_ms % 1000:03d}"


def notes_of(report: Json) -> list[str]:
    lines = [f"unknown: {one_line(each['what'])}" for each in report["unknown"][:NOTES_LISTED]]
    left = len(report["unknown"]) - len(lines) + report.get("unknown_left_out", 0)
    if left > 0:
        lines.append(f"unknown: ... and {left:,} more")
    awaited = report["awaited"][:NOTES_LISTED]
    lines += [f"not judged yet: {one_line(each['what'])}" for each in awaited]
    lines += [f"note: {one_line(note)}" for note in report["notes"][:NOTES_LISTED]]
    left = len(report["notes"]) - NOTES_LISTED
    if left > 0:
        lines.append(f"note: ... and {left} more (--json shows them)")
    lines += [group_text(group) for group in report.get("groups", [])]
    if report["restarts"]:
        names = sorted({restart["name"] for restart in report["restarts"]})
        repeated = ", ".join(map(one_line, names))
        why = "messages may have been sent again after that"
        what = "started again, cut off from a broker, or silent for a while"
        lines.append(f"{what} ({why}): {repeated}")
    return lines


def group_text(group: Json) -> str:
    """A line of what a consumer group has counted; it has no part in the exit status."""

    def bracket(reasons: list[str]) -> str:
        more = len(reasons) - REASONS_LISTED
        reasons = [*reasons[:REASONS_LISTED], *([f"and {more} more"] if more > 0 else [])]
        return f" ({one_line('; '.join(reasons))})" if reasons else ""

    end_ms = group["complete_to_ms"]
    said = verdict_text(group, lambda verdict: bracket(group["reasons"].get(verdict, [])))
    since_ms = group["counted_from_ms"]
    since = f" of what was produced from {window_text(since_ms)} UTC on" if since_ms else ""
    complete = "complete" if end_ms is None else f"complete up to {window_text(end_ms)} UTC"
    complete += since
    if said.startswith("pending") and since:
        said += f" (nothing is judged yet{since})"
    why = bracket([f"at its last look: {group['unread']}"] if group["unread"] else [])
    if said.startswith("complete"):
        said = complete + why + said.removeprefix("complete")
    else:
        said += why + ("" if end_ms is None else f", {complete}")
    # The time is that of the last look that read all reports; with some unread, "so far" is later.
    at = f"{window_text(group['read_to_ms'] // 1000 * 1000)} UTC" if group["read_to_ms"] else ""
    by = f"by {at}" if at and not group["unread"] else "so far"
    if at and group["unread"]:
        by += f" (all reports were last read at {at})"
    return (
        f"read by group {one_line(group['group'])}: {said}; of its topics "
        f"{group['counted']:,} messages read, {group['expected']:,} reported {by}"
    )


def _age(late_ms: int) -> str:
    """The age and a space; empty below a second, which would read as 0 s."""
    return f"{duration_text(late_ms)} " if late_ms >= 1000 else ""


def _late(tier: str, late: Json, report: Json) -> str:
    """How far a tier is behind; empty for one that is not. In a recount of files the age is left
    out: it only grows until the next start."""
    if not late["messages"]:
        return ""
    said = f"{_messages(late['messages'])} of cells judged"
    if report["source"] == "disk":
        return f"{tier} is behind by {said}, which the next start takes there"
    # None: not known, in a recount
    size = f", {late['bytes']:,} bytes in all" if late["bytes"] else ""
    return f"{tier} is {_age(late['ms'])}behind ({said}{size})"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def pending_cells(cells: Iterable[Json]) -> int:
    """How many cells are pending, at one tier or more."""
    return sum(any(tier["state"] == "pending" for tier in cell["tiers"].values()) for cell in cells)


def _delays(cells: Iterable[Json]) -> str:
    """What keeps cells pending besides the usual waits: `, 2 of them because live broker 2 does not
    answer: ...`; "" when nothing does."""
    reasons = Counter(
        reason
        for cell in cells
        for reason in {
            tier.get("reason", "") for tier in cell["tiers"].values() if tier["state"] == "pending"
        }
        if reason not in {*USUAL_WAITS, ""}
    )
    return "".join(
        f", {count:,} of them because {one_line(reason)}"
        for reason, count in sorted(reasons.items(), key=lambda each: (-each[1], each[0]))[
            :REASONS_LISTED
        ]
    )


# What is said of one, and of more, of each kind of what is unknown.
_UNKNOWN_TEXTS = {
    "log": ("log was lost", "logs were lost"),
    "table": ("table is not the one that was counted", "tables are not those that were counted"),
    "gap": ("range of monitoring events was not read", "ranges of monitoring events were not read"),
}


def _unknown_parts(unknown: Iterable[Json], left_out: int) -> list[str]:
    """How much of each kind is not known, then what else is not; `left_out`: so many are not
    among them."""
    kinds: Counter[str] = Counter()
    others = []
    for each in unknown:
        if "server" in each:
            kinds["gap"] += 1
        elif "place" in each:
            kinds["table" if each["place"] == TABLE else "log"] += 1
        else:
            others.append(one_line(each["what"]))
    parts = [
        f"{kinds[kind]:,} {one if kinds[kind] == 1 else many}"
        for kind, (one, many) in _UNKNOWN_TEXTS.items()
        if kinds[kind]
    ]
    left_out += len(others[REASONS_LISTED:])
    parts += others[:REASONS_LISTED]
    return [*parts, *([f"and {left_out:,} more"] if left_out else [])]


def beyond_limit(report: Json, limit_s: float) -> str:
    """`offline by 12.0 s, warehouse by 3 min (--max-behind 5 s)`: the tiers that are further behind
    than that, and by how much they are behind; "" for none."""
    late = {tier: figures["ms"] for tier, figures in report["behind_by"].items()}
    said = [
        f"{tier} by {f'{ms / 1000:.1f} s' if ms < MINUTES_FROM_MS else duration_text(ms)}"
        for tier, ms in late.items()
        if ms > limit_s * 1000
    ]
    return f"{', '.join(said)} (--max-behind {limit_s:g} s)" if said else ""


def conclusion(report: Json, too_late: str = "") -> str:
    """The last line: the meaning of the exit status. `too_late`: as `beyond_limit` has it."""
    totals = report["totals"]["tiers"]
    parts = [_late(tier, late, report) for tier, late in report["behind_by"].items()]
    parts = [part for part in parts if part]
    for name in ("missing", "unknown", "extra", "redelivered"):
        found = [f"{totals[tier][name]:,} in {tier}" for tier in totals if totals[tier][name]]
        if found:
            parts.append(f"{name}: {', '.join(found)}")
    # A service's cells are a moment newer than its totals, so none of them may be pending any more.
    is_pending = report["verdicts"]["pending"] > 0
    if is_pending:
        count = pending_cells(report["cells"])
        number = f"{count:,} " if count else ""
        pending = f"{number}{'cell is' if count == 1 else 'cells are'} pending"
        parts.append(pending + _delays(report["cells"]))
    unreported = max((total["unreported"] for total in totals.values()), default=0)
    if unreported:
        by = "their producers have reported so far"
        if report["source"] == "brokers":  # which reads the reports first, the messages later
            at = window_text(report["now_ms"])[DAY_LENGTH + 1 :].partition(".")[0]
            by = f"had been reported at {at} UTC, when the recount began"
        parts.append(f"{_messages(unreported)} more than {by}")
    unaudited = [name for name, topic in report["topics"].items() if not topic["is_audited"]]
    if unaudited:
        parts.append(f"not audited, since no report of them was found: {', '.join(unaudited)}")
    if report["retained_from"]:
        parts.append("what retention had deleted a part of before the audit began is not audited")
    # Not repeated where cells are pending or behind, which says it already.
    is_behind = any(late["messages"] for late in report["behind_by"].values())
    is_unread = bool(report["not_read"]) and not (is_pending or is_behind)
    if is_unread:
        parts += map(one_line, report["not_read"])
    losses = [one_line(each["what"]) for each in report.get("losses", [])]  # none in a recount
    parts += losses
    if report["exit_status"]:
        return _unbalanced(report, parts, too_late)
    if not report["totals"]["produced"]:
        if unaudited and len(unaudited) == len(report["topics"]):
            said = "; ".join(parts)
            return said[0].upper() + said[1:]
        if unaudited:
            return "; ".join(["Nothing that is audited was produced yet", *parts])
        if unreported:
            return "; ".join(["Nothing was reported yet", *parts])
        return (
            "; ".join(["Nothing was read yet", *parts])
            if is_unread
            else "Nothing was produced yet."
        )
    produced = report["totals"]["produced"]
    messages = "message" if produced == 1 else "messages"
    said = f"The audit balances: {produced:,} {messages} in every tier"
    if is_pending or is_behind or is_unread or report["awaited"] or losses:
        said = "Nothing is missing so far"
    elif all(total.get("verdict") == "not audited" for total in totals.values()):
        said = "Nothing of what was produced can be audited"
    elif report["retained_from"]:
        said = "Nothing is missing of what can be audited"
    return said + (f" ({'; '.join(parts)})" if parts else "")


def _unbalanced(report: Json, parts: list[str], too_late: str) -> str:
    """The last line where the exit status is 1: what is missing before what is unknown, and that
    before what is extra, as the first tile of the page has it; then what is too late."""
    totals = report["totals"]["tiers"].values()
    parts = _unknown_parts(report["unknown"], report.get("unknown_left_out", 0)) + parts
    limit = f"behind for longer than allowed: {too_late}" if too_late else ""
    if not any(total["missing"] for total in totals):
        if report["unknown"] or any(total["unknown_cells"] for total in totals):
            said = ["It is not known whether everything arrived", *parts, limit]
            return "; ".join(filter(None, said))
        if limit and not any(total["extra"] for total in totals):
            return "; ".join([limit[0].upper() + limit[1:], *parts])
    return "The audit does not balance. " + "; ".join(filter(None, [*parts, limit]))


def duration_text(ms: int) -> str:
    """`45 s`, `12 min`, `1 h 2 min`, `3 d 4 h`."""
    seconds = ms // 1000
    if ms < MINUTES_FROM_MS:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
