"""How the columns of a schema fit those that a topic's table has. Pure.

the same name, by case ignored, or one     the same column; a record gains the fields that are
  of the field's aliases                   new, a narrower number is widened
a type that Avro promotes the column's     a column of its own behind it, `amount_long`: no
  to (int to long)                         value is changed and no file written anew
any other type                             TypesDiffer
no such name                               a new column

No two fields of a schema share a column, and none gets the column of another: TypesDiffer is raised
instead.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from kafka2011.services.warehouse.load.arrow_types import NUMBERED

_WIDENED = {
    (pa.int64(), pa.int32()),
    (pa.float64(), pa.int32()),
    (pa.float64(), pa.float32()),
}
# Avro's promotions that a column cannot take, by the new type's name.
_PROMOTED = {
    pa.int64(): ("long", {pa.int32()}),
    pa.float32(): ("float", {pa.int32(), pa.int64()}),
    pa.float64(): ("double", {pa.int32(), pa.int64(), pa.float32()}),
    pa.binary(): ("bytes", {pa.string()}),
    pa.string(): ("string", {pa.binary()}),
}


class TypesDiffer(ValueError):
    """A column has another type than the table's, which cannot take it. The text is one line."""


class ColumnLike(Protocol):
    """A column with the other names of its field.

    `own`: its name without a number that tells it from another field's. `doubled`: its name if
    another field takes the name that it would have alone; nearly always empty. `by_number`: its
    type in tables of earlier versions, if that is another.
    """

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> pa.DataType: ...
    @property
    def aliases(self) -> Sequence[str]: ...
    @property
    def own(self) -> str: ...
    @property
    def doubled(self) -> str: ...
    @property
    def by_number(self) -> pa.DataType | None: ...


class FittedColumns(NamedTuple):
    """Where columns go. `schema`: the table's columns with those that were added. For each given
    column, `names` has the table's column for it, None if it is left out, and `types` its type with
    the table's names inside."""

    schema: pa.Schema
    names: list[str | None]
    types: list[pa.DataType]


def placed(
    columns: Sequence[ColumnLike], present: pa.Schema, *, grows: bool = True
) -> FittedColumns:
    """Find each column's place. With `grows` false nothing is added. Raises TypesDiffer."""
    found = {field.name.casefold(): field for field in present}
    places = _places(columns, found)
    taken = {place.casefold(): column.own for place, column in zip(places, columns, strict=True)}
    names: list[str | None] = []
    types = []
    for column, place in zip(columns, places, strict=True):
        name, key = place, place.casefold()
        fit = Fit(column.type, column.type)
        if key in found:
            name = found[key].name
            try:
                fit = fitted(found[key].type, column.type, column.by_number)
            except TypesDiffer as error:
                name = _beside(found[key], column.type, str(error))
                key = name.casefold()
                if key in taken:
                    raise TypesDiffer(
                        f"column {name} would have the values of {column.own} and of {taken[key]}"
                    ) from None
                if key in found and found[key].type != column.type:
                    raise _differ(found[key], column.type) from None
        if grows:
            found[key] = pa.field(name, fit.table)
        names.append(name if key in found else None)
        types.append(fit.batch)
    return FittedColumns(pa.schema(list(found.values())), names, types)


def _places(columns: Sequence[ColumnLike], found: Mapping[str, pa.Field]) -> list[str]:
    """The names of the columns' places, in the table or new; they differ by more than case.

    `found`: the table's columns by name without case. Raises TypesDiffer.
    """
    places: dict[int, str] = {}
    taken: set[str] = set()
    own = {column.name.casefold() for column in columns}
    exact = {field.name for field in found.values()}

    def take(
        names_of: Callable[[ColumnLike], Iterable[str]], may_be: Callable[[str], bool]
    ) -> None:
        """Give each column that has no place the first of its names that is free and may be one."""
        for number, column in enumerate(columns):
            for name in () if number in places else names_of(column):
                if may_be(name) and name.casefold() not in taken:
                    places[number] = name
                    taken.add(name.casefold())
                    break

    def is_there(name: str) -> bool:
        return name.casefold() in found

    def with_aliases(column: ColumnLike) -> list[str]:
        return [column.name, *(each for each in column.aliases if each.casefold() not in own)]

    def numbered(column: ColumnLike) -> Iterator[str]:
        return (f"{column.own}_{number}" for number in itertools.count(2))

    take(lambda column: [column.doubled], is_there)
    for number, column in enumerate(columns):
        alone = column.doubled.removeprefix("event_")
        if column.name == column.doubled and number not in places and is_there(alone):
            raise TypesDiffer(f"column {alone} may be that of another of the schema's fields")
    # A column of the exact name is preferred to one whose name differs by case, that to an alias,
    # and all of them to a new one.
    take(lambda column: [column.name], exact.__contains__)
    take(lambda column: [column.own], exact.__contains__)
    take(with_aliases, is_there)
    take(lambda column: [column.name], lambda name: not is_there(name))
    take(numbered, lambda _: True)
    return [places[number] for number in range(len(columns))]


def joined(known: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The columns of both, by name. Raises TypesDiffer where types differ in more than fields of
    records, or names only by case: a file's column must have the table's exact name."""
    found = {field.name.casefold(): field for field in known}
    for field in new:
        key = field.name.casefold()
        if key not in found:
            found[key] = field
            continue
        if field.name != found[key].name:
            raise TypesDiffer(f"column {field.name} is {found[key].name} in the table")
        try:
            kind = merged(found[key].type, field.type, widens=False)
        except TypesDiffer:
            raise _differ(found[key], field.type) from None
        found[key] = found[key].with_type(kind)
    return pa.schema(list(found.values()))


class Fit(NamedTuple):
    """How a schema's type fits a column. `table`: the column's type once it has taken the values.
    `batch`: the schema's type with the column's names inside."""

    table: pa.DataType
    batch: pa.DataType


def merged(known: pa.DataType, new: pa.DataType, *, widens: bool = True) -> pa.DataType:
    """`known` with the fields that only records in `new` have. Raises TypesDiffer.

    `widens`: accept narrower numbers in `new`, and names that differ by case.
    """
    return fitted(known, new, widens=widens).table


def fitted(
    known: pa.DataType,
    new: pa.DataType,
    by_number: pa.DataType | None = None,
    *,
    widens: bool = True,
) -> Fit:
    """`new` as it goes into a column of the type `known`; see `merged`. Raises TypesDiffer.

    `by_number`: `new` with numbers for all members of unions, if it has others.
    """
    if known == new or (widens and _is_narrower(new, known)):
        return Fit(known, new)
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return _fitted_struct(known, new, by_number, widens=widens)
    if pa.types.is_list(known) and pa.types.is_list(new):
        numbered = by_number and by_number.value_type
        fit = fitted(known.value_type, new.value_type, numbered, widens=widens)
        return Fit(pa.list_(fit.table), pa.list_(fit.batch))
    if pa.types.is_map(known) and pa.types.is_map(new):
        numbered = by_number and by_number.item_type
        fit = fitted(known.item_type, new.item_type, numbered, widens=widens)
        return Fit(pa.map_(known.key_type, fit.table), pa.map_(known.key_type, fit.batch))
    raise TypesDiffer(f"{known} and {new}")


def _fitted_struct(
    known: pa.StructType, new: pa.StructType, by_number: pa.DataType | None, *, widens: bool
) -> Fit:
    names = _names_inside(known, new, by_number, widens=widens)
    inner = {field.name: field for field in known}
    batch = []
    for number, (name, field) in enumerate(zip(names, new, strict=True)):
        fit = Fit(field.type, field.type)
        if name in inner:
            numbered = by_number and by_number.field(number).type
            fit = fitted(inner[name].type, field.type, numbered, widens=widens)
        inner[name] = pa.field(name, fit.table)
        batch.append(pa.field(name, fit.batch))
    return Fit(pa.struct(list(inner.values())), pa.struct(batch))


def _names_inside(
    known: pa.StructType, new: pa.StructType, by_number: pa.DataType | None, *, widens: bool
) -> list[str]:
    """The names that the fields of `new` have in `known`. Raises TypesDiffer where it is not
    certain which one a field is."""
    has_numbers = all(NUMBERED.fullmatch(name) for name in known.names)
    if has_numbers and by_number is not None and by_number.names != new.names:
        _expect_same_numbers(known, new)
        return list(by_number.names)
    exact = set(known.names)
    spelled = {name.casefold(): name for name in known.names}
    names = [n if n in exact else spelled.get(n.casefold(), n) for n in new.names]
    for name, field in zip(names, new.names, strict=True):
        if name == field:
            continue
        # Of two that differ by case the second has a number; it may be the one that was first.
        seconds = {each for each in new.names if re.fullmatch(rf"{re.escape(name)}_\d+", each)}
        if not widens or seconds - exact:
            raise TypesDiffer(f"{known} and {new}, whose names differ by case only")
    return names


def _expect_same_numbers(known: pa.StructType, new: pa.StructType) -> None:
    """Raises TypesDiffer where members of `new`, which have numbers in `known`, may have other
    numbers now."""
    here, there = [[field.type for field in struct] for struct in (known, new)]
    if all(one == other for one, other in zip(here, there, strict=False)):
        return
    called = [n for n, name in enumerate(new.names) if not NUMBERED.fullmatch(name)]
    for one, other in itertools.product(range(len(here)), called):
        if one != other and _may_be_one(here[one], there[other]):
            raise TypesDiffer(f"{known} and {new}: in the table its members have numbers")


def _may_be_one(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both can be the type of one member, in two versions."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = set(one.names), set(other.names)
        return names[0] <= names[1] or names[1] <= names[0]
    return bool(one == other)


def _is_narrower(new: pa.DataType, known: pa.DataType) -> bool:
    """Whether `known` has every value of `new`."""
    if pa.types.is_decimal(known) and pa.types.is_decimal(new):
        return bool(known.scale == new.scale and known.precision >= new.precision)
    return (known, new) in _WIDENED


def _beside(field: pa.Field, new: pa.DataType, why: str) -> str:
    """The name of the column for promoted values. Raises TypesDiffer for any other type, with the
    reason `why` if it is nested."""
    suffix, promoted = _PROMOTED.get(new, ("", set()))
    if field.type not in promoted:
        raise _differ(field, new, f"; {why}" if pa.types.is_nested(new) else "")
    return f"{field.name}_{suffix}"


def _differ(field: pa.Field, new: pa.DataType, more: str = "") -> TypesDiffer:
    return TypesDiffer(
        f"column {field.name} is {field.type} in the table, {new} in this schema{more}"
    )


def arranged(batch: pa.RecordBatch, places: FittedColumns, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the columns of `schema`: its own at their places, nulls in the others."""
    if batch.schema.equals(schema) and places.names == schema.names:
        return batch
    indexes = {name: index for index, name in enumerate(places.names) if name is not None}
    arrays = []
    for field in schema:
        index = indexes.get(field.name)
        if index is None:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(index)
        if not array.type.equals(places.types[index]):
            array = array.view(places.types[index])  # a cast would match by the names inside
        arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
