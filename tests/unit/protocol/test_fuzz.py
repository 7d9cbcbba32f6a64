"""A few hundred rounds of every fuzz target that needs no broker; `make fuzz` runs more of them."""

import pytest

from tests.fuzz.codec import TARGETS, round_of

ROUNDS = 200


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_rounds_find_nothing(name: str) -> None:
    for number in range(ROUNDS):
        try:
            round_of(2011, name, number)
        except Exception as error:
            raise AssertionError(f"round {number} of {name!r}, seed 2011: {error}") from error
