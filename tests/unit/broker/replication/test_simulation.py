"""Random walks of the machine, and of machines with one rule broken: each must be found."""

import random
import subprocess
import sys

import pytest

from tests import ROOT
from tests.simulation.__main__ import SIZES, described, walked
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.walk import Outcome, parsed, replay, shortened, text_of, walk
from tests.simulation.world import World

# A million steps in all.
PARTS = 32
WALKS = 60
# Three times what finds the rarest of the mutants.
MUTANT_WALKS = 400


@pytest.mark.parametrize("part", range(PARTS))
def test_random_walks_break_nothing(part: int) -> None:
    for number in range(part * WALKS, (part + 1) * WALKS):
        outcome = walked(number)
        assert outcome.broken is None, "\n".join(described(number, outcome))


def walk_of(mutant: Mutant, number: int) -> Outcome:
    return walk(world_of(mutant, number), random.Random(number), 400)


def world_of(mutant: Mutant, number: int) -> World:
    replicas, min_insync = SIZES[number % len(SIZES)]
    return World(
        replicas,
        min_insync,
        mutant.machine,
        names_are_directories=mutant.names_are_directories,
        keeps_what_it_took=mutant.keeps_what_it_took,
        counts_unseen_starts=mutant.counts_unseen_starts,
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_found(mutant: Mutant) -> None:
    for number in range(MUTANT_WALKS):
        outcome = walk_of(mutant, number)
        if outcome.broken is not None:
            assert outcome.broken in mutant.invariants, outcome.text
            return
    raise AssertionError(f"not found in {MUTANT_WALKS} walks")


# One is found after a step, the other in the middle of one.
@pytest.mark.parametrize("name", ["AcknowledgesUnflushed", "ConfirmsUnflushed"])
def test_a_failed_walk_prints_a_schedule_that_fails_again(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    number, outcome = next(
        (number, outcome)
        for number in range(MUTANT_WALKS)
        if (outcome := walk_of(mutant, number)).broken
    )
    assert outcome.broken is not None
    short = shortened(lambda: world_of(mutant, number), outcome.schedule, outcome.broken)
    assert len(short.schedule) < 100
    again = replay(world_of(mutant, number), parsed(text_of(short.schedule)))
    assert (again.broken, again.text) == (short.broken, short.text)


def test_a_walk_is_the_same_in_every_process() -> None:
    # Sets of names are in another order there.
    command = (
        "from tests.simulation.__main__ import walked;"
        "from tests.simulation.walk import text_of;"
        "print(text_of(walked(3).schedule))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", command],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1
