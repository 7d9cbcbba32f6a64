from kafka2011.runtime.safe_text import visible


def test_long_text_is_cut() -> None:
    assert visible("abcdef", 4) == "abc…"
    assert visible("abcd", 4) == "abcd"


def test_characters_that_may_not_be_in_xml_are_escapes() -> None:
    assert visible("a\x1b\ufffe\uffff", 20) == r"a\x1b\ufffe\uffff"
