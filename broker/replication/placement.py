"""Where the members of all replica sets should be: which to move, and which should lead.

A pure function of where they are. No two members of a set on one machine; no two in one rack while
there is another rack; then equal numbers of members on the machines, and of preferred leaders. What
need not move does not.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase


@dataclass(frozen=True, slots=True)
class Location:
    """A machine and its rack: what fails together, any text."""

    machine: str
    rack: str


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member; `place` None: it was never started."""

    name: str
    place: Location | None


@dataclass(frozen=True, slots=True)
class Move:
    """Replaces `old` by a member on `to`; `new` is a name that no member of the set has."""

    broker_id: int
    old: str
    new: str
    to: Location


@dataclass(slots=True)
class Plan:
    """What to change. `preferred`: the members that sets should prefer as leaders instead, after
    the moves. `notes`: what cannot be had, in words."""

    moves: list[Move] = field(default_factory=list)
    preferred: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def plan(
    sets: Mapping[int, Sequence[PlacedMember]],
    machines: Mapping[str, str],
    leaving: Collection[str] = (),
) -> Plan:
    """Plan the changes. `sets`: by broker id, the members in order of preference. `machines`: those
    that can take members, with their racks. `leaving`: those that every member shall leave."""
    return _Planning(sets, machines, leaving).made


class _Planning:
    def __init__(
        self,
        sets: Mapping[int, Sequence[PlacedMember]],
        machines: Mapping[str, str],
        leaving: Collection[str],
    ) -> None:
        self.made = Plan()
        self._sets = {broker_id: list(members) for broker_id, members in sorted(sets.items())}
        self._targets = {
            name: Location(name, rack)
            for name, rack in sorted(machines.items())
            if name not in leaving
        }
        self._leaving = frozenset(leaving)
        self._before: dict[tuple[int, str], PlacedMember] = {}  # by set and new name
        self._used = {id_: {one.name for one in members} for id_, members in sets.items()}
        for broker_id in self._sets:
            self._set_right(broker_id)
        while self._evened_out():
            pass
        firsts = {broker_id: members[:1] for broker_id, members in self._sets.items()}
        while self._led_evenly():
            pass
        for broker_id, members in self._sets.items():
            if members[:1] != firsts[broker_id]:
                self.made.preferred[broker_id] = members[0].name

    # --- members -------------------------------------------------------------------------------

    def _set_right(self, broker_id: int) -> None:
        members = self._sets[broker_id]
        for index, member in enumerate(members):
            place = member.place
            if place is None:
                self.made.notes.append(
                    f"broker {broker_id}: {member.name} was never started: its machine is not known"
                )
                continue
            others = self._others(broker_id, index)
            before = [one.place for one in members[:index] if one.place is not None]
            must = place.machine in self._leaving or place.machine in {p.machine for p in before}
            if not must and place.rack not in {p.rack for p in before}:
                continue
            target = self._target(others)
            is_apart = target is not None and target.rack not in {p.rack for p in others}
            if target is not None and (must or is_apart):
                self._move(broker_id, index, target)
            if target is None and must:
                self.made.notes.append(f"broker {broker_id}: no machine can take {member.name}")
            elif not is_apart:
                self.made.notes.append(
                    f"broker {broker_id}: {member.name} shares a rack with another member; there "
                    "is no machine in another"
                )

    def _others(self, broker_id: int, index: int) -> list[Location]:
        members = self._sets[broker_id]
        return [one.place for i, one in enumerate(members) if i != index and one.place is not None]

    def _target(self, others: Collection[Location]) -> Location | None:
        """The best place beside `others`: in another rack, with the fewest members."""
        taken, racks = {place.machine for place in others}, {place.rack for place in others}
        able = [place for name, place in self._targets.items() if name not in taken]
        load = self._load()
        return min(able, key=lambda p: (p.rack in racks, load[p.machine], p.machine), default=None)

    def _load(self) -> Counter[str]:
        places = [one.place for members in self._sets.values() for one in members]
        return Counter(place.machine for place in places if place is not None)

    def _move(self, broker_id: int, index: int, to: Location) -> None:
        """Move a member; one that was moved already goes there instead."""
        members = self._sets[broker_id]
        member = members[index]
        before = self._before.pop((broker_id, member.name), member)
        moves = self.made.moves
        moves[:] = [one for one in moves if (one.broker_id, one.new) != (broker_id, member.name)]
        if before.place == to:
            members[index] = before
            return
        new = member.name if before is not member else self._unused_name(broker_id, to)
        self._before[broker_id, new] = before
        members[index] = PlacedMember(new, to)
        moves.append(Move(broker_id, before.name, new, to))

    def _unused_name(self, broker_id: int, to: Location) -> str:
        used = self._used[broker_id]
        new = next((name for name in ascii_lowercase if name not in used), to.machine)
        while new in used:
            new += "-2"
        used.add(new)
        return new

    def _evened_out(self) -> bool:
        """Move one member to a machine with at least two fewer; return whether one was moved."""
        load = self._load()
        for low in sorted(self._targets.values(), key=lambda p: (load[p.machine], p.machine)):
            for broker_id, members in self._sets.items():
                for index, member in reversed(list(enumerate(members))):  # leaders last
                    place = member.place
                    if place is None or place.machine not in self._targets:
                        continue  # it is away for a while, maybe
                    others = self._others(broker_id, index)
                    racks = {p.rack for p in others}
                    # One that shares a rack anyway, for lack of another, may do so elsewhere, too.
                    is_as_good = low.machine not in {p.machine for p in others} and (
                        low.rack not in racks or place.rack in racks
                    )
                    if is_as_good and load[place.machine] - load[low.machine] > 1:
                        self._move(broker_id, index, low)
                        return True
        return False

    # --- leaders -------------------------------------------------------------------------------

    def _led_evenly(self) -> bool:
        """Prefer another member in one set whose first is on a machine with many firsts, if any."""
        firsts = Counter(
            members[0].place.machine
            for members in self._sets.values()
            if members and members[0].place is not None
        )
        for members in self._sets.values():
            first = members[0].place if members else None
            if first is None:
                continue
            for index, member in enumerate(members):
                place = member.place
                if place is not None and firsts[first.machine] - firsts[place.machine] > 1:
                    members.insert(0, members.pop(index))
                    return True
        return False
