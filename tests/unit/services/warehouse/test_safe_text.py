from kafka2011.services.warehouse.safe_text import visible


def test_long_text_is_cut() -> None:
    assert visible("abcdef", 4) == "abc…"
    assert visible("abcd", 4) == "abcd"
