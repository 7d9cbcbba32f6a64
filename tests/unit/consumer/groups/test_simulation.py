"""Seeded interleavings of a group: one owner, no gap, and always settled afterwards.

A longer search: `python -m tests.unit.consumer.groups.test_simulation FIRST_SEED COUNT`.
"""

import random
import sys

import pytest

from kafka2011.coordination.paths import StaticSubscription, Subscription, WildcardSubscription
from tests.support.group_simulation import Member, OriginalMember, run_simulation


def static(rng: random.Random) -> Subscription:
    return StaticSubscription({"a": rng.randint(1, 2)})


def mixed(rng: random.Random) -> Subscription:
    choices = [
        StaticSubscription({"a": 1}),
        StaticSubscription({"a": 2, "b": 1}),
        WildcardSubscription("whitelist", rng.randint(1, 2), "[ab]"),
    ]
    return rng.choice(choices)


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_a_group_without_faults_settles(first: int) -> None:
    for seed in range(first, first + 50):
        run_simulation(seed, subscription_of=mixed, faults=False)


@pytest.mark.parametrize("first", range(10_000, 10_500, 50))
def test_a_group_with_faults_settles_and_skips_nothing(first: int) -> None:
    for seed in range(first, first + 50):
        run_simulation(seed, subscription_of=mixed if seed % 2 else static)


def test_a_group_settles_after_many_faults() -> None:
    for seed in range(100_000, 100_400):
        run_simulation(seed, subscription_of=mixed if seed % 2 else static, moves=400)


def test_our_members_and_the_originals_share_one_group() -> None:
    """The original commits and releases everything at each rebalance; ours keep what stays."""
    kinds = (Member, OriginalMember)
    for seed in range(30_000, 30_200):
        run_simulation(seed, subscription_of=mixed, faults=False, kinds=kinds)


def test_twenty_members_settle() -> None:
    for seed in (20_000, 20_001):
        run_simulation(seed, subscription_of=static, member_count=20, moves=4000)


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:3])
    for number in range(first, first + count):
        run_simulation(number, subscription_of=mixed if number % 2 else static, moves=400)
