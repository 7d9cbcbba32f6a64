"""The asynchronous producer's per-message steps: queueing, and grouping a batch by partition.

`_intake_compiled` (Cython) and `_intake_pure` are twins; the compiled one is used where it was
built, unless KAFKA2011_PURE=1 is set. `COMPILED` is True when it is.

`Intake(size, batch_size, on_batch, on_full)` holds at most `size` messages, in order, safe from any
number of threads. None of its methods waits:

- `put_one(topic, partition, payload, key)` appends one, and calls `on_batch()` when that made
  `batch_size` of them. Where there is no room it calls `on_full` with its arguments instead.
- `offer(event)` appends if there is room and returns whether there was; it makes no callback.
- `take()` empties it and returns what it held, in order. `waiting()` returns a copy.
- `close()`: there is no room from now on. What is queued can still be taken.

`group(messages)` returns a dict of (topic, partition) to payloads in order, from messages of
(topic, partition, payload, key); its keys are in the order of their first message.
"""

from typing import TYPE_CHECKING

from kafka2011.producer.asynchronous import _intake_pure
from kafka2011.producer.asynchronous._intake_pure import QueuedEvent
from kafka2011.runtime.twins import is_pure_wanted

if TYPE_CHECKING:
    from kafka2011.producer.asynchronous._intake_pure import Intake, group

    COMPILED: bool
elif is_pure_wanted():
    Intake, group, COMPILED = _intake_pure.Intake, _intake_pure.group, False
else:
    try:
        from kafka2011.producer.asynchronous._intake_compiled import Intake, group

        COMPILED = True
    except ImportError:  # no C compiler when this was installed
        Intake, group, COMPILED = _intake_pure.Intake, _intake_pure.group, False

__all__ = ["COMPILED", "Intake", "QueuedEvent", "group"]
