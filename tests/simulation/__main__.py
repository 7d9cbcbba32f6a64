"""Random walks for some seconds, on every core; exits with 1 when one breaks an invariant.

A walk that does prints its number, and a schedule that breaks the same thing, made shorter.
`--walk N` is that walk again, `--replay FILE` such a schedule.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.walk import Outcome, parsed, replay, shortened, text_of, walk
from tests.simulation.world import World

STEPS = 400
# replicas, min_insync
SIZES = ((2, 1), (3, 1), (3, 2), (3, 2), (4, 2))


def world_of(number: int) -> World:
    return World(*SIZES[number % len(SIZES)])


def walked(number: int, steps: int = STEPS) -> Outcome:
    """The walk with this number, always the same."""
    return walk(world_of(number), random.Random(number), steps)


def until(first: int, stride: int, end_s: float) -> tuple[int, int, int | None]:
    """The walks and steps done, and the number of the walk that broke something, if any."""
    number, steps = first, 0
    while time.monotonic() < end_s:
        outcome = walked(number)
        steps += len(outcome.schedule)
        if outcome.broken is not None:
            return (number - first) // stride + 1, steps, number
        number += stride
    return (number - first) // stride, steps, None


def described(number: int, outcome: Outcome) -> Iterator[str]:
    yield f"walk {number} of {len(outcome.schedule)} steps: {outcome.text}"
    assert outcome.broken is not None
    short = shortened(lambda: world_of(number), outcome.schedule, outcome.broken)
    yield f"# {SIZES[number % len(SIZES)]} {short.broken}; --walk {number} is the walk itself,"
    yield "# --replay FILE repeats what follows"
    yield f"world {number % len(SIZES)}"
    yield text_of(short.schedule)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first walk's number; 0 draws one")
    parser.add_argument("--walk", type=int, help="this walk alone")
    parser.add_argument("--replay", type=Path, help="this schedule alone")
    given = parser.parse_args()
    if given.replay is not None:
        return _replayed(given.replay)
    if given.walk is not None:
        return _reported(given.walk)
    seed = given.seed or random.SystemRandom().randrange(1, 2**31)
    cores = len(os.sched_getaffinity(0))
    end_s = time.monotonic() + given.seconds
    with ProcessPoolExecutor(cores) as pool:
        parts = [pool.submit(until, seed + core, cores, end_s) for core in range(cores)]
        results = [part.result() for part in parts]
    walks = sum(walks for walks, _, _ in results)
    steps = sum(steps for _, steps, _ in results)
    print(f"seed {seed}: {walks:,} walks, {steps:,} steps")
    broken = [number for _, _, number in results if number is not None]
    for number in broken:
        _reported(number)
    return 1 if broken else 0


def _reported(number: int) -> int:
    outcome = walked(number)
    if outcome.broken is None:
        print(f"walk {number}: {len(outcome.schedule)} steps, nothing broken")
        return 0
    for line in described(number, outcome):
        print(line)
    return 1


def _replayed(path: Path) -> int:
    (kind, size), *schedule = parsed(path.read_text(encoding="utf-8"))
    if kind != "world":
        sys.exit(f"{path}: the first line of a schedule is 'world' and a number")
    outcome = replay(world_of(int(size)), schedule)
    print(outcome.text or f"{len(outcome.schedule)} steps, nothing broken")
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    sys.exit(main())
