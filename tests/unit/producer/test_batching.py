import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.batching import BatchTrigger, SetPart, produce_frame, request_frame
from protocol.errors import LocalProtocolError
from protocol.requests import (
    MultiProduceRequest,
    ProduceRequest,
    decode_request,
    encode_request,
)


@given(
    topic=st.text("abc-_.", max_size=249),
    partition=st.integers(-1, 2**31 - 1),
    message_set=st.binary(max_size=300),
)
def test_the_hot_path_makes_the_codecs_frame(
    topic: str, partition: int, message_set: bytes
) -> None:
    expected = encode_request(ProduceRequest(topic, partition, message_set))
    assert produce_frame(topic.encode(), partition, message_set) == expected


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


def test_a_batch_is_due_by_number_or_by_time() -> None:
    trigger = BatchTrigger(batch_size=3, queue_time=5000, now=0)
    assert not trigger.is_due(2, 4999)
    assert trigger.is_due(3, 0)
    assert trigger.is_due(1, 5000)
    assert not trigger.is_due(0, 9000)
    assert trigger.wait(2000) == 3000
    trigger.dispatched(6000)
    assert not trigger.is_due(1, 10_999)
    assert trigger.wait(20_000) == 0
