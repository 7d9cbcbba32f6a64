"""What is written is JSON by the standard, whatever numbers are in it."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka2011.runtime import strict_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def refuse(word: str) -> Any:
    raise AssertionError(f"{word} is not JSON")


@given(value=VALUES)
def test_any_value_is_written_so_that_a_strict_reader_takes_it(value: Any) -> None:
    read = json.loads(strict_json.dumps(value), parse_constant=refuse)
    assert read == strict_json.spelt(value)


def test_only_what_json_has_no_number_for_becomes_a_text() -> None:
    value = {"a": [math.nan, (math.inf, -math.inf, 1.5)], "b": b"\1"}
    text = strict_json.dumps(value, default=bytes.hex, separators=(",", ":"))
    assert text == '{"a":["NaN",["Infinity","-Infinity",1.5]],"b":"01"}'
