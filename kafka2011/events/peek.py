"""Reads an event's header without decoding its body, and counts events by window and server.

`_peek_compiled` (Cython) and `_peek_pure` are twins; the compiled one is used where it was built,
unless KAFKA2011_PURE=1 is set. `COMPILED` is True when it is.
"""

from typing import TYPE_CHECKING

from kafka2011.events import _peek_pure
from kafka2011.runtime.twins import is_pure_wanted

if TYPE_CHECKING:
    from kafka2011.events._peek_pure import count_by_window, peek

    COMPILED: bool
elif is_pure_wanted():
    from kafka2011.events._peek_pure import count_by_window, peek

    COMPILED = False
else:
    try:
        from kafka2011.events._peek_compiled import count_by_window, peek

        COMPILED = True
    except ImportError:
        count_by_window, peek = _peek_pure.count_by_window, _peek_pure.peek
        COMPILED = False

__all__ = ["COMPILED", "count_by_window", "peek"]
