"""Batches of a stream: the same messages, the same positions, and a column of Arrow over them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.batch import Batch
from kafka2011.consumer.errors import ConsumerStateError, ConsumerTimeout, PartitionStuck
from kafka2011.protocol import message_set
from tests.support.bombs import BOMBS_COUNT, bombs, bounded_memory
from tests.support.memory_deployment import Deployment, one_stream
from tests.support.waiting import wait_until
from tests.unit.consumer.groups.test_connector import NAME


def batch_of(data: bytes, offset: int = 0) -> Batch:
    end = offset + len(data)
    return Batch("t", 0, 0, offset, end, message_set.payloads(data), memoryview(data))


def test_a_batch_is_delivered_when_it_comes_and_processed_when_the_next_is_asked_for(
    deployment: Deployment,
) -> None:
    broker, connector, stream = deployment.reading([b"one", b"two"])
    batches = stream.batches()
    first = next(batches)
    assert (first.topic_partition, first.payloads, len(first)) == (NAME, [b"one", b"two"], 2)
    assert (first.offset, first.next_offset, first.next_offsets()) == (0, 26, [13, 26])
    assert connector.positions() == {NAME: 26}
    broker.append("t", 0, [b"a" * 9, b"b"], codec=1)
    second = next(batches)
    assert second.payloads == [b"a" * 9, b"b"]
    assert second.next_offsets() == [26, second.next_offset]
    [owned] = connector._assignment.owned()
    assert owned.processed_offset() == 26
    connector.shutdown()
    assert list(batches) == []
    assert deployment.stored("t", 0, 0) == str(second.next_offset).encode()


def test_what_unpacks_to_much_comes_in_several(deployment: Deployment) -> None:
    broker, _, stream = deployment.reading(fetch_size=len(bombs()))
    with bounded_memory():
        broker.logs["t", 0] += bombs()
        batches = stream.batches()
        found = [len(next(batches)) for _ in range(BOMBS_COUNT)]
    assert found == [1] * BOMBS_COUNT


def test_a_seek_drops_what_was_begun_by_messages(deployment: Deployment) -> None:
    _, connector, stream = deployment.reading([b"one", b"two"])
    assert next(stream).payload == b"one"
    with pytest.raises(ConsumerStateError, match="by messages"):
        next(stream.batches())
    connector.seek(NAME, 13)
    assert next(stream.batches()).payloads == [b"two"]


def test_damage_is_met_behind_what_is_good(deployment: Deployment) -> None:
    broker, _, stream = deployment.reading([b"good"])
    broker.logs["t", 0] += b"\0\0\0\7\1\0" + bytes(4) + b"x"
    batches = stream.batches()
    assert next(batches).payloads == [b"good"]
    with pytest.raises(PartitionStuck):
        next(batches)


def test_a_quiet_stream_raises_and_goes_on(deployment: Deployment) -> None:
    broker, _, stream = deployment.reading(consumer_timeout_ms=1)
    with pytest.raises(ConsumerTimeout):
        next(stream.batches())
    broker.append("t", 0, [b"later"])

    def comes() -> list[bytes]:
        try:
            return next(stream.batches()).payloads
        except ConsumerTimeout:
            return []

    assert wait_until(comes, "the batch") == [b"later"]


def test_there_are_none_of_unopened_entries(deployment: Deployment) -> None:
    connector = deployment.connector(shallow_iterator_enable=True)
    deployment.broker_of_t()
    with pytest.raises(ConsumerStateError, match="shallowiterator"):
        next(one_stream(connector).batches())


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.sampled_from([0, 1, 2, 9]))
def test_the_column_has_the_payloads(payloads: list[bytes], codec: int) -> None:
    """Codec 9: entries of magic 0."""
    data = (
        message_set.encode(payloads, 0)
        if codec == 9
        else message_set.encode_compressed(payloads, codec)
    )
    column = batch_of(data).arrow()
    column.validate(full=True)
    assert column.type == pa.binary_view()
    assert column.to_pylist() == payloads
    assert batch_of(data, 1000).next_offsets()[-1] == 1000 + len(data)


def test_a_column_of_plain_entries_is_the_fetched_bytes() -> None:
    batch = batch_of(message_set.encode([bytes([number]) * 50 for number in range(20)]))
    *_, values = batch.arrow().buffers()
    assert values.address == pa.py_buffer(batch.data).address
