"""The reactions of the original 0.7.2 broker to raw requests, byte for byte, by a real process.

The table is that of tests/vectors, recorded from 0.7.2: two partitions per topic, count flush 1,
and after each request the same connection sends another request, so that "stays open" means that
it still works. Where our limits are stricter than the original's, the test says so in its name.
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
BAD_CRC = V[:-1] + b"!"
TOO_LARGE = entry(bytes(1_000_001))
SETTINGS = {"num_partitions": 2, "log_flush_interval": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker(tmp_path_factory.mktemp("wire"), **SETTINGS) as running:
        yield running
        assert running.metrics()["kafka2011_broker_fetch_without_sendfile_total"] == 0
        assert running.stop() == 0


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With the original's own limits for names and frames."""
    limits = {"topic_name_rule": "0.7", "max_socket_request_bytes": 104857600}
    with start_broker(tmp_path_factory.mktemp("wire07"), **SETTINGS, **limits) as running:
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


def logs(broker: RunningBroker) -> list[str]:
    """The directories of partitions; the broker's own files come and go beside them."""
    return sorted(path.name for path in broker.log_dir.glob("[!.]*"))


def assert_open(client: RawClient, topic: bytes, expected: bytes) -> None:
    """The connection works and the log holds `expected`, visible at once (flush interval 1)."""
    assert client.ask(fetch(topic)) == (answer(expected) if expected else EMPTY)


def wrapper(packed: bytes, codec: int = 1) -> bytes:
    """A compressed entry around what is packed already."""
    return struct.pack(">iBBI", 6 + len(packed), 1, codec, zlib.crc32(packed)) + packed


def zipped(entries: bytes) -> bytes:
    return wrapper(gzip.compress(entries, mtime=0))


# --- produce: stays open -------------------------------------------------------------------------

WHOLE = {
    "one entry": V,
    "empty set": b"",
    "magic 0": vector("V1"),
    "magic 0 and 1 in one set": vector("V1") + V,
    "unused attribute bit without codec": V[:5] + b"\x04" + V[6:],
    "empty payloads": vector("S2"),
    "gzip of a newer JVM": vector("S4"),
    "gzip of an older JVM": vector("V4"),
    "snappy framed": vector("S5"),
    "snappy raw": vector("V6"),
    "snappy of two blocks": vector("S10"),
    "wrapper in a wrapper": vector("S11"),
    "compressed between plain": vector("V15"),
    "wrapper with magic 0 inside": zipped(vector("V1") + V),
    "wrapper whose last inner entry is cut": zipped(V + V[:9]),
    "wrapper whose content ends in 3 zero bytes": zipped(V + bytes(3)),
    "gzip of two members": wrapper(gzip.compress(V) + gzip.compress(V)),
    "gzip and other bytes behind it": wrapper(gzip.compress(V) + b"behind" * 9),
    "gzip with a file name": wrapper(
        b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + gzip.compress(V)[10:]
    ),
    "snappy and 3 bytes behind its last block": wrapper(vector("S5")[10:] + bytes(3), 2),
    "wrapper with a large message inside": zipped(TOO_LARGE),
}
IN_PART = {
    "entry and 9 bytes of another": (V + V[:9], V),
    "entry and 3 zero bytes": (V + bytes(3), V),
    "only 3 zero bytes": (bytes(3), b""),
    "wrapper, then 2 bytes of another": (vector("S4") + V[:2], vector("S4")),
    "payload above the limit, dropped without a word": (TOO_LARGE, b""),
    "sizes are judged before wrappers are opened": (wrapper(b"no gzip") + TOO_LARGE, b""),
}
GOOD = {**{name: (data, data) for name, data in WHOLE.items()}, **IN_PART}


@pytest.mark.parametrize(("sent", "kept"), GOOD.values(), ids=GOOD)
def test_produce_keeps_the_connection_open_and_the_bytes_unchanged(
    broker: RunningBroker, client: RawClient, topic: bytes, sent: bytes, kept: bytes
) -> None:
    client.send(produce(topic, sent))
    assert_open(client, topic, kept)
    assert stored(broker, topic) == kept


NOTHING_INSIDE = {
    "gzip of nothing": zipped(b""),
    "gzip of 3 zero bytes": zipped(bytes(3)),
    "snappy header without a block": wrapper(vector("S5")[10:26], 2),
    "snappy, raw, of nothing": wrapper(b"\0", 2),
}


@pytest.mark.parametrize("sent", NOTHING_INSIDE.values(), ids=NOTHING_INSIDE)
def test_a_wrapper_without_messages_is_kept_and_counts_nothing_for_the_flush_interval(
    broker: RunningBroker, client: RawClient, topic: bytes, sent: bytes
) -> None:
    client.send(produce(topic, sent))
    assert_open(client, topic, b"")  # no message: interval 1 is not reached, no flush awaited
    wait_until(lambda: stored(broker, topic) == sent, "it is written")
    client.send(produce(topic, V))
    assert_open(client, topic, sent + V)


def test_produce_to_partition_minus_one_picks_one_of_ours(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    sent = 0

    def both() -> list[bytes]:
        return [stored(broker, topic, partition) or b"" for partition in (0, 1)]

    def both_are_chosen() -> bool:
        nonlocal sent
        client.send(produce(topic, V, -1) * 3)  # one choice a millisecond
        sent += 3
        # Any answer on this connection comes after everything sent before was handled.
        assert client.ask(fetch(topic, 0, 9)) == WRONG_PARTITION
        return min(map(len, both())) > 0

    wait_until(both_are_chosen, "sends to go to both partitions")
    assert sum(map(len, both())) == sent * len(V)


def test_bytes_after_the_set_are_ignored(client: RawClient, topic: bytes) -> None:
    client.send(frame(produce(topic, V)[4:] + b"some more"))
    assert_open(client, topic, V)


def test_payload_of_exactly_the_limit_is_kept(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    largest = entry(bytes(1_000_000))
    client.send(produce(topic, largest))
    assert client.ask(fetch(topic, 0, 0, 10)) == answer(largest[:10])
    assert stored(broker, topic) == largest


def test_multi_produce_leaves_out_too_large_a_payload_and_ends_at_a_bad_part(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    a, b, c, d, e = (topic + letter for letter in (b"a", b"b", b"c", b"d", b"e"))
    client.send(multi_produce((a, 0, V), (b, 0, TOO_LARGE), (c, 0, V)))
    assert_open(client, a, V)
    assert_open(client, b, b"")
    assert_open(client, c, V)
    client.send(multi_produce())
    assert_open(client, topic, b"")
    client.send(multi_produce((a, 0, V), (d, 0, BAD_CRC), (e, 0, V)))
    assert client.is_closed_by_broker()
    assert [stored(broker, name) for name in (topic, a, d, e)] == [None, V + V, b"", None]


# --- produce: closes -----------------------------------------------------------------------------

LOG_STAYS = {
    "bad CRC": BAD_CRC,
    "bad CRC after a good entry": V + BAD_CRC,
    "bad CRC before too large a payload": BAD_CRC + TOO_LARGE,
    "magic 2": V[:4] + b"\x02" + V[5:],
    "magic 255": V[:4] + b"\xff" + V[5:],
    "codec bits 3": V[:5] + b"\x03" + V[6:],
    "gzip bits with other data": V[:5] + b"\x01" + V[6:],
    "snappy bits with other data": V[:5] + b"\x02" + V[6:],
    "unused bit and gzip bits with plain data": V[:5] + b"\x05" + V[6:],
    "only the first 9 bytes": V[:9],
    "CRC of nothing over a payload": V[:6] + bytes(4) + V[10:],
    "wrapper with a bad CRC inside": zipped(BAD_CRC),
    "wrapper with a bad CRC behind a good entry inside": zipped(V + BAD_CRC),
    "wrapper whose only inner entry is cut": zipped(V[:9]),
    "wrapper with magic 2 inside": zipped(V[:4] + b"\x02" + V[5:]),
    "wrapper with an inner length of 0": zipped(bytes(4) + V),
    "wrapper with an inner length of -1": zipped(b"\xff" * 4 + V),
    "wrapper with codec bits 3 inside": zipped(V[:5] + b"\x03" + V[6:]),
    "wrapper in a wrapper, the inner one broken": zipped(wrapper(b"no gzip")),
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


T = b"a-topic-without-a-log"
PARTITION_0 = struct.pack(">i", 0)
NOTHING_STAYS = {
    "partition 2 of 2": produce(T, V, 2),
    "partition -2": produce(T, V, -2),
    "empty topic": produce(b"", V),
    "null topic": frame(b"\0\0\xff\xff" + PARTITION_0 + struct.pack(">i", len(V)) + V),
    "topic length -2": frame(b"\0\0\xff\xfe" + PARTITION_0 + struct.pack(">i", len(V)) + V),
    "topic a/b": produce(b"a/b", V),
    "topic .": produce(b".", V),
    "topic ..": produce(b"..", V),
    "topic of 256 characters": produce(b"x" * 256, V),
    "topic of 255 characters": produce(b"x" * 255, V),
    "topic with a control character": produce(b"a\nb", V),
    "topic with a zero byte": produce(b"a\0b", V),
    "topic that is not UTF-8": produce(b"\xff\xfe", V),
    "set size 100, 15 bytes follow": frame(
        b"\0\0" + short(T) + PARTITION_0 + struct.pack(">i", 100) + V
    ),
    "set size -1": frame(b"\0\0" + short(T) + PARTITION_0 + struct.pack(">i", -1) + V),
    "multi-produce count -1": frame(struct.pack(">hh", 3, -1)),
    "multi-produce, second part cut": frame(multi_produce((T, 0, V), (T, 1, V))[4:-1]),
    "multi-fetch count -1": frame(struct.pack(">hh", 2, -1)),
    "multi-fetch, a part missing": frame(b"\0\2\0\2" + multi_fetch((T, 0, 0, 9))[8:]),
    "frame size 0": bytes(4),
    "frame size -1": b"\xff\xff\xff\xff",
    "frame size 104857601": struct.pack(">i", 104857601),
    "frame size 2^31-1": struct.pack(">i", 2**31 - 1),
    "frame size 1": b"\0\0\0\x01\0",
    "request id 5": frame(b"\0\5" + short(T)),
    "request id -1": frame(b"\xff\xff" + short(T)),
    "fetch of a null topic": frame(b"\0\1\xff\xff" + struct.pack(">iqi", 0, 0, 100)),
    "fetch cut": frame(fetch(T)[4:-1]),
    "offsets, topic that is not UTF-8": offsets(b"\xff\xfe"),
    "offsets, wrong partition": offsets(T, -1, 1, 2),
    "offsets, partition -1": offsets(T, -1, 1, -1),
    "offsets, illegal topic": offsets(b"a/b"),
}


@pytest.mark.parametrize("sent", NOTHING_STAYS.values(), ids=NOTHING_STAYS)
@pytest.mark.parametrize("which", ["broker", "lenient"])
def test_a_request_that_cannot_be_served_closes_and_leaves_nothing(
    request: pytest.FixtureRequest, which: str, sent: bytes
) -> None:
    broker: RunningBroker = request.getfixturevalue(which)
    before = logs(broker)
    with broker.connect() as client:
        client.send(sent)
        assert client.is_closed_by_broker()
    assert logs(broker) == before
    with broker.connect() as other:  # the broker lives on
        assert other.ask(fetch(T)) == EMPTY


def test_topic_with_a_space_is_accepted_by_the_rule_of_0_7_and_refused_by_the_stricter_default(
    broker: RunningBroker, lenient: RunningBroker
) -> None:
    with lenient.connect() as client:
        client.send(produce(b"a b", V))
        assert_open(client, b"a b", V)
    with broker.connect() as client:
        client.send(produce(b"a b", V))
        assert client.is_closed_by_broker()


def test_frame_above_our_stricter_limit_is_refused_and_accepted_with_the_original_s(
    broker: RunningBroker, lenient: RunningBroker
) -> None:
    big = frame(fetch(T)[4:] + bytes(11 * 1024 * 1024))
    with lenient.connect() as client:
        assert client.ask(big) == EMPTY
    with broker.connect() as client:
        client.send(big[:4])
        assert client.is_closed_by_broker()


# --- fetch, multi-fetch and offsets --------------------------------------------------------------

FILLED = b"filled"  # partition 0 holds V three times (45 bytes), partition 1 has no log
CREATED = b"created"  # partition 0 has a log without an entry


@pytest.fixture(scope="module")
def known(broker: RunningBroker) -> None:
    with broker.connect() as client:
        client.send(produce(FILLED, V * 3) + produce(CREATED, b""))
        assert_open(client, FILLED, V * 3)


ANSWERS = {
    "fetch cut behind an entry (R1)": (fetch(FILLED, 15, 0, 30), answer(V * 2)),
    "fetch cut within an entry (R2)": (fetch(FILLED, 0, 0, 20), answer(V + V[:5])),
    "fetch cut within the first entry (R3)": (fetch(FILLED, 0, 0, 5), answer(V[:5])),
    "fetch of 2^31-1 bytes": (fetch(FILLED, 0, 0, 2**31 - 1), answer(V * 3)),
    "fetch of 0 bytes": (fetch(FILLED, 0, 0, 0), EMPTY),
    "fetch at any byte (R6)": (fetch(FILLED, 3), answer((V * 3)[3:])),
    "fetch with bytes at its end": (frame(fetch(FILLED)[4:] + b"more"), answer(V * 3)),
    "fetch at the end": (fetch(FILLED, 45), EMPTY),
    "fetch behind the end": (fetch(FILLED, 46), OUT_OF_RANGE),
    "fetch at 2^62": (fetch(FILLED, 2**62), OUT_OF_RANGE),
    "fetch at -1": (fetch(FILLED, -1), OUT_OF_RANGE),
    "fetch at -2": (fetch(FILLED, -2), OUT_OF_RANGE),
    "fetch at -2^63": (fetch(FILLED, -(2**63)), OUT_OF_RANGE),
    "fetch of partition 9": (fetch(FILLED, 0, 9), WRONG_PARTITION),
    "fetch of partition -1": (fetch(FILLED, 0, -1), WRONG_PARTITION),
    "fetch of a partition without a log": (fetch(FILLED, 0, 1), EMPTY),
    "no range check of a partition without a log": (fetch(FILLED, 7, 1), EMPTY),
    "fetch of a topic without a log": (fetch(T, 0), EMPTY),
    "no range check of a topic without a log": (fetch(T, 7), EMPTY),
    "fetch of an empty topic name": (fetch(b""), UNKNOWN),
    "fetch of topic bad/topic": (fetch(b"bad/topic"), UNKNOWN),
    "fetch of topic ..": (fetch(b".."), UNKNOWN),
    "fetch of a topic that is not UTF-8": (fetch(b"\xff\xfe"), UNKNOWN),
    "fetch of a topic in Latin-1": (fetch(b"caf\xe9"), UNKNOWN),
    "negative fetch size without a log": (fetch(T, 0, 0, -1), EMPTY),
    "negative fetch size at the end": (fetch(FILLED, 45, 0, -1), EMPTY),
    "negative fetch size behind the end": (fetch(FILLED, 46, 0, -1), OUT_OF_RANGE),
    "negative fetch size of partition 9": (fetch(FILLED, 0, 9, -1), WRONG_PARTITION),
    "multi-fetch of nothing": (multi_fetch(), bytes.fromhex("00000002 0000")),
    "multi-fetch, each part in order": (
        multi_fetch(
            (FILLED, 0, 0, 15),
            (FILLED, 1, 0, 1000),
            (FILLED, 9, 0, 1000),
            (T, 0, 5, 1000),
            (FILLED, 0, 9_999_999, 100),
            (b"a/b", 0, 0, 100),
            (FILLED, 0, 30, 100),
        ),
        frame(
            b"\0\0"
            + b"".join([answer(V), EMPTY, WRONG_PARTITION, EMPTY, OUT_OF_RANGE, UNKNOWN, answer(V)])
        ),
    ),
    "offsets, latest, no log": (offsets(T, -1, 1), offsets_answer(0)),
    "offsets, none of the earliest, no log": (offsets(T, -2, 0), offsets_answer(0)),
    "offsets, none of the latest, no log": (offsets(T, -1, 0), offsets_answer(0)),
    "offsets before a time, no log": (offsets(T, 1000, 1), offsets_answer()),
    "no log: no count is looked at": (offsets(T, -2, -1), offsets_answer(0)),
    "no log: no count before a time": (offsets(T, 1000, -1), offsets_answer()),
    "offsets of an empty log": (offsets(CREATED, -1, 10), offsets_answer(0)),
    "offsets, latest 10": (offsets(FILLED, -1, 10), offsets_answer(45, 0)),
    "offsets, latest 1": (offsets(FILLED, -1, 1), offsets_answer(45)),
    "offsets, latest 0": (offsets(FILLED, -1, 0), offsets_answer()),
    "offsets, latest 2^31-1": (offsets(FILLED, -1, 2**31 - 1), offsets_answer(45, 0)),
    "offsets, earliest": (offsets(FILLED, -2, 10), offsets_answer(0)),
    "offsets before every segment": (offsets(FILLED, 1000, 10), offsets_answer()),
    "offsets at time -3": (offsets(FILLED, -3, 10), offsets_answer()),
    "offsets far in the future": (offsets(FILLED, 2**62, 10), offsets_answer(45, 0)),
}


@pytest.mark.parametrize(("asked", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_a_question_has_the_original_s_answer_and_makes_no_log(
    known: None, broker: RunningBroker, client: RawClient, asked: bytes, expected: bytes
) -> None:
    assert client.ask(asked) == expected
    assert client.ask(fetch(T)) == EMPTY  # it stays open
    assert (stored(broker, T), stored(broker, FILLED, 1)) == (None, None)


NONSENSE = {
    "-1": (fetch(FILLED, 0, 0, -1), "00000001 0000"),
    "-100": (fetch(FILLED, 0, 0, -100), "ffffff9e 0000"),
    # The whole's size counts all three parts, but what follows the nonsense is never sent.
    "multi-fetch, the second of three": (
        multi_fetch((FILLED, 0, 0, 15), (FILLED, 0, 0, -3), (FILLED, 0, 0, 15)),
        struct.pack(">ih", 2 + (6 + 15) + (6 - 3) + (6 + 15), 0).hex()
        + answer(V).hex()
        + "ffffffff 0000",
    ),
    "multi-fetch, two that wrap around": (
        multi_fetch((FILLED, 0, 0, -(2**31)), (FILLED, 0, 0, -(2**31)), (FILLED, 9, 0, 1)),
        "00000014 0000 80000002 0000",
    ),
    "offsets, count -1 of the latest": (offsets(FILLED, -1, -1), ""),
    "offsets, count -1 of the earliest": (offsets(FILLED, -2, -1), ""),
    "offsets, count -1 at time -3": (offsets(FILLED, -3, -1), ""),
    "offsets, count -1 before a time": (offsets(FILLED, 1000, -1), ""),
}


@pytest.mark.parametrize(("asked", "nonsense"), NONSENSE.values(), ids=NONSENSE)
def test_a_negative_size_or_count_gets_the_original_s_nonsense_and_the_end(
    known: None, client: RawClient, asked: bytes, nonsense: str
) -> None:
    client.send(asked)
    expected = bytes.fromhex(nonsense)
    assert client.receive(len(expected)) == expected
    assert client.is_closed_by_broker()


def test_captured_conversation_of_five_parts(client: RawClient) -> None:
    """F3 and R7, on the topics and bytes of the recording."""
    mixed = vector("S4") + vector("P8")[-24:] + vector("P7")[-12:] * 3
    client.send(produce(b"test", vector("S1")) + produce(b"test", mixed, 1))
    assert client.ask(vector("F3")) == vector("R7")
    assert client.ask(fetch(b"test", 0, 1, 1000)) == vector("R4")


def test_multi_fetch_above_our_limit_of_parts_closes(client: RawClient) -> None:
    assert len(client.ask(multi_fetch(*[(T, 0, 0, 100)] * 1000))) == 4 + 2 + 6000
    client.send(multi_fetch(*[(T, 0, 0, 100)] * 1001))
    assert client.is_closed_by_broker()


# --- how requests arrive -------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, 64, 1000])
def test_requests_in_pieces(client: RawClient, topic: bytes, step: int) -> None:
    stream = (produce(topic, V) + fetch(topic, 0, 0, 15)) * 20 + produce(topic, V * 100)
    stream += fetch(topic, 300, 0, 1500)
    for start in range(0, len(stream), step):
        client.send(stream[start : start + step])
    for _ in range(20):
        assert client.response() == answer(V)
    assert client.response() == answer(V * 100)


def test_ten_thousand_pipelined_requests_are_answered_in_order(
    known: None, client: RawClient
) -> None:
    asked = b"".join(fetch(FILLED, 0, 0, size % 46) for size in range(10_000))
    sender = threading.Thread(target=client.send, args=(asked,))
    sender.start()
    for size in range(10_000):
        cut = (V * 3)[: size % 46]
        assert client.response() == (answer(cut) if cut else EMPTY)
    sender.join()


def test_requests_and_responses_larger_than_any_buffer(
    broker: RunningBroker, client: RawClient, topic: bytes
) -> None:
    big = V * 600_000  # 9 MB, in one request
    client.send(produce(topic, big) + fetch(topic, 0, 0, 15))
    assert client.response() == answer(V)
    assert stored(broker, topic) == big
    client.send(fetch(topic, 0, 0, 10_000_000) + fetch(topic, len(big)))
    assert client.response() == answer(big)
    assert client.response() == EMPTY


def test_header_of_a_response_leaves_in_one_segment_with_the_first_bytes_of_the_set(
    known: None, client: RawClient
) -> None:
    alone = 0  # the kernel sends a header that has waited for 200 ms, on a very busy machine
    for _ in range(50):
        both = multi_fetch((FILLED, 0, 0, 100), (FILLED, 0, 15, 100))
        whole = {
            fetch(FILLED): answer(V * 3),
            both: frame(b"\0\0" + answer(V * 3) + answer(V * 2)),
        }
        for request, expected in whole.items():
            client.send(request)
            received = client.socket.recv(1000)
            alone += len(received) <= 12
            assert received + client.receive(len(expected) - len(received)) == expected
    assert alone < 10


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
