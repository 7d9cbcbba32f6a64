"""The results of one run as tables for people."""

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.questions import Question

MIB = 2**20


def shown(figure: str, value: float | None) -> str:
    """A figure in its unit, short."""
    if value is None:
        return ""
    if figure == "messages_per_s":
        return f"{value:,.0f}/s"
    if figure.endswith("bytes_per_s"):
        return f"{value / MIB:,.0f} MiB/s"
    if figure.endswith("_ms"):
        return f"{value:.2f} ms"
    if figure.endswith("_s"):
        return f"{value:.2f} s"
    return f"{value:.2f}"


def notes(median: dict[str, float]) -> str:
    """What is worth knowing beside the main figure."""
    found = []
    if "cpu_us_per_request" in median:
        found.append(f"broker {median['cpu_us_per_request']:.1f} µs CPU a request")
    if "resident_mib" in median:
        found.append(f"{median['resident_mib']:.0f} MiB")
    if "bare_bytes_per_s" in median:
        found.append(
            f"{shown('bytes_per_s', median['bytes_per_s'])} of "
            f"{shown('bytes_per_s', median['bare_bytes_per_s'])}"
        )
    if "p99_ms" in median:
        found.append(f"99 % within {median['p99_ms']:.1f} ms")
    if "broker_cpu_per_s_ms" in median:
        found.append(f"broker {median['broker_cpu_per_s_ms']:.1f} ms")
    if "scan_bytes_per_s" in median:
        found.append(f"loading and scan {shown('bytes_per_s', median['scan_bytes_per_s'])}")
    return ", ".join(found)


def print_report(
    console: Console, entry: dict[str, Any], asked: list[Question], builds: list[str]
) -> None:
    console.print(", ".join(f"{name} {value}" for name, value in entry["machine"].items()))
    console.print(
        "200-byte messages, one connection and one partition where the row says nothing else, "
        f"group commit, durable at the end; medians of {entry['runs']} runs; notes are of the "
        f"{builds[0]} build",
        highlight=False,
    )
    console.print(_main_table(entry, asked, builds))
    for result in entry["results"]:
        if result["group"] == "log sizes":
            console.print(_sizes_table(result["answers"]))


def _main_table(entry: dict[str, Any], asked: list[Question], builds: list[str]) -> Table:
    table = Table(header_style="bold", box=None)
    table.add_column("what")
    for heading in ("paper", "goal", *builds):
        table.add_column(heading, justify="right")
    table.add_column("notes")
    by_question = {
        (result["group"], result["question"], result["build"]): result["median"]
        for result in entry["results"]
    }
    for question in asked:
        if question.group == "log sizes":
            continue
        answers = [by_question.get((question.group, question.name, build), {}) for build in builds]
        table.add_row(
            f"{question.group}: {question.name}",
            shown(question.main, question.paper),
            shown(question.main, question.goal),
            *(shown(question.main, answer.get(question.main)) for answer in answers),
            notes(answers[0]),
        )
    return table


def _sizes_table(answers: list[dict[str, float]]) -> Table:
    table = Table(title="size of the log", title_justify="left", header_style="bold", box=None)
    columns = {
        "append 1 GB": "append_bytes_per_s",
        "read newest 1 GB": "read_newest_bytes_per_s",
        "read oldest, cold": "read_oldest_cold_bytes_per_s",
        "cat of it, cold": "cat_cold_bytes_per_s",
    }
    table.add_column("log", justify="right")
    for heading in columns:
        table.add_column(heading, justify="right")
    table.add_column("memory", justify="right")
    for answer in answers:
        table.add_row(
            f"{answer['size_gb']:.0f} GB",
            *(shown(figure, answer.get(figure)) for figure in columns.values()),
            f"{answer['resident_mib']:.0f} MiB",
        )
    return table
