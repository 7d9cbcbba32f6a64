"""How the columns of a schema fit those that a topic's table has. Pure.

the same name, by case ignored, or one     the same column; a record gains the fields that are
  of the field's aliases                   new, a narrower number is widened
a type that Avro promotes the column's     a column of its own behind it, `amount_long`: no
  to (int to long)                         value is changed and no file written anew
any other type                             TypesDiffer
no such name                               a new column
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

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
    """A column with the other names of its field."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> pa.DataType: ...
    @property
    def aliases(self) -> Sequence[str]: ...


class Placed(NamedTuple):
    """`schema`: the table's columns with those that were added. `names`: for each of the given
    columns that of the table which it goes to, None where it is left out."""

    schema: pa.Schema
    names: list[str | None]


def placed(columns: Sequence[ColumnLike], present: pa.Schema, *, grows: bool = True) -> Placed:
    """Find each column's place. With `grows` false nothing is added. Raises TypesDiffer."""
    found = {field.name.casefold(): field for field in present}
    own = {column.name.casefold() for column in columns}
    names: list[str | None] = []
    for column in columns:
        others = (alias.casefold() for alias in column.aliases)
        keys = [column.name.casefold(), *(alias for alias in others if alias not in own)]
        key = next((key for key in keys if key in found), keys[0])
        name, column_type = column.name, column.type
        if key in found:
            name = found[key].name
            try:
                column_type = merged(found[key].type, column.type)
            except TypesDiffer:
                name = _beside(found[key], column.type)
                key = name.casefold()
                if key in found and found[key].type != column.type:
                    raise _differ(found[key], column.type) from None
        if grows:
            found[key] = pa.field(name, column_type)
        names.append(name if key in found else None)
    return Placed(pa.schema(list(found.values())), names)


def joined(known: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The columns of both, by name. Raises TypesDiffer where their types are not the same but for
    fields of records, or their names but for case: a file's column has the table's very name."""
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


def merged(known: pa.DataType, new: pa.DataType, *, widens: bool = True) -> pa.DataType:
    """`known` with the fields that records in `new` have beside its own. Raises TypesDiffer.

    `widens`: a narrower number in `new` is one of `known`.
    """
    if known == new or (widens and _is_narrower(new, known)):
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        inner = {field.name.casefold(): field for field in known}
        for field in new:
            key = field.name.casefold()
            present = inner.get(key, field)
            kind = merged(present.type, field.type, widens=widens)
            inner[key] = pa.field(present.name, kind)
        return pa.struct(list(inner.values()))
    if pa.types.is_list(known) and pa.types.is_list(new):
        return pa.list_(merged(known.value_type, new.value_type, widens=widens))
    if pa.types.is_map(known) and pa.types.is_map(new):
        return pa.map_(known.key_type, merged(known.item_type, new.item_type, widens=widens))
    raise TypesDiffer(f"{known} and {new}")


def _is_narrower(new: pa.DataType, known: pa.DataType) -> bool:
    """Whether `known` has every value of `new`."""
    if pa.types.is_decimal(known) and pa.types.is_decimal(new):
        return bool(known.scale == new.scale and known.precision >= new.precision)
    return (known, new) in _WIDENED


def _beside(field: pa.Field, new: pa.DataType) -> str:
    """The name of the column for promoted values. Raises TypesDiffer."""
    suffix, promoted = _PROMOTED.get(new, ("", set()))
    if field.type not in promoted:
        raise _differ(field, new)
    return f"{field.name}_{suffix}"


def _differ(field: pa.Field, new: pa.DataType) -> TypesDiffer:
    return TypesDiffer(f"column {field.name} is {field.type} in the table, {new} in this schema")


def arranged(
    batch: pa.RecordBatch, names: Sequence[str | None], schema: pa.Schema
) -> pa.RecordBatch:
    """The batch in the columns of `schema`: its own by `names`, nulls in the others."""
    if batch.schema.equals(schema) and names == schema.names:
        return batch
    indexes = {name: index for index, name in enumerate(names) if name is not None}
    arrays = []
    for field in schema:
        index = indexes.get(field.name)
        if index is None:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            array = batch.column(index)
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
