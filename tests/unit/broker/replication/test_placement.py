"""Where members should be: racks first, then equal numbers, and nothing moved without need."""

import random
from collections import Counter

import pytest

from kafka2011.broker.replication.placement import Location, PlacedMember, Plan, plan

RACKS = {"m1": "r1", "m2": "r2", "m3": "r3"}


def members(machines: str, racks: dict[str, str] = RACKS) -> list[PlacedMember]:
    """Members a, b, c ... on these machines; "-": never started."""
    return [
        PlacedMember(name, Location(machine, racks[machine]) if machine != "-" else None)
        for name, machine in zip("abcd", machines.split(), strict=False)
    ]


def texts(made: Plan) -> list[str]:
    return [f"{one.broker_id}:{one.old}>{one.new}@{one.to.machine}" for one in made.moves]


@pytest.mark.parametrize(
    ("sets", "machines", "leaving", "expected"),
    [
        pytest.param({1: "m1 m2 m3"}, RACKS, "", [], id="as it should be"),
        pytest.param({1: "m1 m2 m3"}, RACKS | {"m4": "r3"}, "m3", ["1:c>d@m4"], id="emptied"),
        pytest.param({1: "m1 m2 m2"}, RACKS, "", ["1:c>d@m3"], id="two on a machine"),
        pytest.param({1: "m1 m2 m3"}, {"m1": "r1", "m2": "r2"}, "", [], id="one is away"),
        pytest.param({1: "m1 m2", 2: "m1 m2"}, RACKS, "", ["1:b>c@m3"], id="evened out"),
    ],
)
def test_what_is_moved(
    sets: dict[int, str], machines: dict[str, str], leaving: str, expected: list[str]
) -> None:
    made = plan({key: members(text) for key, text in sets.items()}, machines, leaving.split())
    assert texts(made) == expected
    assert made.notes == []


def test_what_cannot_be_had_is_said() -> None:
    racks = {"m1": "r1", "m2": "r1", "m3": "r2"}
    made = plan({1: members("m1 m2 m3", racks)}, racks)
    assert (made.moves, len(made.notes)) == ([], 1)
    assert "b shares a rack with another member" in made.notes[0]
    made = plan({1: members("m1 m2 m3", racks)}, racks, ["m2"])
    assert (made.moves, made.notes) == ([], ["broker 1: no machine can take b"])
    assert "c was never started" in plan({1: members("m1 m3 -", racks)}, racks).notes[0]


@pytest.mark.parametrize(
    ("racks", "placed"),
    [
        ("r1 r1 r1 r1", "m1 m2"),  # one rack alone
        ("r1 r1 r1 r2 r2 r2", "m1 m2 m4"),  # three members in two racks
    ],
)
def test_members_that_share_a_rack_in_any_case_are_evened_out_too(racks: str, placed: str) -> None:
    machines = {f"m{number}": rack for number, rack in enumerate(racks.split(), 1)}
    sets = {number: members(placed, machines) for number in range(1, 7)}
    made = plan(sets, machines)
    load = Counter(one.place.machine for found in sets.values() for one in found if one.place)
    for move in made.moves:
        old = next(one for one in sets[move.broker_id] if one.name == move.old)
        assert old.place
        load[old.place.machine] -= 1
        load[move.to.machine] += 1
    assert load == dict.fromkeys(machines, 3)


def test_leaders_are_spread() -> None:
    sets = {number: members("m1 m2 m3") for number in range(1, 7)}
    made = plan(sets, RACKS)
    assert made.moves == []
    firsts = Counter(dict.fromkeys(sets, "a") | made.preferred)
    assert Counter((dict.fromkeys(sets, "a") | made.preferred).values()) == dict.fromkeys("abc", 2)
    assert len(firsts) == 6


@pytest.mark.parametrize("seed", range(80))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(seed: int) -> None:
    rng = random.Random(seed)
    racks = {f"m{number}": f"r{number % rng.randint(2, 4)}" for number in range(rng.randint(3, 7))}
    names = list(racks)
    sets = {
        number: members(" ".join(rng.choice(names) for _ in range(rng.randint(2, 3))), racks)
        for number in range(rng.randint(1, 6))
    }
    leaving = rng.sample(names, rng.randint(0, 1))
    made = plan(sets, racks, leaving)
    after = {number: list(found) for number, found in sets.items()}
    for move in made.moves:
        found = after[move.broker_id]
        assert move.new not in {one.name for one in found}
        index = next(i for i, one in enumerate(found) if one.name == move.old)
        found[index] = PlacedMember(move.new, move.to)
    for number, name in made.preferred.items():
        after[number].sort(key=lambda one: one.name != name)
    for found in after.values():
        machines = [one.place.machine for one in found if one.place]
        if not any("no machine can take" in note for note in made.notes):
            assert len(set(machines)) == len(machines)
            assert not set(machines) & set(leaving)
    again = plan(after, racks, leaving)
    assert (again.moves, again.preferred) == ([], {})
