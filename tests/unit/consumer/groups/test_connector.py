"""The group consumer whole, over a registry in memory and brokers in memory with real sockets."""

import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from kafka2011.consumer.chunk import ConsumedMessage, ShallowMessage, TopicPartition
from kafka2011.consumer.errors import (
    BrokerUnavailable,
    ConsumerFailed,
    ConsumerStateError,
    PartitionStuck,
)
from kafka2011.consumer.groups import offset_lookup
from kafka2011.consumer.groups.chunk_queues import OwnedPartition
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.groups.topic_filters import blacklist, whitelist
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import IllegalTopicName
from kafka2011.protocol.message_set import payloads
from kafka2011.protocol.requests import (
    EARLIEST,
    FetchRequest,
    MultiFetchRequest,
    OffsetsRequest,
    WaitingFetchRequest,
)
from tests.support.bombs import BOMB_BYTES, BOMBS_COUNT, bombs, bounded_memory
from tests.support.memory_deployment import Deployment, drain, numbered, one_stream
from tests.support.raw_requests import offsets_answer
from tests.support.waiting import wait_until

NAME = TopicPartition("t", 0, 0)
OFFSET_NODE = paths.offset_path("g", "t", BrokerPartition(0, 0))
OWNER_NODE = paths.owner_path("g", "t", BrokerPartition(0, 0))

# --- delivering -----------------------------------------------------------------------------------


def test_messages_in_order_with_everything_they_carry(deployment: Deployment) -> None:
    broker = deployment.broker(3)
    deployment.topic("t", {3: 1})
    broker.append("t", 0, [b"hello", b"world"])
    end = broker.append("t", 0, [b"in", b"wrapper"], codec=2)
    stream = one_stream(deployment.connector())
    expected = [(b"hello", 15), (b"world", 30), (b"in", 30), (b"wrapper", end)]
    assert [next(stream) for _ in range(4)] == [
        ConsumedMessage(payload, "t", 3, 0, next_offset) for payload, next_offset in expected
    ]


def test_a_conversation_as_the_original_has_it(deployment: Deployment) -> None:
    """Earliest for each partition, multifetches of both, then from the end.

    The first fetch may be of one partition alone, while the second is still being claimed.
    """
    broker = deployment.broker(0)
    deployment.topic("cons", {0: 2})
    ends = [broker.append("cons", 0, [b"x" * 100]), broker.append("cons", 1, [b"x" * 33])]
    one, two = ([FetchRequest("cons", n, at, 1 << 20) for at in (0, ends[n])] for n in (0, 1))
    earliest = {OffsetsRequest("cons", number, EARLIEST, 1) for number in (0, 1)}
    possible = {(part,) for part in one + two} | {*product(one, two), *product(two, one)}
    # One, then the other order, so that neither is always first.
    at_the_end = {(one[1], two[1]), (two[1], one[1])}

    def fetches() -> set[tuple[FetchRequest, ...]]:
        return {tuple(r.parts) for r in broker.requests() if isinstance(r, MultiFetchRequest)}

    def others() -> set[object]:
        return {r for r in broker.requests() if not isinstance(r, MultiFetchRequest)}

    with deployment.connector(fetch_wait_ms=0) as connector:
        assert len(drain(one_stream(connector, "cons"), 2)) == 2
        wait_until(lambda: at_the_end <= fetches(), "fetches at both ends")
    assert fetches() <= possible
    assert others() == earliest
    assert len(broker.conversations) == 3, "each start over a connection of its own, as there"
    assert [deployment.stored("cons", 0, number) for number in (0, 1)] == [b"110", b"43"]

    broker.frames.clear()
    assert drain(one_stream(deployment.connector(fetch_wait_ms=0), "cons"), 0) == []
    wait_until(lambda: at_the_end <= fetches(), "fetches at both ends")
    assert fetches() <= possible
    assert others() == set(), "stored offsets need no offsets request"


def test_what_the_application_does_ends_a_wait_at_the_broker(deployment: Deployment) -> None:
    broker = deployment.broker_of_t([b"one", b"two"])
    broker.can_wait = True
    connector = deployment.connector(fetch_wait_ms=10**9, socket_timeout_ms=10**9)
    stream = one_stream(connector)

    def waits_at(offset: int) -> int:
        return sum(
            isinstance(request, WaitingFetchRequest)
            and request.wait_ms > 0
            and request.parts[0].offset == offset
            for request in broker.requests()
        )

    assert [next(stream).payload for _ in range(2)] == [b"one", b"two"]
    wait_until(lambda: waits_at(26) == 1, "a wait at the end of the log")
    assert connector.seek(NAME, 13)
    assert next(stream).payload == b"two"
    wait_until(lambda: waits_at(26) == 2, "the wait after the seek")
    broker.append("t", 0, [b"three"])
    assert next(stream).payload == b"three"
    wait_until(lambda: waits_at(41) == 1, "the next wait")
    connector.shutdown()
    assert list(stream) == []


def test_start_at_the_largest_or_raise(deployment: Deployment) -> None:
    broker, largest, stream = deployment.reading([b"old"], autooffset_reset="largest")
    wait_until(lambda: largest.positions() == {NAME: 13}, "the start")
    broker.append("t", 0, [b"new"])
    assert drain(stream, 1) == [b"new"]
    stream = one_stream(deployment.connector(group_id="neither", autooffset_reset="raise"))
    with pytest.raises(PartitionStuck, match="no offset is stored"):
        next(stream)


@pytest.mark.parametrize(
    ("settings", "stored"),
    [
        ({"autooffset_reset": "largest"}, b"13"),
        ({"autooffset_reset": "smallest"}, b"0"),
        ({"autooffset_reset": "largest", "autocommit_enable": False}, None),
        ({"autooffset_reset": "raise"}, None),
    ],
)
def test_where_a_group_begins_is_stored_by_the_rebalance_as_the_original_looks_it_up_there(
    deployment: Deployment, settings: dict[str, object], stored: bytes | None
) -> None:
    """Or the next member would skip what came between the end of this one and its own start."""
    deployment.reading([b"old"], **settings)
    assert deployment.stored("t", 0, 0) == stored


def test_a_broker_that_does_not_say_where_is_asked_once_in_a_rebalance_and_then_by_its_fetcher(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def start(_brokers: object, name: TopicPartition, _time_ms: int) -> int:
        asked.append(name)
        if name.broker_id == 0:
            raise BrokerUnavailable("silent")
        return 0

    monkeypatch.setattr(offset_lookup, "start", start)
    deployment.broker(0).append("t", 2, [b"late"])
    deployment.broker(1)
    deployment.topic("t", {0: 3, 1: 1})
    stream = one_stream(deployment.connector())
    assert asked == [("t", 0, 0), ("t", 1, 0)]
    assert deployment.stored("t", 1, 0) == b"0"
    assert drain(stream, 1) == [b"late"]


def test_several_streams_and_topics(deployment: Deployment) -> None:
    one, two = deployment.broker(1), deployment.broker(2)
    deployment.topic("a", {1: 2, 2: 2})
    deployment.topic("b", {2: 1})
    for number in range(2):
        one.append("a", number, [b"a1%d" % number])
        two.append("a", number, [b"a2%d" % number])
    two.append("b", 0, [b"b"])
    streams = deployment.connector().create_message_streams({"a": 3, "b": 2})
    # Sorted as text: 1-0 1-1 | 2-0 | 2-1 for streams 0, 1, 2.
    expected = {"a": [[b"a10", b"a11"], [b"a20"], [b"a21"]], "b": [[b"b"], []]}
    assert {topic: len(found) for topic, found in streams.items()} == {"a": 3, "b": 2}
    for topic, shares in expected.items():
        for stream, share in zip(streams[topic], shares, strict=True):
            assert sorted(drain(stream, len(share))) == share


def test_chunks_are_the_brokers_bytes(deployment: Deployment) -> None:
    broker, connector, stream = deployment.reading(numbered(0, 50), fetch_size=100)
    end = broker.append("t", 0, [b"packed"] * 9, codec=1)
    chunks = []
    for chunk in stream.chunks():
        chunks.append(chunk)
        if chunk.next_offset == end:
            break
    assert b"".join(chunk.data for chunk in chunks) == broker.logs["t", 0]
    assert len(chunks) > 3
    found = [payload for chunk in chunks for payload in chunk.payloads()]
    assert found == numbered(0, 50) + [b"packed"] * 9
    assert connector.positions() == {NAME: end}


def test_shallow_iteration_delivers_wrappers_unopened_unless_damaged(
    deployment: Deployment,
) -> None:
    """What 0.7's MirrorMaker is typically run with."""
    broker = deployment.broker_of_t([b"plain"])
    ends = [broker.end("t", 0)]
    ends += [broker.append("t", 0, [b"one", b"two"], codec=1) for _ in range(2)]
    broker.logs["t", 0][-1] ^= 1
    stream = one_stream(deployment.connector(shallow_iterator_enable=True))
    plain, wrapper = next(stream), next(stream)
    assert plain == ShallowMessage(b"plain", "t", 0, 0, ends[0], Codec.NONE)
    assert wrapper == ShallowMessage(wrapper.payload, "t", 0, 0, ends[1], Codec.GZIP)
    assert payloads(gzip.decompress(wrapper.payload)) == [b"one", b"two"]
    with pytest.raises(PartitionStuck) as stuck:
        next(stream)
    assert stuck.value.offset == ends[1]


def test_shutdown_ends_the_iteration(deployment: Deployment) -> None:
    _, connector, stream = deployment.reading([b"x"], consumer_timeout_ms=-1)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(m.payload for m in stream))
    thread.start()
    wait_until(lambda: connector.positions() == {NAME: 11}, "the message")
    connector.shutdown()
    thread.join(60)
    assert not thread.is_alive()
    assert found == [b"x"]
    assert list(stream) == []
    assert deployment.admin.children(paths.consumer_ids_path("g")) == []
    assert deployment.owner("t", 0, 0) is None
    assert deployment.stored("t", 0, 0) == b"11"


def test_a_slow_stream_does_not_hold_back_another(deployment: Deployment) -> None:
    broker = deployment.broker(0)
    deployment.topic("a", {0: 1})
    deployment.topic("b", {0: 1})
    broker.append("a", 0, [b"x" * 90] * 50)
    connector = deployment.connector(fetch_size=100, queued_chunks_max=2)
    streams = connector.create_message_streams({"a": 1, "b": 1})
    assert next(streams["a"][0]).payload == b"x" * 90
    for payload in numbered(0, 20):
        broker.append("b", 0, [payload])
    assert drain(streams["b"][0], 20) == numbered(0, 20)
    # One handed out and decoded, two waiting: nothing more was fetched of the slow one.
    assert connector.stats.fetched_bytes - broker.end("b", 0) <= 4 * 100
    assert len(drain(streams["a"][0], 49)) == 49


# --- what cannot be read --------------------------------------------------------------------------


def test_a_large_message_makes_the_fetch_size_grow(deployment: Deployment) -> None:
    messages = [b"s", b"L" * 3000, b"s"]
    _, connector, stream = deployment.reading(messages, fetch_size=100, fetch_size_max=4096)
    assert drain(stream, 3) == messages
    assert connector.stats.fetch_size_growths >= 1


def test_a_message_above_the_limit_stops_only_its_partition(deployment: Deployment) -> None:
    broker, connector, stream = deployment.reading(
        [b"before", b"L" * 5000, b"after"], partitions=2, fetch_size=100, fetch_size_max=1000
    )
    broker.append("t", 1, [b"other"])
    found: list[bytes] = []
    with pytest.raises(PartitionStuck) as caught:
        found += (message.payload for message in stream)
    assert caught.value.offset == 16
    # The other partition's message may come before the error or behind it.
    broker.append("t", 1, [b"more"])
    while b"more" not in found:
        new = drain(stream, 1)
        assert new, found
        found += new
    assert sorted(found) == [b"before", b"more", b"other"]
    part = bytes.fromhex("00000000" + "0000000000000010")  # partition 0, offset 16
    asked = sum(b"\0\1t" + part in frame for frame in broker.frames)
    assert 1 <= asked <= 8, "it grows the size, says so, and is put aside"
    assert connector.skip_entry(NAME, 16) == 16 + 10 + 5000
    assert drain(stream, 1) == [b"after"]


def test_damage_on_the_way_is_healed_by_fetching_again(deployment: Deployment) -> None:
    broker = deployment.broker_of_t(numbered(0, 40))
    flips = [3]

    def flip(request: object, data: bytes) -> bytes:
        if len(data) > 200 and flips[0]:
            flips[0] -= 1
            return data[:205] + bytes([data[205] ^ 1]) + data[206:]
        return data

    broker.damage = flip
    connector = deployment.connector()
    assert drain(one_stream(connector), 40) == numbered(0, 40)
    assert connector.stats.damaged_chunks >= 1
    assert connector.stats.stuck_partitions == 0


def test_a_chunk_of_bombs_is_unpacked_piece_by_piece_and_committed_as_it_is_read(
    deployment: Deployment,
) -> None:
    broker = deployment.broker_of_t()
    broker.logs["t", 0] += bombs()
    bomb_bytes = len(bombs()) // BOMBS_COUNT
    broker.append("t", 0, [b"last"])
    connector = deployment.connector()
    stream = one_stream(connector)
    with bounded_memory():
        for number in range(1, BOMBS_COUNT + 1):
            message = next(stream)
            assert (len(message.payload), message.next_offset) == (BOMB_BYTES, number * bomb_bytes)
            del message
            if number == 2:
                connector.commit_offsets()
                assert deployment.stored("t", 0, 0) == b"%d" % (2 * bomb_bytes)
                with pytest.raises(ConsumerStateError):
                    next(stream.chunks())
    connector.seek(NAME, (BOMBS_COUNT - 1) * bomb_bytes)
    assert [len(next(stream).payload) for _ in range(2)] == [BOMB_BYTES, 4]


def test_a_seek_drops_what_is_left_of_a_chunk(deployment: Deployment) -> None:
    broker = deployment.broker_of_t()
    broker.logs["t", 0] += bombs()
    end = broker.append("t", 0, [b"last"])
    connector = deployment.connector()
    stream = one_stream(connector)
    next(stream)
    connector.seek(NAME, end - len(message_set.encode([b"last"])))
    assert next(stream).payload == b"last"


def test_damage_on_disk_is_raised_once_and_can_be_skipped(deployment: Deployment) -> None:
    broker = deployment.broker_of_t([b"good", b"bad", b"fine"], partitions=2)
    broker.logs["t", 0][14 + 10] ^= 1
    broker.append("t", 1, [b"other"])
    connector = deployment.connector()
    stream = one_stream(connector)
    found: list[bytes] = []
    with pytest.raises(PartitionStuck, match="CRC") as caught:
        for message in stream:
            found.append(message.payload)
    assert caught.value.offset == 14
    found += drain(stream, 2 - len(found))
    assert sorted(found) == [b"good", b"other"]
    connector.skip_entry(NAME, 14)
    assert drain(stream, 1) == [b"fine"]
    assert connector.stats.stuck_partitions == 1


def test_an_entry_that_the_broker_has_no_more_cannot_be_skipped(deployment: Deployment) -> None:
    broker, connector, stream = deployment.reading([b"one"])
    assert drain(stream, 1) == [b"one"]
    for code in (1, 3):  # retention has deleted it; the partition is offline
        broker.errors["t", 0] = code
        with pytest.raises(ConsumerStateError, match="cannot be read"):
            connector.skip_entry(NAME, 0)


@pytest.mark.parametrize("code", [-1, 3])
def test_a_partition_that_the_broker_refuses(deployment: Deployment, code: int) -> None:
    broker = deployment.broker_of_t([b"x"], partitions=2)
    broker.append("t", 1, [b"other"])
    broker.errors["t", 0] = code
    stream = one_stream(deployment.connector())
    with pytest.raises(PartitionStuck):
        list(stream)
    del broker.errors["t", 0]
    assert next(stream).payload in (b"x", b"other")


def test_an_offset_that_is_gone_is_reset_counted_and_committed_later(
    deployment: Deployment,
) -> None:
    broker = deployment.broker_of_t([b"a" * 20] * 10)
    deployment.admin.put(OFFSET_NODE, b"30")
    broker.retire("t", 0, 150)
    with deployment.connector() as connector:
        assert len(drain(one_stream(connector), 5)) == 5
        assert connector.stats.offset_resets == 1
        assert connector.stats.offset_reset_bytes == 120
        assert connector.reset_to(NAME) == 150
        assert connector.reset_to(TopicPartition("t", 7, 0)) is None
    assert deployment.stored("t", 0, 0) == b"300"


def test_a_reset_of_a_lost_log_is_not_undone_by_the_message_at_work(
    deployment: Deployment,
) -> None:
    broker, connector, stream = deployment.reading(numbered(0, 5), autocommit_interval_ms=20)
    with pytest.raises(ZeroDivisionError), connector:  # commits as the timer does
        for message in stream:
            if message.payload == b"4":
                wait_until(lambda: deployment.stored("t", 0, 0) == b"44", "the timer's commit")
                broker.close()
                broker = deployment.broker(0)  # a new disk
                broker.append("t", 0, [])  # its log is empty
                wait_until(lambda: deployment.stored("t", 0, 0) == b"0", "the reset's commit")
                broker.append("t", 0, [b"new"])
            1 / (message.payload != b"new")
    assert deployment.stored("t", 0, 0) == b"0"
    broker.append("t", 0, numbered(1, 8))
    assert drain(one_stream(deployment.connector()), 8) == [b"new", *numbered(1, 8)]


def test_what_was_fetched_before_a_reset_is_delivered_and_moves_no_position(
    deployment: Deployment,
) -> None:
    """After retention it is nowhere else."""
    payloads = [b"%03d" % number + b"x" * 27 for number in range(20)]  # entries of 40 bytes
    broker, connector, stream = deployment.reading(
        payloads, fetch_size=80, queued_chunks_max=2, autocommit_interval_ms=20
    )
    found = [next(stream).payload]
    wait_until(lambda: connector.stats.fetched_chunks == 3, "two that wait")
    broker.retire("t", 0, 600)
    found += [next(stream).payload for _ in range(2)]  # room for another chunk
    wait_until(lambda: deployment.stored("t", 0, 0) == b"600", "the reset's commit")
    while connector.positions() == {NAME: 600}:
        found.append(next(stream).payload)
        if found[-1] < payloads[15]:
            assert connector.commit_offsets() == []
            assert deployment.stored("t", 0, 0) == b"600"
    found += drain(stream, 4)
    assert found == payloads[:6] + payloads[15:]
    assert connector.positions() == {NAME: 800}


def test_garbage_in_an_offset_node_counts_as_no_offset(deployment: Deployment) -> None:
    deployment.admin.put(OFFSET_NODE, b"-5 or so")
    _, _, stream = deployment.reading([b"x"])
    assert drain(stream, 1) == [b"x"]


def test_a_broker_that_comes_back_elsewhere_is_found(deployment: Deployment) -> None:
    broker, _, stream = deployment.reading([b"1"])
    assert next(stream).payload == b"1"
    broker.close()
    deployment.broker(0).append("t", 0, [b"1", b"2"])
    assert next(stream).payload == b"2"


def test_address_map_says_where_to_dial(deployment: Deployment) -> None:
    broker = deployment.broker_of_t([b"x"])
    published = ("far.example", 9092)
    deployment.admin.put(paths.broker_id_path(0), paths.encode_broker(*published, 1))
    connector = deployment.connector(address_map={published: broker.address})
    assert drain(one_stream(connector), 1) == [b"x"]


# --- committing -----------------------------------------------------------------------------------


def test_commit_stores_what_was_delivered(deployment: Deployment) -> None:
    _, connector, stream = deployment.reading(numbered(0, 5), autocommit_enable=False)
    assert [next(stream).payload for _ in range(3)] == numbered(0, 3)
    assert connector.commit_offsets() == []
    assert deployment.stored("t", 0, 0) == b"33"
    assert connector.commit_offsets({NAME: 11}) == []
    assert deployment.stored("t", 0, 0) == b"11"
    assert connector.commit_offsets({("t", 0, 9): 5}) == [("t", 0, 9)]
    assert connector.stats.commits_refused == 1
    connector.shutdown()
    assert deployment.stored("t", 0, 0) == b"11"  # without auto-commit only the application commits
    assert drain(one_stream(deployment.connector()), 4) == numbered(1, 5)


def test_auto_commit_takes_only_what_the_application_has_finished_with(
    deployment: Deployment,
) -> None:
    _, _, stream = deployment.reading(numbered(0, 5), autocommit_interval_ms=20)
    next(stream)
    for finished in (b"11", b"22"):
        next(stream)
        wait_until(lambda end=finished: deployment.stored("t", 0, 0) == end, "the commit")


def timer_turn(deployment: Deployment, connector: ConsumerConnector) -> None:
    """Returns when the timer has committed every partition once more: it does so in their order,
    and the last one was sought."""
    last = TopicPartition("t", 0, 1)
    assert connector.seek(last, 0)
    wait_until(lambda: deployment.stored("t", 0, 1) == b"0", "the commit of the last partition")


def stating(deployment: Deployment, **settings: object) -> tuple[ConsumerConnector, MessageStream]:
    """A member with five messages to come of the first of two partitions."""
    broker = deployment.broker_of_t(numbered(0, 5), partitions=2)
    broker.append("t", 1, numbered(0, 5))
    deployment.admin.put(paths.offset_path("g", "t", BrokerPartition(0, 1)), b"55")
    connector = deployment.connector(**settings)
    return connector, one_stream(connector)


UNITS: dict[str, tuple[Callable[[MessageStream], Iterator[object]], int, bytes]] = {
    "messages": (iter, 3, b"33"),
    "batches": (MessageStream.batches, 1, b"55"),
    "chunks": (MessageStream.chunks, 1, b"55"),
}


@pytest.mark.parametrize("unit", UNITS)
def test_the_timer_does_not_take_back_what_the_application_has_committed(
    deployment: Deployment, unit: str
) -> None:
    read, count, stated = UNITS[unit]
    connector, stream = stating(deployment, autocommit_interval_ms=20)
    items = read(stream)
    for _ in range(count):
        next(items)
    assert connector.commit_offsets() == []
    timer_turn(deployment, connector)
    assert deployment.stored("t", 0, 0) == stated


@pytest.mark.parametrize("offset", [11, 44])
def test_an_offset_that_the_application_has_committed_stands_until_it_has_finished_with_more(
    deployment: Deployment, offset: int
) -> None:
    connector, stream = stating(deployment, autocommit_interval_ms=20)
    for _ in range(3):
        next(stream)
    assert connector.commit_offsets({NAME: offset}) == []
    timer_turn(deployment, connector)
    assert deployment.stored("t", 0, 0) == b"%d" % offset
    assert connector.seek(TopicPartition("t", 0, 1), 55)
    next(stream)
    wait_until(lambda: deployment.stored("t", 0, 0) == b"33", "the timer's next commit")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("by_error", [True, False])
def test_neither_a_hand_over_nor_an_error_takes_back_what_the_application_has_committed(
    deployment: Deployment, unit: str, by_error: bool
) -> None:
    read, count, stated = UNITS[unit]
    connector, stream = stating(deployment, consumer_id="z", autocommit_interval_ms=60_000)
    items = read(stream)
    for _ in range(count):
        next(items)
    assert connector.commit_offsets() == []
    if by_error:
        with pytest.raises(ZeroDivisionError), connector:
            raise ZeroDivisionError
    else:
        successor = deployment.connector(consumer_id="a")  # before the other in the group's order
        one_stream(successor)
        wait_until(lambda: NAME in successor.owned(), "the hand-over")
    assert deployment.stored("t", 0, 0) == stated


def test_what_was_committed_before_a_seek_does_not_stand_behind_it(deployment: Deployment) -> None:
    connector, stream = stating(deployment, autocommit_interval_ms=20)
    for _ in range(3):
        next(stream)
    connector.commit_offsets()
    assert connector.seek(NAME, 11)
    wait_until(lambda: deployment.stored("t", 0, 0) == b"11", "the commit of the seek")


def test_what_was_delivered_and_is_stored_already_is_stated_all_the_same(
    deployment: Deployment,
) -> None:
    connector, stream = stating(deployment, autocommit_interval_ms=60_000)
    for _ in range(3):
        next(stream)
    connector.commit_offsets()
    assert connector.seek(NAME, 11)
    for _ in range(2):
        next(stream)
    commits = connector.stats.commits
    connector.commit_offsets()
    assert connector.stats.commits == commits
    with pytest.raises(ZeroDivisionError), connector:
        raise ZeroDivisionError
    assert deployment.stored("t", 0, 0) == b"33"


def test_the_timer_reads_positions_under_the_lock_that_it_commits_them_under(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position read before would overwrite a later commit, or one of the next owner."""
    were_locked = []
    processed_offset = OwnedPartition.processed_offset
    connector = deployment.connector(autocommit_interval_ms=5)

    def noted(owned: OwnedPartition) -> int | None:
        were_locked.append(connector._offsets_lock._is_owned())  # type: ignore[attr-defined]
        return processed_offset(owned)

    monkeypatch.setattr(OwnedPartition, "processed_offset", noted)
    deployment.broker_of_t(numbered(0, 5))
    one_stream(connector)
    wait_until(lambda: were_locked, "the timer's turn")
    connector.shutdown()
    assert all(were_locked)


@pytest.mark.parametrize(("fails", "redelivered"), [(True, 2), (False, 3)])
def test_a_crash_redelivers_the_message_at_work_and_a_stop_after_it_does_not(
    deployment: Deployment, fails: bool, redelivered: int
) -> None:
    def work(stream: MessageStream) -> None:
        for message in stream:
            if message.payload == b"2":
                if fails:
                    raise ZeroDivisionError
                return

    _, connector, stream = deployment.reading(numbered(0, 5))
    with contextlib.suppress(ZeroDivisionError), connector:
        work(stream)
    assert drain(one_stream(deployment.connector()), 5 - redelivered) == numbered(redelivered, 5)


@pytest.mark.parametrize("by_hand", [False, True])
def test_shutdown_without_commit_stores_nothing_that_was_delivered(
    deployment: Deployment, by_hand: bool
) -> None:
    deployment.broker_of_t(numbered(0, 5))
    connector = deployment.connector()
    stream = connector.create_stream_of_partitions({NAME: 0}) if by_hand else one_stream(connector)
    assert drain(stream, 5) == numbered(0, 5)
    connector.shutdown(commit=False)
    assert deployment.stored("t", 0, 0) == (None if by_hand else b"0"), "where it began"
    assert deployment.owner("t", 0, 0) is None


def test_a_seek_in_the_loop_is_not_undone_by_coming_back_from_the_old_position(
    deployment: Deployment,
) -> None:
    _, connector, stream = deployment.reading(numbered(0, 5))
    seen = []
    with pytest.raises(ZeroDivisionError), connector:
        for message in stream:
            seen.append(message.payload)
            if len(seen) == 4:
                assert connector.seek(NAME, 11)
            1 / (5 - len(seen))  # fails at the fifth: nothing behind the seek is processed
    assert seen == [*numbered(0, 4), b"1"]
    assert deployment.stored("t", 0, 0) == b"11"


def test_seek_and_seek_to_time(deployment: Deployment) -> None:
    broker, connector, stream = deployment.reading(numbered(0, 5))
    assert drain(stream, 5) == numbered(0, 5)
    assert connector.lag() == {NAME: 0}
    assert connector.seek(NAME, 22)
    assert next(stream).payload == b"2"
    assert connector.lag() == {NAME: 22}
    broker.offsets_answer = offsets_answer()  # of an offline partition
    assert connector.lag() == {NAME: None}
    broker.offsets_answer = None
    assert connector.seek(NAME, 33)  # in the middle of a chunk: the rest of it is dropped
    assert drain(stream, 2) == numbered(3, 5)
    for time_ms in (-2, 1000):  # the start, and a time older than everything
        assert connector.seek_to_time(NAME, time_ms) == 0
        assert drain(stream, 5) == numbered(0, 5)
    assert connector.seek_to_time(NAME, -1) == broker.end("t", 0)
    assert drain(stream, 0) == []
    not_owned = TopicPartition("t", 0, 1)
    assert not connector.seek(not_owned, 0)
    assert connector.seek_to_time(not_owned, -2) is None
    connector.commit_offsets()
    assert deployment.stored("t", 0, 0) == b"55"
    assert connector.seek(NAME, 22)
    connector.shutdown()
    assert deployment.stored("t", 0, 0) == b"22", "a seek back is committed"


def test_of_a_position_past_the_end_no_lag_is_known(deployment: Deployment) -> None:
    """The log was lost: nothing of it was read, rather than everything."""
    deployment.broker_of_t(numbered(0, 5))
    deployment.admin.put(OFFSET_NODE, b"1000")
    connector = deployment.connector(autooffset_reset="raise")
    with pytest.raises(PartitionStuck):
        next(one_stream(connector))
    assert connector.lag() == {NAME: None}


@pytest.mark.parametrize("offset", [-1, -2, 2**63])
def test_what_no_log_can_have_is_neither_sought_nor_committed(
    deployment: Deployment, offset: int
) -> None:
    _, connector, stream = deployment.reading(numbered(0, 5), autocommit_enable=False)
    next(stream)
    with pytest.raises(ValueError, match="is not an offset"):
        connector.seek(NAME, offset)
    with pytest.raises(ValueError, match="is not an offset"):
        connector.commit_offsets({NAME: offset})
    assert deployment.stored("t", 0, 0) is None
    assert drain(stream, 4) == numbered(1, 5)


# --- groups ---------------------------------------------------------------------------------------


def test_two_members_share_and_one_takes_over(deployment: Deployment) -> None:
    broker, one, first = deployment.reading(numbered(0, 3), partitions=4, consumer_id="a")
    assert next(first).payload == b"0"
    wait_until(lambda: len(one.owned()) == 4, "all four")
    claimed = deployment.admin.get(OWNER_NODE)
    two = deployment.connector(consumer_id="b")
    second = one_stream(two)
    wait_until(lambda: len(one.owned()) == len(two.owned()) == 2, "two each")
    assert deployment.admin.get(OWNER_NODE) == claimed, "what stays is not interrupted"
    assert drain(first, 2) == numbered(1, 3)
    for number in range(4):
        broker.append("t", number, [b"p%d" % number])
    assert [sorted(drain(stream, 2)) for stream in (first, second)] == [
        [b"p0", b"p1"],
        [b"p2", b"p3"],
    ]
    two.shutdown()
    deployment.registry_of(two).close()
    wait_until(lambda: len(one.owned()) == 4, "all four again")
    for number in range(4):
        broker.append("t", number, [b"q%d" % number])
    assert sorted(drain(first, 4)) == [b"q0", b"q1", b"q2", b"q3"]


def test_wildcards_pick_up_new_topics(deployment: Deployment) -> None:
    broker = deployment.broker(0)
    deployment.topic("white-a", {0: 1})
    deployment.topic("black", {0: 1})
    broker.append("white-a", 0, [b"a"])
    broker.append("black", 0, [b"no"])
    connector = deployment.connector()
    [stream] = connector.create_message_streams_by_filter(whitelist("white.*"))
    assert drain(stream, 1) == [b"a"]
    assert deployment.admin.children(paths.consumer_ids_path("g")) == [connector.consumer_id]
    registered = deployment.admin.get(paths.consumer_id_path("g", connector.consumer_id))
    assert registered.value == b"*1*white.*"
    deployment.topic("white-b", {0: 1})
    broker.append("white-b", 0, [b"b"])
    wait_until(lambda: len(connector.owned()) == 2, "the new topic")
    assert drain(stream, 1) == [b"b"]
    others = deployment.connector(group_id="others")
    streams = others.create_message_streams_by_filter(blacklist("white.*"), 2)
    assert [drain(streams[0], 1), drain(streams[1], 0)] == [[b"no"], []]


def test_partitions_and_brokers_come_and_go(deployment: Deployment) -> None:
    one = deployment.broker(1)
    deployment.topic("t", {1: 1})
    connector = deployment.connector()
    stream = one_stream(connector)
    two = deployment.broker(2)
    deployment.topic("t", {2: 2})
    wait_until(lambda: len(connector.owned()) == 3, "the new broker's partitions")
    one.append("t", 0, [b"one"])
    two.append("t", 1, [b"two"])
    assert sorted(drain(stream, 2)) == [b"one", b"two"]
    deployment.admin.delete(paths.topic_broker_path("t", 2))
    wait_until(lambda: len(connector.owned()) == 1, "the broker's partitions to be let go")
    deployment.topic("t", {2: 2})
    wait_until(lambda: len(connector.owned()) == 3, "them back")
    two.append("t", 1, [b"three"])
    assert drain(stream, 1) == [b"three"]


def test_a_lost_session_is_joined_again(deployment: Deployment) -> None:
    broker, connector, stream = deployment.reading(
        numbered(0, 3), partitions=2, autocommit_enable=False
    )
    assert drain(stream, 3) == numbered(0, 3)
    connector.commit_offsets()
    deployment.registry_of(connector).expire()
    wait_until(lambda: len(connector.owned()) == 2 and connector.is_settled, "both again")
    broker.append("t", 0, numbered(3, 5))
    assert drain(stream, 2) == numbered(3, 5)
    assert deployment.owner("t", 0, 0) == f"{connector.consumer_id}-0".encode()


def test_delivery_pauses_while_the_session_may_be_gone(deployment: Deployment) -> None:
    _, connector, stream = deployment.reading(numbered(0, 100))
    assert next(stream).payload == b"0"
    registry = deployment.registry_of(connector)
    registry.suspend()
    wait_until(lambda: connector.stats.suspensions == 1, "the pause")
    taken: list[bytes] = []
    thread = threading.Thread(target=lambda: taken.extend(drain(stream, 99)))
    thread.start()
    thread.join(0.3)
    assert taken == []
    registry.resume()
    thread.join(60)
    assert taken == numbered(1, 100)


def test_a_zombie_delivers_nothing_and_its_commit_is_refused(deployment: Deployment) -> None:
    """Faults Z3 and B10: the session is gone on the server before the member has noticed."""
    _, zombie, stream = deployment.reading(
        numbered(0, 10), consumer_id="z", autocommit_enable=False
    )
    assert [next(stream).payload for _ in range(3)] == numbered(0, 3)
    registry = deployment.registry_of(zombie)
    registry.suspend()
    registry.end_session_on_server()
    successor = deployment.connector(consumer_id="a", autocommit_enable=False)
    other = one_stream(successor)
    assert [next(other).payload for _ in range(6)] == numbered(0, 6)
    successor.commit_offsets()
    with pytest.raises(CoordinationUnavailable):
        zombie.commit_offsets()
    registry.resume()
    assert deployment.stored("t", 0, 0) == b"66"
    wait_until(lambda: zombie.owned() == [], "the zombie to notice")
    assert zombie.commit_offsets({NAME: 33}) == [NAME]
    assert deployment.owner("t", 0, 0) == f"{successor.consumer_id}-0".encode()
    assert drain(stream, 0) == []
    assert deployment.stored("t", 0, 0) == b"66"


def test_a_member_that_shuts_down_without_zookeeper_leaves_when_it_answers(
    deployment: Deployment,
) -> None:
    _, connector, stream = deployment.reading(numbered(0, 3), partitions=2)
    assert drain(stream, 3) == numbered(0, 3)
    registry = deployment.registry_of(connector)
    registry.suspend()
    connector.shutdown()
    registry.resume()  # the caller's session lives on
    wait_until(lambda: not deployment.zookeeper.nodes_of(registry), "its nodes to go")
    assert deployment.stored("t", 0, 0) == b"33"
    successor = deployment.connector(consumer_id="z")  # after the other in the group's order
    one_stream(successor)
    assert len(successor.owned()) == 2


def test_a_member_whose_registry_is_closed_has_left(deployment: Deployment) -> None:
    _, connector, _ = deployment.reading()
    registry = deployment.registry_of(connector)
    registry.suspend()
    connector.shutdown()
    registry.close()
    wait_until(lambda: connector._rebalancer.has_left, "its thread to end")


def test_a_commit_that_finds_another_owner_starts_a_rebalance(deployment: Deployment) -> None:
    _, connector, stream = deployment.reading(numbered(0, 3), autocommit_enable=False)
    next(stream)
    deployment.admin.delete(OWNER_NODE)
    deployment.admin.create(OWNER_NODE, b"another-0")
    assert connector.commit_offsets() == [NAME]
    wait_until(lambda: connector.owned() == [], "delivery to stop")
    assert deployment.stored("t", 0, 0) is None
    deployment.admin.delete(OWNER_NODE)
    wait_until(lambda: len(connector.owned()) == 1, "the claim to succeed")


# --- bugs ----------------------------------------------------------------------------------------

BUGS = {
    "rebalance": ("kafka2011.consumer.groups.membership.Membership.read", {}),
    "lease": ("kafka2011.consumer.groups.stream_assignment.StreamAssignment.resume", {}),
    "commit": (
        "kafka2011.consumer.groups.connector.ConsumerConnector._commit",
        {"autocommit_interval_ms": 1},
    ),
}


@pytest.mark.parametrize("thread", BUGS)
def test_a_bug_that_ends_a_thread_is_raised_by_the_next_call_with_its_cause(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    place, settings = BUGS[thread]
    _, connector, stream = deployment.reading(
        numbered(0, 3), consumer_timeout_ms=-1, autooffset_reset="largest", **settings
    )

    def fails(*_: object) -> None:
        raise ZeroDivisionError(thread)

    monkeypatch.setattr(place, fails)
    deployment.topic("t", {1: 1})  # a rebalance
    with pytest.raises(ConsumerFailed, match=thread) as caught:
        next(stream)  # it would wait for ever
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    for call in (connector.commit_offsets, lambda: connector.seek(NAME, 0)):
        with pytest.raises(ConsumerFailed):
            call()
    monkeypatch.undo()
    connector.shutdown()
    with pytest.raises(ConsumerFailed):
        next(stream)


# --- wrong use ------------------------------------------------------------------------------------


def test_streams_are_created_once_and_a_refused_creation_changes_nothing(
    deployment: Deployment,
) -> None:
    broker = deployment.broker(0)
    connector = deployment.connector()
    [stream] = connector.create_message_streams_by_filter(whitelist(".*"))
    with pytest.raises(ConsumerStateError):
        connector.create_message_streams({"t": 1})
    with pytest.raises(ConsumerStateError):
        connector.create_message_streams_by_filter(whitelist(".*"))
    deployment.topic("t", {0: 1})
    broker.append("t", 0, [b"later"])
    assert drain(stream, 1) == [b"later"]


@pytest.mark.parametrize(
    "call",
    [
        lambda connector: connector.create_message_streams({"a/b": 1}),
        lambda connector: connector.create_message_streams({"t": 0}),
        lambda connector: connector.create_message_streams_by_filter(whitelist("t"), 0),
        lambda connector: connector.create_message_streams_by_filter(whitelist("(")),
    ],
)
def test_what_cannot_be_subscribed(
    deployment: Deployment, call: Callable[[ConsumerConnector], object]
) -> None:
    with pytest.raises((IllegalTopicName, ValueError)):
        call(deployment.connector())
