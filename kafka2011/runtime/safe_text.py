"""Text that may come from anyone, made safe to print on a terminal."""

import re

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")  # the last two may not be in XML


def escaped(found: re.Match[str]) -> str:
    """The escape of one character, which a pattern has found: `\\x07`, `\\u2028`."""
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def visible(text: str, length_max: int) -> str:
    """The text with control characters as escapes, cut to `length_max` characters."""
    shown = _UNSAFE.sub(escaped, text)
    return shown if len(shown) <= length_max else shown[: length_max - 1] + "…"
