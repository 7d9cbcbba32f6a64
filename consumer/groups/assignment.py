"""Which member of a group reads which partition: the range assignment of 0.7; pure.

Every member computes it by itself from the same registry, so all must sort and divide exactly
alike, the original's JVM consumers included: partitions and threads are sorted as strings of
UTF-16, so that `10-0` comes before `2-0`.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination.paths import BrokerPartition

# Consumer id -> topic -> number of streams.
Members = Mapping[str, Mapping[str, int]]


def make_consumer_id(
    group: str,
    host: str,
    configured: str = "",
    *,
    clock: Callable[[], int] | None = None,
    random_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
) -> str:
    """A consumer's id: `<group>_<host>-<ms>-<8 hex digits>`, or `<group>_<configured>`.

    The digits are the first eight of a random UUID's high half, leading zeros dropped before.
    """
    if configured:
        return f"{group}_{configured}"
    now_ms = clock() if clock else time.time_ns() // 1_000_000
    digits = f"{random_uuid().int >> 64:x}"[:8]
    return f"{group}_{host.replace('/', '-')}-{now_ms}-{digits}"


def thread_id(consumer_id: str, number: int) -> str:
    """The id of a consumer's stream, as owner nodes hold it."""
    return f"{consumer_id}-{number}"


def as_java_sorts(text: str) -> bytes:
    """Sort key: Java compares strings by UTF-16 units, which differs above the first plane."""
    return text.encode("utf-16-be", "surrogatepass")


def assign(
    partitions: Iterable[BrokerPartition], threads: Iterable[str]
) -> dict[BrokerPartition, str]:
    """Divide one topic's partitions among threads: consecutive runs, the first ones longer by one.

    Five partitions over two threads: 3 and 2. Two over three: 1, 1, 0; a thread with nothing is
    legal. No threads: nothing is assigned.
    """
    sorted_partitions = sorted(partitions, key=lambda found: as_java_sorts(found.text))
    sorted_threads = sorted(threads, key=as_java_sorts)
    if not sorted_threads:
        return {}
    quotient, remainder = divmod(len(sorted_partitions), len(sorted_threads))
    assigned = {}
    for position, thread in enumerate(sorted_threads):
        start = quotient * position + min(position, remainder)
        count = quotient + (1 if position < remainder else 0)
        assigned.update(dict.fromkeys(sorted_partitions[start : start + count], thread))
    return assigned


def assignment_of(
    consumer_id: str, members: Members, partitions: Mapping[str, Iterable[BrokerPartition]]
) -> dict[TopicPartition, str]:
    """The partitions of all its topics that `consumer_id` should own -> its thread's id."""
    mine: dict[TopicPartition, str] = {}
    for topic, own_count in members.get(consumer_id, {}).items():
        own_threads = {thread_id(consumer_id, number) for number in range(own_count)}
        threads = [
            thread_id(member, number)
            for member, streams in members.items()
            for number in range(streams.get(topic, 0))
        ]
        for partition, thread in assign(partitions.get(topic, ()), threads).items():
            if thread in own_threads:
                mine[TopicPartition(topic, *partition)] = thread
    return mine
