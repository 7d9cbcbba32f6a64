"""Avro types to Arrow types, and the conversion of a decoded value into what Arrow takes.

    null, boolean, int, long, float, double   nothing, bool, int32, int64, float32, float64
    bytes, fixed; string, enum                binary; string
    array, map, record                        list, map of string, struct
    union with null                           the other type (every column is optional)
    union of int and long, float and double   int64, float64
    any other union                           struct, of which one field is not null: a named type's
                                              has its name, the others' are member0, member1, ...
    date                                      date32
    timestamp-millis, timestamp-micros        timestamp in microseconds, UTC
    local-timestamp-millis, -micros           timestamp in microseconds, without a zone
    decimal (up to 38 digits)                 decimal128
    uuid                                      string
    other logical types                       as the type below them
    a type inside itself; an empty record     text of JSON

The types are those of Spark's from_avro. So are the names, except in unions with named types, whose
members keep their columns when others are added or they change places. Values come from fastavro
without logical types: times as whole numbers, decimals as bytes.
"""

import decimal
import itertools
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kafka2011.events.schemas import Schema
from kafka2011.events.topic_codec import DECIMAL_DIGITS_MAX
from kafka2011.runtime import strict_json
from kafka2011.runtime.clock import TIME_MS_MAX

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")

# Years 1 to 9999: the range of Spark, of Python and of a four-digit hour bucket.
TIME_MS_MIN = -62_135_596_800_000
DAY_MIN, DAY_MAX = TIME_MS_MIN // 86_400_000, TIME_MS_MAX // 86_400_000
TIME_OUTSIDE = "a time lies outside the years 1 to 9999"
DATE_OUTSIDE = "a date lies outside the years 1 to 9999"

# A member of a union that is called by its number.
NUMBERED = re.compile(r"member\d+", re.IGNORECASE)

Convert = Callable[[Any], Any]

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_PYTHON_TYPES: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}
_NAMED = ("record", "error", "enum", "fixed")
_INT_MAX = 2**31 - 1
_TIMES = {
    "timestamp-millis": (TIMESTAMP, "ms"),
    "timestamp-micros": (TIMESTAMP, "us"),
    "local-timestamp-millis": (LOCAL_TIMESTAMP, "ms"),
    "local-timestamp-micros": (LOCAL_TIMESTAMP, "us"),
}


class Resolved(NamedTuple):
    """A column's type and conversion. `convert` None: values stay as decoded. `unit`: "ms" or "us"
    for a time, "day" for a date."""

    type: pa.DataType
    convert: Convert | None = None
    unit: str = ""


class TypeResolver:
    """Resolves the types of one schema. `named`: its named types, by full name.

    `names_types`: the schema has a union that becomes a struct, so the decoder must give the named
    type of a value in a union (`codec.decode_body`). `by_number`: all members of unions are named
    by number, as in tables of earlier versions.
    """

    def __init__(
        self, schema: Schema, named: Mapping[str, Any], *, by_number: bool = False
    ) -> None:
        self._named = named
        self._by_number = by_number
        self._open: list[str] = []
        self.names_types = any(map(_has_general_union, [schema, *named.values()]))

    def resolve(self, node: Any) -> Resolved:
        """The column of a field. A time's or date's `convert` is for one inside another value."""
        if isinstance(node, list):
            return self._union(node)
        if isinstance(node, str):
            if node in _PRIMITIVES:
                return Resolved(_PRIMITIVES[node])
            if node in self._open:
                return Resolved(pa.string(), self._to_json(node))
            return self.resolve(self._named[node])
        kind = node["type"]
        if kind == "array":
            item = self.resolve(node["items"])
            if pa.types.is_null(item.type):
                return Resolved(pa.string(), as_json)
            return Resolved(pa.list_(item.type), _list_converter(item.convert))
        if kind == "map":
            value = self.resolve(node["values"])
            if pa.types.is_null(value.type):
                return Resolved(pa.string(), as_json)
            return Resolved(pa.map_(pa.string(), value.type), _map_converter(value.convert))
        if kind in ("record", "error"):
            return self._struct(node)
        if kind == "enum":
            return Resolved(pa.string())
        return _logical(node) or self._plain(kind)

    def _to_json(self, node: str) -> Convert:
        if not self.names_types:
            return as_json
        return lambda value: as_json(_unnamed(node, value, self._named))

    def _plain(self, kind: Any) -> Resolved:
        return Resolved(pa.binary()) if kind == "fixed" else self.resolve(kind)

    def _struct(self, node: Schema) -> Resolved:
        self._open.append(node["name"])
        parts = [(part["name"], self.resolve(part["type"])) for part in node["fields"]]
        self._open.pop()
        parts = [(name, part) for name, part in parts if not pa.types.is_null(part.type)]
        if not parts:
            return Resolved(pa.string(), as_json)
        columns = unique_names([name for name, _ in parts])
        struct = pa.struct([(c, part.type) for c, (_, part) in zip(columns, parts, strict=True)])
        named = [(name, c, part.convert) for c, (name, part) in zip(columns, parts, strict=True)]
        if any(name != column for name, column, _ in named):

            def convert_names(value: dict[str, Any]) -> dict[str, Any]:
                return {
                    column: value[name]
                    if convert is None or value[name] is None
                    else convert(value[name])
                    for name, column, convert in named
                }

            return Resolved(struct, convert_names)
        changed = [(name, convert) for name, _, convert in named if convert is not None]
        if not changed:
            return Resolved(struct)

        def convert_struct(value: dict[str, Any]) -> dict[str, Any]:
            made = dict(value)
            for name, convert in changed:
                inner = made[name]
                if inner is not None:
                    made[name] = convert(inner)
            return made

        return Resolved(struct, convert_struct)

    def _union(self, node: list[Any]) -> Resolved:
        kinds = [part for part in node if part != "null"]
        if not kinds:
            return Resolved(pa.null())
        if len(kinds) == 1:
            found = self.resolve(kinds[0])
            if self.names_types and _type_name(kinds[0]) not in _PYTHON_TYPES:
                return found._replace(convert=_unwrapping(found.convert))
            return found
        if not _general(node):
            return Resolved(pa.int64() if "int" in kinds else pa.float64())
        members = [self.resolve(kind) for kind in kinds]
        names = [_type_name(kind) for kind in kinds]
        columns = _member_columns([""] * len(names) if self._by_number else names)
        struct = pa.struct(
            [(column, member.type) for column, member in zip(columns, members, strict=True)]
        )

        def convert_union(value: Any) -> dict[str, Any]:
            number, inner = _member(value, names)
            convert = members[number].convert
            return {columns[number]: inner if convert is None else convert(inner)}

        return Resolved(struct, convert_union)


def _general(node: list[Any]) -> list[Any]:
    """The members of a union that becomes a struct; [] of any other."""
    kinds = [part for part in node if part != "null"]
    same = set(map(str, kinds)) in ({"int", "long"}, {"float", "double"})
    return [] if len(kinds) < 2 or same else kinds


def _has_general_union(node: Any) -> bool:
    """Whether a union in the type becomes a struct; types that are named in it are not followed."""
    if isinstance(node, list):
        return bool(_general(node)) or any(map(_has_general_union, node))
    if not isinstance(node, dict):
        return False
    parts = [part["type"] for part in node.get("fields", ())]
    return any(map(_has_general_union, [*parts, node.get("items"), node.get("values")]))


def _member_columns(names: list[str]) -> list[str]:
    """The column names of a union's members, from the names of their types."""
    full = ["" if name in _PYTHON_TYPES else name for name in names]
    short = [name.rpartition(".")[2] for name in full]
    common = Counter(name.casefold() for name in short)
    numbers = itertools.count()
    columns = []
    for name, brief in zip(full, short, strict=True):
        if not name:
            columns.append(f"member{next(numbers)}")
        elif common[brief.casefold()] > 1 or NUMBERED.fullmatch(brief):
            columns.append(name.replace(".", "_"))
        else:
            columns.append(brief)
    return unique_names(columns)


def unique_names(wanted: Iterable[str]) -> list[str]:
    """Column names that differ by more than their case, as Spark and Delta need them."""
    used: set[str] = set()
    found = []
    for name in wanted:
        column, number = name, 2
        while column.casefold() in used:
            column, number = f"{name}_{number}", number + 1
        used.add(column.casefold())
        found.append(column)
    return found


def names_beside(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """The names, each with the prefix `event_` if it is among `taken`, or is what another name has
    become by the prefix."""
    gone = {name.casefold() for name in taken}
    found = {}
    for name in sorted(names, key=len):
        found[name] = name
        if name.casefold() in gone:
            found[name] = f"event_{name}"
            gone.add(found[name].casefold())
    return [found[name] for name in names]


def _logical(node: Schema) -> Resolved | None:
    """The column of a logical type; None where it is stored as the type below it."""
    kind, logical = node["type"], node.get("logicalType")
    if kind == "int" and logical == "date":
        return Resolved(pa.date32(), _checked_day, "day")
    if kind == "long" and logical in _TIMES:
        time_type, unit = _TIMES[logical]
        return Resolved(time_type, _time_converter(unit), unit)
    if kind in ("bytes", "fixed") and logical == "decimal":
        digits, scale = node.get("precision", 0), node.get("scale", 0)
        is_usable = type(digits) is int and 0 < digits <= DECIMAL_DIGITS_MAX
        if is_usable and type(scale) is int and 0 <= scale <= digits:
            return Resolved(pa.decimal128(digits, scale), _decimal_converter(scale))
    if kind == "fixed" and logical == "uuid" and node.get("size") == 16:
        return Resolved(pa.string(), lambda raw: str(uuid.UUID(bytes=raw)))
    return None


def _unwrapping(convert: Convert | None) -> Convert:
    """The conversion of a value that the decoder gives as (name of its type, value)."""
    if convert is None:
        return lambda value: value[1]
    return lambda value: convert(value[1])


def _type_name(kind: Any) -> str:
    """The name by which a member of a union is known: full for named types."""
    if isinstance(kind, str):
        return kind
    return str(kind["name"] if kind["type"] in _NAMED else kind["type"])


def _member(value: Any, names: list[str]) -> tuple[int, Any]:
    """The number of the union's member that the value is of, and the value without its name."""
    if isinstance(value, tuple):
        return names.index(value[0]), value[1]
    fitting = [n for n, name in enumerate(names) if type(value) is _PYTHON_TYPES.get(name)]
    if type(value) is int and len(fitting) > 1 and not -_INT_MAX - 1 <= value <= _INT_MAX:
        fitting = [n for n in fitting if names[n] == "long"]
    if type(value) is float and "double" in names:  # a float would change most doubles
        fitting = [names.index("double")]
    return fitting[0], value


def _unnamed(node: Any, value: Any, named: Mapping[str, Any]) -> Any:
    """A value without the names of types that the decoder gives: its text is the same whatever else
    is in the schema. A name stays where the value may be of several types but null."""
    while not isinstance(node, dict):
        if isinstance(node, str):
            if node not in named:
                return value
            node = named[node]
            continue
        kinds = [kind for kind in node if kind != "null"]
        if value is None:
            return None
        number, inner = _member(value, [_type_name(kind) for kind in kinds])
        if len(kinds) > 1 and isinstance(value, tuple):
            return [value[0], _unnamed(kinds[number], inner, named)]
        node, value = kinds[number], inner
    kind = node["type"]
    found = value
    if kind in ("record", "error"):
        found = {}
        for part in node["fields"]:  # not in a comprehension, which would nest as deep again
            found[part["name"]] = _unnamed(part["type"], value[part["name"]], named)
    elif kind == "array":
        found = []
        for item in value:
            found.append(_unnamed(node["items"], item, named))
    elif kind == "map":
        found = {}
        for key, item in value.items():
            found[key] = _unnamed(node["values"], item, named)
    return found


def as_json(value: Any) -> str:
    """A decoded value as text of JSON: bytes in hexadecimal, NaN and the infinities as texts."""
    return strict_json.dumps(value, default=lambda raw: raw.hex(), separators=(",", ":"))


def _time_converter(unit: str) -> Convert:
    factor = 1000 if unit == "ms" else 1
    lowest, highest = TIME_MS_MIN * 1000, TIME_MS_MAX * 1000 + 999

    def convert(value: int) -> int:
        found = value * factor
        if not lowest <= found <= highest:
            raise ValueError(TIME_OUTSIDE)
        return found

    return convert


def _checked_day(value: int) -> int:
    if not DAY_MIN <= value <= DAY_MAX:
        raise ValueError(DATE_OUTSIDE)
    return value


def _decimal_converter(scale: int) -> Convert:
    def convert(raw: bytes) -> decimal.Decimal:
        return decimal.Decimal(f"{int.from_bytes(raw, 'big', signed=True)}E-{scale}")

    return convert


def _list_converter(convert_item: Convert | None) -> Convert | None:
    if convert_item is None:
        return None
    return lambda items: [None if item is None else convert_item(item) for item in items]


def _map_converter(convert_value: Convert | None) -> Convert:
    if convert_value is None:
        return lambda pairs: list(pairs.items())
    return lambda pairs: [
        (key, None if value is None else convert_value(value)) for key, value in pairs.items()
    ]
