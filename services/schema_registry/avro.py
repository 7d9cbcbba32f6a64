"""Parses untrusted Avro schemas: limits first, then every rule of the specification.

fastavro's parser is no substitute: it accepts duplicate fields, nested and duplicate unions,
illegal names, sizes and orders, out-of-range and self-referring defaults, and has no limits.

The result is a graph of `Type` objects, names resolved, for `compatibility.py`; and `canonical`,
the text by which two schemas are the same: full names, primitives written short, keys sorted.
Unlike the Parsing Canonical Form it keeps docs, defaults and aliases, since readers depend on them.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kafka2011.services.schema_registry.errors import SchemaInvalid

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
FIXED_BYTES_MAX = 2**31 - 1
DEFAULT_VALUES_MAX = 100_000  # values that one default makes when a reader fills it in
DEFAULT_NESTING_MAX = 64
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_MISSING: Any = object()


@dataclass(frozen=True)
class Limits:
    """The limits of a schema. Depth counts types inside types."""

    schema_bytes: int = 1_000_000
    depth: int = 64
    references: int = 100


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: "Type"
    aliases: tuple[str, ...] = ()
    default: Any = _MISSING

    @property
    def has_default(self) -> bool:
        return self.default is not _MISSING


@dataclass(eq=False, slots=True)
class Type:
    """One type. `kind` is a primitive's name, or record, enum, fixed, array, map, union."""

    kind: str
    name: str = ""  # full
    aliases: tuple[str, ...] = ()  # full
    fields: list[Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    enum_default: str | None = None
    size: int = 0
    items: "Type | None" = None  # of an array, of a map's values
    branches: list["Type"] = field(default_factory=list)
    logical: str = ""  # in words: date, timestamp-millis, decimal(12,2)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class ParsedSchema:
    root: Type
    canonical: str


def read_json(text: str, limits: Limits) -> Any:
    """JSON of bounded size and depth. Raises SchemaInvalid."""
    if (
        len(text) > limits.schema_bytes
        or len(text.encode("utf-8", "replace")) > limits.schema_bytes
    ):
        raise SchemaInvalid(f"it is larger than {limits.schema_bytes} bytes")
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > 4 * limits.depth:  # a field's type costs three: record, array of fields, field
        raise SchemaInvalid(f"it nests {deepest} brackets deep")
    try:
        return json.loads(
            text,
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_duplicates,
        )
    except (ValueError, RecursionError) as error:
        raise SchemaInvalid(f"not JSON: {error}") from None


def parse(text: str, referenced: Iterable[str] = (), limits: Limits | None = None) -> ParsedSchema:
    """The schema of `text`; `referenced` are texts whose names it may use, in order of need.

    Raises SchemaInvalid with one sentence that says where.
    """
    limits = limits or Limits()
    parser = _Parser(limits)
    for other in referenced:
        parser.type_of(_json_or_name(other, limits), "", "referenced schema", 0)
    root, canonical = parser.type_of(_json_or_name(text, limits), "", "", 0)
    parser.check_defaults()
    return ParsedSchema(root, json.dumps(canonical, sort_keys=True, separators=(",", ":")))


def _json_or_name(text: str, limits: Limits) -> Any:
    """A schema's JSON. A primitive may stand without quotation marks, as in Avro's own parser."""
    return text.strip() if text.strip() in PRIMITIVES else read_json(text, limits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):  # Python would write it as a word that is no JSON
        raise ValueError(f"{text[:100]} is not a finite number")
    return number


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twin = Counter(name for name, _ in pairs).most_common(1)[0][0][:100]
        raise ValueError(f"the key {twin!r} stands twice in an object")
    return found


class _Parser:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._named: dict[str, Type] = {}
        self._defaults: list[tuple[Field, str]] = []

    def type_of(self, node: Any, namespace: str, place: str, depth: int) -> tuple[Type, Any]:
        """The type and its canonical JSON."""
        if depth > self._limits.depth:
            raise SchemaInvalid(f"types nest more than {self._limits.depth} deep")
        if isinstance(node, str):
            return self._by_name(node, namespace, place)
        if isinstance(node, list):
            return self._union(node, namespace, place, depth)
        if not isinstance(node, dict) or "type" not in node:
            raise SchemaInvalid(f"{place or 'the schema'} is not a type")
        kind = node["type"]
        if isinstance(kind, dict | list):  # {"type": {...}} means what is inside
            return self.type_of(kind, namespace, place, depth + 1)
        if kind in ("record", "error"):
            return self._record(node, namespace, place, depth)
        if kind == "enum":
            return self._enum(node, namespace, place)
        if kind == "fixed":
            return self._fixed(node, namespace, place)
        if kind in ("array", "map"):
            return self._container(node, kind, namespace, place, depth)
        if not isinstance(kind, str):
            raise SchemaInvalid(f"{place or 'the schema'} has a type that is no name")
        found, canonical = self._by_name(kind, namespace, place)
        if not found.name:  # a named type is shared with other fields
            found.logical = _logical(node)
        extra = {key: value for key, value in node.items() if key != "type"}
        return found, {"type": canonical, **extra} if extra else canonical

    def _by_name(self, name: str, namespace: str, place: str) -> tuple[Type, Any]:
        if name in PRIMITIVES:
            return Type(name), name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise SchemaInvalid(f"{place or 'the schema'} names an undefined type {name!r}"[:300])
        return found, found.name

    def _union(self, node: list[Any], namespace: str, place: str, depth: int) -> tuple[Type, Any]:
        union = Type("union")
        canonical = []
        seen: set[str] = set()
        for number, part in enumerate(node):
            branch, text = self.type_of(part, namespace, f"{place}/{number}", depth + 1)
            if branch.kind == "union":
                raise SchemaInvalid(f"{place or 'the schema'} is a union directly in a union")
            key = branch.name or branch.kind
            if key in seen:
                raise SchemaInvalid(f"{place or 'the schema'} is a union with {key} twice")
            seen.add(key)
            union.branches.append(branch)
            canonical.append(text)
        return union, canonical

    def _define(self, node: dict[str, Any], kind: str, namespace: str, place: str) -> Type:
        name = node.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaInvalid(f"the {kind} at {place or 'the root'} has no name")
        own = node.get("namespace")
        if own is not None and not isinstance(own, str):
            raise SchemaInvalid(f"the namespace of {name[:100]!r} is no text")
        space = namespace if own is None else own
        full = name if "." in name or not space else f"{space}.{name}"
        for part in full.split("."):
            if not NAME.match(part):
                raise SchemaInvalid(f"{full[:200]!r} is not a legal name")
        if full in PRIMITIVES or (full in self._named):
            raise SchemaInvalid(f"the name {full!r} is defined twice"[:300])
        space = full.rpartition(".")[0]
        aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}"
            for alias in _texts(node, "aliases", full)
        )
        found = Type(kind, full, aliases)
        self._named[full] = found
        return found

    def _record(
        self, node: dict[str, Any], namespace: str, place: str, depth: int
    ) -> tuple[Type, Any]:
        record = self._define(node, "record", namespace, place)
        space = record.name.rpartition(".")[0]
        if not isinstance(node.get("fields"), list):
            raise SchemaInvalid(f"the record {record.name} has no list of fields")
        texts = []
        names: set[str] = set()
        for number, part in enumerate(node["fields"]):
            where = f"{place}/fields/{number}"
            if not isinstance(part, dict) or not isinstance(part.get("name"), str):
                raise SchemaInvalid(f"{where} is not a field with a name")
            name = part["name"]
            if not NAME.match(name):
                raise SchemaInvalid(f"{where}: {name[:200]!r} is not a legal name")
            if name in names:
                raise SchemaInvalid(f"the record {record.name} has the field {name!r} twice")
            names.add(name)
            if "type" not in part:
                raise SchemaInvalid(f"{where} ({name}) has no type")
            if part.get("order", "ascending") not in ("ascending", "descending", "ignore"):
                raise SchemaInvalid(f"{where} ({name}) has an unknown order")
            type_, text = self.type_of(part["type"], space, f"{where}/type", depth + 1)
            made = Field(name, type_, _texts(part, "aliases", name), part.get("default", _MISSING))
            record.fields.append(made)
            if made.has_default:
                self._defaults.append((made, where))
            texts.append({**part, "type": text})
        return record, _canonical(node, record, fields=texts)

    def _enum(self, node: dict[str, Any], namespace: str, place: str) -> tuple[Type, Any]:
        enum = self._define(node, "enum", namespace, place)
        enum.symbols = _texts(node, "symbols", enum.name)
        if len(set(enum.symbols)) != len(enum.symbols):
            raise SchemaInvalid(f"the enum {enum.name} has a symbol twice")
        for symbol in enum.symbols:
            if not NAME.match(symbol):
                raise SchemaInvalid(f"the enum {enum.name} has an illegal symbol {symbol[:100]!r}")
        if "default" in node:
            if node["default"] not in enum.symbols:
                raise SchemaInvalid(f"the default of the enum {enum.name} is not a symbol of it")
            enum.enum_default = node["default"]
        return enum, _canonical(node, enum)

    def _fixed(self, node: dict[str, Any], namespace: str, place: str) -> tuple[Type, Any]:
        fixed = self._define(node, "fixed", namespace, place)
        size = node.get("size")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= FIXED_BYTES_MAX:
            raise SchemaInvalid(f"the fixed {fixed.name} has no legal size")
        fixed.size = size
        fixed.logical = _logical(node)
        return fixed, _canonical(node, fixed)

    def _container(
        self, node: dict[str, Any], kind: str, namespace: str, place: str, depth: int
    ) -> tuple[Type, Any]:
        inner = "items" if kind == "array" else "values"
        if inner not in node:
            raise SchemaInvalid(f"the {kind} at {place or 'the root'} has no {inner}")
        items, text = self.type_of(node[inner], namespace, f"{place}/{inner}", depth + 1)
        return Type(kind, items=items), {**node, inner: text}

    # --- defaults ----------------------------------------------------------------------------

    def check_defaults(self) -> None:
        """Every default fits its type, and none makes a reader build values without bound."""
        costs: dict[int, int] = {}
        fitting = _Fitting()
        for made, place in self._defaults:
            if not fitting.fits(made.default, made.type):
                raise SchemaInvalid(f"the default of {place} ({made.name}) does not fit its type")
        for made, place in self._defaults:
            if _cost(made.default, made.type, costs, fitting, 0) > DEFAULT_VALUES_MAX:
                raise SchemaInvalid(
                    f"the default of {place} ({made.name}) makes more than "
                    f"{DEFAULT_VALUES_MAX} values, or refers to itself"
                )


def _logical(node: dict[str, Any]) -> str:
    """What a type's logicalType is called; empty without one."""
    name = node.get("logicalType")
    if not isinstance(name, str):
        return ""
    if name == "decimal":
        return f"decimal({node.get('precision', '?')},{node.get('scale', 0)})"
    return name


def _canonical(node: dict[str, Any], made: Type, **replaced: Any) -> dict[str, Any]:
    found = {key: value for key, value in node.items() if key != "namespace"}
    found["name"] = made.name
    if made.aliases:
        found["aliases"] = list(made.aliases)
    return {**found, **replaced}


def _texts(node: dict[str, Any], key: str, owner: str) -> tuple[str, ...]:
    values = node.get(key, [] if key == "aliases" else None)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise SchemaInvalid(f"{key} of {owner[:200]!r} is not a list of texts")
    return tuple(values)


class _Fitting:
    """Whether values fit types; memoised, since unions of records repeat the same checks."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}

    def fits(self, value: Any, type_: Type, depth: int = 0) -> bool:
        key = (id(value), id(type_))
        if key not in self._known:
            self._known[key] = depth <= 4 * DEFAULT_NESTING_MAX and self._look(
                value, type_, depth + 1
            )
        return self._known[key]

    def _look(self, value: Any, type_: Type, depth: int) -> bool:
        kind = type_.kind
        if kind == "union":
            return any(self.fits(value, branch, depth) for branch in type_.branches)
        if kind == "null":
            return value is None
        if kind == "boolean":
            return isinstance(value, bool)
        if kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            return type(value) is int and -(2**bits) <= value < 2**bits
        if kind in ("float", "double"):
            return type(value) in (int, float)
        if kind in ("string", "enum"):
            return isinstance(value, str) and (kind == "string" or value in type_.symbols)
        if kind in ("bytes", "fixed"):
            is_bytes = isinstance(value, str) and all(ord(c) < 256 for c in value)
            return is_bytes and (kind == "bytes" or len(value) == type_.size)
        if kind == "array":
            assert type_.items is not None
            inner = type_.items
            return isinstance(value, list) and all(self.fits(v, inner, depth) for v in value)
        if kind == "map":
            assert type_.items is not None
            inner = type_.items
            return isinstance(value, dict) and all(
                self.fits(v, inner, depth) for v in value.values()
            )
        return isinstance(value, dict) and all(
            self.fits(value[f.name], f.type, depth) if f.name in value else f.has_default
            for f in type_.fields
        )


def _cost(value: Any, type_: Type, costs: dict[int, int], fitting: _Fitting, depth: int) -> int:
    """How many values a reader makes of a default; over DEFAULT_VALUES_MAX: too many."""
    if depth > DEFAULT_NESTING_MAX:
        return DEFAULT_VALUES_MAX + 1
    if type_.kind == "union":
        branch = next((b for b in type_.branches if fitting.fits(value, b)), None)
        return 1 if branch is None else _cost(value, branch, costs, fitting, depth + 1)
    if isinstance(value, list) and type_.items is not None:
        return 1 + sum(_cost(v, type_.items, costs, fitting, depth + 1) for v in value)
    if isinstance(value, dict) and type_.items is not None:
        return 1 + sum(_cost(v, type_.items, costs, fitting, depth + 1) for v in value.values())
    if not isinstance(value, dict) or type_.kind != "record":
        return 1
    total = 1
    for part in type_.fields:
        if part.name in value:
            total += _cost(value[part.name], part.type, costs, fitting, depth + 1)
        else:
            if id(part) not in costs:
                costs[id(part)] = DEFAULT_VALUES_MAX + 1  # while it is computed: refers to itself
                costs[id(part)] = _cost(part.default, part.type, costs, fitting, depth + 1)
            total += costs[id(part)]
    return total
