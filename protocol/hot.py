"""Picks the twin of the hot loops at import: compiled where it was built, else pure Python.

`KAFKA2011_PURE=1` in the environment forces the pure one (the tests run both). This is the one
module outside the entry points that looks at the environment: the choice must be made at import.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KAFKA2011_PURE"):
    from protocol import _hot_pure as _twin
else:
    try:
        from protocol import _hot_compiled as _twin
    except ImportError:  # no C compiler when this was installed
        from protocol import _hot_pure as _twin

COMPILED: bool = _twin.COMPILED

scan = _twin.scan
check_entries = _twin.check_entries
split = _twin.split
messages = _twin.messages
payloads = _twin.payloads
encode = _twin.encode
