"""Payloads of the forms without Avro, `json`, `text` and `bytes`, as records.

JSON is read strictly, so that whatever is read can be written again: text that two readers could
take for different values (a name twice, a number beyond a double) is no event. Nor is one nested
more than DEPTH_MAX deep: how deep Python can read and write depends on its version and the caller.
"""

import json
from itertools import chain
from typing import Any

from kafka2011.events.bounds import DEPTH_MAX, TOO_DEEP
from kafka2011.events.errors import EventCorrupt
from kafka2011.events.forms import Form

VALUE = "value"  # the one field of text and bytes


def record_of(form: Form, payload: bytes) -> dict[str, Any]:
    """The JSON object; for text and bytes, the payload as `value`. Raises EventCorrupt."""
    if form is Form.JSON:
        return json_record(payload)
    return {VALUE: text_of(payload) if form is Form.TEXT else bytes(payload)}


def text_of(payload: bytes) -> str:
    """The payload as text. Raises EventCorrupt for bytes that are not UTF-8."""
    try:
        return str(payload, "utf-8")
    except UnicodeDecodeError as error:
        raise EventCorrupt(f"not UTF-8: {error.reason} at byte {error.start}") from None


def json_record(payload: bytes) -> dict[str, Any]:
    """The JSON object. Raises EventCorrupt for anything but one in UTF-8."""
    try:
        record = _DECODER.decode(text_of(payload))
    except RecursionError:
        raise EventCorrupt(f"not readable as JSON: {TOO_DEEP}") from None
    except ValueError as error:
        raise EventCorrupt(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise EventCorrupt(f"JSON, but not an object: {type(record).__name__}")
    # Most payloads are too short to be too deep, and most others have too few brackets.
    if (
        len(payload) > 2 * DEPTH_MAX
        and payload.count(b"{") + payload.count(b"[") > DEPTH_MAX
        and _is_too_deep(record)
    ):
        raise EventCorrupt(f"not readable as JSON: {TOO_DEEP}")
    return record


def _is_too_deep(record: dict[str, Any]) -> bool:
    level: list[Any] = [record]
    for _ in range(DEPTH_MAX):
        inner = chain.from_iterable(v.values() if isinstance(v, dict) else v for v in level)
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def json_text(value: Any) -> str:
    """What `json_record` has read, as text again, in the shortest form."""
    return _ENCODER.encode(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:100]!r} occurs twice in an object")
    return found


def _number(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:100]} is larger than a double")
    return number


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_number, parse_constant=_constant
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
