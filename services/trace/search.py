"""Reads one cluster's logs for a trace: the message at an offset, and every place of a message.

Bytes held and seconds taken are bounded. What was not read is named (`Searched.gaps`), so that
"not there" is only said where everything was read. On a machine that a deployment uses fully every
answer is late, however cheap it is: so several partitions are read at once.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kafka2011.consumer.fetched_set import larger_size
from kafka2011.consumer.ranges.boundaries import Boundaries, TimeOf
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster, processes
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.coordination.registry import Registry
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import (
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    WrongPartition,
)
from kafka2011.runtime.config import suggestion

FETCH_BYTES = 1 << 20
ENTRY_BYTES = 1 << 16  # of the fetch of one entry, at first
FETCH_BYTES_MAX = 1 << 24  # the largest message that is recognised
TIMEOUT_MS = 3000
HALVING_BYTES = 32 << 20  # a smaller partition is read faster than its start is found by halving
HITS_MAX = 20
THREADS = 8

Dial = Callable[[BrokerAddress], tuple[str, int]]
Pairs = list[tuple[bytes, int]]


class EntryLocation(NamedTuple):
    """An entry of a partition; the messages of a compressed set share theirs."""

    source: BrokerPartition
    offset: int
    next_offset: int


class Hit(NamedTuple):
    """A message that was read."""

    place: EntryLocation
    payload: bytes


class Sought(NamedTuple):
    """What is looked for in a topic: the payloads that `matches` accepts. A payload without the
    bytes `within` is not one, which is faster to check."""

    topic: str
    matches: Callable[[bytes], bool]
    within: bytes = b""


class Searched(NamedTuple):
    """What was found. `gaps`: why a place may be lacking, a line each; none: all was read."""

    hits: list[Hit]
    gaps: list[str]


class Logs:
    """The logs of one cluster; for one thread. `dial` gives the address of a published one."""

    def __init__(self, name: str, registry: Registry, dial: Dial) -> None:
        """Raises CoordinationError, as every method may."""
        self.name = name
        self.registry = registry
        self._dial = dial
        self._brokers = cluster.live_brokers(registry)
        self._clients: list[tuple[int, SimpleConsumer]] = []  # by broker; those not in use
        self._pool = ThreadPoolExecutor(THREADS, f"trace-{name}")
        self._expected = self._pool.submit(self._away)

    def close(self) -> None:
        self._pool.shutdown()
        for _, client in self._clients:
            client.close()

    def topics(self) -> list[str]:
        return cluster.topics(self.registry)

    def partitions(self, topic: str) -> list[str]:
        """The partitions that live brokers have registered, such as 1-0."""
        return [source.text for source in cluster.partitions_of(self.registry, topic)]

    def unread(self) -> list[str]:
        """Why there may be topics that are not registered: brokers that are not there, a line
        each."""
        none = [] if self._brokers else [f"no {self.name} broker is registered at present"]
        return self._expected.result() or none

    def ends(self, topic: str, source: BrokerPartition) -> tuple[int, int] | None:
        """(earliest, latest); None when its broker is away or has no such partition."""
        try:
            with self._client(source.broker_id) as client:
                earliest = client.earliest(topic, source.partition)
                return earliest, client.latest(topic, source.partition)
        except KafkaError:
            return None

    def at(self, topic: str, source: BrokerPartition, offset: int) -> list[Hit]:
        """The messages of the entry at an offset; none at the end of the log, or without a log.

        Raises KafkaError: the broker is away, the offset is not in the log, no entry begins there.
        """
        with self._client(source.broker_id) as client:
            try:
                data = _fetched(client, topic, source.partition, offset, ENTRY_BYTES)
            except WrongPartition:
                return []
        pairs, _ = _first_messages(data, offset)
        if not pairs:
            return []
        end = _entry_end(pairs, 0, offset)
        own = [payload for payload, after in pairs if after in (offset, end)]
        return [Hit(EntryLocation(source, offset, end), payload) for payload in own]

    def find(
        self, sought: Sequence[Sought], *, since: tuple[int, TimeOf] | None, deadline: float
    ) -> tuple[str, Searched]:
        """The first topic that has any such message, and its messages from about a time on
        (`since`: ms, and how it is read); without any, the gaps of all topics.

        Where messages came late, times do not rise, and what is looked for may stand in front of
        that place: so if nothing is found from it on, everything is read.
        """
        topic, found, is_whole = self._search(sought, since, deadline, halves=True)
        if not found.hits and not is_whole:
            topic, found, _ = self._search(sought, since, deadline, halves=False)
        return topic, found

    def _search(
        self,
        sought: Sequence[Sought],
        since: tuple[int, TimeOf] | None,
        deadline: float,
        *,
        halves: bool,
    ) -> tuple[str, Searched, bool]:
        """As `find`, and whether each partition was read from its beginning on; `halves`: not so
        the large ones."""
        sources = self._pool.map(
            lambda one: cluster.partitions_of(self.registry, one.topic), sought
        )
        first = len(sought)  # the first topic with hits so far: later ones need not be read
        is_whole = True

        def search(place: tuple[int, BrokerPartition]) -> tuple[list[Hit], str]:
            nonlocal first, is_whole
            index, source = place
            hits: list[Hit] = []
            gap = ""
            with contextlib.closing(
                self._pieces_of(sought[index], source, since, deadline, halves=halves)
            ) as pieces:
                try:
                    while index <= first and len(hits) < HITS_MAX:
                        hits += next(pieces)
                except StopIteration as stop:
                    gap, is_from_start = stop.value
                    is_whole = is_whole and is_from_start
                except KafkaError as error:
                    gap = str(error)
            if hits:
                first = min(first, index)
            where = f"{self.name} {sought[index].topic} {source.text}"
            return hits, f"{where}: {gap}" if gap else ""

        places = [(index, at) for index, found in enumerate(sources) for at in found]
        answers = list(zip(places, self._pool.map(search, places), strict=True))
        first = min((index for (index, _), (found, _) in answers if found), default=len(sought))
        hits = [hit for (index, _), (found, _) in answers for hit in found if index == first]
        gaps = [gap for (index, _), (_, gap) in answers if gap and first in (index, len(sought))]
        gaps = [*self._expected.result(), *gaps]
        if len(hits) >= HITS_MAX:
            gaps.append(f"only the first {HITS_MAX} are named")
        topic = sought[first].topic if hits else ""
        return topic, Searched(hits[:HITS_MAX], gaps), is_whole

    def _pieces_of(
        self,
        sought: Sought,
        source: BrokerPartition,
        since: tuple[int, TimeOf] | None,
        deadline: float,
        *,
        halves: bool,
    ) -> Generator[list[Hit], None, tuple[str, bool]]:
        """The hits of a partition, piece by piece; returns why there may be others, or "", and
        whether it was read from its beginning on."""
        topic, partition = sought.topic, source.partition
        with self._client(source.broker_id) as client:
            earliest, latest = client.earliest(topic, partition), client.latest(topic, partition)
            offset = earliest
            if halves and since is not None and latest - earliest > HALVING_BYTES:
                boundaries = Boundaries(
                    client, topic, partition, earliest=earliest, latest=latest, deadline=deadline
                )
                offset = boundaries.before(*since)
            is_from_start = offset == earliest
            gap = ""
            if offset == earliest > 0 and not _was_before(client, topic, partition, latest, since):
                gap = f"retention has deleted what was before offset {earliest}"
            while offset < latest:
                if time.monotonic() > deadline:
                    reason = f"not read from offset {offset} on, for lack of time"
                    return reason, is_from_start
                data = _fetched(client, topic, partition, offset, FETCH_BYTES)
                if not data:
                    break
                hits, offset = _hits(data, source, offset, sought)
                yield hits
        return gap, is_from_start

    def _away(self) -> list[str]:
        """The brokers that are expected and not there: their partitions cannot be read."""
        alive = {record.name for record in processes.alive(self.registry)}
        return [
            f"{record.name} is away: its partitions were not read"
            for record in processes.expected(self.registry)
            if record.kind == "broker" and record.name not in alive
        ]

    @contextlib.contextmanager
    def _client(self, broker_id: int) -> Iterator[SimpleConsumer]:
        """A client of the broker that nothing else uses meanwhile."""
        address = self._brokers.get(broker_id)
        if address is None:
            raise KafkaError(f"{self.name} broker {broker_id} is not registered at present")
        for known in self._clients[:]:
            with contextlib.suppress(ValueError):  # another thread has taken it
                if known[0] == broker_id:
                    self._clients.remove(known)
                    client = known[1]
                    break
        else:
            client = SimpleConsumer(*self._dial(address), socket_timeout_ms=TIMEOUT_MS)
        try:
            yield client
        finally:
            self._clients.append((broker_id, client))


def without_topic(topic: str, clusters: Sequence[Logs]) -> str:
    """The line that says that none of the clusters has the topic; "" if one does. While a broker is
    away it is only said not to be registered."""
    known = {name for logs in clusters for name in logs.topics()}
    if topic in known:
        return ""
    hint = suggestion(topic, sorted(known))
    unread = [reason for logs in clusters for reason in logs.unread()]
    if unread:
        return "; ".join([f"topic {topic!r} is not registered{hint}", *unread])
    return f"no topic {topic!r}{hint}"


def _none_begins_at(offset: int) -> InvalidMessage:
    """The error for an offset inside an entry, which looks like a damaged entry."""
    return InvalidMessage(f"no message begins at offset {offset}, or it is damaged", 0)


def _fetched(
    client: SimpleConsumer, topic: str, partition: int, offset: int, size: int
) -> memoryview:
    """Whole entries from an offset on; none at the end of the log. Raises KafkaError when none
    begins there."""
    while True:
        fetched = client.fetch(topic, partition, offset, size)
        try:
            return fetched.data[: fetched.valid_bytes()]
        except MessageLargerThanFetchSize as error:
            size = larger_size(size, error, FETCH_BYTES_MAX)
            if not size:
                raise _none_begins_at(offset) from None
        except InvalidMessage:
            raise _none_begins_at(offset) from None


def _first_messages(data: memoryview, offset: int) -> tuple[Pairs, int]:
    """(payload, next offset) of the entries at an offset, some MiB, and where these end.

    Raises InvalidMessage when the first cannot be read.
    """
    try:
        pairs, end = message_set.take_messages(data, offset)
    except InvalidMessage as error:
        if error.position <= 0:
            raise _none_begins_at(offset) from error
        pairs, end = message_set.take_messages(data[: error.position], offset)
    return pairs, offset + end


def _hits(
    data: memoryview, source: BrokerPartition, offset: int, sought: Sought
) -> tuple[list[Hit], int]:
    """The hits of some entries at an offset, and where these end."""
    if sought.within:
        with contextlib.suppress(InvalidMessage):  # what precedes it is looked at below
            payloads, end = message_set.take_payloads(data)
            if sought.within not in b"".join(payloads):
                return [], offset + end
    pairs, end = _first_messages(data, offset)
    hits = []
    for index in (at for at, (payload, _) in enumerate(pairs) if sought.matches(payload)):
        start = pairs[index - 1][1] if index else offset
        hits.append(
            Hit(EntryLocation(source, start, _entry_end(pairs, index, start)), pairs[index][0])
        )
    return hits, end


def _was_before(
    client: SimpleConsumer,
    topic: str,
    partition: int,
    latest: int,
    since: tuple[int, TimeOf] | None,
) -> bool:
    """Whether all that was deleted came before what is searched for: a segment that is still there
    was written whole by then. The times of messages prove nothing: some come days late."""
    if since is None:
        return False
    return any(
        offset < latest
        for offset in client.get_offsets_before(topic, partition, since[0], count_max=1)
    )


def _entry_end(pairs: Pairs, index: int, start: int) -> int:
    """The end of the entry that begins at `start` and holds message `index`.

    All but the last message of a compressed set have the set's own start as their next offset.
    """
    return next((after for _, after in pairs[index:] if after > start), start)
