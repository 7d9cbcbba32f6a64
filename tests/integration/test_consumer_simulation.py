"""The simulated groups of tests/unit/consumer/groups/test_simulation.py, thousands of seeds."""

import pytest

from tests.support.group_simulation import run_simulation
from tests.unit.consumer.groups.test_simulation import mixed, static

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize("block", range(4))
def test_thousands_of_interleavings(block: int) -> None:
    for seed in range(100_000 + block * 500, 100_000 + block * 500 + 500):
        run_simulation(seed, subscription_of=mixed if seed % 2 else static, moves=400)
