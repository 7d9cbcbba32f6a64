import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.producer.partitioner import default_partitioner, jvm_hash


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
def test_hash_is_the_jvms(key: str | int | bytes, expected: int) -> None:
    assert jvm_hash(key) == expected


@given(key=st.one_of(st.text(), st.binary(), st.integers(-(2**63), 2**63 - 1)))
def test_hash_fits_32_bits(key: str | int | bytes) -> None:
    assert -(2**31) <= jvm_hash(key) < 2**31


@given(key=st.one_of(st.text(), st.binary(), st.integers()), count=st.integers(1, 1000))
def test_every_key_has_a_place(key: str | int | bytes, count: int) -> None:
    assert 0 <= default_partitioner(key, count) < count


def test_places_of_the_captures() -> None:
    assert default_partitioner("a", 2) == 1
    assert default_partitioner("b", 2) == 0


def test_a_key_keeps_its_place_whether_text_or_bytes() -> None:
    assert default_partitioner("user-42", 7) == default_partitioner(b"user-42", 7)
