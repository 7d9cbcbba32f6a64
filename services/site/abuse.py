"""Abuse: members and hosts that scrape profiles, guess passwords or spam, with the evidence.

A rule looks at what one subject did in the last seconds: how many events of a kind, and which part
of all its events they are, since a member may be very active without being a program. A subject is
reported once for each rule, and again after it was quiet for a while.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka2011.events.codec import Record
from kafka2011.events.topics import COMMENT, LOGIN, PAGE_VIEW, SITE_ABUSE
from kafka2011.services.site.use import Result, Use, time_of

SECOND_MS = 1_000
SUBJECTS_MAX = 20_000  # observed; the one seen longest ago is forgotten
FINDINGS_MAX = 200
QUIET_MS = 900_000  # without an event of the rule a finding is dropped
EXAMPLES = 5
PROFILES = "/in/"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule is broken by `events_min` events of its kind within `window_ms`, if they are at least
    `share_min` of all events of the subject on the same topic."""

    name: str
    window_ms: int
    events_min: int
    share_min: float
    what: str  # one event, in words


SCRAPES = Rule("scrapes profiles", 10_000, 15, 0.9, "profiles viewed")
GUESSES = Rule("guesses passwords", 60_000, 10, 0.8, "failed logins")
SPAMS = Rule("spams", 10_000, 8, 0.8, "comments that repeat the one before")
WINDOW_MS_MAX = max(rule.window_ms for rule in (SCRAPES, GUESSES, SPAMS))


@dataclass(slots=True)
class Watch:
    """What one subject did lately under one rule: [second, events of the kind, all events, time of
    the earliest, ms], by second."""

    seconds: deque[list[int]] = field(default_factory=deque)
    examples: list[str] = field(default_factory=list)
    last: str = ""

    def note(self, time_ms: int, is_of_kind: bool, rule: Rule) -> tuple[int, int]:
        """Add one event; returns (of the kind, all) within the rule's window that ends with the
        newest second. Nothing from before that window is kept."""
        cell = self._cell(time_ms // SECOND_MS)
        cell[1] += is_of_kind
        cell[2] += 1
        cell[3] = min(cell[3], time_ms)
        before = self.seconds[-1][0] - rule.window_ms // SECOND_MS
        while self.seconds[0][0] <= before:
            self.seconds.popleft()
        return sum(found[1] for found in self.seconds), sum(found[2] for found in self.seconds)

    def _cell(self, second: int) -> list[int]:
        place = len(self.seconds)
        while place and self.seconds[place - 1][0] > second:  # rare: a late event
            place -= 1
        if not place or self.seconds[place - 1][0] < second:
            self.seconds.insert(place, [second, 0, 0, (second + 1) * SECOND_MS])
            place += 1
        return self.seconds[place - 1]


class Abuse(Use):
    name = "abuse"
    topics = (PAGE_VIEW, LOGIN, COMMENT)
    result_topic = SITE_ABUSE

    def __init__(self, planted: Collection[str] = ()) -> None:
        """`planted`: the members whose abuse the synthetic activity plants, if it does."""
        self._planted = frozenset(planted)
        self._watches: OrderedDict[str, Watch] = OrderedDict()
        self._findings: dict[str, dict[str, Any]] = {}
        self._new: list[str] = []

    def take(self, topic: str, event: Record, now_ms: int) -> None:
        who = f"member {event['member_id']} at {event['host']}"
        if topic == PAGE_VIEW:
            path = event["path"]
            self._note(SCRAPES, who, path.startswith(PROFILES), path, event, now_ms=now_ms)
        elif topic == COMMENT:
            self._note(SPAMS, who, None, event["text"], event, now_ms=now_ms)
        elif topic == LOGIN:
            member, failed = f"member {event['member_id']}", not event["succeeded"]
            self._note(GUESSES, f"host {event['host']}", failed, member, event, now_ms=now_ms)

    def _note(
        self,
        rule: Rule,
        subject: str,
        is_of_kind: bool | None,
        example: str,
        event: Record,
        *,
        now_ms: int,
    ) -> None:
        """Note an event of the subject; `is_of_kind` None: it is if it repeats the last example."""
        time_ms = time_of(event)
        key = f"{rule.name}|{subject}"
        watch = self._watches.pop(key, None) or Watch()
        if is_of_kind is None:
            is_of_kind = example == watch.last
        watch.last = example
        found, of = watch.note(time_ms, is_of_kind, rule)
        self._watches[key] = watch  # not before `note`: every watch kept has a second
        self._forget_watches(time_ms)
        if is_of_kind:
            watch.examples = [*watch.examples[1 - EXAMPLES :], example]
        known = self._findings.get(key)
        if known is not None:
            if is_of_kind:
                known["events"] += 1
                known["last_ms"] = max(known["last_ms"], time_ms)
                known["examples"] = watch.examples
            return
        if found < rule.events_min or found < rule.share_min * of:
            return
        self._forget(now_ms)
        if len(self._findings) >= FINDINGS_MAX:
            return
        first_ms = watch.seconds[0][3]
        self._findings[key] = {
            "rule": rule.name,
            "subject": subject,
            "member": str(event.get("member_id", "")) if rule is not GUESSES else "",
            "agent": event.get("agent") or "",
            "first_ms": first_ms,
            "last_ms": time_ms,
            "found_ms": now_ms,
            "events": found,
            "evidence": f"{found} {rule.what} within {rule.window_ms // SECOND_MS} s, "
            f"{found * 100 // of} % of what it did",
            "examples": watch.examples,
        }
        self._new.append(key)

    def _forget_watches(self, time_ms: int) -> None:
        """Drop the watches noted longest ago, if there are too many or they can no longer break a
        rule; at most two in a call."""
        for _ in range(2):
            key, watch = next(iter(self._watches.items()))
            newest = watch.seconds[-1][0] * SECOND_MS
            if len(self._watches) <= SUBJECTS_MAX and newest > time_ms - WINDOW_MS_MAX:
                return
            del self._watches[key]

    def _forget(self, now_ms: int) -> None:
        for key, found in list(self._findings.items()):
            if found["last_ms"] < now_ms - QUIET_MS:
                del self._findings[key]
        self._new = [key for key in self._new if key in self._findings]

    def shown(self, now_ms: int) -> Mapping[str, Any]:
        """The findings, newest first; how many of the planted members were found, and how many
        findings are of no planted member (None: nothing was planted)."""
        self._forget(now_ms)
        found = sorted(self._findings.values(), key=lambda each: -each["found_ms"])
        members = {each["member"] for each in found}
        false = sum(each["member"] not in self._planted for each in found)
        return {
            "findings": [
                {**each, "after_ms": max(0, each["found_ms"] - each["first_ms"])} for each in found
            ],
            "planted": len(self._planted),
            "planted_found": len(self._planted & members),
            "false_alarms": false if self._planted else None,
            "watched": len(self._watches),
        }

    def results(self, now_ms: int) -> list[Result]:
        """The findings that are new since the last call."""
        del now_ms  # a finding has its own
        new, self._new = self._new, []
        return [
            Result(
                SITE_ABUSE,
                found["found_ms"],
                key,
                {
                    "rule": found["rule"],
                    "subject": found["subject"],
                    "first_time": found["first_ms"],
                    "events": found["events"],
                    "evidence": found["evidence"],
                    "examples": list(found["examples"]),
                },
            )
            for key in new
            if (found := self._findings.get(key)) is not None
        ]

    def state(self) -> Mapping[str, Any]:
        return {
            "watches": [
                [key, list(watch.seconds), watch.examples, watch.last]
                for key, watch in self._watches.items()
            ],
            "findings": self._findings,
            "new": self._new,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for key, seconds, examples, last in state["watches"]:
            # Older checkpoints have them unsorted, or without the time of the earliest.
            cells = [[*cell, cell[0] * SECOND_MS][:4] for cell in sorted(seconds)]
            self._watches[key] = Watch(deque(cells), list(examples), last)
        self._findings = dict(state["findings"])
        self._new = list(state["new"])
