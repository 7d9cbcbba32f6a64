"""What a summary says of what is lost, or was not read, though no cell lacks it.

A message that was counted stays counted: the cells cannot show what a log has lost since. Pure.
docs/audit.md describes the fields.
"""

from collections.abc import Iterable, Mapping

from kafka2011.events.topics import AUDIT
from kafka2011.services.audit.books.progress import (
    DELETED_FROM_START,
    LOST,
    TABLE,
    TABLE_VERSIONS,
)
from kafka2011.services.audit.report import Json


def losses_of(
    topics: Mapping[str, Json],
    *,
    unread: Iterable[Json],
    deleted: Iterable[Json],
    unclean_elections: Iterable[Json],
) -> list[Json]:
    """Why it cannot be said that nothing is lost, also where all cells are complete: by tier and
    kind `what`, in words, and the `topics` concerned (none: it is not known which).

    `topics`: the sums of all topics. What was not read, or deleted too early, of a topic that is
    not audited, or need not reach the tier, is no loss; nor is what retention had deleted before
    the books began, which `retained_from` has.
    """
    found: dict[tuple[str, str], set[str]] = {}

    def add(tier: str, what: str, topic: str) -> None:
        found.setdefault((tier, what), set()).add(topic)

    elected = set()
    for each in unread:
        tier, topic = each["tier"], each["topic"]
        is_audited = topic == AUDIT or topics.get(topic, {}).get("is_audited", False)
        if each["reason"].startswith(LOST):
            elected.add(tier)
            add(tier, f"an unclean election lost a range of a log of {tier}", topic)
            continue
        # Not from its beginning: that may have been deleted before the books began. A log that is
        # lost as a whole is in `unknown`.
        is_part = 0 < each["first"] < each["last"] or each["reason"] == DELETED_FROM_START
        if is_audited and is_part:
            add(tier, f"a range of {tier} was not read", topic)
    for each in deleted:
        sums = topics.get(each["topic"], {})
        if sums.get("is_audited") and each["tier"] in sums["tiers"]:
            what = f"a range of {each['source']} was deleted before {each['tier']} had confirmed it"
            add(each["tier"], what, each["topic"])
    known = [
        {"tier": tier, "topics": sorted(of_topics), "what": what}
        for (tier, what), of_topics in found.items()
    ]
    return known + [
        {
            "tier": each["tier"],
            "topics": [],
            "what": f"an unclean election may have lost messages of {each['tier']}",
        }
        for each in unclean_elections
        if each["tier"] not in elected
    ]


def unread_text(unread: Json) -> str:
    """A line on an entry of `unread`."""
    first, last, reason = unread["first"], unread["last"], unread["reason"]
    topic, place = f"{unread['tier']} {unread['topic']}", unread["place"]
    if place == TABLE:
        return f"{topic}: {reason}"
    if place == TABLE_VERSIONS:
        versions = (
            f"version {first} was" if last == first + 1 else f"versions {first} to {last - 1} were"
        )
        return f"{topic}: {versions} not read: {reason}"
    what = f"from offset {first} to {last} was not read"
    if reason.startswith(LOST):
        what = f"from offset {first} to {last} is lost"
    elif last < first:  # another log
        what = f"beyond offset {first} was not read"
    return f"{topic} {place}: {what}: {reason.removeprefix(LOST)}"
