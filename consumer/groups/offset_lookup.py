"""Offsets looked up at brokers: lag, the offset of a time, an entry's end.

Each call opens and closes its own connections, besides the fetchers'.
"""

from collections.abc import Mapping

from kafka2011.consumer.broker_addresses import BrokerAddresses
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import BrokerUnavailable, ConsumerStateError
from kafka2011.consumer.simple import EARLIEST
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.message import LENGTH, LENGTH_BYTES

START_TIMEOUT_MS = 1_000


def lag(
    brokers: BrokerAddresses, positions: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int | None]:
    """Bytes from each position to the high watermark; None where a broker did not answer, or its
    log ends before the position: it was lost, and what is there now was not read."""
    found: dict[TopicPartition, int | None] = dict.fromkeys(positions)
    by_broker: dict[int, list[TopicPartition]] = {}
    for name, position in positions.items():
        if position is not None:
            by_broker.setdefault(name.broker_id, []).append(name)
    for broker_id, names in by_broker.items():
        try:
            with brokers.client(broker_id) as client:
                ends = client.latest_of([(name.topic, name.partition) for name in names])
        except KafkaError:
            continue
        for name, end in zip(names, ends, strict=True):
            position = positions[name]
            if end is not None and position is not None and position <= end:
                found[name] = end - position
    return found


def offset_of_time(brokers: BrokerAddresses, name: TopicPartition, time_ms: int) -> int:
    """The offset to start at to miss nothing written after `time_ms`, EARLIEST or LATEST.

    Raises BrokerUnavailable.
    """
    with brokers.client(name.broker_id) as client:
        offsets = client.get_offsets_before(name.topic, name.partition, time_ms, 1)
        return offsets[0] if offsets else client.earliest(name.topic, name.partition)


def start(brokers: BrokerAddresses, name: TopicPartition, time_ms: int) -> int:
    """The offset of EARLIEST or LATEST, for a rebalance, which other members wait for: gives up on
    a broker silent for START_TIMEOUT_MS. Raises BrokerUnavailable and the broker's refusals."""
    with brokers.client(name.broker_id, START_TIMEOUT_MS) as client:
        if time_ms == EARLIEST:
            return client.earliest(name.topic, name.partition)
        return client.latest(name.topic, name.partition)


def end_of_entry(brokers: BrokerAddresses, name: TopicPartition, offset: int) -> int:
    """Where the entry at `offset` ends, by its length alone: its bytes may be damaged.

    Raises BrokerUnavailable; ConsumerStateError when its length cannot be read.
    """
    with brokers.client(name.broker_id) as client:
        try:
            head = client.fetch(name.topic, name.partition, offset, LENGTH_BYTES).data
        except BrokerUnavailable:
            raise
        except KafkaError as error:  # retention may have deleted it
            raise ConsumerStateError(
                f"the entry at {offset} of {name} cannot be read: {error}"
            ) from error
    size = LENGTH.unpack(head)[0] if len(head) == LENGTH_BYTES else -1
    if size < 0:
        raise ConsumerStateError(f"no entry of a known length at {offset} of {name}")
    return offset + LENGTH_BYTES + int(size)
