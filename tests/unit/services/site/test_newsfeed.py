"""The newsfeed: stories of a member's connections, aggregated, newest first."""

import itertools
import json
from typing import Any

import pytest

from kafka2011.events.topics import COMMENT, CONNECTION, LIKE, SHARE, STATUS_UPDATE
from kafka2011.services.site import newsfeed
from kafka2011.services.site.newsfeed import Newsfeed, who
from tests.unit.services.site.events import NOW_MS, event

ANN, BEN, CARLA, DEV = 1, 2, 3, 4
NAMES = {ANN: "Ann", BEN: "Ben", CARLA: "Carla", DEV: "Dev"}


def connected(one: int, other: int) -> Any:
    return CONNECTION, event(
        member_id=one, name=NAMES[one], other_id=other, other_name=NAMES[other]
    )


def wrote(member: int, text: str, time_ms: int = NOW_MS) -> Any:
    return STATUS_UPDATE, event(time_ms, member_id=member, name=NAMES[member], text=text)


def liked(member: int, post: Any) -> Any:
    guid, author = post[1]["header"]["guid"], post[1]["member_id"]
    return LIKE, event(member_id=member, name=NAMES[member], post=guid, author_id=author)


def said(member: int, post: Any, text: str) -> Any:
    _, fields = liked(member, post)
    return COMMENT, {**fields, "text": text, "host": "10.0.0.1"}


def fed(*events: Any) -> Newsfeed:
    use = Newsfeed()
    for topic, each in events:
        use.take(topic, each, NOW_MS)
    return use


@pytest.mark.parametrize(
    ("names", "count", "words"),
    [
        (["Ann"], 1, "Ann"),
        (["Ann", "Ben"], 2, "Ann and Ben"),
        (["Ann", "Ben"], 5, "Ann and 4 others"),
        (["Ann"], 2, "Ann and 1 other"),
        ([], 3, "3 members"),
    ],
)
def test_who(names, count, words) -> None:
    assert who(names, count) == words


def test_the_posts_of_connections_newest_first() -> None:
    shared = SHARE, event(NOW_MS + 5, member_id=CARLA, path="/in/7", channel="network")
    first, second = wrote(BEN, "hello", NOW_MS + 1), wrote(BEN, "again", NOW_MS + 9)
    use = fed(
        first, shared, second, wrote(DEV, "alone"), connected(ANN, BEN), connected(ANN, CARLA)
    )
    found = [(each["author"], each["kind"], each["text"]) for each in use.feed(ANN)]
    assert found == [
        ("Ben", "wrote", "again"),
        ("Carla", "shared", "/in/7"),
        ("Ben", "wrote", "hello"),
    ]
    assert use.feed(DEV) == []


POST = wrote(DEV, "we are hiring")
ABOUT_IT = [
    POST,
    connected(ANN, BEN),
    liked(CARLA, POST),
    liked(BEN, POST),
    said(CARLA, POST, "ok"),
]


def test_a_post_that_a_connection_likes_names_that_one_first_in_any_order() -> None:
    for order in itertools.permutations(ABOUT_IT):
        [story] = fed(*order).feed(ANN)
        assert (story["author"], story["is_known"]) == ("Dev", False), order
        assert (story["liked_by"], story["likes"]) == ("Ben and Carla", 2), order
        assert (story["comments"], story["comment"]) == (1, {"name": "Carla", "text": "ok"}), order


def test_a_story_without_its_post_is_not_shown() -> None:
    use = fed(connected(ANN, BEN), liked(BEN, POST))
    assert use.feed(ANN) == []


def test_who_is_chosen_to_be_shown_has_connections() -> None:
    use = fed(connected(ANN, BEN), connected(ANN, CARLA), wrote(BEN, "x"))
    shown = use.shown(NOW_MS)
    assert (shown["name"], shown["connections"], len(shown["stories"])) == ("Ann", 2, 1)
    assert fed().shown(NOW_MS)["stories"] == []


def test_the_oldest_stories_and_connections_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(newsfeed, "STORIES_MAX", 3)
    monkeypatch.setattr(newsfeed, "CONNECTIONS_MAX", 1)
    use = fed(connected(ANN, BEN), *(wrote(BEN, str(number)) for number in range(9)))
    assert len(use.feed(ANN)) == 3
    topic, each = connected(CARLA, DEV)
    use.take(topic, each, NOW_MS)
    assert use.feed(ANN) == []


def test_who_is_connected_with_oneself_has_no_connection(monkeypatch) -> None:
    monkeypatch.setattr(newsfeed, "CONNECTIONS_MAX", 1)
    use = fed(connected(ANN, ANN))
    assert use.shown(NOW_MS)["connections"] == 0
    again = Newsfeed()
    again.restore({**json.loads(json.dumps(use.state())), "edges": [[ANN, ANN]]})  # of before
    for each in (use, again):
        for one, other in ((BEN, CARLA), (CARLA, DEV)):
            topic, event_of_two = connected(one, other)
            each.take(topic, event_of_two, NOW_MS)
        assert [each.shown_of(member)["connections"] for member in NAMES] == [0, 0, 1, 1]


def test_a_quiet_story_is_written_once_and_again_after_something_new() -> None:
    use = fed(*ABOUT_IT)
    later = NOW_MS + newsfeed.QUIET_MS
    assert use.results(later - 1) == []
    [found] = use.results(later)
    assert (found.fields["likes"], found.fields["liked_by"]) == (2, "Carla and Ben")
    assert use.results(later) == []
    topic, each = liked(ANN, POST)
    use.take(topic, each, NOW_MS)
    assert [each.fields["likes"] for each in use.results(later)] == [3]


def test_a_restored_one_says_the_same() -> None:
    use, again = fed(*ABOUT_IT), Newsfeed()
    again.restore(json.loads(json.dumps(use.state())))
    assert again.feed(ANN) == use.feed(ANN) != []
    assert again.shown(NOW_MS) == use.shown(NOW_MS)
