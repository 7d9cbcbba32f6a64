from collections import Counter

import pytest

from kafka2011.services.frontend import members
from kafka2011.services.frontend.members import CIRCLE, MEMBERS, ROUNDS, Connections

IN_A_CIRCLE = CIRCLE * ROUNDS


def test_a_circle_is_connected_by_zipfs_law_and_everyone_in_it_is() -> None:
    made = Connections(2011)
    ends = [made.ends(number) for number in range(IN_A_CIRCLE)]
    assert all(popular != other for popular, other in ends)
    assert {member for pair in ends for member in pair} == set(range(1, CIRCLE + 1))
    popular = Counter(popular for popular, _ in ends)
    ranks = [popular[member] for member in range(1, CIRCLE + 1)]
    assert 15 < ranks[0] / ROUNDS < 25
    assert ranks[0] > 1.5 * ranks[5] > 2 * ranks[20] > 4 * ranks[200]
    assert len({frozenset(pair) for pair in ends}) > 0.97 * len(ends)  # few pairs come again


def test_circles_follow_each_other_and_then_new_connections_form() -> None:
    made = Connections(7)
    popular, other = made.ends(IN_A_CIRCLE)
    assert CIRCLE < popular <= 2 * CIRCLE
    assert CIRCLE < other <= 2 * CIRCLE
    everyone = IN_A_CIRCLE * (MEMBERS // CIRCLE)
    first, again = ([made.ends(begin + n) for n in range(CIRCLE)] for begin in (0, everyone))
    assert {one for one, _ in first} == {one for one, _ in again}
    assert first != again
    assert Connections(8).ends(0) != made.ends(0) or Connections(9).ends(0) != made.ends(0)


@pytest.mark.parametrize("number", [0, 19, 700, IN_A_CIRCLE - 1, IN_A_CIRCLE + 3])
def test_the_connections_of_one_popular_member(number: int) -> None:
    made = Connections(2011)
    popular, _ = made.ends(number)
    begin = number - number % IN_A_CIRCLE
    for formed in (number + 1, number + CIRCLE, begin + IN_A_CIRCLE, begin + 10 * IN_A_CIRCLE):
        expected = [
            one
            for one in range(begin, min(formed, begin + IN_A_CIRCLE))
            if made.ends(one)[0] == popular
        ]
        count = made.same_popular(number, formed)
        assert [made.of_same_popular(number, index) for index in range(count)] == expected


def test_names_and_hosts() -> None:
    assert members.name_of(23) == "Ann Berg"
    assert members.host_of(50_000) == "10.0.195.80"
    planted = [*members.scrapers(), *members.spammers()]
    assert len({host for _, host in planted}) == len(planted)
    assert min(member for member, _ in planted) > MEMBERS
