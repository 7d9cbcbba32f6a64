"""Every use takes whatever its topics' schemas allow, and stays what it says that it is."""

import json
import random
from typing import Any

import pytest

from kafka2011.events import codec
from kafka2011.services.site import abuse, ads, newsfeed, operations, search, trending
from kafka2011.services.site.app import uses_of
from kafka2011.services.site.config import USES, SiteConfig
from kafka2011.services.site.newsfeed import Newsfeed
from kafka2011.services.site.results import event_of
from kafka2011.services.site.use import Use
from tests.unit.services.site.events import NOW_MS, odd_event

EVENTS = 3_000
# So low that every use forgets all the time.
BOUNDS = {
    abuse: {"SUBJECTS_MAX": 6, "FINDINGS_MAX": 3},
    ads: {"CAMPAIGNS_MAX": 4, "CHARGED_MAX": 9},
    newsfeed: {"STORIES_MAX": 5, "SAID_MAX": 2, "CONNECTIONS_MAX": 4, "NAMES_MAX": 3},
    operations: {"SUBJECTS_MAX": 4, "CALLS_MAX": 20},
    search: {"KEYS_MAX": 4, "CLICKED_MAX": 3},
    trending: {"KEYS_MAX": 5, "MEMBERS_MAX": 4, "WATCHED": 3},
}


def made(name: str) -> Use:
    [use] = uses_of(SiteConfig(uses=(name,), budgets={"a": 5, "": 2**53}))
    return use


def shown(use: Use, now_ms: int) -> Any:
    """What the page has, as strict JSON; of a newsfeed that of one member, as the choice of whom to
    show is not in the state."""
    found = use.shown_of(7) if isinstance(use, Newsfeed) else use.shown(now_ms)
    return json.loads(json.dumps(found, allow_nan=False))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", USES)
def test_odd_events_are_taken_shown_written_and_restored(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, bounds in BOUNDS.items():
        for bound, value in bounds.items():
            monkeypatch.setattr(module, bound, value)
    rng = random.Random(seed)
    use, now_ms = made(name), NOW_MS
    for number in range(EVENTS):
        topic = rng.choice(use.topics)
        now_ms += rng.choice((0, 1, 50, 1_000, 20_000, 400_000))
        use.take(topic, odd_event(topic, rng, now_ms), now_ms)
        if number % 37 == 0:
            json.dumps(use.shown(now_ms), allow_nan=False)
            for result in use.results(now_ms):
                fields = result.fields
                if max(abs(each) for each in fields.values() if isinstance(each, int)) >= 2**63:
                    continue  # the writer leaves it out
                codec.encode(result.topic, event_of(result, "site"))
        if number % 101 == 0:
            again = made(name)
            again.restore(json.loads(json.dumps(use.state())))
            assert shown(again, now_ms) == shown(use, now_ms), number
