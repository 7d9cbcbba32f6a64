import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.producer.partitioner import default_partitioner, jvm_hash

KEYS = st.text() | st.binary() | st.integers()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a", 97),
        ("hello", 99162322),
        ("kafka", 101807910),
        ("user-42", -147182656),
        ("", 0),
        ("polygenelubricants", -(2**31)),  # the well-known string with this hash
        (b"hello", 99162322),
        ("é", 233),
        ("日本", 26085 * 31 + 26412),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two UTF-16 units
        (42, 42),
        (-1, -1),
        (2**31, -(2**31)),  # Long: low word xor high word
        (2**32, 1),
        (-(2**31) - 1, -(2**31)),
    ],
)
def test_hash_is_the_jvms(key, expected) -> None:
    assert jvm_hash(key) == expected


@given(KEYS, st.integers(1, 1000))
def test_every_key_has_a_partition(key, count) -> None:
    assert -(2**31) <= jvm_hash(key) < 2**31
    assert 0 <= default_partitioner(key, count) < count


@given(st.text(st.characters(max_codepoint=127)), st.integers(1, 1000))
def test_an_ascii_key_has_one_partition_as_text_and_as_bytes(key, count) -> None:
    assert default_partitioner(key, count) == default_partitioner(key.encode(), count)
