import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.producer.requests import (
    REQUEST_HEAD_BYTES_MAX,
    RequestLimits,
    SetPart,
    encode_sets,
    pack_requests,
    request_frame,
)
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import LocalProtocolError, MessageSizeTooLarge
from kafka2011.protocol.message_set import DecompressionBudget, payloads, scan
from kafka2011.protocol.requests import (
    MultiProduceRequest,
    ProduceRequest,
    decode_request,
    encode_request,
    produce_head,
)


@given(st.text("abc-_.", max_size=249), st.integers(-1, 2**31 - 1), st.binary(max_size=300))
def test_the_hot_path_makes_the_codecs_frame(topic, partition, message_set) -> None:
    expected = encode_request(ProduceRequest(topic, partition, message_set))
    assert produce_head(topic.encode(), partition, len(message_set)) + message_set == expected


def test_one_part_alone_is_multi_only_when_asked() -> None:
    part = SetPart("t", 1, b"set")
    single = decode_request(request_frame([part])[4:])
    multi = decode_request(request_frame([part], always_multi=True)[4:])
    assert single == ProduceRequest("t", 1, b"set")
    assert isinstance(multi, MultiProduceRequest)
    assert list(multi.parts) == [single]


def test_more_parts_than_a_count_can_say_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        request_frame([SetPart("t", 0, b"")] * 32768)


@given(
    lists=st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=20), max_size=8),
    codec=st.sampled_from(Codec),
    parts_max=st.integers(1, 5),
)
def test_no_request_is_above_the_limits_and_the_order_is_kept(lists, codec, parts_max) -> None:
    limits = RequestLimits(400, REQUEST_HEAD_BYTES_MAX + 700, 900, parts_max)
    # Some compress to more than the largest message.
    sets = [encode_sets(some, codec, limits) for some in lists]
    parts = [SetPart("t", n % 2, one) for n, some in enumerate(sets) for one, _ in some]
    unpacked = [unpacked_bytes for some in sets for _, unpacked_bytes in some]
    requests = pack_requests(parts, unpacked, limits)
    assert [part for request in requests for part in request] == parts
    for request in requests:
        assert len(request_frame(request, always_multi=True)) - 4 <= limits.request_bytes_max
        assert 1 <= len(request) <= parts_max
        budget = DecompressionBudget(limits.unpacked_bytes_max)
        for part in request:
            scan(part.message_set, limits.message_bytes_max, budget=budget)
    found = [one for part in parts for one in payloads(part.message_set)]
    assert found == [one for some in lists for one in some]


@pytest.mark.parametrize("codec", Codec)
def test_one_message_above_the_largest_is_refused_whatever_is_beside_it(codec: Codec) -> None:
    limits = RequestLimits(20, REQUEST_HEAD_BYTES_MAX + 700, 900, 5)
    with pytest.raises(MessageSizeTooLarge, match="a payload of 21 bytes"):
        encode_sets([b"short", random.Random(1).randbytes(21), b"short"], codec, limits)
