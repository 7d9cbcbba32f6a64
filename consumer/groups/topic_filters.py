"""Topic filters: which topics a wildcard subscription takes (reference section 9.8); pure.

The pattern is a Java regular expression that must match the whole topic name. Every member reads
the others' patterns from ZooKeeper, so a pattern is untrusted text: it is matched by stepping
through a state machine (linear in the name's length, whatever the pattern), never by backtracking,
and is refused when it is too long, too large when unrolled, or uses what such a machine cannot do
(back references, look-around, possessive quantifiers).
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from kafka2011.coordination.paths import WildcardSubscription
from kafka2011.protocol.errors import IllegalTopicFilter
from kafka2011.protocol.names import FILTER_CHARACTERS_MAX

from re import _constants, _parser  # type: ignore[attr-defined]  # isort: skip

STATES_MAX = 5_000  # `((a{20}){20}){20}` would have 8000

# One step of the machine: the test of a character, and the states that follow.
_Test = Callable[[str], bool]


def normalise(pattern: str) -> str:
    """What the original makes of the text it is given: trim, comma to bar, no spaces, no quotes."""
    return pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")


class TopicFilter:
    """A compiled filter: `allows(topic)`.

    `text` is the pattern as typed, which is what the consumer registry holds. Raises
    IllegalTopicFilter.
    """

    def __init__(self, kind: Literal["whitelist", "blacklist"], text: str) -> None:
        self.kind = kind
        self.text = text
        self._machine = _Machine(normalise(text))
        self._known: dict[str, bool] = {}

    def allows(self, topic: str) -> bool:
        known = self._known.get(topic)
        if known is None:
            known = self._machine.matches(topic) == (self.kind == "whitelist")
            if len(self._known) < 10_000:
                self._known[topic] = known
        return known

    def select(self, topics: Iterable[str]) -> list[str]:
        return [topic for topic in topics if self.allows(topic)]

    @property
    def names_only(self) -> bool:
        """A whitelist of plain names and bars, which never takes a topic unheard of."""
        plain = re.fullmatch(r"[A-Za-z0-9|-]+", normalise(self.text))
        return self.kind == "whitelist" and plain is not None

    def subscription(self, stream_count: int) -> WildcardSubscription:
        return WildcardSubscription(self.kind, stream_count, self.text)

    def __repr__(self) -> str:
        return f"TopicFilter({self.kind!r}, {self.text!r})"


def whitelist(text: str) -> TopicFilter:
    """Topics whose whole name matches."""
    return TopicFilter("whitelist", text)


def blacklist(text: str) -> TopicFilter:
    """Topics whose whole name does not match."""
    return TopicFilter("blacklist", text)


class _Machine:
    """A nondeterministic automaton made of a parsed pattern; states are indices."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > FILTER_CHARACTERS_MAX:
            raise IllegalTopicFilter(f"a topic filter has 1 to {FILTER_CHARACTERS_MAX} characters")
        self._pattern = pattern
        self._tests: list[_Test | None] = []  # None: pass without a character
        self._next: list[list[int]] = []
        try:
            parsed = _parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise IllegalTopicFilter(f"topic filter {pattern!a}: {error}") from None
        if parsed.state.flags & ~re.UNICODE:
            raise self._refused("flags")
        self._accept = self._add(None, [])
        self._start = self._sequence(parsed, self._accept)

    def matches(self, text: str) -> bool:
        states = self._closed({self._start})
        for character in text:
            states = self._closed(
                {
                    following
                    for state in states
                    if (test := self._tests[state]) is not None and test(character)
                    for following in self._next[state]
                }
            )
            if not states:
                return False
        return self._accept in states

    def _closed(self, states: set[int]) -> set[int]:
        """With all states that are reached without a character."""
        pending = list(states)
        while pending:
            state = pending.pop()
            if self._tests[state] is None:
                for following in self._next[state]:
                    if following not in states:
                        states.add(following)
                        pending.append(following)
        return states

    # --- construction, from the end to the start -------------------------------------------------

    def _add(self, test: _Test | None, following: list[int]) -> int:
        if len(self._tests) >= STATES_MAX:
            raise IllegalTopicFilter(f"topic filter {self._pattern!a} is too large when unrolled")
        self._tests.append(test)
        self._next.append(following)
        return len(self._tests) - 1

    def _sequence(self, items: Any, after: int) -> int:
        for item in reversed(list(items)):
            after = self._item(item, after)
        return after

    def _item(self, item: tuple[Any, Any], after: int) -> int:
        operator, argument = item
        match str(operator):
            case "LITERAL":
                return self._add(lambda character: ord(character) == argument, [after])
            case "NOT_LITERAL":
                return self._add(lambda character: ord(character) != argument, [after])
            case "ANY":
                return self._add(lambda character: character != "\n", [after])
            case "IN":
                return self._add(self._one_of(argument), [after])
            case "BRANCH":
                return self._add(None, [self._sequence(branch, after) for branch in argument[1]])
            case "SUBPATTERN":
                _, added, removed, inner = argument
                if added or removed:
                    raise self._refused("flags")
                return self._sequence(inner, after)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                return self._repeat(least, most, inner, after)
            case "AT":
                return self._anchor(argument, after)
            case _:
                raise self._refused(str(operator).lower())

    def _repeat(self, least: int, most: int, inner: Any, after: int) -> int:
        if most == _constants.MAXREPEAT:
            loop = self._add(None, [after])
            self._next[loop].append(self._sequence(inner, loop))
            start = loop
        else:
            start = after
            for _ in range(most - least):
                start = self._add(None, [after, self._sequence(inner, start)])
        for _ in range(least):
            start = self._sequence(inner, start)
        return start

    def _anchor(self, place: Any, after: int) -> int:
        """`^` and `$` change nothing where the whole name is matched, and only there are taken."""
        if str(place) in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            if self._pattern.startswith(("^", "\\A")):
                return after
        elif str(place) in ("AT_END", "AT_END_STRING") and self._pattern.endswith(("$", "\\Z")):
            return after
        raise self._refused("an anchor inside")

    def _one_of(self, items: Any) -> _Test:
        negated = bool(items) and str(items[0][0]) == "NEGATE"
        tests = [self._class_test(operator, argument) for operator, argument in items[negated:]]

        def test(character: str) -> bool:
            return any(one(character) for one in tests) != negated

        return test

    def _class_test(self, operator: Any, argument: Any) -> _Test:
        match str(operator):
            case "LITERAL":
                return lambda character: ord(character) == argument
            case "RANGE":
                low, high = argument
                return lambda character: low <= ord(character) <= high
            case "CATEGORY":
                return _category(str(argument))
            case _:
                raise self._refused(str(operator).lower())

    def _refused(self, what: str) -> IllegalTopicFilter:
        return IllegalTopicFilter(f"topic filter {self._pattern!a}: {what} cannot be used")


def _category(name: str) -> _Test:
    """Java's `\\d`, `\\w`, `\\s` know ASCII only."""
    kind, negated = name.rpartition("_")[2].lower(), "_NOT_" in name
    expression = re.compile(
        {"digit": "[0-9]", "space": "[ \t\n\x0b\f\r]", "word": "[a-zA-Z0-9_]"}[kind]
    )
    return lambda character: (expression.match(character) is not None) != negated
