"""How many events of each moment are in the counts."""

from kafka2011.services.site.ages import AGE_MS_MAX, BIN_MS, BINS_MAX, EventAges

NOW_MS = 1_000_000


def test_events_are_counted_by_their_moment_and_old_ones_by_their_age() -> None:
    ages = EventAges()
    old = (AGE_MS_MAX, 75_432, 75_999, 123_456, 10**6)
    for age_ms in (0, 1, BIN_MS, -(10**9), *old):
        ages.add(NOW_MS - age_ms, NOW_MS)
    newest = NOW_MS // BIN_MS
    assert ages.shown(NOW_MS) == {
        "bin_ms": BIN_MS,
        "bins": {newest: 2, newest - 1: 2},
        "older": {20_000: 1, 76_000: 2, 130_000: 1, 1_000_000: 1},
    }


def test_what_is_counted_is_there_for_the_next_reading() -> None:
    ages = EventAges()
    ages.add(NOW_MS - AGE_MS_MAX + BIN_MS, NOW_MS)
    assert ages.shown(NOW_MS + AGE_MS_MAX - BIN_MS)["bins"]


def test_it_does_not_grow() -> None:
    ages = EventAges()
    for now_ms in range(0, 100 * AGE_MS_MAX, BIN_MS):
        ages.add(now_ms, now_ms)
        ages.add(0, now_ms)
    assert len(ages._bins) <= 3 * BINS_MAX
    assert len(ages._older) <= 3 * 90
    assert ages.shown(now_ms)["bins"].keys() == set(
        range(now_ms // BIN_MS - 2 * BINS_MAX + 1, now_ms // BIN_MS + 1)
    )
