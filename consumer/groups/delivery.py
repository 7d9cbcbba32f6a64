"""The loop that every message of a group consumer goes through, and the grant it goes under.

A `Grant` is the permission to deliver what was fetched of a partition under it. It is revoked on
release, on a lost session and on seek; whatever was fetched under a revoked grant is dropped,
wherever it is by then: in flight, in the queue, or half iterated. A grant is suspended while
it is not known whether the session lives; then everything stays where it is. `autooffset.reset`
replaces a grant: what was fetched under it comes out still, and no position is read from it.

`deliver(next_batch, await_grant)` iterates the messages of batch after batch:

- `next_batch(previous)` returns the (iterator of messages, grant) after `previous` (None at first);
  None at the end of the stream. What it raises, the iteration raises.
- `await_grant(grant)` is called for a message whose grant is not open, and waits until it is (True)
  or is revoked (False); then the rest of the batch is dropped.

`_delivery_compiled` (Cython) and `_delivery_pure` are twins; the compiled one is used where it was
built, unless KAFKA2011_PURE=1 is set.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING

from kafka2011.consumer.groups import _delivery_pure
from kafka2011.consumer.groups._delivery_pure import Delivered
from kafka2011.runtime.twins import is_pure_wanted

if TYPE_CHECKING:
    from kafka2011.consumer.groups._delivery_pure import GrantFields, deliver
elif is_pure_wanted():
    GrantFields, deliver = _delivery_pure.GrantFields, _delivery_pure.deliver
else:
    try:
        from kafka2011.consumer.groups._delivery_compiled import GrantFields, deliver
    except ImportError:  # no C compiler when this was installed
        GrantFields, deliver = _delivery_pure.GrantFields, _delivery_pure.deliver

__all__ = ["Delivered", "Grant", "GrantState", "deliver"]


class GrantState(Enum):
    OPEN = auto()
    SUSPENDED = auto()
    REVOKED = auto()


class Grant(GrantFields):
    """A grant. `open` is read for each message, so it is a plain attribute beside the state.

    `last` is the message or chunk delivered last under it, `done` the last that the application has
    finished with: it asked for the next one. They are here and not in the partition, so that a
    stream that comes back after a seek writes into the revoked grant, from which no position is
    read. Both are kept as objects, so that a position costs nothing per message.
    """

    __slots__ = ("state",)

    def __init__(self, before: "Grant | None" = None) -> None:
        self.open = True
        self.state = GrantState.OPEN
        self.last = before.last if before else None
        self.done = before.done if before else None

    def suspend(self) -> None:
        if self.state is GrantState.OPEN:
            self.open = False
            self.state = GrantState.SUSPENDED

    def resume(self) -> None:
        if self.state is GrantState.SUSPENDED:
            self.state = GrantState.OPEN
            self.open = True

    def revoke(self) -> None:
        self.open = False
        self.state = GrantState.REVOKED
