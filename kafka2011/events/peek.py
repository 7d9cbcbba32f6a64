"""Reads an event's header without decoding its body, and counts events by window and server.

Two twins do it, `_peek_compiled` (Cython) and `_peek_pure`; the compiled one is taken where it was
built, unless KAFKA2011_PURE=1 asks for the other. `COMPILED` says which.
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
