"""Which sums and comparisons of decimals are exact in Spark and in DuckDB. Pure.

A decimal's kind is its type, `decimal(12,2)`: digits, and how many of them behind the point.
"""

import re
from collections.abc import Iterable

DIGITS_MAX = 38  # in both engines
LONG_DIGITS = 20  # of a long as a decimal
_SUM_DIGITS = 10  # that a sum's type has more than its values' in Spark; DuckDB's has 38
_KIND = re.compile(r"decimal\((\d+),(\d+)\)")
_CONSTANT = re.compile(r"-?(\d*)\.(\d*)")


def shape(kind: str) -> tuple[int, int] | None:
    """Digits and scale of a decimal's kind; None for another kind."""
    found = _KIND.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def shape_of_constant(text: str) -> tuple[int, int] | None:
    """Digits and scale of a constant with a point; None where it has an exponent."""
    found = _CONSTANT.fullmatch(text)
    return (len(found[1] + found[2]), len(found[2])) if found else None


def sum_kind(kind: str) -> str | None:
    """The kind of a decimal's sum; None where its type in Spark has no room for every sum."""
    found = shape(kind)
    if found is None or found[0] > DIGITS_MAX - _SUM_DIGITS:
        return None
    return f"decimal({found[0] + _SUM_DIGITS},{found[1]})"


def digits_compared(shapes: Iterable[tuple[int, int]]) -> int:
    """The digits of the type in which such values are compared: exactly up to DIGITS_MAX."""
    found = list(shapes)
    return max(digits - scale for digits, scale in found) + max(scale for _, scale in found)
