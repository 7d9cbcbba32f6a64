"""Picks the twin of the hot loops at import: compiled where it was built, else pure Python.

`KAFKA2011_PURE=1` in the environment forces the pure one (the tests run both); the choice must be
made at import. It repeats the rule of `runtime.twins`: this package imports nothing of ours.
"""

import copyreg
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
    "messages",
    "payloads",
    "produce_runs",
    "scan",
    "split",
    "take_consumed",
    "take_iterator",
    "take_messages",
    "take_payloads",
]

COMPILED: bool = _twin.COMPILED

check_entries = _twin.check_entries
consumed = _twin.consumed
encode = _twin.encode
messages = _twin.messages
payloads = _twin.payloads
produce_runs = _twin.produce_runs
scan = _twin.scan
split = _twin.split
take_consumed = _twin.take_consumed
take_iterator = _twin.take_iterator
take_messages = _twin.take_messages
take_payloads = _twin.take_payloads


def _consumed_again(*fields: Any) -> ConsumedMessage:
    return ConsumedMessage(*fields)


def _reduced(message: ConsumedMessage) -> tuple[Callable[..., ConsumedMessage], tuple[Any, ...]]:
    names = ConsumedMessage.__match_args__
    return _consumed_again, tuple(getattr(message, name) for name in names)


# A message is unpickled as the class that is in use there: a process without the compiled twin
# reads those of one that has it.
copyreg.pickle(ConsumedMessage, _reduced)
