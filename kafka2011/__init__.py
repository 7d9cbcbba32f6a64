"""A distributed messaging system for log processing: the Kafka of the NetDB'11 paper, in Python.

What a program needs is here; errors and settings are beside their class (`kafka2011.producer`,
`kafka2011.consumer`). docs/public.md names the whole public surface; anything else may change.

Names are loaded at first use: importing one client does not load the other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka2011.consumer import Consumer, SimpleConsumer
    from kafka2011.producer import Producer

__version__ = "0.1.0"

__all__ = ["Consumer", "Producer", "SimpleConsumer", "__version__"]

_ROOM_OF = {
    "Consumer": "kafka2011.consumer",
    "Producer": "kafka2011.producer",
    "SimpleConsumer": "kafka2011.consumer",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ROOM_OF[name]), name)
