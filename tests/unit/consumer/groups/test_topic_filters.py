"""Topic filters: whole-name match, ASCII classes as in Java, and linear time for any pattern."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.groups.topic_filters import TopicFilter, blacklist, normalise, whitelist
from kafka2011.coordination.paths import WildcardSubscription
from kafka2011.protocol.errors import IllegalTopicFilter


def test_a_blacklist_selects_what_a_whitelist_does_not() -> None:
    names = ["white", "whitey", "a-white"]
    assert whitelist("white.*").select(names) == ["white", "whitey"]
    assert blacklist("white.*").select(names) == ["a-white"]


def test_a_filter_is_normalised_and_its_subscription_holds_the_pattern_as_typed() -> None:
    assert normalise(" 'a, b ,c' ") == "a|b|c"
    assert whitelist("a, b").subscription(4) == WildcardSubscription("whitelist", 4, "a, b")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"cons", ["cons"], ["cons2", "a-cons"]),
        (r'"clicks, views"', ["clicks", "views"], ["clicks,views"]),
        # A comma is always a bar, as in the original, so `{m,n}` cannot be written in a filter.
        (r"a{2,3}", ["a{2", "3}"], ["aa", "aaa", "a{2|3}"]),
        (r"[a-c]+", ["a", "abc"], ["", "d", "abd"]),
        (r"[^a-c]+", ["d"], ["a"]),
        (r"a{2}", ["aa"], ["a", "aaa"]),
        (r"(ab)*c?", ["", "ab", "ababc", "c"], ["a", "abab_"]),
        (r"(?:x|y)z", ["xz", "yz"], ["z", "xyz"]),
        (r"\d\w+", ["1a", "1_"], ["a1", "1é"]),
        (r"^a.c$", ["abc", "a-c"], ["ac"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r".*?-x", ["-x", "a-x"], ["x"]),
        (r"(?i)ab", ["ab", "AB"], ["b"]),
        (r"a^b", [], ["ab", "a^b"]),
    ],
)
def test_the_whole_name_must_match(pattern: str, matching: list[str], others: list[str]) -> None:
    assert whitelist(pattern).select(matching + others) == matching


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "1 to 256 characters"),
        ("a" * 257, "1 to 256 characters"),
        ("(", r"missing \)"),
        ("[", r"missing \]"),
        ("*", "no argument"),
        ("a++", "bad repetition"),
        (r"(a)\1", "invalid escape"),
        ("(?=a)b", "invalid perl operator"),
        ("a{1000}{1000}", "bad repetition"),
        ("((a{20}){20}){20}", "invalid repetition size"),
        (r"\pL{200}", "too large"),
        ("\ud800", "not UTF-8"),
    ],
)
def test_a_filter_that_cannot_be_used_is_refused_with_its_reason(pattern: str, reason: str) -> None:
    with pytest.raises(IllegalTopicFilter, match=reason):
        whitelist(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|aa)+", "(.*)*x", "((a*)*)*", "((a?){20}){20}c"])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    """Backtracking would take longer than the universe."""
    assert not whitelist(pattern).allows("a" * 248 + "b")


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
