"""Which names may become directories and znodes."""

import pytest

from kafka2011.protocol.errors import (
    IllegalGroupName,
    IllegalTopicName,
    LocalProtocolError,
)
from kafka2011.protocol.names import check_group, check_topic


@pytest.mark.parametrize("name", ["a", "page-view", "X_1.y", "a" * 249, "-", "..a"[2:], "0"])
def test_strict_names(name: str) -> None:
    assert check_topic(name) == name
    assert check_group(name) == name
    assert check_topic(name, "0.7") == name


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


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "a\0b", "a\x1f", "a\x7f", "a\x9f", "a\ue000", "a\uf8ff", "a\ufff0",
     "\uffff", "\ud800", "a" * 256, "\U00020000" * 128],
)  # fmt: skip
def test_the_rule_of_07_refuses(name: str) -> None:
    with pytest.raises(IllegalTopicName):
        check_topic(name, "0.7")


def test_errors_show_a_name_on_one_short_line() -> None:
    with pytest.raises(IllegalTopicName) as caught:
        check_topic("evil\nlog line\x1b[31m" + "x" * 1000)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 120
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, LocalProtocolError)
