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


def codec_target(name: str, seed: int, seconds: float) -> tuple[int, str]:
    """Rounds done, and the finding ("" for none)."""
    number = 0
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        try:
            round_of(seed, name, number)
        except Exception as error:
            return number, f"{type(error).__name__}: {error} (--round {number})"
        number += 1
    return number, ""


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
            if name == LIVE:
                directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
                found = live.run(directory, seed, given.seconds)
                rounds, finding = found.connections, found.problem
                note = (
                    f"none; memory {found.resident_before / live.MIB:.0f} MiB, then "
                    f"{found.resident_after / live.MIB:.0f}"
                )
                if finding:
                    note = f"{finding} ({directory})"
            else:
                rounds, finding = codec_target(name, seed, given.seconds)
                note = finding or "none"
        findings += bool(finding)
        table.add_row(name, f"{rounds:,}", note)
    console.print(table)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
