"""Reads an event's header without decoding its body, and counts events by window and server.

Two twins do it, `_peek_compiled` (Cython) and `_peek_pure`; the compiled one is taken where it was
built, unless KAFKA2011_PURE=1 asks for the other. `COMPILED` says which.
"""

import os
from typing import TYPE_CHECKING

from events import _peek_pure

if TYPE_CHECKING:
    from events._peek_pure import count_by_window, peek

    COMPILED: bool
elif os.environ.get("KAFKA2011_PURE") == "1":
    from events._peek_pure import count_by_window, peek

    COMPILED = False
else:
    try:
        from events._peek_compiled import count_by_window, peek

        COMPILED = True
    except ImportError:
        count_by_window, peek = _peek_pure.count_by_window, _peek_pure.peek
        COMPILED = False

__all__ = ["COMPILED", "count_by_window", "peek"]
