"""Both twins of the loop that delivers messages under their grants, against the same claims."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.groups import _delivery_pure

try:
    from kafka2011.consumer.groups import _delivery_compiled
except ImportError:
    TWINS: list[ModuleType] = [_delivery_pure]
else:
    TWINS = [_delivery_pure, _delivery_compiled]

twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition("_")[2])


def grant_of(twin: ModuleType) -> Any:
    grant = twin.GrantFields()
    grant.open, grant.last, grant.done = True, None, None
    return grant


class Batches:
    """Batches of messages, each under a grant of its own, as a stream has them."""

    def __init__(self, twin: ModuleType, sizes: list[int]) -> None:
        self.grants = [grant_of(twin) for _ in sizes]
        self.messages = [
            [SimpleNamespace(batch=batch, number=number) for number in range(size)]
            for batch, size in enumerate(sizes)
        ]
        self._left = [
            (iter(messages), grant)
            for messages, grant in zip(self.messages, self.grants, strict=True)
        ]
        self.current: Any = None

    def behind(self, previous: Any) -> Any:
        if self.current is previous:
            self.current = self._left.pop(0) if self._left else None
        return self.current


@twins
@given(sizes=st.lists(st.integers(0, 3), max_size=5))
def test_a_message_is_done_when_the_next_is_asked_for(twin: ModuleType, sizes: list[int]) -> None:
    batches = Batches(twin, sizes)
    stream = iter(twin.deliver(batches.behind, pytest.fail))
    found = []
    for message in stream:
        grant = batches.grants[message.batch]
        assert grant.last is message
        before = batches.messages[message.batch][message.number - 1] if message.number else None
        assert grant.done is before
        found.append(message)
    assert found == [message for messages in batches.messages for message in messages]
    for grant, messages in zip(batches.grants, batches.messages, strict=True):
        assert grant.done is grant.last is (messages[-1] if messages else None)
    assert next(stream, None) is None


@twins
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_grant_that_is_not_open_is_waited_for(twin: ModuleType, comes_back: bool) -> None:
    batches = Batches(twin, [3, 1])
    asked = []

    def await_grant(grant: Any) -> bool:
        asked.append(grant)
        grant.open = comes_back
        return comes_back

    stream = iter(twin.deliver(batches.behind, await_grant))
    assert next(stream).number == 0
    batches.grants[0].open = False
    rest = [(message.batch, message.number) for message in stream]
    assert asked == batches.grants[:1]
    assert rest == ([(0, 1), (0, 2), (1, 0)] if comes_back else [(1, 0)])
    # What was dropped was not delivered; what the application had, it has finished with.
    first = batches.messages[0]
    assert batches.grants[0].done is batches.grants[0].last is first[2 if comes_back else 0]


@twins
def test_another_iteration_goes_on_where_one_was_left(twin: ModuleType) -> None:
    batches = Batches(twin, [3])
    first = twin.deliver(batches.behind, pytest.fail)
    assert next(iter(first)).number == 0
    second = iter(twin.deliver(batches.behind, pytest.fail))
    assert [message.number for message in second] == [1, 2]
    assert batches.grants[0].done is batches.messages[0][2]


@twins
def test_what_a_batch_raises_the_iteration_raises(twin: ModuleType) -> None:
    def fail(_: Any) -> Any:
        raise LookupError("no batch")

    with pytest.raises(LookupError, match="no batch"):
        next(iter(twin.deliver(fail, pytest.fail)))
