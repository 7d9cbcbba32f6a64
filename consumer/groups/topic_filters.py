"""Topic filters: which topics a wildcard subscription takes; pure.

The pattern is a regular expression that must match the whole topic name. `Unlike 0.7`, where it is
a Java pattern: every member reads the others' patterns from ZooKeeper, so a pattern is untrusted
text, and RE2 matches it in time linear in the name's length. What RE2 cannot do (back references,
look-around, possessive quantifiers) is refused with RE2's message; whatever both support means the
same (docs/decisions/106-re2.md).
"""

from collections.abc import Iterable
from typing import Any, Literal

from kafka2011.coordination.paths import WildcardSubscription
from kafka2011.protocol.errors import IllegalTopicFilter
from kafka2011.protocol.names import FILTER_CHARACTERS_MAX

COMPILED_BYTES_MAX = 1 << 20  # of one pattern: `((a{20}){20}){20}` is refused


def normalise(pattern: str) -> str:
    """The pattern that 0.7 makes of a text: trimmed, commas to bars, no spaces, unquoted."""
    return pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")


def _compiled(pattern: str) -> Any:
    import re2  # a shared library, which only wildcard subscriptions need

    if not pattern or len(pattern) > FILTER_CHARACTERS_MAX:
        raise IllegalTopicFilter(f"a topic filter has 1 to {FILTER_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = COMPILED_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:  # JSON can hold half a surrogate pair
        reason = error.args[0]
        text = reason.decode() if isinstance(reason, bytes) else "not UTF-8"
        raise IllegalTopicFilter(f"topic filter {pattern!a}: {text}") from None


class TopicFilter:
    """A compiled filter: `allows(topic)`.

    `text` is the pattern as typed, which is what the consumer registry holds. Raises
    IllegalTopicFilter.
    """

    def __init__(self, kind: Literal["whitelist", "blacklist"], text: str) -> None:
        self.kind = kind
        self.text = text
        self._pattern = _compiled(normalise(text))
        self._known: dict[str, bool] = {}

    def allows(self, topic: str) -> bool:
        known = self._known.get(topic)
        if known is None:
            known = (self._pattern.fullmatch(topic) is not None) == (self.kind == "whitelist")
            if len(self._known) < 10_000:
                self._known[topic] = known
        return known

    def select(self, topics: Iterable[str]) -> list[str]:
        return [topic for topic in topics if self.allows(topic)]

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


def blacklist_with(topics: Iterable[str], text: str) -> TopicFilter:
    """Topics but these and, if there is a text, those that it matches; as `blacklist` of it, which
    may be quoted."""
    return blacklist("|".join(filter(None, [*sorted(topics), normalise(text)])))
