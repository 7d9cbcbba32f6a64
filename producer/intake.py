"""What the asynchronous producer does for each message: queueing it, and grouping a batch of them.

Two twins do it, `_intake_compiled` (Cython) and `_intake_pure`; the compiled one is taken where it
was built, unless KAFKA2011_PURE=1 asks for the other. `COMPILED` says which.

`Intake(size, batch_size, on_batch, on_full)` holds at most `size` messages, in order, safe from any
number of threads. None of its methods waits:

- `put_one(topic, partition, payload, key)` appends one, and calls `on_batch()` when that made
  `batch_size` of them. Where there is no room it calls `on_full` with its arguments instead.
- `offer(event)` appends if there is room, and says whether there was; it calls nobody.
- `take()` empties it; what it held, in order. `waiting()` is a copy.
- `close()`: no room from now on. What is in stays to be taken.

`group(messages)` makes of messages, each (topic, partition, payload, key), a dict of (topic,
partition) to payloads in order; its keys in the order of their first message. The key has placed
the message and has no part in this.
"""

from typing import TYPE_CHECKING

from kafka2011.producer import _intake_pure
from kafka2011.producer._intake_pure import QueuedEvent
from kafka2011.runtime.twins import is_pure_wanted

if TYPE_CHECKING:
    from kafka2011.producer._intake_pure import Intake, group

    COMPILED: bool
elif is_pure_wanted():
    Intake, group, COMPILED = _intake_pure.Intake, _intake_pure.group, False
else:
    try:
        from kafka2011.producer._intake_compiled import Intake, group

        COMPILED = True
    except ImportError:  # no C compiler when this was installed
        Intake, group, COMPILED = _intake_pure.Intake, _intake_pure.group, False

__all__ = ["COMPILED", "Intake", "QueuedEvent", "group"]
