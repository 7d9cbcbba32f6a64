"""Which names may become directories and znodes."""

import pytest

from kafka2011.protocol.errors import IllegalGroupName, IllegalTopicName, LocalProtocolError
from kafka2011.protocol.names import check_group, check_topic


@pytest.mark.parametrize("name", ["a", "page-view", "X_1.y", "a" * 249, "-", "0"])
def test_strict_names(name: str) -> None:
    assert check_topic(name) == check_group(name) == check_topic(name, "0.7") == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "a/b", "a b", "a\n", "a\0", "a:b", "é", "a" * 250, "../../etc"],
)
def test_strict_refuses(name: str) -> None:
    with pytest.raises(IllegalTopicName):
        check_topic(name)
    with pytest.raises(IllegalGroupName):
        check_group(name)


@pytest.mark.parametrize("name", ["a b", "a:b", "é日本", ".a", "a" * 255, "\U00020000" * 127])
def test_the_rule_of_07_accepts_more(name: str) -> None:
    assert check_topic(name, "0.7") == name


ILLEGAL_CHARACTERS = "/\0\x1f\x7f\x9f\ue000\uf8ff\ufff0\uffff\ud800"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a" * 256, "\U00020000" * 128, *(f"a{bad}" for bad in ILLEGAL_CHARACTERS)],
    ids=ascii,
)
def test_the_rule_of_07_refuses(name: str) -> None:
    with pytest.raises(IllegalTopicName):
        check_topic(name, "0.7")


def test_errors_show_a_name_on_one_short_line() -> None:
    with pytest.raises(IllegalTopicName) as caught:
        check_topic("evil\nlog line\x1b[31m" + "x" * 1000)
    text = str(caught.value)
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 120
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, LocalProtocolError)
