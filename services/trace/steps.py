"""What is known of one message in each tier, and what is said of it. Pure.

Only what is proved is said: `missing` only where everything was read and the next tier has passed
the message, else `unknown`, with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka2011.services.trace.search import EntryLocation

PRODUCED, LIVE, OFFLINE, WAREHOUSE = "produced", "live", "offline", "warehouse"
TIERS = (PRODUCED, LIVE, OFFLINE, WAREHOUSE)


class State(StrEnum):
    """What is known of the message in one tier."""

    HERE = "here"
    DELETED = "deleted"  # it was here; retention has deleted its place
    BEHIND = "behind"  # this tier has not come to it yet
    REFUSED = "refused"  # the mirror left it out, since the target refuses it
    QUARANTINED = "quarantined"  # it could not become a row
    MISSING = "missing"  # this tier has passed it, and it is not there
    UNKNOWN = "unknown"


# The states of a message that has been in the tier.
SEEN = frozenset({State.HERE, State.DELETED, State.QUARANTINED})


@dataclass(frozen=True, slots=True)
class Step:
    """The message in one tier. `places`: partition and offsets, or table, version, file and row;
    more than one: copies."""

    tier: str
    state: State
    text: str
    places: tuple[dict[str, Any], ...] = ()


@dataclass(slots=True)
class Trace:
    """The answer. `others`: further messages that fit the question, by their places."""

    topic: str
    guid: str
    bytes: int | None
    steps: list[Step] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last_seen(self) -> str:
        """The last tier that it has been in; "" for none."""
        return next((s.tier for s in reversed(self.steps) if s.state in SEEN), "")

    @property
    def has_arrived(self) -> bool:
        """Whether it is a row of the warehouse."""
        return bool(self.steps) and self.steps[-1].state is State.HERE

    @property
    def verdict(self) -> str:
        """One line: where it is, or where it was seen last and what is between there and the
        next tier."""
        if self.has_arrived:
            return "in the warehouse"
        after = next(
            (step for step in self.steps if step.state not in SEEN and self._is_next(step)), None
        )
        last = self.steps[-1]
        if last.state is State.QUARANTINED:
            return f"in quarantine: {last.text}"
        if after is None:
            return f"last seen: {self.last_seen or 'nowhere'}"
        return (
            f"last seen: {self.last_seen or 'nowhere'}; {after.tier}: {after.state} ({after.text})"
        )

    def _is_next(self, step: Step) -> bool:
        """Whether the tier comes after the last one in which the message was seen."""
        return not self.last_seen or TIERS.index(step.tier) > TIERS.index(self.last_seen)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "guid": self.guid or None,
            "bytes": self.bytes,
            "has_arrived": self.has_arrived,
            "last_seen": self.last_seen or None,
            "verdict": self.verdict,
            "steps": [
                {"tier": s.tier, "state": s.state, "text": s.text, "places": list(s.places)}
                for s in self.steps
            ],
            "others": self.others,
        }


def copies(places: Sequence[object]) -> str:
    """ "" for one place, else how many there are."""
    return f"; {len(places)} copies" if len(places) > 1 else ""


def place_json(place: EntryLocation, *, copied_from: EntryLocation | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "partition": place.source.text,
        "offset": place.offset,
        "next_offset": place.next_offset,
    }
    if copied_from is not None:
        found["copied_from"] = f"{copied_from.source.text} at {copied_from.offset}"
    return found


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What the mirror says of a place: its group's committed offset (None: none), and why it left
    the entry out (empty: it did not)."""

    committed: int | None
    refusal: str = ""


def without_copy(
    place: EntryLocation, mirrored: Mirrored, gaps: Sequence[str]
) -> tuple[State, str]:
    """The state, in the offline tier, of a message at `place` in the live one of which no copy was
    found, and a text; `gaps`: what was not read there."""
    if mirrored.refusal:
        return State.REFUSED, f"the mirror left it out: {mirrored.refusal}"
    if mirrored.committed is None:
        return State.UNKNOWN, (
            f"the mirror has no offset for {place.source.text}: it has not begun, or does not copy "
            "this topic"
        )
    if mirrored.committed < place.next_offset:
        return State.BEHIND, (
            f"the mirror has committed {place.source.text} up to {mirrored.committed}: "
            f"{place.next_offset - mirrored.committed} bytes to go"
        )
    if gaps:
        return State.UNKNOWN, f"the mirror has passed it, and it was not found; {'; '.join(gaps)}"
    return State.MISSING, (
        f"the mirror has passed it (committed {mirrored.committed}), and it is in no partition"
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the table says of a place: the loads' next offset (None: none), whether retention had
    deleted it before it was loaded, and whether all that the load has made of its messages was
    looked at."""

    up_to: int | None
    is_gap: bool
    is_proved: bool


def without_row(place: EntryLocation, loaded: Loaded) -> tuple[State, str]:
    """The state, in the warehouse, of a message at `place` in the offline tier of which neither a
    row nor a quarantined message was found, and a text."""
    if loaded.up_to is None:
        return State.BEHIND, f"nothing of {place.source.text} is loaded yet"
    if loaded.up_to < place.next_offset:
        return State.BEHIND, (
            f"{place.source.text} is loaded up to {loaded.up_to}: "
            f"{place.next_offset - loaded.up_to} bytes to go"
        )
    if loaded.is_gap:
        return State.MISSING, "retention had deleted it before it was loaded"
    if loaded.is_proved:
        return State.MISSING, "a load has taken its offset, and its files have no such row"
    return State.UNKNOWN, (
        "a load has taken its offset, and no row has it now: the rows of its hour may have been "
        "dropped since"
    )
