"""Kinds of SQL's values, and what the functions that both engines answer alike make of them. Pure.

Kinds stand for types: only what compares alike is compared. A decimal's kind is its own type,
`decimal(12,2)`.
"""

from typing import Any

from kafka2011.services.warehouse.shell import decimals
from kafka2011.services.warehouse.shell.syntax_tree import (
    Node,
    Unsure,
    text_constant,
    whole_constant,
)

Kinds = dict[str, str]  # a relation's columns, in order, in the case of their declaration

TEXT, WHOLE, REAL, DECIMAL = "text", "whole", "real", "decimal constant"
SINGLE = "float"  # of 32 bits; REAL has 64
BOOLEAN, TIME, DATE, BINARY, OTHER = "boolean", "time", "date", "binary", "nested or rare"
NUMBERS = {WHOLE, REAL}
ORDERED = {TEXT, WHOLE, REAL, SINGLE, BOOLEAN, TIME, DATE, BINARY}

KIND_OF_DELTA = {
    **dict.fromkeys(("byte", "short", "integer", "long"), WHOLE),
    "float": SINGLE,
    "double": REAL,
    "string": TEXT,
    "boolean": BOOLEAN,
    "timestamp": TIME,
    "date": DATE,
    "binary": BINARY,
}

_UNITS = {"second", "minute", "hour", "day", "week", "month", "quarter", "year"}
_PARTS = {"year", "month", "day", "hour", "minute", "second"}
TEXT_PARTS = {"substr", "substring"}
_INT_MAX = 2**31 - 1
# Numbers of 32 bits to Spark, of 64 to DuckDB: the first may overflow.
_INT_FUNCTIONS = {*_PARTS, "length"}
_ARITHMETIC = {"+", "-", "*", "/", "%"}
_LIKE = {"~~", "!~~"}


def kind_of_delta(declared: Any) -> str:
    """The kind of a column, by its type in Delta's schema; a nested type is an object."""
    if not isinstance(declared, str):
        return OTHER
    return declared if decimals.shape(declared) else KIND_OF_DELTA.get(declared, OTHER)


def has_order(kind: str) -> bool:
    """Whether values of this kind are sorted alike."""
    return kind in ORDERED or decimals.shape(kind) is not None


def check_decimals(nodes: list[Node], kinds: list[str]) -> None:
    """Raise Unsure unless decimals are compared exactly: with each other, with whole numbers and
    with constants that have a point and no exponent."""
    shapes = []
    for node, kind in zip(nodes, kinds, strict=True):
        found = (decimals.LONG_DIGITS, 0) if kind == WHOLE else decimals.shape(kind)
        if kind == DECIMAL and node["class"] == "CONSTANT":
            found = decimals.shape_of_constant(node["literal"]["text"])
        if found is None:
            raise Unsure(f"a comparison of decimals with {kind}")
        shapes.append(found)
    if (digits := decimals.digits_compared(shapes)) > decimals.DIGITS_MAX:
        raise Unsure(f"a comparison of decimals of {digits} digits")


def aggregate(name: str, kinds: list[str]) -> str | None:
    """The kind of an aggregate of values of these kinds; None where the engines may differ."""
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if name == "count":
        return WHOLE
    if name in ("min", "max") and has_order(kind):
        return kind
    if name == "sum" and kind in {*NUMBERS, SINGLE}:
        return REAL if kind == SINGLE else kind
    if name == "sum" and (exact := decimals.sum_kind(kind)):
        return exact
    is_number = kind in NUMBERS or kind == SINGLE
    return REAL if name in ("avg", "mean") and is_number else None


def scalar(name: str, arguments: list[Node], kinds: list[str]) -> str | None:
    """The kind of a function or operator of these arguments, each of its kind; None where the
    engines may differ."""
    if name in _ARITHMETIC and kinds and set(kinds) <= NUMBERS:
        if not _INT_FUNCTIONS.isdisjoint(each.get("function_name", "") for each in arguments):
            return None
        if name not in ("/", "%"):
            return REAL if REAL in kinds else WHOLE
        if len(arguments) == 2 and whole_constant(arguments[1]):  # never 0
            return REAL if name == "/" or REAL in kinds else WHOLE
    if name in _LIKE and kinds == [TEXT, TEXT] and text_constant(arguments[1]) is not None:
        return BOOLEAN
    if name == "length" and kinds == [TEXT]:
        return WHOLE
    if name in TEXT_PARTS and kinds[:1] == [TEXT]:
        bounds = [-1 if bound is None else bound for bound in map(whole_constant, arguments[1:])]
        if 1 <= len(bounds) <= 2 and 0 <= min(bounds) <= max(bounds) <= _INT_MAX and bounds[0]:
            return TEXT
    if name == "date_trunc" and kinds == [TEXT, TIME] and text_constant(arguments[0]) in _UNITS:
        return TIME
    return WHOLE if name in _PARTS and kinds == [TIME] else None
