"""Memory for incoming requests: who gets it, who waits, who is told."""

from kafka2011.broker.network.buffers import (
    POOL_BUFFER_BYTES,
    POOL_FREE_MAX,
    BufferBudget,
    BufferPool,
)


def test_pool_lends_what_came_back_and_keeps_a_few() -> None:
    pool = BufferPool()
    one = pool.take()
    assert len(one) == POOL_BUFFER_BYTES
    pool.give(one)
    assert pool.take() is one
    for _ in range(POOL_FREE_MAX + 5):
        pool.give(memoryview(bytearray(POOL_BUFFER_BYTES)))
    assert len(pool._free) == POOL_FREE_MAX


def test_pool_keeps_no_buffer_of_another_size() -> None:
    pool = BufferPool()
    pool.give(memoryview(bytearray(10)))
    assert len(pool.take()) == POOL_BUFFER_BYTES


def test_budget_counts_what_each_holder_has_in_all() -> None:
    budget = BufferBudget(100)
    assert budget.take("a", 40, no_call)
    assert budget.take("a", 60, no_call)
    assert budget.bytes_held == 60
    budget.give_back("a")
    budget.give_back("a")
    assert budget.bytes_held == 0


def no_call() -> None:
    raise AssertionError("called for no reason")


def test_who_does_not_fit_waits_and_is_told_once() -> None:
    told: list[str] = []
    budget = BufferBudget(100)
    assert budget.take("a", 80, no_call)
    assert not budget.take("b", 30, lambda: told.append("b"))
    assert not budget.take("c", 30, lambda: told.append("c"))
    assert told == []
    budget.give_back("a")
    assert told == ["b", "c"]
    assert budget.take("b", 30, no_call)
    budget.give_back("b")
    assert told == ["b", "c"]


def test_the_oldest_may_always_go_on() -> None:
    """Else requests that each have a half would wait for each other for ever."""
    budget = BufferBudget(100)
    assert budget.take("old", 50, no_call)
    assert budget.take("young", 50, no_call)
    assert not budget.take("young", 80, lambda: None)
    assert budget.take("old", 200, no_call)
    budget.give_back("old")
    assert budget.take("young", 300, no_call), "now it is the oldest"


def test_who_left_is_not_told() -> None:
    budget = BufferBudget(100)
    assert budget.take("a", 100, no_call)
    assert not budget.take("b", 1, no_call)
    budget.give_back("b")
    budget.give_back("a")
