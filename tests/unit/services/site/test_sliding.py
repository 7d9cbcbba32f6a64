"""Counts of the last minutes equal a recount, whatever the order of the events."""

import json
import random
from collections import Counter

from kafka2011.services.site.sliding import SlidingCounts

WINDOW_MS, BUCKET_MS = 60_000, 10_000
NOW_MS = 1_000_000_000


def test_counts_are_those_of_a_recount_from_the_start_of_the_window() -> None:
    rng = random.Random(1)
    events = [(rng.choice("abcde"), NOW_MS - rng.randrange(120_000)) for _ in range(2_000)]
    counts = SlidingCounts(WINDOW_MS, BUCKET_MS, 100)
    for number, (key, time_ms) in enumerate(events):
        counts.add(key, time_ms, NOW_MS - 5_000 + 2 * number)  # the clock goes on meanwhile
    now_ms = NOW_MS + 12_345
    start = counts.start_ms(now_ms)
    assert now_ms - WINDOW_MS < start <= now_ms - WINDOW_MS + BUCKET_MS
    wanted = Counter(key for key, time_ms in events if time_ms >= start)
    assert dict(counts.counts(now_ms)) == wanted
    assert counts.total(now_ms) == wanted.total()
    assert counts.top(2, now_ms) == sorted(wanted.items(), key=lambda each: (-each[1], each[0]))[:2]
    assert counts.is_exact(now_ms)


def test_everything_is_forgotten_in_time() -> None:
    counts = SlidingCounts(WINDOW_MS, BUCKET_MS, 100)
    counts.add("a", NOW_MS, NOW_MS)
    assert counts.count("a", NOW_MS + WINDOW_MS - BUCKET_MS) == 1
    assert counts.count("a", NOW_MS + WINDOW_MS + BUCKET_MS) == 0
    assert counts.state() == []


def test_an_event_too_old_is_not_counted_and_one_of_the_future_counts_as_of_now() -> None:
    counts = SlidingCounts(WINDOW_MS, BUCKET_MS, 100)
    assert not counts.add("old", NOW_MS - WINDOW_MS - 1, NOW_MS)
    assert counts.add("early", NOW_MS + 10**9, NOW_MS)
    assert counts.counts(NOW_MS) == {"early": 1}
    assert counts.count("early", NOW_MS + WINDOW_MS + BUCKET_MS) == 0, "it expires as others do"


def test_keys_beyond_the_bound_count_in_the_total_only_and_it_says_so() -> None:
    counts = SlidingCounts(WINDOW_MS, BUCKET_MS, 2)
    for key in ("a", "b", "c", "a", "d"):
        counts.add(key, NOW_MS, NOW_MS)
    assert counts.counts(NOW_MS) == {"a": 2, "b": 1}
    assert counts.total(NOW_MS) == 5
    assert not counts.is_exact(NOW_MS)
    later = NOW_MS + WINDOW_MS + BUCKET_MS
    assert (counts.total(later), counts.is_exact(later)) == (0, True)


def test_the_state_goes_through_json() -> None:
    counts, again = (SlidingCounts(WINDOW_MS, BUCKET_MS, 2) for _ in range(2))
    for number, key in enumerate(("a", "b", "c", "a")):
        counts.add(key, NOW_MS - 9_000 * number, NOW_MS)
    again.restore(json.loads(json.dumps(counts.state())))
    for now_ms in (NOW_MS, NOW_MS + 30_000, NOW_MS + 90_000):
        assert again.counts(now_ms) == counts.counts(now_ms)
        assert again.total(now_ms) == counts.total(now_ms)
        assert again.is_exact(now_ms) == counts.is_exact(now_ms)
