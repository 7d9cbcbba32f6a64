"""Text that may come from anyone, made safe to print on a terminal or to write into XML."""

import re

# Control characters that a terminal interprets, except line feed and tab; line ends of Unicode;
# what turns the order of text round or has no width, so that two names look like one (but the
# joiners of Persian, Hindi and emoji); halves of characters, which no file takes; and what may
# not be in XML.
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"
    "\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\ud800-\udfff\ufffe\uffff"
)
_IN_LINES = re.compile(f"[{_UNSAFE}]")
_IN_A_LINE = re.compile(f"[\t\n{_UNSAFE}]")


def escaped(text: str) -> str:
    """The text with what a terminal obeys or hides as escapes; line feeds and tabs stay."""
    return _IN_LINES.sub(_escape, text)


def one_line(text: str) -> str:
    """The text with all such characters as escapes, line feeds and tabs too."""
    return _IN_A_LINE.sub(_escape, text)


def visible(text: str, length_max: int) -> str:
    """The text in one line, cut to `length_max` characters."""
    shown = one_line(text)
    return shown if len(shown) <= length_max else shown[: length_max - 1] + "…"


def _escape(found: re.Match[str]) -> str:
    """The escape of one character: `\\x07`, `\\u2028`."""
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
