"""The reactions of the original 0.7.2 broker to raw requests, byte for byte, by a real process.

The table is that of the captures: two partitions per topic, count flush 1, and after each request
the same connection sends another request, so that "stays open" means that it still works. Where
our limits are stricter than the original's, the test says so in its name.
"""

import gzip
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import RawClient, RunningBroker, start_broker
from tests.support.raw_requests import (
    EMPTY,
    OUT_OF_RANGE,
    UNKNOWN,
    WRONG_PARTITION,
    answer,
    entry,
    fetch,
    frame,
    multi_fetch,
    multi_produce,
    offsets,
    offsets_answer,
    produce,
    short,
)
from tests.support.waiting import wait_until
from tests.vectors import vector

pytestmark = pytest.mark.integration

V = vector("V2")


TOO_LARGE = entry(bytes(1_000_001))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker(
        tmp_path_factory.mktemp("wire"), num_partitions=2, log_flush_interval=1
    ) as running:
        yield running
        assert running.metrics()["kafka2011_broker_fetch_without_sendfile_total"] == 0
        assert running.stop() == 0


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With the original's own limits for names and frames."""
    with start_broker(
        tmp_path_factory.mktemp("wire07"),
        num_partitions=2,
        log_flush_interval=1,
        topic_name_rule="0.7",
        max_socket_request_bytes=104857600,
    ) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.connect() as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> bytes:
    """A topic of this test's own."""
    return f"t{abs(hash(request.node.nodeid)) % 10**12}".encode()


def stored(broker: RunningBroker, topic: bytes, partition: int = 0) -> bytes | None:
    """The bytes of the partition's segment on disk; None when there is no log."""
    directory = broker.log_dir / f"{topic.decode()}-{partition}"
    if not directory.exists():
        return None
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.kafka")))


def assert_open(client: RawClient, topic: bytes, expected: bytes) -> None:
    """The connection works and the log holds `expected`, visible at once (flush interval 1)."""
    assert client.ask(fetch(topic)) == (answer(expected) if expected else EMPTY)


def wrapper(packed: bytes, codec: int = 1) -> bytes:
    """A compressed entry around what is packed already."""
    return struct.pack(">iBBI", 6 + len(packed), 1, codec, zlib.crc32(packed)) + packed


# --- produce: stays open -------------------------------------------------------------------------

GOOD = {
    "one entry": (V, V),
    "empty set": (b"", b""),
    "entry and 9 bytes of another": (V + V[:9], V),
    "entry and 3 zero bytes": (V + bytes(3), V),
    "only 3 zero bytes": (bytes(3), b""),
    "magic 0": (vector("V1"), vector("V1")),
    "magic 0 and 1 in one set": (vector("V1") + V, vector("V1") + V),
    "unused attribute bit without codec": (V[:5] + b"\x04" + V[6:],) * 2,
    "empty payloads": (vector("S2"), vector("S2")),
    "gzip of a newer JVM": (vector("S4"), vector("S4")),
    "gzip of an older JVM": (vector("V4"), vector("V4")),
    "snappy framed": (vector("S5"), vector("S5")),
    "snappy raw": (vector("V6"), vector("V6")),
    "snappy of two blocks": (vector("S10"), vector("S10")),
    "wrapper in a wrapper": (vector("S11"), vector("S11")),
    "compressed between plain": (vector("V15"), vector("V15")),
    "wrapper with magic 0 inside": (wrapper(gzip.compress(vector("V1") + V)),) * 2,
    "wrapper whose last inner entry is cut": (wrapper(gzip.compress(V + V[:9])),) * 2,
    "wrapper whose content ends in 3 zero bytes": (wrapper(gzip.compress(V + bytes(3))),) * 2,
    "gzip of two members": (wrapper(gzip.compress(V) + gzip.compress(V)),) * 2,
    "gzip and other bytes behind it": (wrapper(gzip.compress(V) + b"behind" * 9),) * 2,
    "gzip with a file name": (
        wrapper(b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + gzip.compress(V)[10:]),
    )
    * 2,
    "snappy and 3 bytes behind its last block": (wrapper(vector("S5")[10:] + bytes(3), 2),) * 2,
    "wrapper with a large message inside": (wrapper(gzip.compress(entry(bytes(1_000_001)))),) * 2,
    "wrapper, then 2 bytes of another": (vector("S4") + V[:2], vector("S4")),
}


@pytest.mark.parametrize(("sent", "kept"), GOOD.values(), ids=GOOD)
def test_produce_keeps_the_connection_open_and_the_bytes_unchanged(
    broker: RunningBroker, client: RawClient, topic: bytes, sent: bytes, kept: bytes
) -> None:
    client.send(produce(topic, sent))
    assert_open(client, topic, kept)
    assert stored(broker, topic) == kept


NOTHING_INSIDE = {
    "gzip of nothing": wrapper(gzip.compress(b"")),
    "gzip of 3 zero bytes": wrapper(gzip.compress(bytes(3))),
    "snappy header without a block": wrapper(vector("S5")[10:26], 2),
    "snappy, raw, of nothing": wrapper(b"\0", 2),
}


@pytest.mark.parametrize("sent", NOTHING_INSIDE.values(), ids=NOTHING_INSIDE)
def test_a_wrapper_without_messages_is_kept_and_counts_nothing_for_the_flush_interval(
    broker: RunningBroker, client: RawClient, topic: bytes, sent: bytes
) -> None:
    client.send(produce(topic, sent))
    assert_open(client, topic, b"")  # no message: interval 1 is not reached
    assert stored(broker, topic) == sent
    client.send(produce(topic, V))
    assert_open(client, topic, sent + V)


def test_produce_to_partition_minus_one_picks_one_of_ours(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    for _ in range(40):
        client.send(produce(topic, V, -1))
    assert_end_of_stream_order(client, topic)
    both = [stored(broker, topic, partition) or b"" for partition in (0, 1)]
    assert sorted(map(len, both))[0] > 0, "40 sends all went to one of two partitions"
    assert sum(map(len, both)) == 40 * len(V)


def assert_end_of_stream_order(client: RawClient, topic: bytes) -> None:
    """Any answer on this connection comes after everything sent before was handled."""
    assert client.ask(fetch(topic, 0, 9)) == WRONG_PARTITION


def test_bytes_after_the_set_are_ignored(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    body = produce(topic, V)[4:] + b"some more"
    client.send(frame(body))
    assert_open(client, topic, V)


def test_payload_of_exactly_the_limit_is_kept(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:

    largest = entry(bytes(1_000_000))
    client.send(produce(topic, largest))
    assert client.ask(fetch(topic, 0, 0, 10)) == answer(largest[:10])
    assert len(stored(broker, topic) or b"") == 1_000_010


def test_payload_above_the_limit_is_dropped_without_a_word(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    client.send(produce(topic, TOO_LARGE))
    assert_open(client, topic, b"")
    assert stored(broker, topic) == b""


def test_multi_produce_leaves_out_the_part_with_too_large_a_payload(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    first, second, third = topic + b"a", topic + b"b", topic + b"c"
    client.send(multi_produce((first, 0, V), (second, 0, TOO_LARGE), (third, 0, V)))
    assert_open(client, first, V)
    assert_open(client, second, b"")
    assert_open(client, third, V)


def test_multi_produce_ends_at_a_bad_part(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    bad = V[:-1] + b"!"
    client.send(multi_produce((topic + b"a", 0, V), (topic + b"b", 0, bad), (topic + b"c", 0, V)))
    assert client.is_closed_by_broker()
    assert stored(broker, topic + b"a") == V
    assert stored(broker, topic + b"b") == b""
    assert stored(broker, topic + b"c") is None


def test_sizes_are_judged_before_wrappers_are_opened(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    client.send(produce(topic, wrapper(b"no gzip") + TOO_LARGE))
    assert_open(client, topic, b"")


def test_a_bad_crc_before_too_large_a_payload_closes(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    client.send(produce(topic, V[:-1] + b"!" + TOO_LARGE))
    assert client.is_closed_by_broker()
    assert stored(broker, topic) == b""


def test_multi_produce_of_nothing(broker: RunningBroker, client: RawClient, topic: bytes) -> None:
    client.send(multi_produce())
    assert_open(client, topic, b"")
    assert stored(broker, topic) is None


# --- produce: closes -----------------------------------------------------------------------------

LOG_STAYS = {
    "bad CRC": V[:-1] + b"!",
    "bad CRC after a good entry": V + V[:-1] + b"!",
    "magic 2": V[:4] + b"\x02" + V[5:],
    "magic 255": V[:4] + b"\xff" + V[5:],
    "codec bits 3": V[:5] + b"\x03" + V[6:],
    "gzip bits with other data": V[:5] + b"\x01" + V[6:],
    "snappy bits with other data": V[:5] + b"\x02" + V[6:],
    "unused bit and gzip bits with plain data": V[:5] + b"\x05" + V[6:],
    "only the first 9 bytes": V[:9],
    "CRC of nothing over a payload": V[:6] + bytes(4) + V[10:],
    "wrapper with a bad CRC inside": wrapper(gzip.compress(V[:-1] + b"!")),
    "wrapper with a bad CRC behind a good entry inside": wrapper(gzip.compress(V + V[:-1] + b"!")),
    "wrapper whose only inner entry is cut": wrapper(gzip.compress(V[:9])),
    "wrapper with magic 2 inside": wrapper(gzip.compress(V[:4] + b"\x02" + V[5:])),
    "wrapper with an inner length of 0": wrapper(gzip.compress(bytes(4) + V)),
    "wrapper with an inner length of -1": wrapper(gzip.compress(b"\xff" * 4 + V)),
    "wrapper with codec bits 3 inside": wrapper(gzip.compress(V[:5] + b"\x03" + V[6:])),
    "wrapper in a wrapper, the inner one broken": wrapper(gzip.compress(wrapper(b"no gzip"))),
    "gzip that is cut": wrapper(gzip.compress(V)[:-1]),
    "gzip with a wrong trailer": wrapper(gzip.compress(V)[:-8] + bytes(8)),
    "gzip of 0 bytes": wrapper(b""),
    "snappy of 0 bytes": wrapper(b"", 2),
    "snappy block of length 0": wrapper(vector("S5")[10:26] + bytes(4), 2),
    "snappy block of length -1": wrapper(vector("S5")[10:26] + b"\xff" * 4, 2),
    "snappy block that is cut": wrapper(vector("S5")[10:-1], 2),
    "wrong CRC of a wrapper": vector("S4")[:6] + bytes(4) + vector("S4")[10:],
    "good entry, then a broken wrapper": V + wrapper(b"no gzip"),
    "entry length 0": bytes(4) + V,
    "entry length 4": b"\0\0\0\x04" + V[4:],
    "entry length -1": b"\xff\xff\xff\xff" + V[4:],
    "entry length 5 with magic 1": b"\0\0\0\x05\x01\0\0\0\0" + V,
}


@pytest.mark.parametrize("message_set", LOG_STAYS.values(), ids=LOG_STAYS)
def test_a_bad_set_closes_and_leaves_the_empty_log(
    broker: RunningBroker, client: RawClient, topic: bytes, message_set: bytes
) -> None:
    client.send(produce(topic, message_set))
    assert client.is_closed_by_broker()
    assert stored(broker, topic) == b""


NOTHING_STAYS = {
    "partition 2 of 2": lambda topic: produce(topic, V, 2),
    "partition -2": lambda topic: produce(topic, V, -2),
    "empty topic": lambda _: produce(b"", V),
    "null topic": lambda _: frame(b"\0\0\xff\xff" + struct.pack(">ii", 0, len(V)) + V),
    "topic a/b": lambda _: produce(b"a/b", V),
    "topic .": lambda _: produce(b".", V),
    "topic ..": lambda _: produce(b"..", V),
    "topic of 256 characters": lambda _: produce(b"x" * 256, V),
    "topic of 255 characters": lambda _: produce(b"x" * 255, V),
    "topic with a control character": lambda _: produce(b"a\nb", V),
    "topic with a zero byte": lambda _: produce(b"a\0b", V),
    "set size 100, 15 bytes follow": lambda topic: frame(
        b"\0\0" + short(topic) + struct.pack(">ii", 0, 100) + V
    ),
    "set size -1": lambda topic: frame(b"\0\0" + short(topic) + struct.pack(">ii", 0, -1) + V),
    "multi-produce count -1": lambda _: frame(struct.pack(">hh", 3, -1)),
    "multi-fetch count -1": lambda _: frame(struct.pack(">hh", 2, -1)),
    "frame size 0": lambda _: bytes(4),
    "frame size -1": lambda _: b"\xff\xff\xff\xff",
    "frame size 104857601": lambda _: struct.pack(">i", 104857601),
    "frame size 2^31-1": lambda _: struct.pack(">i", 2**31 - 1),
    "frame size 1": lambda _: b"\0\0\0\x01\0",
    "request id 5": lambda topic: frame(b"\0\5" + short(topic)),
    "request id -1": lambda topic: frame(b"\xff\xff" + short(topic)),
    "fetch of a null topic": lambda _: frame(b"\0\1\xff\xff" + struct.pack(">iqi", 0, 0, 100)),
    "fetch cut": lambda topic: frame(fetch(topic)[4:-1]),
    "offsets, topic that is not UTF-8": lambda _: offsets(b"\xff\xfe"),
    "topic that is not UTF-8": lambda _: produce(b"\xff\xfe", V),
    "topic length -2": lambda _: frame(b"\0\0\xff\xfe" + struct.pack(">ii", 0, len(V)) + V),
    "multi-produce, second part cut": lambda topic: frame(
        multi_produce((topic, 0, V), (topic, 1, V))[4:-1]
    ),
    "multi-fetch, a part missing": lambda topic: frame(
        b"\0\2\0\2" + multi_fetch((topic, 0, 0, 9))[8:]
    ),
    "offsets, wrong partition": lambda topic: offsets(topic, -1, 1, 2),
    "offsets, partition -1": lambda topic: offsets(topic, -1, 1, -1),
    "offsets, illegal topic": lambda _: offsets(b"a/b"),
}


@pytest.mark.parametrize("request_of", NOTHING_STAYS.values(), ids=NOTHING_STAYS)
@pytest.mark.parametrize("which", ["broker", "lenient"])
def test_a_request_that_cannot_be_served_closes_and_leaves_nothing(
    request: pytest.FixtureRequest, which: str, topic: bytes, request_of: object
) -> None:
    broker: RunningBroker = request.getfixturevalue(which)
    before = sorted(path.name for path in broker.log_dir.iterdir())
    with broker.connect() as client:
        client.send(request_of(topic))
        assert client.is_closed_by_broker()
    assert sorted(path.name for path in broker.log_dir.iterdir()) == before
    with broker.connect() as other:  # the broker lives on
        assert other.ask(fetch(topic)) == EMPTY


def test_topic_with_a_space_is_accepted_under_the_rule_of_0_7(
    lenient: RunningBroker,
) -> None:
    with lenient.connect() as client:
        client.send(produce(b"a b", V))
        assert_open(client, b"a b", V)


def test_topic_with_a_space_is_refused_by_the_stricter_default(broker: RunningBroker) -> None:
    with broker.connect() as client:
        client.send(produce(b"a b", V))
        assert client.is_closed_by_broker()


def test_frame_above_our_stricter_limit_is_refused_and_accepted_with_the_original_s(
    broker: RunningBroker, lenient: RunningBroker, topic: bytes
) -> None:
    big = frame(fetch(topic)[4:] + bytes(11 * 1024 * 1024))
    with lenient.connect() as client:
        assert client.ask(big) == EMPTY
    with broker.connect() as client:
        client.send(big[:4])
        assert client.is_closed_by_broker()


# --- fetch ---------------------------------------------------------------------------------------


@pytest.fixture
def filled(client: RawClient, topic: bytes) -> bytes:
    """A topic whose partition 0 holds V three times (45 bytes)."""
    client.send(produce(topic, V * 3))
    return topic


def test_fetch_is_cut_at_the_size_asked_for(client: RawClient, filled: bytes) -> None:
    assert client.ask(fetch(filled, 15, 0, 30)) == answer(V * 2)  # R1
    assert client.ask(fetch(filled, 0, 0, 20)) == answer(V + V[:5])  # R2
    assert client.ask(fetch(filled, 0, 0, 5)) == answer(V[:5])  # R3
    assert client.ask(fetch(filled, 0, 0, 2**31 - 1)) == answer(V * 3)
    assert client.ask(fetch(filled, 0, 0, 0)) == EMPTY


def test_fetch_at_any_byte_is_served_as_it_is(client: RawClient, filled: bytes) -> None:
    assert client.ask(fetch(filled, 3)) == answer((V * 3)[3:])  # R6


def test_fetch_at_the_ends(client: RawClient, filled: bytes) -> None:
    assert client.ask(fetch(filled, 45)) == EMPTY
    assert client.ask(fetch(filled, 46)) == OUT_OF_RANGE
    assert client.ask(fetch(filled, 2**62)) == OUT_OF_RANGE
    assert client.ask(fetch(filled, -1)) == OUT_OF_RANGE
    assert client.ask(fetch(filled, -2)) == OUT_OF_RANGE
    assert client.ask(fetch(filled, -(2**63))) == OUT_OF_RANGE


def test_fetch_of_what_is_not_there(
    broker: RunningBroker, client: RawClient, filled: bytes, topic: bytes
) -> None:
    assert client.ask(fetch(filled, 0, 9)) == WRONG_PARTITION
    assert client.ask(fetch(filled, 0, -1)) == WRONG_PARTITION
    for offset in (0, 7):
        assert client.ask(fetch(filled, offset, 1)) == EMPTY  # no log there: no range check
        assert client.ask(fetch(topic + b"unknown", offset)) == EMPTY
    assert stored(broker, topic + b"unknown") is None
    for name in (b"", b"bad/topic", b"..", b"\xff\xfe", b"caf\xe9"):
        assert client.ask(fetch(name)) == UNKNOWN


def test_fetch_with_bytes_at_its_end(client: RawClient, filled: bytes) -> None:
    assert client.ask(frame(fetch(filled)[4:] + b"more")) == answer(V * 3)


@pytest.mark.parametrize(
    ("size", "nonsense"), [(-1, "00000001 0000"), (-100, "ffffff9e 0000")], ids=["-1", "-100"]
)
def test_negative_fetch_size_gets_the_original_s_nonsense_and_the_end(
    client: RawClient, filled: bytes, size: int, nonsense: str
) -> None:
    client.send(fetch(filled, 0, 0, size))
    assert client.receive(6) == bytes.fromhex(nonsense)
    assert client.is_closed_by_broker()


def test_negative_fetch_size_without_a_log_is_an_empty_answer(
    client: RawClient, topic: bytes
) -> None:
    assert client.ask(fetch(topic, 0, 0, -1)) == EMPTY
    assert client.ask(fetch(topic)) == EMPTY


def test_negative_fetch_size_matters_only_where_there_are_bytes(
    client: RawClient, filled: bytes
) -> None:
    assert client.ask(fetch(filled, 45, 0, -1)) == EMPTY
    assert client.ask(fetch(filled, 46, 0, -1)) == OUT_OF_RANGE
    assert client.ask(fetch(filled, 0, 9, -1)) == WRONG_PARTITION


def test_multi_fetch_ends_with_the_part_of_a_negative_size(
    client: RawClient, filled: bytes
) -> None:
    """The whole's size counts all three parts, but what follows the nonsense is never sent."""
    client.send(multi_fetch((filled, 0, 0, 15), (filled, 0, 0, -3), (filled, 0, 0, 15)))
    whole = 2 + (6 + 15) + (6 - 3) + (6 + 15)
    expected = struct.pack(">ih", whole, 0) + answer(V) + bytes.fromhex("ffffffff 0000")
    assert client.receive(len(expected)) == expected
    assert client.is_closed_by_broker()


def test_multi_fetch_of_two_negative_sizes_wraps_around_as_the_original_s_does(
    client: RawClient, filled: bytes
) -> None:
    client.send(multi_fetch((filled, 0, 0, -(2**31)), (filled, 0, 0, -(2**31)), (filled, 9, 0, 1)))
    expected = bytes.fromhex("00000014 0000 80000002 0000")
    assert client.receive(len(expected)) == expected
    assert client.is_closed_by_broker()


# --- multi-fetch ---------------------------------------------------------------------------------


def test_multi_fetch_of_nothing(client: RawClient) -> None:
    assert client.ask(multi_fetch()) == bytes.fromhex("00000002 0000")


def test_multi_fetch_answers_each_part_in_order(client: RawClient, filled: bytes) -> None:
    asked = multi_fetch(
        (filled, 0, 0, 15),
        (filled, 1, 0, 1000),
        (filled, 9, 0, 1000),
        (filled + b"unknown", 0, 5, 1000),
        (filled, 0, 9_999_999, 100),
        (b"a/b", 0, 0, 100),
        (filled, 0, 30, 100),
    )
    parts = [answer(V), EMPTY, WRONG_PARTITION, EMPTY, OUT_OF_RANGE, UNKNOWN, answer(V)]
    assert client.ask(asked) == frame(b"\0\0" + b"".join(parts))


def test_captured_conversation_of_five_parts(client: RawClient, broker: RunningBroker) -> None:
    """F3 and R7, on the topics and bytes of the capture."""
    mixed = vector("S4") + vector("P8")[-24:] + vector("P7")[-12:] * 3
    client.send(produce(b"test", vector("S1")))
    client.send(produce(b"test", mixed, 1))
    assert client.ask(vector("F3")) == vector("R7")
    assert client.ask(fetch(b"test", 0, 1, 1000)) == vector("R4")


def test_multi_fetch_above_our_limit_of_parts_closes(client: RawClient, topic: bytes) -> None:
    assert len(client.ask(multi_fetch(*[(topic, 0, 0, 100)] * 1000))) == 4 + 2 + 6000
    client.send(multi_fetch(*[(topic, 0, 0, 100)] * 1001))
    assert client.is_closed_by_broker()


# --- offsets -------------------------------------------------------------------------------------


def test_offsets_without_a_log(client: RawClient, topic: bytes) -> None:
    assert client.ask(offsets(topic, -1, 1)) == offsets_answer(0)
    assert client.ask(offsets(topic, -2, 0)) == offsets_answer(0)
    assert client.ask(offsets(topic, -1, 0)) == offsets_answer(0)
    assert client.ask(offsets(topic, 1000, 1)) == offsets_answer()
    assert client.ask(offsets(topic, -2, -1)) == offsets_answer(0), "no log: no count is looked at"
    assert client.ask(offsets(topic, 1000, -1)) == offsets_answer()


@pytest.mark.parametrize("time", [-1, -2, -3, 1000])
def test_offsets_of_a_negative_count_close_where_there_is_a_log(
    client: RawClient, filled: bytes, time: int
) -> None:
    client.send(offsets(filled, time, -1))
    assert client.is_closed_by_broker()


def test_offsets_of_one_segment(client: RawClient, filled: bytes) -> None:
    assert client.ask(offsets(filled, -1, 10)) == offsets_answer(45, 0)
    assert client.ask(offsets(filled, -1, 1)) == offsets_answer(45)
    assert client.ask(offsets(filled, -1, 0)) == offsets_answer()
    assert client.ask(offsets(filled, -1, 2**31 - 1)) == offsets_answer(45, 0)
    assert client.ask(offsets(filled, -2, 10)) == offsets_answer(0)
    assert client.ask(offsets(filled, 1000, 10)) == offsets_answer()
    assert client.ask(offsets(filled, -3, 10)) == offsets_answer()
    assert client.ask(offsets(filled, 2**62, 10)) == offsets_answer(45, 0)


def test_offsets_of_an_empty_log(client: RawClient, topic: bytes) -> None:
    client.send(produce(topic, b""))
    assert client.ask(offsets(topic, -1, 10)) == offsets_answer(0)


# --- how requests arrive -------------------------------------------------------------------------


def test_request_byte_by_byte(client: RawClient, topic: bytes) -> None:
    for byte in produce(topic, V) + fetch(topic):
        client.send(bytes([byte]))
    assert client.response() == answer(V)


@pytest.mark.parametrize("step", [2, 3, 5, 7, 11, 64, 1000])
def test_requests_in_pieces(client: RawClient, topic: bytes, step: int) -> None:
    stream = (produce(topic, V) + fetch(topic, 0, 0, 15)) * 20 + produce(topic, V * 100)
    stream += fetch(topic, 300, 0, 1500)
    for start in range(0, len(stream), step):
        client.send(stream[start : start + step])
    for _ in range(20):
        assert client.response() == answer(V)
    assert client.response() == answer(V * 100)


def test_ten_thousand_pipelined_requests_are_answered_in_order(
    client: RawClient, filled: bytes
) -> None:

    asked = b"".join(fetch(filled, 0, 0, size % 46) for size in range(10_000))
    sender = threading.Thread(target=client.send, args=(asked,))
    sender.start()
    for size in range(10_000):
        cut = (V * 3)[: size % 46]
        assert client.response() == (answer(cut) if cut else EMPTY)
    sender.join()


def test_request_larger_than_any_buffer_of_the_pool(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    big = V * 300_000  # 4.5 MB in one request
    client.send(produce(topic, big) + fetch(topic, 0, 0, 15))
    assert client.response() == answer(V)
    assert stored(broker, topic) == big


def test_response_larger_than_the_socket_s_buffers(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    big = V * 600_000  # 9 MB
    client.send(produce(topic, big))
    client.send(fetch(topic, 0, 0, 10_000_000) + fetch(topic, len(big)))
    assert client.response() == answer(big)
    assert client.response() == EMPTY


def test_header_of_a_response_leaves_in_one_segment_with_the_first_bytes_of_the_set(
    client: RawClient, filled: bytes
) -> None:
    for _ in range(50):
        client.send(fetch(filled))
        assert client.socket.recv(1000) == answer(V * 3)
        client.send(multi_fetch((filled, 0, 0, 100), (filled, 0, 15, 100)))
        expected = frame(b"\0\0" + answer(V * 3) + answer(V * 2))
        received = client.socket.recv(1000)
        assert len(received) >= 12 + 45, "the header came alone"
        assert received + client.receive(len(expected) - len(received)) == expected


def test_produce_gets_no_response_at_all(client: RawClient, topic: bytes) -> None:
    client.send(produce(topic, V) * 10)
    assert_open(client, topic, V * 10)
    client.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)


def test_clean_stop_leaves_the_bytes_and_the_marker(tmp_path: Path) -> None:
    with start_broker(tmp_path, port=0, log_flush_interval=10000) as running:
        with running.connect() as client:
            client.send(produce(b"test", V) + fetch(b"test"))
            assert client.response() == EMPTY  # not flushed: not visible
        assert running.stop() == 0
        assert stored(running, b"test") == V
        marker = running.log_dir / ".kafka_cleanshutdown"
        assert marker.exists()
        assert marker.read_bytes() == b""
    with start_broker(tmp_path) as running, running.connect() as client:
        assert not (running.log_dir / ".kafka_cleanshutdown").exists()
        assert client.ask(fetch(b"test")) == answer(V)


def test_closings_are_counted_by_kind(broker: RunningBroker) -> None:
    name = 'kafka2011_broker_connections_closed_total{reason="frame-size"}'
    before = broker.metrics().get(name, 0)
    with broker.connect() as client:
        client.send(bytes(4))
        assert client.is_closed_by_broker()
    wait_until(lambda: broker.metrics()[name] == before + 1, "one more closing of that kind")
