"""Results as events: the same guid for the same result, and every field in its schema."""

import pytest

from kafka2011.events import codec
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.events.topics import (
    CLICK,
    PAGE_VIEW,
    RESULT_TOPICS,
    SEARCH,
    SERVICE_METRIC,
    SITE_ADS,
    SITE_RELATED,
)
from kafka2011.services.site.abuse import Abuse
from kafka2011.services.site.ads import Ads
from kafka2011.services.site.newsfeed import QUIET_MS, Newsfeed
from kafka2011.services.site.operations import Operations
from kafka2011.services.site.results import ResultWriter, event_of
from kafka2011.services.site.search import Search
from kafka2011.services.site.trending import Trending
from tests.unit.services.site.events import NOW_MS, event, view
from tests.unit.services.site.test_measuring import Broker
from tests.unit.services.site.test_newsfeed import ABOUT_IT


def some_results() -> list:
    trending, search, ads, abuse, feed = Trending(), Search(), Ads({"c": 5}), Abuse(), Newsfeed()
    operations = Operations()
    for number in range(2):
        silent = {
            "name": "answers",
            "value": 0.0,
            "host": "h",
            "process": "live/p",
            "kind": "proxy",
        }
        operations.take(SERVICE_METRIC, event(NOW_MS + number, **silent), NOW_MS)
    for number in range(20):
        for use in (trending, abuse):
            use.take(PAGE_VIEW, view(f"/in/{number}"), NOW_MS)
    search.take(SEARCH, event(member_id=1, query="q", result_count=0, elapsed_ms=1), NOW_MS)
    ads.take(CLICK, event(campaign="c", price_micros=1), NOW_MS)
    for topic, each in ABOUT_IT:
        feed.take(topic, each, NOW_MS)
    uses = (trending, search, ads, abuse, feed, operations)
    return [result for use in uses for result in use.results(NOW_MS + QUIET_MS)]


def test_every_result_is_an_event_of_its_topic() -> None:
    broker = Broker()
    writer = ResultWriter(lambda: broker, TopicCodec(FORMS_2011), "site")
    writer.write(some_results())
    # The last one is a stream job's.
    assert {topic for topic, _ in broker.messages} == set(RESULT_TOPICS) - {SITE_RELATED}
    for topic, payload in broker.messages:
        assert codec.decode_as(topic, payload)["header"]["server"] == "site"
    assert sum(writer.written().values()) == len(broker.messages)


def test_guids_differ_and_are_the_same_again() -> None:
    first, second = (
        [event_of(each, "site") for each in results] for results in (some_results(),) * 2
    )
    guids = [each["header"]["guid"] for each in first]
    assert len(set(guids)) == len(guids)
    assert guids == [each["header"]["guid"] for each in second]


@pytest.mark.parametrize("times", [1, 3])
def test_a_cluster_that_is_away_costs_these_results_and_no_more(times: int) -> None:
    broker = Broker()
    writer = ResultWriter(lambda: broker, TopicCodec(FORMS_2011), "site")
    broker.is_away = True
    for _ in range(times):
        writer.write(some_results()[:1])
    broker.is_away = False
    writer.write(some_results()[:1])
    assert (writer.failed, len(broker.messages)) == (times, 1)


def test_a_result_that_its_schema_cannot_say_costs_itself_alone() -> None:
    """A campaign whose prices add up to more than 64 bits."""
    broker = Broker()
    ads = Ads({})
    for campaign, price in (("a", 1), ("b", 2**63 - 1), ("b", 1), ("c", 1)):
        ads.take(CLICK, event(campaign=campaign, price_micros=price), NOW_MS)
    writer = ResultWriter(lambda: broker, TopicCodec(FORMS_2011), "site")
    for _ in range(2):
        writer.write(ads.results(NOW_MS))
    written = [codec.decode_as(topic, payload)["campaign"] for topic, payload in broker.messages]
    assert (written, writer.failed, broker.closed) == (["a", "c"] * 2, 2, 0)
    assert writer.written() == {SITE_ADS: 4}
    writer.write([result for result in ads.results(NOW_MS) if result.key == "b"])
    assert (writer.failed, writer.written()) == (3, {SITE_ADS: 4})
