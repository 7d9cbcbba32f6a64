"""The columns of a topic's table without Avro, and its messages decoded into batches of them.

    guid                        the MD5 of the payload
    header_time, server         from the fields that event.time.field and event.server.field name;
    service                     null
    value                       text: the line; bytes: the payload
    rest                        JSON: what has no column of its own, as text of an object; else null
    a column a field            JSON: of the top-level fields

A field's column has the type of the first batch that has a value in it, and keeps it: true and
false boolean, whole numbers bigint, others double, text string. Objects and arrays are text of JSON
in `<field>_json`. A value that does not fit its column is in `rest`, under the field's name, as is
every field that can have no column: its name is not plain, or the table has COLUMNS_MAX. So nothing
is lost, no value is changed and no column changes its type. Null and an absent field are the same.

`kafka2011.events.plain` says which payloads are not events; these are rejected with the reason.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from kafka2011.events import plain
from kafka2011.events.errors import EventCorrupt
from kafka2011.events.forms import Form, Forms
from kafka2011.events.origin import Origin, origin_of
from kafka2011.services.warehouse.load.arrow_types import TIMESTAMP
from kafka2011.services.warehouse.load.schema_columns import (
    HEADER_FIELDS,
    HOUR_FIELD,
    RESERVED,
    SOURCE_FIELDS,
    Decoded,
    Rejected,
)

REST = "rest"
COLUMNS_MAX = 500
NAME_MAX = 128
INT64_MAX = 2**63 - 1
EXACT_MAX = 2**53  # whole numbers up to here are exact as doubles

_BEHIND = {field.name for field in (*SOURCE_FIELDS, HOUR_FIELD)}
_TAKEN = {*RESERVED, REST}
_PLAIN = re.compile(rf"[\w@$-]{{1,{NAME_MAX}}}")
_LIKE_JSON = re.compile(r"_json(_value)*$", re.IGNORECASE)
_NESTED = (dict, list)

Record = dict[str, Any]


class PlainColumns:
    """The columns of one topic, which grow with the fields of its JSON.

    `present`: the columns that the topic's table has. With `grows` false none are added: fields
    without one are in `rest`.
    """

    def __init__(
        self, topic: str, forms: Forms, present: pa.Schema | None = None, *, grows: bool = True
    ) -> None:
        self.topic = topic
        self._form = forms.of(topic)
        self._origin: Origin = origin_of(forms, topic)
        self._grows = grows
        own = [field.remove_metadata() for field in present or () if field.name not in _BEHIND]
        needed = [*HEADER_FIELDS, _OWN[self._form]]
        known = {field.name for field in own}
        self.event_schema = pa.schema([*own, *(f for f in needed if f.name not in known)])

    @property
    def table_schema(self) -> pa.Schema:
        return pa.schema([*self.event_schema, *SOURCE_FIELDS, HOUR_FIELD])

    def add_registered(self) -> None:
        """Do nothing: without Avro no registry knows the fields."""

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        """Columns of `event_schema` for the payloads that can be read, reasons for the others."""
        rejected: list[Rejected] = []
        records: list[Record] = []
        kept: list[int] = []
        for index, payload in enumerate(payloads):
            try:
                records.append(plain.record_of(self._form, payload))
            except EventCorrupt as error:
                rejected.append(Rejected(index, str(error)))
            else:
                kept.append(index)
        try:
            return Decoded(self._batch([payloads[n] for n in kept], records), rejected)
        except (ValueError, RecursionError):
            pass
        # A record has text that is not Unicode (half a surrogate pair), or is too deep: find it.
        fitting = []
        for index, record in zip(kept, records, strict=True):
            try:
                _ = plain.json_text(record).encode()
            except (ValueError, RecursionError) as error:
                rejected.append(Rejected(index, f"cannot be written as text: {error}"))
            else:
                fitting.append((index, record))
        batch = self._batch([payloads[n] for n, _ in fitting], [record for _, record in fitting])
        return Decoded(batch, sorted(rejected))

    decode_in_python = decode  # there is no compiled twin

    def _batch(self, payloads: Sequence[bytes], records: Sequence[Record]) -> pa.RecordBatch:
        moments = [self._origin.moment(record) for record in records]
        times = pa.array([time_ms for time_ms, _ in moments], pa.timestamp("ms", tz="UTC"))
        made = {
            "guid": pa.array([Origin.guid(self._origin, p) for p in payloads], pa.binary()),
            "header_time": times.cast(TIMESTAMP),
            "server": pa.array([server for _, server in moments], pa.string()),
        }
        schema = self.event_schema
        if self._form is Form.JSON:
            fields = _Fields(records, schema, grows=self._grows)
            made |= fields.columns
            schema = fields.schema
        else:
            values = [record[plain.VALUE] for record in records]
            made[plain.VALUE] = pa.array(values, schema.field(plain.VALUE).type)
        arrays = [
            made[field.name] if field.name in made else pa.nulls(len(records), field.type)
            for field in schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self.event_schema = schema
        return batch


_OWN = {
    Form.JSON: pa.field(REST, pa.string()),
    Form.TEXT: pa.field(plain.VALUE, pa.string()),
    Form.BYTES: pa.field(plain.VALUE, pa.binary()),
}


class _Fields:
    """The top-level fields of some records as columns: `columns` by name, and their `schema`, which
    is the given one with those that are new."""

    def __init__(self, records: Sequence[Record], present: pa.Schema, *, grows: bool) -> None:
        self.columns: dict[str, pa.Array] = {}
        self._records = records
        self._known = {field.name: field for field in present}
        self._spelled = {name.casefold(): name for name in self._known}
        self._grows = grows
        self._rest: dict[int, Record] = {}
        homeless = set()
        for name in dict.fromkeys(chain.from_iterable(records)):
            columns = column_names(name)
            if columns is None or not any(self._may_have(column) for column in columns):
                homeless.add(name)
            else:
                self._place(name, columns)
        if homeless:  # all at once: there may be as many as messages
            for index, record in enumerate(records):
                for name in filter(homeless.__contains__, record):
                    self._leave(index, name, record[name])
        rest = [self._rest.get(index) for index in range(len(records))]
        texts = [None if left is None else plain.json_text(left) for left in rest]
        self.columns[REST] = pa.array(texts, pa.string())
        self.schema = pa.schema(list(self._known.values()))

    def _may_have(self, column: str) -> bool:
        spelled = self._spelled.get(column.casefold())
        if spelled is not None:
            # Names that differ by case only are one column to readers.
            return bool(spelled == column)
        return self._grows and len(self._known) < COLUMNS_MAX

    def _leave(self, index: int, name: str, value: object) -> None:
        if value is not None:
            self._rest.setdefault(index, {})[name] = value

    def _place(self, name: str, columns: "ColumnNames") -> None:
        values = [record.get(name) for record in self._records]
        kinds = set(map(type, values)) - {type(None)}
        nested = kinds.intersection(_NESTED)
        if nested:
            texts = [plain.json_text(v) if isinstance(v, _NESTED) else None for v in values]
            if self._has(columns.nested, pa.string()):
                self.columns[columns.nested] = pa.array(texts, pa.string())
            else:
                self._leave_all(name, values, _NESTED)
        if kinds - nested:
            flat = [None if isinstance(v, _NESTED) else v for v in values] if nested else values
            self._place_flat(name, columns.flat, flat, kinds - nested)

    def _place_flat(self, name: str, column: str, values: Sequence[Any], kinds: set[type]) -> None:
        wanted = _type_of(values, kinds)
        if wanted is None or not self._has(column, wanted):
            self._leave_all(name, values, (object,))
            return
        column_type = self._known[column].type
        if kinds <= _TAKES.get(column_type, set()):
            try:
                self.columns[column] = pa.array(values, column_type)
                return
            except (pa.ArrowInvalid, OverflowError):
                pass  # a number that is too large
        fitting = [value if _fits(value, column_type) else None for value in values]
        for index, (value, fits) in enumerate(zip(values, fitting, strict=True)):
            if fits is None:
                self._leave(index, name, value)
        self.columns[column] = pa.array(fitting, column_type)

    def _leave_all(self, name: str, values: Iterable[Any], kinds: tuple[type, ...]) -> None:
        for index, value in enumerate(values):
            if isinstance(value, kinds):
                self._leave(index, name, value)

    def _has(self, column: str, wanted: pa.DataType) -> bool:
        """Whether the column is there, after adding it with the type `wanted` if it may be."""
        if not self._may_have(column):
            return False
        if column not in self._known:
            self._known[column] = pa.field(column, wanted)
            self._spelled[column.casefold()] = column
        return True


class ColumnNames(NamedTuple):
    """The columns of a field: of its plain values, and of its objects and arrays."""

    flat: str
    nested: str


def column_names(field: str) -> ColumnNames | None:
    """The names of a field's columns, which no other field has; None: it can have none."""
    if _PLAIN.fullmatch(field) is None:
        return None
    flat = f"{field}_value" if _LIKE_JSON.search(field) else field
    return ColumnNames(_free(flat), f"{field}_json")


def _free(name: str) -> str:
    """The name, with the prefix `event_` if the table uses it, or uses it without that prefix."""
    bare = name
    while bare.startswith("event_"):
        bare = bare.removeprefix("event_")
    return f"event_{name}" if bare.casefold() in _TAKEN else name


# Python's types of which every value, or nearly every, fits a column.
_TAKES: dict[pa.DataType, set[type]] = {
    pa.bool_(): {bool},
    pa.int64(): {int},
    pa.int32(): {int},
    pa.float64(): {int, float},
    pa.string(): {str},
}


def _type_of(values: Iterable[Any], kinds: set[type]) -> pa.DataType | None:
    """The type of a new column, by the first value that has one; for numbers, the type that takes
    most of them. None if no value has one."""
    for value in values:
        if isinstance(value, bool):
            return pa.bool_()
        if isinstance(value, str):
            return pa.string()
        if isinstance(value, float) or (isinstance(value, int) and float in kinds):
            return pa.float64()
        if isinstance(value, int) and -INT64_MAX <= value <= INT64_MAX:
            return pa.int64()
    return None


def _fits(value: object, column_type: pa.DataType) -> bool:
    """Whether the column has exactly this value."""
    if type(value) not in _TAKES.get(column_type, set()):
        return False
    if isinstance(value, bool) or not isinstance(value, int):
        return True
    bits = {pa.int32(): 2**31 - 1, pa.float64(): EXACT_MAX}.get(column_type, INT64_MAX)
    return -bits <= value <= bits
