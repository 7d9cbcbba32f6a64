"""Measures the peers that are installed, and draws the paper's figures 4 and 5 and one of latency.

200-byte messages, one producer, then one consumer of all of it, 50 messages and one a request. Runs
take turns, peer after peer, so that a slow minute of the machine meets all of them; figures are
medians with the least and the most. What "durable" means differs from peer to peer and stands in
the table: compare rows of the same promise. Every run is kept in DATA_DIR/peers.jsonl.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.machine import facts
from benchmarks.peers import figures, tables
from benchmarks.peers.common import Contestant, Missing
from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.measure import latency, throughput
from tests.support.commands import children_of

BATCHES = (50, 1)
RATES = (100, 1000, 5000, 20_000, 50_000, 100_000)


def version(command: list[str]) -> str:
    if not command:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return " ".join(word for word in done.stdout.split()[:3] if any(map(str.isdigit, word)))


def one_run(contestant: Contestant, given: argparse.Namespace) -> dict[str, Any]:
    """The record of one run. Raises Missing, RuntimeError, OSError."""
    directory = Path(tempfile.mkdtemp(prefix="peer-", dir=given.data_dir)).resolve()
    record: dict[str, Any] = {"peer": contestant.name, "setting": contestant.setting}
    try:
        with contestant.serve(directory) as peer:
            if "throughput" in given.what:
                record["throughput"] = [
                    throughput(
                        peer,
                        directory,
                        batch=batch,
                        seconds=given.seconds,
                        megabytes=given.megabytes,
                    ).as_record()
                    for batch in BATCHES
                ]
            if "latency" in given.what:
                record["latency"] = []
                for rate in RATES:
                    found = latency(peer, rate=rate, seconds=given.seconds)
                    if found is None:  # a higher rate would fail too
                        break
                    record["latency"].append(vars(found))
        return record
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_all(given: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """All records, and why there is none of a contestant, by its title."""
    records: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    progress = Console(stderr=True)
    for run in range(given.runs):
        for contestant in CONTESTANTS:
            if given.only not in contestant.title or contestant.title in missing:
                continue
            progress.print(f"run {run + 1} of {given.runs}: {contestant.title}", highlight=False)
            try:
                records.append({"run": run, **one_run(contestant, given)})
            except Missing as error:
                missing[contestant.title] = str(error)
            except (RuntimeError, OSError) as error:
                missing[contestant.title] = f"failed: {error}"
    return records, missing


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each peer (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="each producer's time (2)")
    parser.add_argument("--megabytes", type=int, default=200, help="most that it sends (200)")
    parser.add_argument("--what", default="throughput,latency", help="one of them, or both")
    parser.add_argument("--only", default="", help="peers whose name and setting hold this")
    parser.add_argument("--figures", type=Path, help="directory for figures, PNG and SVG")
    parser.add_argument("--from-history", action="store_true", help="the last run kept, not anew")
    parser.add_argument("--json", action="store_true", help="the results as JSON, no table")
    parser.add_argument("--data-dir", type=Path, default=Path("var/benchmarks"))
    return parser.parse_args()


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """One new entry of the history."""
    machine = facts(given.data_dir)
    records, missing = run_all(given)
    machine["load_average_after"] = round(os.getloadavg()[0], 2)
    entry = {
        "time": int(time.time()),
        "machine": machine,
        "runs": given.runs,
        "versions": {one.name: version(one.version_command) for one in CONTESTANTS},
        "missing": missing,
        "records": records,
    }
    with open(given.data_dir / "peers.jsonl", "a", encoding="utf-8") as history:
        history.write(json.dumps(entry) + "\n")
    return entry


def main() -> int:
    given = arguments()
    if unknown := set(given.what.split(",")) - {"throughput", "latency"}:
        print(f"--what takes throughput and latency, not {', '.join(unknown)}", file=sys.stderr)
        return 2
    # As an exception, so that the server that runs is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return answer(given)
    finally:
        end_children()  # one that was being started as the signal came has no owner yet


def end_children() -> None:
    """Stop what this process has started and still runs, and wait for it."""
    for child in children_of(os.getpid()):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)


def answer(given: argparse.Namespace) -> int:
    """Measure or read what was measured, and show it; returns the exit status."""
    given.data_dir.mkdir(parents=True, exist_ok=True)
    history = given.data_dir / "peers.jsonl"
    if given.from_history:
        if not history.exists():
            print(f"{history} is not there: run without --from-history first", file=sys.stderr)
            return 2
        entry = json.loads(history.read_text(encoding="utf-8").splitlines()[-1])
    else:
        entry = measured(given)
    if given.json:
        print(json.dumps(entry, indent=1))
    else:
        tables.print_entry(Console(width=None if sys.stdout.isatty() else 160), entry)
    if given.figures:
        for path in figures.draw(entry, given.figures):
            print(path, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
