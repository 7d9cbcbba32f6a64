"""A synchronous producer's single messages: one request each, to its one broker.

Does the same as `Producer.send` with a list of one plain payload, but skips the steps whose outcome
never changes. `_single_sends_compiled` (Cython) and `_single_sends_pure` are twins; the compiled
one is used where it was built, unless KAFKA2011_PURE=1 is set.

`SingleSends(connection, lock, name, reconnect)` sends messages of one topic, whose `name` is legal,
through one connection. `lock` is the producer's; `reconnect(connection)` makes a planned reconnect.

- `put_one(topic, partition, payload, key)` sends one payload that is not too large; partition and
  key have no effect. Raises as `Producer.send`.
- `sends` and `set_bytes` count what it has sent.
- `is_closed` is set, under the lock, when the producer is closed.

The compiled one borrows the connection (`BrokerConnection.lend`) and writes frames to its
socket itself: half a microsecond instead of two.
"""

from typing import TYPE_CHECKING

from kafka2011.producer import _single_sends_pure
from kafka2011.runtime.twins import is_pure_wanted

if TYPE_CHECKING or is_pure_wanted():
    SingleSends = _single_sends_pure.SingleSends
else:
    try:
        from kafka2011.producer._single_sends_compiled import SingleSends
    except ImportError:  # no C compiler when this was installed
        SingleSends = _single_sends_pure.SingleSends

__all__ = ["SingleSends"]
