"""How many events of each moment are in the counts."""

from kafka2011.services.site.ages import BIN_MS, BINS_MAX, EventAges

NOW_MS = 1_000_000


def test_events_are_counted_by_their_moment() -> None:
    ages = EventAges()
    for time_ms in (NOW_MS, NOW_MS - 1, NOW_MS - BIN_MS, NOW_MS + 10**9, NOW_MS - 10**6):
        ages.add(time_ms, NOW_MS)
    newest = NOW_MS // BIN_MS
    assert ages.shown(NOW_MS) == {
        "bin_ms": BIN_MS,
        "bins": {newest: 2, newest - 1: 2},
        "older": 1,
    }


def test_it_does_not_grow() -> None:
    ages = EventAges()
    for now_ms in range(0, 100 * BINS_MAX * BIN_MS, BIN_MS):
        ages.add(now_ms, now_ms)
    assert len(ages._bins) <= 2 * BINS_MAX
    assert ages.shown(now_ms)["bins"].keys() == set(
        range(now_ms // BIN_MS - BINS_MAX + 1, now_ms // BIN_MS + 1)
    )
