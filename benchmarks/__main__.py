"""Asks every question a few times and prints the table beside the paper's figures."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import consume, produce
from benchmarks.machine import facts

RUNS = 3
ASYNCHRONOUS = "produce, batch 1, asynchronous"
PAPER = {"produce, batch 1": "50,000", "produce, batch 50": "400,000", "consume": "22,000"}
GOAL = {"produce, batch 1": "500,000", "produce, batch 50": "2,500,000", "consume": "2,000,000"}


def medians(ask: Callable[[], dict[str, float]]) -> dict[str, float]:
    answers = [ask() for _ in range(RUNS)]
    return {name: statistics.median(answer[name] for answer in answers) for name in answers[0]}


def main() -> None:
    data_dir = Path("var/benchmarks")
    data_dir.mkdir(parents=True, exist_ok=True)
    console = Console()
    machine = facts(data_dir)
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    console.print(
        "200-byte messages, one partition, group commit, one producer or consumer process"
    )

    def produced(batch: int, count: int, is_asynchronous: bool = False) -> dict[str, float]:
        result = produce.measure(data_dir, batch, count, is_asynchronous=is_asynchronous)
        return {
            "messages_per_s": result.messages_per_s,
            "cpu_us": result.broker_cpu_us_per_request,
            "resident_mib": result.broker_resident_mib,
        }

    questions: dict[str, Callable[[], dict[str, float]]] = {
        "produce, batch 1": lambda: produced(1, 200_000),
        ASYNCHRONOUS: lambda: produced(1, 500_000, is_asynchronous=True),
        "produce, batch 50": lambda: produced(50, 2_000_000),
        "produce, batch 1000": lambda: produced(1000, 4_000_000),
        "consume": lambda: consume.measure(data_dir, 2_000_000),
    }
    results = {
        name: medians(ask) for name, ask in track(questions.items(), "measuring", console=console)
    }
    console.print(_table(results))
    entry: dict[str, Any] = {"time": int(time.time()), "machine": machine, "results": results}
    with open(data_dir / "history.jsonl", "a", encoding="utf-8") as history:
        history.write(json.dumps(entry) + "\n")


def _table(results: dict[str, dict[str, float]]) -> Table:
    table = Table(title="messages a second", title_justify="left", header_style="bold", box=None)
    for heading in ("what", "paper (2011)", "goal", "here", "notes"):
        table.add_column(heading, justify="left" if heading in ("what", "notes") else "right")
    for name, values in results.items():
        if "messages_per_s" in values:
            asked = "message" if name == ASYNCHRONOUS else "request"
            notes = (
                f"broker: {values['cpu_us']:.1f} µs CPU a {asked}, {values['resident_mib']:.0f} MiB"
            )
            rate = values["messages_per_s"]
            table.add_row(name, PAPER.get(name, ""), GOAL.get(name, ""), f"{rate:,.0f}", notes)
    reading = results["consume"]
    table.add_row(
        "consume, simple consumer",
        PAPER["consume"],
        GOAL["consume"],
        f"{reading['fetch_loop']:,.0f}",
        "payload and next offset of each",
    )
    ratio = reading["raw_fetch"] / reading["bare_sendfile"]
    table.add_row(
        "raw fetch",
        "",
        "0.80",
        f"{ratio:.2f}",
        f"of bare sendfile: {reading['raw_fetch'] / 2**20:,.0f} MiB/s",
    )
    return table


if __name__ == "__main__":
    main()
