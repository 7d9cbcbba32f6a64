"""What a follower writes: whole entries in order, however the leader's bytes were cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.broker.log.errors import CopyDamaged
from kafka2011.broker.replica.copying import Copying
from kafka2011.broker.replica.frames import Chunk
from kafka2011.protocol.errors import RemoteProtocolError
from tests.support.raw_requests import entry


def chunk(data: bytes, offset: int, segment_start: int = 0, name: str = "t-0") -> Chunk:
    return Chunk(name, offset, segment_start, 5, data)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=10), st.integers(1, 80), st.booleans())
def test_whole_entries_come_out_in_order(
    payloads: list[bytes], size: int, has_other_log: bool
) -> None:
    data = b"".join(entry(payload) for payload in payloads)
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + len(entry(payload)))
    copying = Copying(1000)
    written = b""
    for start in range(0, len(data), size):
        if has_other_log:  # cut in the middle of an entry as well
            copying.take(chunk(entry(b"other")[:7], start, name="u-0")) if not start else None
        found = copying.take(chunk(data[start : start + size], start))
        if found is not None:
            assert found.offset == len(written)
            written += found.data
            assert found.end == len(written)
            assert found.end in ends
            assert found.checked.whole_bytes == len(found.data)
    assert written == data


def test_a_damaged_entry_is_refused() -> None:
    data = bytearray(entry(b"payload"))
    data[-1] ^= 1
    with pytest.raises(CopyDamaged):
        Copying(1000).take(chunk(bytes(data), 0))


def test_an_entry_larger_than_any_that_is_let_in_is_refused_at_once() -> None:
    with pytest.raises(CopyDamaged, match="above 100"):
        Copying(100).take(chunk(entry(b"x" * 200)[:30], 0))


@pytest.mark.parametrize(("offset", "segment_start"), [(11, 0), (10, 10)])
def test_the_rest_of_an_entry_follows_it(offset: int, segment_start: int) -> None:
    copying = Copying(1000)
    assert copying.take(chunk(entry(b"payload")[:10], 0)) is None
    with pytest.raises(RemoteProtocolError, match="after a partial entry at 0"):
        copying.take(chunk(entry(b"payload")[10:], offset, segment_start))
