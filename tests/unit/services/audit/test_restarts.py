"""Which windows a restart excuses."""

from kafka2011.services.audit.restarts import REDELIVERY_GRACE_MS, Restart, is_excused


def test_a_restart_excuses_windows_that_began_before_it_or_soon_after() -> None:
    restarts, last_ms = [Restart("mirror-1", 50_000)], 50_000 + REDELIVERY_GRACE_MS
    without_header = -1
    windows = (without_header, 0, last_ms, last_ms + 1)
    assert [is_excused(start_ms, restarts) for start_ms in windows] == [False, True, True, False]
    assert not is_excused(0, [])
