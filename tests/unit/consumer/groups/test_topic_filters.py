"""Topic filters: whole-name match, Java's reading of classes, and linear time for any pattern."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.groups.topic_filters import (
    STATES_MAX,
    TopicFilter,
    blacklist,
    normalise,
    whitelist,
)
from kafka2011.coordination.paths import WildcardSubscription
from kafka2011.protocol.errors import IllegalTopicFilter


def test_the_whole_name_must_match() -> None:
    assert whitelist("white.*").select(["white", "whitey", "a-white"]) == ["white", "whitey"]
    assert blacklist("white.*").select(["white", "whitey", "a-white"]) == ["a-white"]
    assert whitelist("cons").select(["cons", "cons2"]) == ["cons"]


def test_normalising() -> None:
    assert normalise(" 'a, b ,c' ") == "a|b|c"
    assert whitelist('"clicks, views"').select(["clicks", "views", "clicks,views"]) == [
        "clicks",
        "views",
    ]


def test_a_comma_is_always_a_bar() -> None:
    """As in the original, so `{m,n}` cannot be written in a filter."""
    assert whitelist("a{2,3}").select(["aa", "aaa", "a{2", "3}", "a{2|3}"]) == ["a{2", "3}"]


def test_subscription_holds_the_pattern_as_typed() -> None:
    assert whitelist("a, b").subscription(4) == WildcardSubscription("whitelist", 4, "a, b")


def test_names_only() -> None:
    assert whitelist("clicks,page-view").names_only
    assert not whitelist("clicks.*").names_only
    assert not blacklist("clicks").names_only


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"[a-c]+", ["a", "abc"], ["", "d", "abd"]),
        (r"[^a-c]+", ["d"], ["a"]),
        (r"a{2}", ["aa"], ["a", "aaa"]),
        (r"(ab)*c?", ["", "ab", "ababc", "c"], ["a", "abab_"]),
        (r"(?:x|y)z", ["xz", "yz"], ["z", "xyz"]),
        (r"\d\w+", ["1a", "1_"], ["a1", "1é"]),
        (r"^a.c$", ["abc", "a-c"], ["ac"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r".*?-x", ["-x", "a-x"], ["x"]),
    ],
)
def test_syntax(pattern: str, matching: list[str], others: list[str]) -> None:
    made = whitelist(pattern)
    assert [name for name in matching if not made.allows(name)] == []
    assert made.select(others) == []


@pytest.mark.parametrize(
    "pattern",
    ["", "(", "a{1000}{1000}", r"(a)\1", "(?=a)b", "(?i)a", "a^b", "a" * 257, "a++", "[", "*"],
)
def test_refused(pattern: str) -> None:
    with pytest.raises(IllegalTopicFilter):
        whitelist(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|aa)+", "(.*)*x", "((a*)*)*", "((a?){20}){20}b"])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    made = whitelist(pattern)
    started = time.perf_counter()
    made.allows("a" * 248 + "b")
    assert time.perf_counter() - started < 1.0  # backtracking would take longer than the universe
    assert STATES_MAX <= 5_000


@given(
    st.text("ab.", max_size=8),
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", r"\."]),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
            inner.map(lambda one: f"({one})*"),
            inner.map(lambda one: f"({one})?"),
            inner.map(lambda one: f"({one}){{2}}"),
        ),
        max_leaves=6,
    ),
)
def test_agrees_with_the_backtracking_engine(name: str, pattern: str) -> None:
    assert TopicFilter("whitelist", pattern).allows(name) == bool(re.fullmatch(pattern, name))
