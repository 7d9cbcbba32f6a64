"""Memory for incoming requests: what is counted, what waits, and when it is called again."""

from functools import partial

from kafka2011.broker.network.buffers import POOL_BUFFER_BYTES, POOL_FREE_MAX, RequestMemory


def no_call() -> None:
    raise AssertionError("called for no reason")


def test_every_buffer_is_counted_until_the_system_has_it_back() -> None:
    memory = RequestMemory(10**9)
    buffers = [memory.take(number) for number in range(POOL_FREE_MAX + 5)]
    assert memory.bytes_held == len(buffers) * POOL_BUFFER_BYTES
    for buffer in buffers:
        memory.give(buffer)
    assert memory.bytes_held == POOL_FREE_MAX * POOL_BUFFER_BYTES, "those the pool keeps"
    again = memory.take("again")
    assert any(again is buffer for buffer in buffers)
    assert memory.bytes_held == POOL_FREE_MAX * POOL_BUFFER_BYTES


def test_remainders_and_large_buffers_are_counted() -> None:
    memory = RequestMemory(10**9)
    tail = memory.keep(memoryview(b"hello"))
    large = memory.take("a", 1_000_000)
    assert memory.bytes_held == 1_000_005
    memory.forget(tail)
    memory.give(large)
    assert memory.bytes_held == 0


def test_free_buffers_make_room() -> None:
    memory = RequestMemory(POOL_BUFFER_BYTES)
    memory.take("old", 10)
    memory.give(memory.take("a"))
    assert memory.has_room("b", POOL_BUFFER_BYTES), "the free one itself"
    assert memory.has_room("b", POOL_BUFFER_BYTES - 10)
    assert memory.bytes_held == 10


def test_what_does_not_fit_waits_and_is_called_once_unless_it_left() -> None:
    called: list[str] = []
    memory = RequestMemory(100)
    buffer = memory.take("a", 100)
    for name in ("b", "c"):
        assert not memory.has_room(name, 30)
        memory.wait(name, partial(called.append, name))
    memory.wait("left", no_call)
    memory.leave("left")
    assert called == []
    memory.give(buffer)
    memory.leave("a")
    assert called == ["b", "c"]
    assert memory.has_room("b", 30)
    memory.leave("b")
    assert called == ["b", "c"]


def test_the_oldest_may_always_go_on() -> None:
    """Else requests that each have a half would wait for each other for ever."""
    called: list[str] = []
    memory = RequestMemory(100)
    assert memory.has_room("first", 1000), "there is no other"
    memory.take("old", 50)
    memory.take("young", 50)
    assert not memory.has_room("young", 80)
    memory.wait("young", partial(called.append, "young"))
    memory.wait("younger", no_call)
    assert memory.has_room("old", 200)
    memory.leave("old")
    assert called == ["young"], "now it is the oldest"
    assert memory.has_room("young", 300)


def test_what_the_logs_hold_is_counted_and_lets_the_oldest_overdraw_only_within_the_bound() -> None:
    """It goes when the disk has come so far, for which no request needs memory. So it is waited
    for; else one connection after the other would be the oldest, and leave a set behind."""
    called: list[str] = []
    memory = RequestMemory(100)
    memory.take("old", 50)
    memory.count_held(60)
    assert memory.bytes_held == 110
    assert memory.has_room("old", 40), "with what is held that is the bound"
    assert not memory.has_room("old", 41)
    memory.wait("old", partial(called.append, "old"))
    assert not memory.has_room("young", 10)
    memory.wait("young", no_call)
    memory.count_held(-60)
    memory.count_held(90)
    memory.wake()
    assert called == ["old"], "it is asked again, for it may be enough"
    memory.count_held(-90)
    assert memory.bytes_held == 50
    assert memory.has_room("old", 1000), "a request above the bound is still completed"


def test_where_the_logs_hold_all_there_is_nobody_is_the_oldest() -> None:
    memory = RequestMemory(100)
    memory.count_held(100)
    assert not memory.has_room("first", 1)
    memory.count_held(-100)
    assert memory.has_room("first", 1000)
