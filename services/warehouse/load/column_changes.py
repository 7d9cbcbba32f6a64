"""What a topic's next schema does to the columns of its table, in words. Pure.

The table is taken to have the columns of all versions before, in their order; a version that does
not fit is left out, as the load leaves it out.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kafka2011.events.topic_codec import WriterSchema
from kafka2011.services.warehouse.load.arrow_types import TypeResolver
from kafka2011.services.warehouse.load.column_types import TypesDiffer, placed
from kafka2011.services.warehouse.load.schema_columns import Named, columns_of


def table_columns(versions: Iterable[WriterSchema]) -> pa.Schema:
    """The columns of a table that has taken these versions' events, without those of header, source
    and hour, which every table has."""
    table = pa.schema([])
    for writer in versions:
        try:
            table = placed(_named(writer), table).schema
        except TypesDiffer:
            continue
    return table


def column_changes(table: pa.Schema, new: WriterSchema) -> list[str]:
    """One line for each column that is new, changes its type or stays empty, and for each field
    that goes elsewhere; only the refusal if there is one."""
    why = refusal(table, new)
    if why:
        return [why]
    columns = _named(new)
    after, names, _ = placed(columns, table)
    lines = []
    for field in after:
        known = table.get_field_index(field.name)
        if known < 0:
            lines.append(f"{field.name}: new, {field.type}; null in rows of other versions")
        elif table.field(known).type != field.type:
            lines.append(f"{field.name}: {table.field(known).type} becomes {field.type}")
        elif field.name not in names:
            lines.append(f"{field.name}: stays; null in rows of this version")
    return lines + _elsewhere(columns, names)


def refusal(table: pa.Schema, new: WriterSchema) -> str:
    """Why the load will not take this version; empty if it will."""
    try:
        placed(_named(new), table)
    except TypesDiffer as error:
        return f"the load does not take this version, its messages go to quarantine: {error}"
    return ""


def renamed(writer: WriterSchema) -> list[str]:
    """One line for each field whose column cannot have its name: the table uses that itself, or
    another field's differs only by case."""
    return [
        f"field {column.source} becomes column {column.name}"
        for column in columns_of(writer, TypeResolver(writer.schema, writer.named))
        if column.name != column.source
    ]


def _named(writer: WriterSchema) -> list[Named]:
    return [c.named for c in columns_of(writer, TypeResolver(writer.schema, writer.named))]


def _elsewhere(columns: Sequence[Named], names: Sequence[str | None]) -> list[str]:
    """The fields that go to a column of another name."""
    return [
        f"{column.name}: its values go to the column {name}"
        for column, name in zip(columns, names, strict=True)
        if name is not None and name.casefold() != column.name.casefold()
    ]
