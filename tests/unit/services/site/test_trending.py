"""Trending: most viewed, most shared, viewed together."""

import json
import random

import pytest

from kafka2011.events.topics import ACCESS_LOG, PAGE_VIEW, SHARE, SITE_RELATED
from kafka2011.services.site import trending
from kafka2011.services.site.trending import Trending, item_of
from tests.unit.services.site.events import NOW_MS, event, view


@pytest.mark.parametrize(
    ("path", "item"),
    [
        ("/in/7", "/in/7"),
        ("/company/5?trk=nav", "/company/5"),
        ("/search?page=3", None),
        ("/home", None),
        ("/", None),
    ],
)
def test_an_item_is_a_path_without_its_query_and_no_way_to_items(path, item) -> None:
    assert item_of(path) == item


def test_most_viewed_and_most_shared() -> None:
    use = Trending()
    for path in ("/in/1", "/in/2", "/in/2?from=feed", "/home"):
        use.take(PAGE_VIEW, view(path), NOW_MS)
    use.take(SHARE, event(member_id=1, path="/in/1", channel="mail"), NOW_MS)
    use.take(ACCESS_LOG, event(path="/in/3", host="192.0.2.1"), NOW_MS)
    shown = use.shown(NOW_MS)
    assert [(each["item"], each["count"]) for each in shown["viewed"]] == [
        ("/in/2", 2),
        ("/in/1", 1),
        ("/in/3", 1),
    ]
    assert shown["shared"] == [{"item": "/in/1", "count": 1}]
    assert (shown["views"], shown["shares"], shown["is_exact"]) == (4, 1, True)


def viewed_by_members(use: Trending, members: range) -> None:
    """Each views /in/1, then /in/2; they are watched from the second view on."""
    for number in members:
        for step, path in enumerate(("/in/1", "/in/2")):
            use.take(PAGE_VIEW, view(path, NOW_MS + step, member=number), NOW_MS + step)


def test_what_a_member_views_is_paired_with_what_it_viewed_before() -> None:
    use = Trending()
    viewed_by_members(use, range(1, 3))
    use.take(PAGE_VIEW, view("/in/9", member=99), NOW_MS + trending.WATCH_EVERY_MS)
    viewed_by_members(use, range(3, 8))
    also = {each["item"]: each["also"] for each in use.shown(NOW_MS)["viewed"]}
    assert also["/in/1"] == [{"item": "/in/2", "count": 5}]
    assert also["/in/2"] == [{"item": "/in/1", "count": 5}]
    assert also["/in/9"] == []


def test_a_robot_makes_no_pairs() -> None:
    use = Trending()
    viewed_by_members(use, range(1, 3))
    use.take(PAGE_VIEW, view("/in/9", member=99), NOW_MS + trending.WATCH_EVERY_MS)
    for number in range(trending.ROBOT_VIEWS):
        use.take(PAGE_VIEW, view(f"/in/{number + 100}", member=77), NOW_MS)
    viewed_by_members(use, range(77, 78))
    assert all(not each["also"] for each in use.shown(NOW_MS)["viewed"])


def test_a_restored_one_goes_on_as_the_other_would() -> None:
    rng = random.Random(2)
    events = [
        view(f"/in/{rng.randrange(30)}", NOW_MS + 10 * number, member=rng.randrange(20))
        for number in range(2_000)
    ]
    whole, first = Trending(), Trending()
    for each in events:
        whole.take(PAGE_VIEW, each, each["header"]["time"])
    for each in events[:1_200]:
        first.take(PAGE_VIEW, each, each["header"]["time"])
    second = Trending()
    second.restore(json.loads(json.dumps(first.state())))
    for each in events[1_200:]:
        second.take(PAGE_VIEW, each, each["header"]["time"])
    found, wanted = (use.shown(NOW_MS + 20_000) for use in (second, whole))
    assert [(each["item"], each["count"]) for each in found["viewed"]] == [
        (each["item"], each["count"]) for each in wanted["viewed"]
    ]
    assert found["views"] == wanted["views"] == 2_000


def test_results_are_the_ranks() -> None:
    use = Trending()
    for path in ("/in/1", "/in/2", "/in/2"):
        use.take(PAGE_VIEW, view(path), NOW_MS)
    found = [(each.key, each.fields["item"], each.fields["count"]) for each in use.results(NOW_MS)]
    assert found == [("viewed 1", "/in/2", 2), ("viewed 2", "/in/1", 1)]


def test_the_newest_window_of_the_stream_job_is_shown_whole_and_once() -> None:
    use = Trending()

    def pair(end_ms: int, rank: int, members: int) -> dict:
        window = {"window_start": end_ms - 60_000, "window_end": end_ms}
        names = {"item": f"/in/{rank}", "related": "/in/9"}
        return event(end_ms + 7_000, rank=rank, members=members, **names, **window)

    older = [pair(NOW_MS, rank, 5) for rank in (1, 2, 3)]
    newer = [pair(NOW_MS + 60_000, rank, 4 - rank) for rank in (1, 2)]
    for each in (older[0], *newer, *older[1:], newer[0]):  # in any order, and again
        use.take(SITE_RELATED, each, each["header"]["time"])
    use.take(SITE_RELATED, pair(NOW_MS + 10**12, 1, 9), NOW_MS + 90_000)  # not over: it would stay
    related = use.shown(NOW_MS)["related"]
    assert related["pairs"] == {"1": ["/in/1", "/in/9", 3], "2": ["/in/2", "/in/9", 2]}
    assert related["known_ms"] - related["to_ms"] == 7_000
    again = Trending()
    again.restore(json.loads(json.dumps(use.state())))
    assert again.shown(NOW_MS)["related"] == related
    before = {name: part for name, part in use.state().items() if name != "related"}
    Trending().restore(before)  # a state of before


@pytest.mark.parametrize(
    ("end_ms", "rank"), [(0, 1), (-60_000, 1), (NOW_MS, 0), (NOW_MS, -(2**63)), (NOW_MS, 11)]
)
def test_a_window_or_a_rank_that_no_stream_job_has_is_left_out(end_ms: int, rank: int) -> None:
    use = Trending()
    window = {"window_start": end_ms - 60_000, "window_end": end_ms}
    names = {"item": "/in/1", "related": "/in/9", "members": 2}
    use.take(SITE_RELATED, event(rank=rank, **names, **window), NOW_MS)
    assert not use.shown(NOW_MS)["related"].get("pairs")
