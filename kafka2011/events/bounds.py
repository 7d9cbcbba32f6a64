"""Bounds on what one payload can cost to decode: how deep it nests, and how many items it makes.

A decoder calls itself for each value inside another, and makes an item for each that an array
announces. With most schemas an event can be no deeper than the schema, and has no more items than
bytes. But if a type contains itself, or an array's items take no bytes, a few bytes can end the
process: the events of such schemas are walked before they are decoded (`codec.decode_body`). Other
schemas have no Bounds, and their events cost nothing here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from kafka2011.events._peek_pure import varint
from kafka2011.events.errors import EventCorrupt, HeaderUnreadable

# Nested objects and lists, or records, arrays and maps. Python's own limit is 1,000 calls, of which
# a reader takes up to three per level.
DEPTH_MAX = 200
VALUES_MAX = 100_000  # of an event with one item in each array; more is an attack

BOUNDS = "__bounds"  # beside what fastavro keeps in a schema that it has parsed

TOO_DEEP = f"more than {DEPTH_MAX} deep"

# Kinds of steps of the walk; after the kind: a size, a record's parts, a union's branches or a
# _Repeated.
_NUMBER, _BYTES, _FIXED, _RECORD, _UNION, _REPEATED = range(6)
_Step = tuple[int, Any]


@dataclass(slots=True)
class _Repeated:
    """What the blocks of an array or a map repeat."""

    parts: tuple[_Step, ...]
    takes_no_bytes: bool = False


_PLAIN: dict[str, _Step] = {
    "null": (_FIXED, 0),
    "boolean": (_FIXED, 1),
    "float": (_FIXED, 4),
    "double": (_FIXED, 8),
    "int": (_NUMBER, None),
    "long": (_NUMBER, None),
    "enum": (_NUMBER, None),
    "bytes": (_BYTES, None),
    "string": (_BYTES, None),
}
_LONG_MAX = 2**63 - 1
_CORRUPT = "a number in the body is longer than 64 bits"


def set_bounds(schema: dict[str, Any], named: Mapping[str, Any]) -> None:
    """Give a parsed schema its Bounds, under BOUNDS, if its events need any. `named`: its named
    types. Raises ValueError for a schema whose events have more than VALUES_MAX values."""
    steps = _Steps(named)
    root = steps.of(schema)
    if _values(root, {}) > VALUES_MAX:
        raise ValueError(f"an event has more than {VALUES_MAX:,} values")
    if steps.has_items_without_bytes() or steps.can_recurse:
        schema[BOUNDS] = Bounds(root)


class Bounds:
    """Walks the events of one schema."""

    def __init__(self, root: _Step) -> None:
        self._root = root

    def check(self, payload: bytes, start: int) -> None:
        """Raise EventCorrupt for an event that nests more than DEPTH_MAX deep, or has more items
        without bytes than the payload has bytes; other errors are left to the decoder."""
        try:
            self._walk(payload, start)
        except IndexError:
            return  # the decoder comes to the same place, and no deeper
        except HeaderUnreadable:  # about a number in the body, on which decoders differ
            raise EventCorrupt(_CORRUPT) from None

    def _walk(self, payload: bytes, position: int) -> None:
        # For each open value: its remaining parts, and what its blocks repeat, if it has blocks.
        rests: list[Iterator[_Step]] = [iter((self._root,))]
        blocks: list[_Repeated | None] = [None]
        free_items = len(payload)
        while rests:
            for step in rests[-1]:
                kind, detail = step
                if kind == _UNION:
                    byte = payload[position]
                    if byte < 0x80:
                        position += 1
                        kind, detail = detail[(byte >> 1) ^ -(byte & 1)]
                    else:
                        number, position = varint(payload, position)
                        kind, detail = detail[number]
                if kind == _NUMBER:
                    while payload[position] >= 0x80:
                        position += 1
                    position += 1
                elif kind == _FIXED:
                    position += detail
                elif kind == _BYTES:
                    size, position = varint(payload, position)
                    if size < 0:
                        return  # no decoder goes on after that
                    position += size
                else:
                    if len(rests) > DEPTH_MAX:
                        raise EventCorrupt(f"the event nests {TOO_DEEP}")
                    is_record = kind == _RECORD
                    rests.append(iter(detail if is_record else ()))
                    blocks.append(None if is_record else detail)
                    break
            else:
                item = blocks[-1]
                count = 0
                if item is not None:
                    count, position = _block(payload, position)
                if item is None or not count:
                    rests.pop()
                    blocks.pop()
                    continue
                if item.takes_no_bytes:
                    free_items -= count
                    if free_items < 0:
                        raise EventCorrupt(
                            "arrays have more items without bytes than the payload has bytes, "
                            f"{len(payload)}"
                        )
                # Items that take bytes cannot be more than the bytes.
                count = min(count, len(payload) + 1)
                rests[-1] = chain.from_iterable(repeat(item.parts, count))


def _block(payload: bytes, position: int) -> tuple[int, int]:
    """The number of items in a block, 0 after the last block, and the position of the first."""
    count, position = varint(payload, position)
    if count < 0:  # its size follows
        count = -count
        _, position = varint(payload, position)
    if count > _LONG_MAX:
        raise EventCorrupt(_CORRUPT)
    return count, position


class _Steps:
    """The steps of a schema's types."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.can_recurse = False
        self._named = named
        self._records: dict[str, _Step] = {}
        self._open: set[str] = set()
        self._repeated: list[_Repeated] = []

    def of(self, node: Any) -> _Step:
        """The step of a type, as fastavro has parsed it."""
        if isinstance(node, list):
            return _UNION, [self.of(branch) for branch in node]
        if isinstance(node, str):
            return _PLAIN[node] if node in _PLAIN else self.of(self._named[node])
        kind = node["type"]
        if kind in ("record", "error"):
            return self._record(node["name"], node["fields"])
        if kind == "array":
            return self._repeat(self.of(node["items"]))
        if kind == "map":
            return self._repeat(_PLAIN["string"], self.of(node["values"]))
        return (_FIXED, node["size"]) if kind == "fixed" else self.of(kind)

    def _record(self, name: str, fields: Iterable[Any]) -> _Step:
        if name in self._records:
            self.can_recurse |= name in self._open
            return self._records[name]
        parts: list[_Step] = []
        found = self._records[name] = _RECORD, parts
        self._open.add(name)
        parts += [self.of(part["type"]) for part in fields]
        self._open.remove(name)
        return found

    def _repeat(self, *parts: _Step) -> _Step:
        self._repeated.append(_Repeated(parts))
        return _REPEATED, self._repeated[-1]

    def has_items_without_bytes(self) -> bool:
        """Whether any array or map has items without bytes; call it once all steps are known."""
        for each in self._repeated:
            each.takes_no_bytes = all(_takes_no_bytes(part, set()) for part in each.parts)
        return any(each.takes_no_bytes for each in self._repeated)


def _takes_no_bytes(step: _Step, records: set[int]) -> bool:
    """Whether values of the type take no bytes. `records`: those that are being checked already."""
    kind, detail = step
    if kind != _RECORD:
        return kind == _FIXED and detail == 0
    if id(detail) in records:
        return True
    return all(_takes_no_bytes(part, records | {id(detail)}) for part in detail)


def _values(step: _Step, known: dict[int, int]) -> int:
    """The number of values in a value of the type, with one item per array; `known`: of records."""
    kind, detail = step
    if kind == _UNION:
        return 1 + max((_values(branch, known) for branch in detail), default=0)
    if kind == _REPEATED:
        return 1 + sum(_values(part, known) for part in detail.parts)
    if kind != _RECORD:
        return 1
    if id(detail) not in known:
        known[id(detail)] = 1  # where it contains itself
        known[id(detail)] = 1 + sum(_values(part, known) for part in detail)
    return known[id(detail)]
