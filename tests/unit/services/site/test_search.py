"""Search: queries, clicks on results, positions, and searches without a click."""

import itertools
import json

import pytest

from kafka2011.events.topics import CLICK, IMPRESSION, SEARCH
from kafka2011.services.site.search import Search
from tests.unit.services.site.events import NOW_MS, event


def searched(query: str, found: int = 9) -> dict:
    return event(member_id=1, query=query, result_count=found, elapsed_ms=3)


def of_search(search: dict | None, position: int = 0) -> dict:
    return event(
        member_id=1,
        path="/search",
        item=f"job-{position}",
        position=position,
        search=search["header"]["guid"] if search else None,
        query=search["query"] if search else None,
        campaign=None,
        price_micros=0,
    )


KAFKA, SPARK, NURSE = searched("kafka"), searched("kafka"), searched("nurse", found=0)
EVENTS = [
    (SEARCH, KAFKA),
    (SEARCH, SPARK),
    (SEARCH, NURSE),
    *(
        (IMPRESSION, of_search(search, position))
        for search in (KAFKA, SPARK)
        for position in (0, 1)
    ),
    (CLICK, of_search(KAFKA, 0)),
    (CLICK, of_search(KAFKA, 1)),
    (IMPRESSION, of_search(None)),
    (CLICK, of_search(None)),
]


@pytest.mark.parametrize("order", [EVENTS, EVENTS[::-1], EVENTS[4:] + EVENTS[:4]])
def test_figures_in_any_order_of_the_topics(order) -> None:
    use = Search()
    for topic, each in order:
        use.take(topic, each, NOW_MS)
    shown = use.shown(NOW_MS)
    assert (shown["searches"], shown["clicks"], shown["without"], shown["empty"]) == (3, 2, 2, 1)
    assert shown["queries"] == [
        {"query": "kafka", "searches": 2, "empty": 0, "clicks": 2, "without": 1},
        {"query": "nurse", "searches": 1, "empty": 1, "clicks": 0, "without": 1},
    ]
    assert shown["positions"] == [
        {"position": 0, "shown": 2, "clicked": 1},
        {"position": 1, "shown": 2, "clicked": 1},
    ]
    assert shown["results"] == [{"item": "job-0", "count": 1}, {"item": "job-1", "count": 1}]


def test_a_restored_one_says_the_same_and_knows_what_was_clicked() -> None:
    use, again = Search(), Search()
    for topic, each in EVENTS:
        use.take(topic, each, NOW_MS)
    again.restore(json.loads(json.dumps(use.state())))
    assert again.shown(NOW_MS) == use.shown(NOW_MS)
    again.take(CLICK, of_search(KAFKA, 2), NOW_MS)
    assert again.shown(NOW_MS)["without"] == 2, "the search was clicked before"


def test_results_are_rows_of_queries() -> None:
    use = Search()
    for topic, each in itertools.islice(EVENTS, 3):
        use.take(topic, each, NOW_MS)
    assert [(each.key, each.fields["searches"]) for each in use.results(NOW_MS)] == [
        ("kafka", 2),
        ("nurse", 1),
    ]
    found = [[each.fields["without_click"] for each in use.results(NOW_MS)]]
    use.is_late = True  # its clicks may be unread
    found.append([each.fields["without_click"] for each in use.results(NOW_MS)])
    assert found == [[2, 1], [None, None]]
