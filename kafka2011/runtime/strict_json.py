"""JSON that every reader takes: numbers that JSON does not have are texts, `NaN`, `Infinity`.

Python's own writer spells those as bare words, at which a browser or `jq` refuses the whole text.
"""

import json
import math
from collections.abc import Callable
from typing import Any


def dumps(value: Any, default: Callable[[Any], Any] | None = None, **options: Any) -> str:
    """As json.dumps. `default` must return no such number."""
    try:
        return json.dumps(value, default=default, allow_nan=False, **options)
    except ValueError:  # a second walk, since few texts have one
        return json.dumps(spelt(value), default=default, allow_nan=False, **options)


def spelt(value: Any) -> Any:
    """`value` with NaN and the infinities as texts, in maps and lists as well."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, dict):
        return {spelt(name): spelt(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [spelt(inner) for inner in value]
    return value
