"""The members of the synthetic activity: names, connections, and those planted to be found. Pure.

Members are numbered from 1; the smaller the number, the more active the member. They live in
circles of CIRCLE members. Connections form one after another: connection n of a seed is a function
of (seed, n), so that who is connected at any time can be computed without the earlier ones.

One end of a connection is drawn by the Zipf-Mandelbrot law (the r-th member of a circle in
proportion to 1 / (r + ZIPF_SHIFT)), the other evenly: in each round each member is the second end
of one connection, and a popular member the first end of many.
"""

import bisect
import math
import random
from typing import Final

MEMBERS: Final = 50_000
CIRCLE: Final = 500
ROUNDS: Final = 6  # of connections in a circle, before the next circle begins
ZIPF_SHIFT: Final = 5

SCRAPERS: Final = 3
SCRAPER_MEMBER_FIRST: Final = 9_000_001
SPAMMERS: Final = 2
SPAMMER_MEMBER_FIRST: Final = 9_100_001

_STEP: Final = 137  # has no divisor in common with CIRCLE, so that a round pairs each member once
_FIRST_NAMES: Final = (
    *("Ann", "Ben", "Carla", "Dev", "Elif", "Femi", "Grace", "Hugo", "Ines", "Jun", "Kofi", "Lena"),
    *("Marco", "Nora", "Omar", "Petra", "Quinn", "Rosa", "Sven", "Tara", "Uma", "Viktor", "Wei"),
)
_LAST_NAMES: Final = (
    *("Abe", "Berg", "Costa", "Diaz", "Egger", "Fox", "Gupta", "Haas", "Ito", "Jansen", "Khan"),
    *("Lopez", "Meyer", "Nunez", "Okoye", "Park", "Rossi", "Silva", "Tran", "Weber", "Young"),
)


def _starts() -> list[int]:
    """By rank, the first of the CIRCLE places whose popular end has that rank; then CIRCLE."""
    whole = math.log((CIRCLE + ZIPF_SHIFT) / ZIPF_SHIFT)
    return [
        math.ceil(CIRCLE * math.log((rank + ZIPF_SHIFT) / ZIPF_SHIFT) / whole - 1e-9)
        for rank in range(CIRCLE + 1)
    ]


_STARTS: Final = _starts()


def name_of(member: int) -> str:
    """The member's name; others may have the same."""
    first = _FIRST_NAMES[member % len(_FIRST_NAMES)]
    return f"{first} {_LAST_NAMES[member // len(_FIRST_NAMES) % len(_LAST_NAMES)]}"


def host_of(member: int) -> str:
    """The address from which a member, real or planted, visits the site."""
    if member >= SPAMMER_MEMBER_FIRST:
        return f"203.0.113.{member - SPAMMER_MEMBER_FIRST + 1}"
    if member >= SCRAPER_MEMBER_FIRST:
        return f"198.51.100.{member - SCRAPER_MEMBER_FIRST + 1}"
    return f"10.{member >> 16 & 255}.{member >> 8 & 255}.{member & 255}"


def scrapers() -> list[tuple[int, str]]:
    """Member id and host of the planted scrapers, who read profile after profile."""
    planted = range(SCRAPER_MEMBER_FIRST, SCRAPER_MEMBER_FIRST + SCRAPERS)
    return [(member, host_of(member)) for member in planted]


def spammers() -> list[tuple[int, str]]:
    """Member id and host of the planted spammers, who comment on everything with one text."""
    planted = range(SPAMMER_MEMBER_FIRST, SPAMMER_MEMBER_FIRST + SPAMMERS)
    return [(member, host_of(member)) for member in planted]


class Connections:
    """The connections of one seed, numbered from 0 in the order in which they form."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._shifts: dict[int, int] = {}

    def ends(self, number: int) -> tuple[int, int]:
        """The two members of connection `number`: the popular end first."""
        turn, place = divmod(number, CIRCLE)
        rank = bisect.bisect_right(_STARTS, place) - 1
        other = (place * _STEP + self._shift(turn)) % CIRCLE
        if other == rank:
            other = (other + 1) % CIRCLE
        first = 1 + turn // ROUNDS % (MEMBERS // CIRCLE) * CIRCLE
        return first + rank, first + other

    def same_popular(self, number: int, formed: int) -> int:
        """How many of the first `formed` connections have the same circle and popular member as
        connection `number`, including itself."""
        base, start, width = _of_popular(number)
        turns, places = divmod(min(formed - base, ROUNDS * CIRCLE), CIRCLE)
        return turns * width + min(max(places - start, 0), width)

    def of_same_popular(self, number: int, index: int) -> int:
        """The number of the connection at `index` (from 0) of these."""
        base, start, width = _of_popular(number)
        return base + index // width * CIRCLE + start + index % width

    def _shift(self, turn: int) -> int:
        shift = self._shifts.get(turn)
        if shift is None:
            if len(self._shifts) >= 10_000:
                self._shifts.clear()
            shift = random.Random((self._seed << 40) ^ ~turn).randrange(CIRCLE)
            self._shifts[turn] = shift
        return shift


def _of_popular(number: int) -> tuple[int, int, int]:
    """The first connection of the circle of connection `number`; its popular member's first place
    and number of places in each round."""
    base = number - number % (ROUNDS * CIRCLE)
    rank = bisect.bisect_right(_STARTS, number % CIRCLE) - 1
    return base, _STARTS[rank], _STARTS[rank + 1] - _STARTS[rank]
