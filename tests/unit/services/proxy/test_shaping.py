import random

from kafka2011.services.proxy.shaping import Link


def test_rate_is_shared_by_all_that_use_the_link() -> None:
    link = Link(random.Random(1))
    link.configure(rate_bytes_s=1000, delay_ms=0, jitter_ms=0)
    assert link.reserve(10.0, 500) == 10.5
    assert link.reserve(10.0, 500) == 11.0
    assert link.reserve(20.0, 100) == 20.1


def test_delay_with_jitter_stays_in_its_bounds() -> None:
    link = Link(random.Random(1))
    link.configure(rate_bytes_s=0, delay_ms=100, jitter_ms=50)
    arrivals = [link.arrival(5.0) - 5.0 for _ in range(1000)]
    assert 0.05 <= min(arrivals) < 0.06
    assert 0.14 < max(arrivals) <= 0.15


def test_window_of_a_narrow_link_is_small() -> None:
    link = Link(random.Random(1))
    assert link.window_bytes == 8 * 2**20
    link.configure(rate_bytes_s=100_000, delay_ms=100, jitter_ms=0)
    assert link.window_bytes == 45_000
    assert link.piece_bytes == 2000
