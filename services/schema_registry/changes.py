"""What changes from one schema to the next, in words. Pure.

Each line begins with the field that it is about, `buyer.address.street`; [] are an array's items,
{} a map's values.
"""

import json
from typing import Any

from kafka2011.services.schema_registry.avro import Field, ParsedSchema, Type
from kafka2011.services.schema_registry.compatibility import PROMOTIONS


def changes(old: ParsedSchema, new: ParsedSchema) -> list[str]:
    """One line for each change, in the new schema's order; empty when the two are the same."""
    if old.canonical == new.canonical:
        return []
    comparison = _Comparison()
    comparison.types(old.root, new.root, "")
    return comparison.lines or ["only docs, logical types or other attributes change"]


def words(of: Type) -> str:
    """A type in a few words: `array of string`, `null or decimal(12,2)`, `record Address`."""
    if of.logical:
        return of.logical
    if of.kind == "union":
        return " or ".join(map(words, of.branches))
    if of.items is not None:
        return f"{of.kind} of {words(of.items)}"
    return f"{of.kind} {of.short_name}" if of.name else of.kind


def outline(of: Type) -> list[tuple[str, str, str]]:
    """Name, type and default of a record's fields, and below each those of the record in it,
    indented by two spaces a level. A record that occurs again is only named."""
    rows: list[tuple[str, str, str]] = []
    _outline(of, "", rows, set())
    return rows


def _outline(of: Type, indent: str, rows: list[tuple[str, str, str]], shown: set[int]) -> None:
    for part in (of.items, *of.branches):
        if part is not None:
            _outline(part, indent, rows, shown)
    if of.fields and id(of) not in shown:
        shown.add(id(of))
        for field in of.fields:
            rows.append((indent + field.name, words(field.type), default_of(field)))
            _outline(field.type, indent + "  ", rows, shown)


def default_of(field: Field) -> str:
    """A field's default as JSON; empty when it has none."""
    return json.dumps(field.default, ensure_ascii=False) if field.has_default else ""


class _Comparison:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._seen: set[tuple[int, int]] = set()  # pairs of types, which may contain themselves

    def types(self, old: Type, new: Type, place: str) -> None:
        if (id(old), id(new)) in self._seen:
            return
        self._seen.add((id(old), id(new)))
        if old.kind != new.kind:
            self._kinds(old, new, place)
            return
        if old.short_name != new.short_name:
            self._say(place, f"{words(old)} is named {new.short_name} now")
        if new.kind == "record":
            self._fields(old, new, place)
        elif new.kind == "enum":
            self._values(old, new, place)
        elif new.kind == "fixed" and old.size != new.size:
            self._say(place, f"{old.size} bytes become {new.size}")
        elif new.kind == "union":
            self._branches(old, new, place)
        elif old.items is not None and new.items is not None:
            self.types(old.items, new.items, place + ("[]" if new.kind == "array" else "{}"))

    def _kinds(self, old: Type, new: Type, place: str) -> None:
        if new.kind in PROMOTIONS.get(old.kind, ()):
            self._say(place, f"{old.kind} is promoted to {new.kind}")
        else:
            self._say(place, f"{words(old)} becomes {words(new)}")

    def _fields(self, old: Type, new: Type, place: str) -> None:
        before = {field.name: field for field in old.fields}
        names = {field.name for field in new.fields}
        for field in new.fields:
            inner = f"{place}.{field.name}" if place else field.name
            renamed = [name for name in field.aliases if name in before and name not in names]
            was = before.pop(field.name, None) or (before.pop(renamed[0]) if renamed else None)
            if was is None:
                default = f"default {default_of(field)}" if field.has_default else "without default"
                self._say(inner, f"added, {words(field.type)}, {default}")
                continue
            if was.name != field.name:
                self._say(inner, f"renamed, was {was.name} (an alias)")
            self._defaults(was, field, inner)
            self.types(was.type, field.type, inner)
        for name, field in before.items():
            self._say(f"{place}.{name}" if place else name, f"removed, {words(field.type)}")

    def _defaults(self, old: Field, new: Field, place: str) -> None:
        before, after = default_of(old), default_of(new)
        if before != after:
            self._say(place, f"default {before or 'none'} becomes {after or 'none'}")

    def _values(self, old: Type, new: Type, place: str) -> None:
        self._sets("symbol", old.symbols, new.symbols, place)
        if old.enum_default != new.enum_default:
            before, after = old.enum_default or "none", new.enum_default or "none"
            self._say(place, f"the enum's default {before} becomes {after}")

    def _branches(self, old: Type, new: Type, place: str) -> None:
        before = {branch.name or branch.kind: branch for branch in old.branches}
        after = {branch.name or branch.kind: branch for branch in new.branches}
        self._sets("type", before, after, place)
        for name, branch in after.items():
            if name in before:
                self.types(before[name], branch, place)

    def _sets(self, what: str, old: Any, new: Any, place: str) -> None:
        for name in new:
            if name not in old:
                self._say(place, f"{what} {name} added")
        for name in old:
            if name not in new:
                self._say(place, f"{what} {name} removed")

    def _say(self, place: str, text: str) -> None:
        self.lines.append(f"{place or 'schema'}: {text}")
