"""Runs every fuzz target for some seconds and prints what was found; exits with 1 on a finding.

`--target NAME --seed N --round M` repeats one round of a target without a broker.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz import live
from tests.fuzz.codec import TARGETS, TWINS, round_of

LIVE = "live broker"


def search(name: str, seed: int, seconds: float) -> tuple[int, str, bool]:
    """Rounds of a target done, what there is to say, and whether that is a finding."""
    number = 0
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        if name == LIVE:
            number, note = live.run(directory, seed, seconds)
            return number, f"none; {note}", False
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            round_of(seed, name, number)
            number += 1
    except Exception as error:
        where = directory if name == LIVE else f"--round {number}"
        return number, f"{type(error).__name__}: {error} ({where})", True
    return number, "none", False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each target (60)")
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--target", choices=[*TARGETS, LIVE], help="this one alone")
    parser.add_argument("--round", type=int, help="this round alone; raises what it finds")
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 2**31)
    if given.round is not None:
        if given.target not in TARGETS:
            parser.error("--round needs the --target it belongs to")
        round_of(seed, given.target, given.round)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"seed {seed}, {len(TWINS)} twins, {given.seconds:.0f} s a target")
    table = Table("target", "rounds", "finding", header_style="bold", box=None)
    findings = 0
    for name in [given.target] if given.target else [*TARGETS, LIVE]:
        with console.status(name):
            rounds, note, is_finding = search(name, seed, given.seconds)
        findings += is_finding
        table.add_row(name, f"{rounds:,}", note)
    console.print(table)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
