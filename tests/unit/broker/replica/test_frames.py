"""The bytes of the replica port: both ways, in any pieces, and never more than the limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.broker.log.segment_sums import SegmentSums
from kafka2011.broker.replica import frames
from kafka2011.broker.replica.frames import (
    Chunk,
    FrameReader,
    Greeting,
    Kind,
    Purpose,
    Sums,
    Wire,
)
from kafka2011.broker.replication.copies import Row
from kafka2011.broker.replication.frames import (
    Ack,
    Mark,
    Plan,
    Ready,
    Start,
    Table,
    Verdict,
    Welcome,
)
from kafka2011.broker.replication.machine import Canvassing
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.protocol.errors import FrameTooLarge, LocalProtocolError, RemoteProtocolError

ANY = frozenset(Kind)
EPOCH = 7

i8 = st.integers(0, 127)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=10)
offsets = st.dictionaries(texts, i64, max_size=5)
lineages = st.lists(st.tuples(i32, i64), max_size=4).map(tuple)

segment_sums = st.builds(
    SegmentSums, i64, i64, i64, st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple)
)

wire: st.SearchStrategy[Wire] = st.one_of(
    st.builds(Greeting, st.sampled_from(Purpose), texts, i32, texts, texts, i32),
    st.builds(Welcome, st.sampled_from(Verdict), i32),
    st.builds(Table, st.dictionaries(texts, st.builds(Row, i64, i64, lineages), max_size=4)),
    st.builds(
        Plan,
        st.dictionaries(texts, st.builds(Step, st.sampled_from(Action), i64, lineages), max_size=4),
    ),
    st.just(Ready()),
    st.builds(Chunk, texts, i64, i64, i64, st.binary(max_size=60)),
    st.builds(Mark, i64, offsets, st.integers(0, 2**31 - 1)),
    st.builds(Ack, i64, offsets),
    st.builds(Start, offsets),
    st.builds(Canvassing, i32, offsets, offsets),
    st.builds(Sums, st.dictionaries(texts, st.lists(segment_sums, max_size=3).map(tuple))),
)


def read_all(reader: FrameReader) -> list[Wire]:
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
    return found


@given(st.lists(wire, min_size=1, max_size=4), st.integers(1, 50))
def test_what_was_sent_is_read_in_any_pieces(sent: list[Wire], piece_bytes: int) -> None:
    data = b"".join(frames.encode(frame, EPOCH) for frame in sent)
    for size in (1, piece_bytes, len(data)):
        reader = FrameReader(ANY)
        reader.epoch = EPOCH
        found: list[Wire] = []
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
            found += read_all(reader)
        assert found == sent


@given(wire, st.binary(min_size=1, max_size=3))
def test_bytes_behind_the_last_field_are_refused(frame: Wire, behind: bytes) -> None:
    data = frames.encode(frame, EPOCH)
    size = int.from_bytes(data[:4], "big") + len(behind)
    reader = FrameReader(ANY)
    reader.feed(size.to_bytes(4, "big") + data[4:] + behind)
    with pytest.raises(RemoteProtocolError):
        reader.next()


@given(wire, st.data())
def test_a_frame_that_ends_too_early_is_refused(frame: Wire, data: st.DataObject) -> None:
    whole = frames.encode(frame, EPOCH)
    if len(whole) == 10:
        return  # it has no body
    cut = data.draw(st.integers(10, len(whole) - 1))
    reader = FrameReader(ANY)
    reader.feed((cut - 4).to_bytes(4, "big") + whole[4:cut])
    with pytest.raises(RemoteProtocolError):
        reader.next()


@given(st.binary(max_size=200), st.sampled_from(Kind))
def test_no_bytes_make_another_error(body: bytes, kind: Kind) -> None:
    reader = FrameReader(ANY)
    size = 6 + len(body)
    reader.feed(size.to_bytes(4, "big") + kind.to_bytes(2, "big") + bytes(4) + body)
    try:
        reader.next()
    except RemoteProtocolError:
        pass


@given(st.binary(max_size=100))
def test_a_chunks_header_goes_before_its_bytes(data: bytes) -> None:
    whole = frames.encode(Chunk("t-0", 5, 3, 99, data), EPOCH)
    header = frames.encode_chunk_header(Chunk("t-0", 5, 3, 99, b""), len(data), EPOCH)
    assert header + data == whole


def test_a_frame_of_another_epoch_is_refused() -> None:
    reader = FrameReader(ANY)
    reader.epoch = EPOCH
    reader.feed(frames.encode(Ready(), EPOCH + 1))
    with pytest.raises(RemoteProtocolError, match="READY of epoch 8 on a link of 7"):
        reader.next()


def test_a_link_begins_as_it_is_expected_to() -> None:
    reader = FrameReader(frozenset({Kind.GREETING}))
    reader.feed(frames.encode(Ready(), EPOCH)[:6] + bytes(4))
    with pytest.raises(RemoteProtocolError, match="does not begin with READY"):
        reader.next()


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (Kind.GREETING, frames.SMALL_BYTES_MAX + 1),
        (Kind.CHUNK, frames.CHUNK_BYTES_MAX + frames.SMALL_BYTES_MAX + 1),
        (Kind.PLAN, frames.TABLE_BYTES_MAX + 1),
    ],
)
def test_the_limit_is_checked_before_anything_is_kept(kind: Kind, size: int) -> None:
    reader = FrameReader(ANY)
    reader.feed(size.to_bytes(4, "big") + kind.to_bytes(2, "big") + bytes(4))
    with pytest.raises(FrameTooLarge, match=f"frame of {size} bytes"):
        reader.next()


def test_a_stranger_is_told_from_another_format() -> None:
    data = bytearray(frames.encode(Greeting(Purpose.FOLLOW, "c", 1, "a", "d", 0), 0))
    data[13] ^= 1
    reader = FrameReader(ANY)
    reader.feed(bytes(data))
    with pytest.raises(RemoteProtocolError, match="not a replica"):
        reader.next()
    data[13] ^= 1
    data[15] = 9
    reader = FrameReader(ANY)
    reader.feed(bytes(data))
    with pytest.raises(RemoteProtocolError, match="a replica of format 9, this one has 2"):
        reader.next()


def test_what_does_not_fit_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="GREETING of"):
        frames.encode(Greeting(Purpose.FOLLOW, "c" * 5000, 1, "a", "d", 0), 0)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        frames.encode(Ack(2**63, {}), 0)
