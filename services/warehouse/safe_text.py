"""Text that may come from anyone, made safe to print on a terminal."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def visible(text: str, length_max: int) -> str:
    """The text with control characters as escapes, cut to `length_max` characters."""
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return shown if len(shown) <= length_max else shown[: length_max - 1] + "…"
