"""What is lost or was not read, though no cell lacks it."""

from typing import Any

import pytest

from kafka2011.events.topics import AUDIT
from kafka2011.services.audit.books.progress import DELETED_FROM_START, DELETED_UNREAD
from kafka2011.services.audit.losses import losses_of

TIERS = {"live": {}, "offline": {}}  # of topic t, which need not reach the warehouse
TOPICS = {"t": {"is_audited": True, "tiers": TIERS}, "u": {"is_audited": False, "tiers": TIERS}}
ELECTION = {"tier": "live", "time_ms": 5, "reason": "unclean election of a in epoch 2"}
LOST = "an unclean election lost a range of a log of live"
MAY_BE = "an unclean election may have lost messages of live"
NOT_READ = "a range of live was not read"


def found(**parts: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    empty: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("unread", "deleted", "unclean_elections")
    }
    return [(each["what"], each["topics"]) for each in losses_of(TOPICS, **(empty | parts))]


def unread(topic: str, reason: str, first: int = 5, last: int = 9) -> dict[str, Any]:
    place = {"tier": "live", "topic": topic, "place": "3-0"}
    return {**place, "first": first, "last": last, "reason": reason}


def test_what_an_unclean_election_cut_is_lost_of_whichever_topic() -> None:
    cut = [unread(topic, f"lost: {ELECTION['reason']}", first=0) for topic in ("u", AUDIT, "t")]
    assert found(unread=cut, unclean_elections=[ELECTION]) == [(LOST, [AUDIT, "t", "u"])]
    assert found(unread=cut) == [(LOST, [AUDIT, "t", "u"])], "the set was made anew"


def test_an_unclean_election_that_cut_nothing_that_was_read_may_have_lost_messages() -> None:
    """Also where the ranges of an old one are not kept any more."""
    assert found(unclean_elections=[ELECTION]) == [(MAY_BE, [])]


@pytest.mark.parametrize(
    ("entry", "is_loss"),
    [
        (unread("t", DELETED_UNREAD), True),
        (unread(AUDIT, DELETED_UNREAD), True),
        (unread("t", DELETED_FROM_START, first=0), True),
        (unread("t", "damaged entry: its CRC"), True),
        # What retention had deleted before the books began; a topic that no producer reports; one
        # without a cell; a log that was lost, which `unknown` has.
        (unread("t", DELETED_UNREAD, first=0), False),
        (unread("u", DELETED_UNREAD), False),
        (unread("v", DELETED_UNREAD), False),
        (unread("t", "the log was lost or replaced", last=0), False),
    ],
)
def test_what_was_not_read_of_an_audited_topic_is_a_loss(
    entry: dict[str, Any], is_loss: bool
) -> None:
    assert found(unread=[entry]) == ([(NOT_READ, [entry["topic"]])] if is_loss else [])


def test_what_was_deleted_too_early_is_a_loss_where_it_had_to_arrive() -> None:
    def deleted(topic: str, tier: str) -> dict[str, Any]:
        return {"tier": tier, "source": "live", "topic": topic, "first": 0, "last": 5}

    exempt, unaudited = deleted("t", "warehouse"), deleted("u", "offline")
    assert found(deleted=[exempt, unaudited, deleted("t", "offline")]) == [
        ("a range of live was deleted before offline had confirmed it", ["t"])
    ]
