import pytest

from kafka2011.services.proxy.faults import AfterBytes, DropMessages, Faults, changed, parse_faults


def test_a_change_names_only_what_it_changes() -> None:
    faults = parse_faults('{"delay_ms": 100, "hold": "both", "cut_after": null}')
    assert faults == Faults(delay_ms=100, hold=("to_server", "to_client"))
    faults = changed(faults, {"hold": "none", "drop_messages": {"topic": "t", "count": 3}})
    assert faults == Faults(delay_ms=100, drop_messages=DropMessages("t", 3))
    flip = {"direction": "to_client", "after_bytes": 7}
    assert changed(faults, {"clear": True, "flip": flip}) == Faults(flip=AfterBytes("to_client", 7))
    assert changed(faults, faults.as_json()) == faults


@pytest.mark.parametrize(
    "change",
    [
        [],
        {"delay": 1},
        {"delay_ms": -1},
        {"delay_ms": True},
        {"delay_ms": "5"},
        {"cut": 1},
        {"hold": "left"},
        {"hold": ["left"]},
        {"flip": {"direction": "to_client"}},
        {"flip": {"direction": "up", "after_bytes": 1}},
        {"cut_after": 5},
        {"drop_messages": {"topic": "", "count": 1}},
        {"drop_messages": {"topic": "t", "count": 1.5}},
    ],
)
def test_bad_changes_are_refused(change) -> None:
    with pytest.raises(ValueError, match=r"."):
        changed(Faults(), change)


def test_text_that_is_no_json_is_refused_however_deep_it_nests() -> None:
    for text in ("{", "[" * 100_000, '{"cut":' * 10_000):
        with pytest.raises(ValueError, match="not JSON"):
            parse_faults(text)
