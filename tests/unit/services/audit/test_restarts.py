"""Which windows a restart excuses."""

from kafka2011.services.audit.restarts import REDELIVERY_GRACE_MS, Restart, is_excused


def test_a_restart_excuses_windows_that_began_before_it_or_soon_after() -> None:
    restarts = [Restart("mirror-1", 50_000)]
    assert is_excused(0, restarts)
    assert is_excused(50_000 + REDELIVERY_GRACE_MS, restarts)
    assert not is_excused(50_001 + REDELIVERY_GRACE_MS, restarts)
    assert not is_excused(0, [])


def test_no_restart_excuses_messages_without_a_header() -> None:
    assert not is_excused(-1, [Restart("mirror-1", 50_000)])
