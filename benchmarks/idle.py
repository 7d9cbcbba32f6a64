"""What does a deployment cost in which nothing happens?

    python -m benchmarks.idle [--seconds 60] [--no-dashboard] [--json]

A whole embedded deployment collects synthetic activity for a while, so that topics and tables are
there, stops, and starts again with embedded.rate=0: everything is up, and no event happens but the
processes' own heartbeats. Then what each process uses in `--seconds`, the dashboard's page closed.
The goal: 100 ms of processor time a second, 1,200 MiB.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.deployment import Rate, measured, running
from benchmarks.machine import facts

COLLECT_S = 15.0
SETTLE_S = 80.0  # the first seconds load what was sent last; Spark ends idle workers in a minute
COLLECT_RATE = 200


def measure(root: Path, seconds: float, settings: dict[str, object]) -> list[Rate]:
    with running(root, {**settings, "embedded.rate": COLLECT_RATE}):
        time.sleep(COLLECT_S)
    with running(root, {**settings, "embedded.rate": 0}) as deployment:
        time.sleep(SETTLE_S)
        return measured(deployment, seconds)


def total(found: list[Rate]) -> Rate:
    return Rate(
        "all",
        sum(one.cpu_ms_per_s for one in found),
        sum(one.resident_mib for one in found),
        sum(one.proportional_mib for one in found),
    )


def table(found: list[Rate]) -> Table:
    shown = Table(header_style="bold", box=None)
    shown.add_column("process")
    for heading in ("processor, ms a second", "resident, MiB", "proportional, MiB"):
        shown.add_column(heading, justify="right")
    for one in [*found, total(found)]:
        figures = (one.cpu_ms_per_s, one.resident_mib, one.proportional_mib)
        shown.add_row(one.name, f"{figures[0]:.1f}", *(f"{value:,.0f}" for value in figures[1:]))
    return shown


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--seconds", type=float, default=60.0)
    words.add_argument("--no-dashboard", action="store_true")
    words.add_argument("--json", action="store_true", help="the results as JSON, no table")
    given = words.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    settings: dict[str, object] = {
        "embedded.dashboard.port": -1 if given.no_dashboard else 0,
        "embedded.port.base": 0,
        "embedded.start.timeout.ms": 300_000,
    }
    try:
        machine: dict[str, Any] = facts(directory)
        found = measure(directory / "var", given.seconds, settings)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if given.json:
        processes = [asdict(one) for one in found]
        print(json.dumps({"machine": machine, "processes": processes, "all": asdict(total(found))}))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
