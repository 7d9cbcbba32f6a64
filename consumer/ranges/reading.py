"""Reads a known range of one partition and stops: for load jobs, recounts and tools.

No group, no ZooKeeper, no threads. What is yielded is exactly [start, end) in order, or an error.
"""

from collections.abc import Callable, Iterator

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.fetched_set import larger_size
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import KafkaError, MessageLargerThanFetchSize
from kafka2011.protocol.message import LENGTH, LENGTH_BYTES

FETCH_SIZE = 1_048_576
FETCH_SIZE_MAX = 67_108_864
ATTEMPTS = 3  # per fetch; each of them connects anew once by itself

Check = Callable[[SimpleConsumer], None]


class RangeUnreadable(KafkaError):
    """The broker has no data below the end of the range.

    The range was planned by a high watermark that this broker does not have (another broker's, or
    its log was cut back). Nothing more can be read of it.
    """


def read_range(  # noqa: PLR0917 (a range is six words)
    address: tuple[str, int],
    topic: str,
    broker_id: int,
    partition: int,
    start: int,
    end: int,
    fetch_size: int = FETCH_SIZE,
    *,
    fetch_size_max: int = FETCH_SIZE_MAX,
    socket_timeout_ms: int = 30_000,
    attempts: int = ATTEMPTS,
    check: Check | None = None,
) -> Iterator[Chunk]:
    """Yield the entries from `start` on that end at or before `end`, in chunks.

    When `end` is not an entry boundary the last chunk ends at the last boundary before it, except
    that the first entry is always read, so that every call makes progress; `chunk.next_offset`
    says where to go on. `fetch_size` grows up to `fetch_size_max` for an entry that needs it.
    A fetch is tried `attempts` times. `check(client)` is called on each connection before anything
    that came on it is yielded; what it raises ends the range.

    Raises:
      OffsetOutOfRange: the range (or its start) is not in the log any more.
      MessageLargerThanFetchSize: an entry above `fetch_size_max`, or `start` is no boundary.
      InvalidMessage: an impossible entry (CRCs are checked by `Chunk.messages`, not here).
      RangeUnreadable, BrokerUnavailable (after repeated attempts), RemoteProtocolError.
    """
    offset = start
    size = fetch_size
    with SimpleConsumer(*address, socket_timeout_ms=socket_timeout_ms) as client:
        fetch = _Fetch(client, topic, partition, check, attempts)
        while offset < end:
            left = end - offset
            data = fetch(offset, min(size, left))
            if not data:
                raise RangeUnreadable(
                    f"{topic} {broker_id}-{partition} has nothing at {offset}, planned up to {end}"
                )
            try:
                valid = message_set.split(data)
            except MessageLargerThanFetchSize as error:
                if size < left:
                    size = larger_size(size, error, fetch_size_max)
                    if not size:
                        raise
                    continue
                if offset > start:
                    return  # this entry starts inside the range and ends behind it
                data = _first_entry(fetch, offset, error=error, size_max=fetch_size_max)
                valid = len(data)
            yield Chunk(topic, broker_id, partition, offset, data[:valid], offset + valid)
            offset += valid
            size = fetch_size


class _Fetch:
    def __init__(
        self,
        client: SimpleConsumer,
        topic: str,
        partition: int,
        check: Check | None,
        attempts: int,
    ) -> None:
        self._client = client
        self._place = topic, partition
        self._check = check
        self._attempts = attempts
        self._checked = 0  # the connection checked last

    def __call__(self, offset: int, size: int) -> memoryview:
        attempt = 1
        while True:
            try:
                data = self._client.fetch(*self._place, offset, size).data
                if self._is_checked():
                    return data
            except BrokerUnavailable:
                if attempt >= self._attempts:
                    raise
                attempt += 1

    def _is_checked(self) -> bool:
        connection = self._client.connections
        if self._check is None or self._checked == connection:
            return True
        self._check(self._client)
        self._checked = connection
        return self._client.connections == connection  # else the data came on an earlier one


def _first_entry(
    fetch: _Fetch, offset: int, *, error: MessageLargerThanFetchSize, size_max: int
) -> memoryview:
    """The one entry at `offset`, however far past the range it reaches."""
    size = max(FETCH_SIZE, error.size_needed)
    while True:
        if size > size_max:
            raise error
        data = fetch(offset, size)
        try:
            message_set.split(data)
        except MessageLargerThanFetchSize as larger:
            size = larger_size(size, larger, size_max)
            if not size:
                raise
            continue
        return data[: LENGTH_BYTES + LENGTH.unpack_from(data)[0]]
