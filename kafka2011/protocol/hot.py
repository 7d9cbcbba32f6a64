"""Picks the twin of the hot loops at import: compiled where it was built, else pure Python.

`KAFKA2011_PURE=1` in the environment forces the pure one (the tests run both); the choice must be
made at import. It is the rule of `runtime.twins`, said again: this package imports nothing of ours.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("KAFKA2011_PURE") == "1":
    from kafka2011.protocol import _hot_pure as _twin
    from kafka2011.protocol.message import ConsumedMessage
else:
    try:
        from kafka2011.protocol import _hot_compiled as _twin
    except ImportError:  # no C compiler when this was installed
        from kafka2011.protocol import _hot_pure as _twin
    ConsumedMessage = _twin.ConsumedMessage

__all__ = [
    "COMPILED",
    "ConsumedMessage",
    "check_entries",
    "consumed",
    "encode",
    "encode_produce",
    "messages",
    "payloads",
    "produce_runs",
    "scan",
    "split",
]

COMPILED: bool = _twin.COMPILED

check_entries = _twin.check_entries
consumed = _twin.consumed
encode = _twin.encode
encode_produce = _twin.encode_produce
messages = _twin.messages
payloads = _twin.payloads
produce_runs = _twin.produce_runs
scan = _twin.scan
split = _twin.split
