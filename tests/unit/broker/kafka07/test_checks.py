"""Which sets are checked on the loop, what a check finds, and where a job of a thread ends."""

import gzip

import pytest

from kafka2011.broker.kafka07.checks import (
    JOB_REQUESTS_MAX,
    LOOP_PACKED_BYTES_MAX,
    LOOP_REQUEST_BYTES_MAX,
    LOOP_UNPACKED_BYTES_MAX,
    CheckJob,
    Limits,
    LoopChecks,
    LoopShare,
    RequestRefused,
    TooMuchForTheLoop,
    checked_parts,
)
from kafka2011.broker.kafka07.session import RUN_BYTES_MAX
from tests.support.raw_requests import entry, fetch, multi_produce, produce

LIMITS = Limits(1_000_000, 10, 1_000_000, 4)
V = entry(b"hello")


def packed(entries: bytes, members: int = 0) -> bytes:
    return entry(gzip.compress(b"") * members + gzip.compress(entries, mtime=0), attributes=1)


def body(request: bytes) -> memoryview:
    return memoryview(request)[4:]


class Stopwatch:
    """Each look at it is `tick_s` later."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.tick_s = tick_s

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


def test_a_share_of_the_time_that_passes_may_be_spent_and_a_burst() -> None:
    clock = Stopwatch()
    share = LoopShare(0.1, 2.0, clock)
    share.spend(5)
    assert not share.is_left()
    clock.now_s = 29
    assert not share.is_left()
    clock.now_s = 31
    assert share.is_left()
    clock.now_s = 1000
    share.is_left()
    share.spend(1.9)
    assert share.is_left()
    share.spend(0.2)
    assert not share.is_left(), "no more than a burst is saved"


@pytest.mark.parametrize(
    ("message_set", "is_for_the_loop"),
    [
        (V * 1000, True),
        (entry(bytes(900_000)) * 2, False),
        (packed(V * 1000), True),
        (packed(entry(bytes(LOOP_UNPACKED_BYTES_MAX))), False),
        (packed(V, members=LOOP_PACKED_BYTES_MAX // 20), False),
        (packed(entry(bytes(40_000))) * 2, False),
        (packed(packed(entry(bytes(LOOP_UNPACKED_BYTES_MAX)))), False),
    ],
    ids=["plain", "large", "packed", "bomb", "members", "two that add up", "nested"],
)
def test_what_would_hold_the_loop_up_is_not_checked_on_it(
    message_set: bytes, is_for_the_loop: bool
) -> None:
    request = body(produce(b"t", message_set))
    on_the_loop = LoopChecks(LIMITS, Stopwatch())
    (part,) = checked_parts(request, Limits(1_000_000, 10, 10**7, 4), LIMITS.new_budget())
    assert part.fault is None
    if is_for_the_loop:
        assert on_the_loop.check(request) == [part]
    else:
        with pytest.raises(TooMuchForTheLoop):
            on_the_loop.check(request)
    assert on_the_loop.check(body(produce(b"t", packed(V)))), "others are"


def test_with_its_share_spent_the_loop_unpacks_nothing_and_still_takes_plain_sets() -> None:
    clock = Stopwatch(tick_s=1)
    on_the_loop = LoopChecks(LIMITS, clock)
    small = body(produce(b"t", packed(V)))
    on_the_loop.check(small)
    clock.tick_s = 0.0
    for _ in range(3):
        with pytest.raises(TooMuchForTheLoop):
            on_the_loop.check(small)
    assert on_the_loop.check(body(produce(b"t", V)))[0].message_count == 1
    clock.now_s += 100
    assert on_the_loop.check(small)[0].message_count == 1


def test_a_request_on_the_loop_keeps_to_its_own_limits() -> None:
    tight = LoopChecks(Limits(1_000_000, 10, 100, 1), Stopwatch())
    for message_set in (packed(V * 10), packed(packed(V))):
        (part,) = tight.check(body(produce(b"t", message_set)))
        assert part.fault is not None
        assert part.fault.closes


def test_a_part_with_a_large_message_is_passed_over_and_an_invalid_one_is_the_last() -> None:
    request = multi_produce(
        (b"a", 0, V), (b"b", 0, entry(bytes(1_000_001))), (b"c", 0, V[:-1] + b"!"), (b"d", 0, V)
    )
    parts = checked_parts(body(request), LIMITS, LIMITS.new_budget())
    faults = [part.fault and part.fault.reason for part in parts]
    assert faults == [None, "message-too-large", "invalid-message"]


BAD = V[:-1] + b"!"


@pytest.mark.parametrize(
    ("requests", "found"),
    [
        (produce(b"t", V) * 3, 3),
        (produce(b"t", V) * 2 + produce(b"t", V)[:-1], 2),
        (produce(b"t", V) + b"\0\0\0", 1),
        (produce(b"t", V) + fetch(b"t") + produce(b"t", V), 1),
        (produce(b"t", V) + produce(b"t", BAD) + produce(b"t", V), 2),
        (multi_produce(*[(b"t", 0, V)] * 11) + produce(b"t", V), 1),
        (produce(b"t", packed(entry(bytes(900_000)))) * 5, 2),
        (produce(b"t", V) * (JOB_REQUESTS_MAX + 5), JOB_REQUESTS_MAX),
        (produce(b"t", V) + b"\0\0\0\1\0\0", 1),
        (fetch(b"t"), 0),
    ],
    ids=["all", "cut", "size", "fetch", "invalid", "refused", "enough", "many", "nonsense", "none"],
)
def test_a_job_ends_where_the_session_has_to_look_again(requests: bytes, found: int) -> None:
    job = CheckJob(memoryview(requests), 0, len(requests), LIMITS)
    job.run()
    assert len(job.found) == found


def test_a_refusal_is_found_in_order_and_a_cancelled_job_finds_nothing() -> None:
    request = produce(b"t", V) + multi_produce(*[(b"t", 0, V)] * 11)
    job, cancelled = (CheckJob(memoryview(request), 0, len(request), LIMITS) for _ in range(2))
    cancelled.cancel()
    job.run()
    cancelled.run()
    assert [isinstance(one, RequestRefused) for one in job.found] == [False, True]
    assert cancelled.found == []


def test_the_largest_run_is_the_largest_request_on_the_loop() -> None:
    """Requests of one buffer that are taken together are checked on the loop as well."""
    assert RUN_BYTES_MAX == LOOP_REQUEST_BYTES_MAX
