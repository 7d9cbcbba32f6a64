import pytest

from kafka2011.runtime.safe_text import escaped, one_line, visible


def test_long_text_is_cut() -> None:
    assert visible("abcdef", 4) == "abc…"
    assert visible("abcd", 4) == "abcd"


def test_characters_that_may_not_be_in_xml_are_escapes() -> None:
    assert visible("a\x1b\ufffe\uffff", 20) == r"a\x1b\ufffe\uffff"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/\u202egnp.exe", r"/\u202egnp.exe"),  # a terminal would show /exe.png
        ("pay\u200bments", r"pay\u200bments"),  # would look like the topic payments
        ("pay\xadments\ufeff", r"pay\xadments\ufeff"),
        ("half \ud800", r"half \ud800"),
        ("می\u200cخواهم 👩\u200d🚀", "می\u200cخواهم 👩\u200d🚀"),  # joiners belong to the text
    ],
)
def test_no_text_looks_like_another(text: str, shown: str) -> None:
    assert escaped(text) == one_line(text) == visible(text, 40) == shown


def test_line_ends_are_escapes_in_one_line_alone() -> None:
    assert escaped("a\tb\nc") == "a\tb\nc"
    assert one_line("a\tb\nc") == visible("a\tb\nc", 20) == r"a\x09b\x0ac"
