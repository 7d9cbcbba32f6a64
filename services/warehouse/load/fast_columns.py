"""Payloads to Arrow columns with the compiled decoder: which schemas it reads, and its program.

`_columns_compiled` reads schemas whose fields are all plain values, or plain values or null, as
those of the shipped topics are. Where it was not built, with KAFKA2011_PURE=1, and for other
schemas, `columns` decodes in Python; both decoders are under the same tests.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kafka2011.events.schemas import Schema
from kafka2011.runtime.twins import is_pure_wanted

try:
    from kafka2011.services.warehouse.load import _columns_compiled as compiled
except ImportError:  # no compiler where it was installed
    compiled = None  # type: ignore[assignment]

COMPILED = compiled is not None and not is_pure_wanted()

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_KINDS = {
    "string": "STRING",
    "bytes": "BYTES",
    "boolean": "BOOLEAN",
    "float": "FLOAT",
    "double": "DOUBLE",
}

Step = tuple[int, int, int, int, int, int]


class Times(NamedTuple):
    """A long that is a time, or an int that is a date: the bounds of its raw value, and its factor
    to microseconds (1 of a date)."""

    lowest: int
    highest: int
    factor: int


class FastDecoder:
    """Decodes payloads of exactly one schema into the given Arrow schema."""

    def __init__(self, program: list[Step], schema: pa.Schema) -> None:
        self._program = program
        self._schema = schema

    def decode(self, payloads: Sequence[bytes], prefix: bytes) -> tuple[pa.RecordBatch, list[int]]:
        """A batch of the payloads that could be read, and the ascending indexes of the others.

        Only those that start with `prefix` are read.
        """
        rows, columns, left = compiled.decode_columns(list(payloads), prefix, self._program)
        arrays = []
        for field, (validity, nulls, offsets, data) in zip(self._schema, columns, strict=True):
            buffers = [None if validity is None else pa.py_buffer(validity)]
            if offsets is not None:
                buffers.append(pa.py_buffer(offsets))
            buffers.append(pa.py_buffer(data))
            arrays.append(pa.Array.from_buffers(field.type, rows, buffers, nulls))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), left


def fast_decoder(
    physical: Schema,
    schema: pa.Schema,
    header: Times,
    times: dict[str, Times],
    *,
    has_header: bool = True,
) -> FastDecoder | None:
    """A decoder for the schema; None when only Python reads a field, or nothing was compiled.

    `times` are the event's own fields that are times or dates, by name. `has_header`: the first
    field is an event's header, whose parts are columns.
    """
    if not COMPILED:
        return None
    fixed_sizes: dict[str, int] = {}
    program: list[Step] = []
    for part in physical["fields"]:
        is_header = has_header and part["name"] == "header"
        if is_header and not isinstance(part["type"], dict):
            return None  # the header's record is not defined here
        inner = part["type"]["fields"] if is_header else [part]
        for field in inner:
            time = header if is_header and field["name"] == "time" else None
            step = _step(field["type"], time or times.get(field["name"]), fixed_sizes)
            if step is None:
                return None
            program.append(step)
    return FastDecoder(program, schema) if len(program) == len(schema) else None


def _step(node: Any, times: Times | None, fixed_sizes: dict[str, int]) -> Step | None:
    """The step of one field; None when only Python reads it. `fixed_sizes` collects the fixed types
    by name, for fields that use one again."""
    null_branch = -1
    if isinstance(node, list):
        if len(node) != 2 or "null" not in node:
            return None
        null_branch = node.index("null")
        node = node[1 - null_branch]
    if isinstance(node, dict) and node["type"] == "fixed":
        fixed_sizes[node["name"]] = node["size"]
        node = node["name"]
    if not isinstance(node, str):
        return None
    if node in fixed_sizes:
        return compiled.FIXED, null_branch, fixed_sizes[node], 0, 0, 1
    if node == "long":
        lowest, highest, factor = times or (_LONG_MIN, _LONG_MAX, 1)
        return compiled.LONG, null_branch, 0, lowest, highest, factor
    if node == "int":
        lowest, highest, _ = times or (_INT_MIN, _INT_MAX, 1)
        return compiled.INT, null_branch, 0, lowest, highest, 1
    kind = _KINDS.get(node)
    return None if kind is None else (getattr(compiled, kind), null_branch, 0, 0, 0, 1)
