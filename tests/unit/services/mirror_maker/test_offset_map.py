import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.coordination.errors import BadZnode
from kafka2011.services.mirror_maker import offset_map
from kafka2011.services.mirror_maker.offset_map import OffsetMap, Segment, decode_map, encode_map


def test_one_writer_without_repeats_is_one_segment_over_all_runs() -> None:
    offsets = OffsetMap()
    offsets.begin(100, 7)
    offsets.reach(340, 247)
    target, again = decode_map(encode_map("11-0", offsets))
    assert (target, again.has_begun) == ("11-0", False)
    again.begin(340, 247)
    again.reach(590, 497)
    assert again.segments == [Segment(100, 590, 7)]
    assert again.translate(99) is None
    assert again.translate(345) == (252, True)
    assert again.translate(600) == (497, False)


def test_old_segments_go() -> None:
    offsets = OffsetMap()
    offsets.begin(0, 0)
    for step in range(1, 500):
        offsets.reach(10 * step, 11 * step)
    assert len(offsets.segments) == offset_map.SEGMENTS_MAX
    assert len(encode_map("11-0", offsets)) < 65536
    assert offsets.translate(4990) == (11 * 499, False)


@pytest.mark.parametrize(
    "value", [None, b"x", b"{}", b'{"target": "1-0", "segments": [[5, 4, 0]]}']
)
def test_garbage_is_refused(value: bytes | None) -> None:
    with pytest.raises(BadZnode):
        decode_map(value)


# What happens to a copy, in messages of one byte: some are copied; a failure has some copied again
# from what was confirmed; others write the target partition; it loses its end, or all; a new run
# begins.
events = st.lists(
    st.tuples(
        st.sampled_from(["copy", "fail", "others", "lose", "restart", "look"]), st.integers(1, 4)
    ),
    max_size=40,
)


@given(events)
def test_a_consumer_that_goes_over_misses_no_message(steps: list[tuple[str, int]]) -> None:
    log: list[int] = []  # the target partition: source offsets, -1 for what others wrote
    offsets = OffsetMap()
    confirmed = 0
    offsets.begin(confirmed, len(log))
    for name, count in steps:
        if name == "copy":
            log += range(confirmed, confirmed + count)
            confirmed += count
        elif name == "fail":  # arrived, and not confirmed
            log += range(confirmed, confirmed + count)
        elif name == "others":
            log += [-1] * count
        elif name == "lose":
            offsets.reach(confirmed, len(log))  # each barrier looks
            del log[-count if count < 4 else 0 :]
            offsets.reach(confirmed, len(log))
        elif name == "look":
            offsets.reach(confirmed, len(log))
        else:
            offsets = decode_map(encode_map("1-0", offsets))[1]
            offsets.begin(confirmed, len(log))
    for source in range(confirmed + 1):
        found = offsets.translate(source)
        assert found is not None
        rest = log[found.target_offset :]
        assert set(range(source, confirmed)) & set(log) <= set(rest)
        if found.is_exact and source < confirmed:
            assert rest[0] == source
