"""Measures the curves of growth, and draws them with `--figures`.

Each point is the better of two runs; the log of 20 GB needs 25 GB of free disk space. Every run is
kept, with the machine's facts, in DATA_DIR/growth.jsonl. About eight minutes on two quiet cores.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.growth import figures
from benchmarks.growth.curves import CURVES, Curve
from benchmarks.log_sizes import NotEnoughRoom
from benchmarks.machine import facts


def table(curve: Curve, points: list[dict[str, float]]) -> Table:
    shown = Table(title=f"{curve.name}: {curve.law}", title_justify="left", box=None)
    shown.add_column(curve.x, justify="right")
    for name in points[0]:
        shown.add_column(name, justify="right")
    for value, point in zip(curve.values, points, strict=False):
        shown.add_row(
            f"{value:,}",
            *(f"{found:,.4g}" if found < 100 else f"{found:,.0f}" for found in point.values()),
        )
    return shown


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    words.add_argument("--only", default="", help="curves whose name holds this")
    words.add_argument("--most", type=int, default=0, help="no value above this one")
    words.add_argument("--figures", type=Path, help="draw into this directory")
    words.add_argument("--json", action="store_true", help="the results as JSON, no tables")
    words.add_argument("--data-dir", type=Path, default=Path("var/benchmarks"))
    given = words.parse_args()
    given.data_dir.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=given.json, width=None if sys.stdout.isatty() else 160)
    entry: dict[str, Any] = {
        "time": int(time.time()),
        "machine": facts(given.data_dir),
        "curves": {},
    }
    for curve in CURVES:
        values = tuple(value for value in curve.values if not given.most or value <= given.most)
        if given.only not in curve.name or not values:
            continue
        try:
            points = list(curve.measure(given.data_dir, values))
        except NotEnoughRoom as error:
            print(error, file=sys.stderr)
            return 1
        entry["curves"][curve.name] = {"values": values, "points": points}
        if not given.json:
            console.print(table(curve, points))
        if given.figures is not None:
            for path in figures.draw(curve, points, given.figures):
                console.print(str(path), highlight=False)
    if not entry["curves"]:
        print(f"no curve holds {given.only!r}", file=sys.stderr)
        return 2
    entry["machine"]["load_average_after"] = round(os.getloadavg()[0], 2)
    with open(given.data_dir / "growth.jsonl", "a", encoding="utf-8") as history:
        history.write(json.dumps(entry) + "\n")
    if given.json:
        print(json.dumps(entry, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
