"""What a broker accepts, drops and refuses, row by row as the original 0.7.2 was seen to do it."""

import struct
import zlib
from types import ModuleType

import pytest

from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec, DecompressionBudget, compress
from kafka2011.protocol.errors import (
    DecompressedSizeTooLarge,
    InvalidMessage,
    LocalProtocolError,
    MessageLargerThanFetchSize,
    MessageSizeTooLarge,
)
from tests.vectors import vector

V = vector("V2")
LIMIT = 1_000_000


def entry(payload: bytes, *, magic: int = 1, attributes: int = 0, crc: int | None = None) -> bytes:
    crc = zlib.crc32(payload) if crc is None else crc
    head = struct.pack(">BBI", magic, attributes, crc) if magic else struct.pack(">BI", 0, crc)
    return struct.pack(">i", len(head) + len(payload)) + head + payload


def wrap(content: bytes, codec: int = Codec.GZIP) -> bytes:
    return entry(compress(codec, content), attributes=codec)


def nested(depth: int, codec: int = Codec.GZIP) -> bytes:
    data = V
    for _ in range(depth):
        data = wrap(data, codec)
    return data


def scan(twin: ModuleType, data: bytes, limit: int = LIMIT) -> tuple[int, int, int, int]:
    found: tuple[int, int, int, int] = twin.scan(data, limit, DecompressionBudget())
    return found


BAD_CRC = entry(b"hello", crc=0)
CUT_INSIDE = wrap(V + V[:9])

REFUSED = {
    "bad CRC alone": BAD_CRC,
    "bad CRC after a good entry": V + BAD_CRC,
    "magic 2": entry(b"hello", magic=2),
    "magic 255": entry(b"hello", magic=255),
    "codec bits 3": entry(b"hello", attributes=3),
    "gzip bits with other data": entry(b"hello", attributes=1),
    "snappy bits with other data": entry(b"hello", attributes=2),
    "unused bit and gzip bits, plain data": entry(b"hello", attributes=5),
    "only the first 9 bytes of V": V[:9],
    "entry length 0": bytes(4),
    "entry length 0 with bytes behind": bytes(40),
    "entry length 4": b"\0\0\0\4" + bytes(8),
    "entry length -1": b"\xff\xff\xff\xff" + bytes(8),
    "entry length -1 after a good entry": V + b"\xff\xff\xff\xff",
    "entry length 0 after a good entry": V + bytes(4),
    "entry length 5 with magic 1": b"\0\0\0\5\1" + bytes(4),
    "bad CRC inside a wrapper": wrap(V + BAD_CRC),
    "cut first entry inside a wrapper": wrap(V[:9]),
    "unknown codec inside a wrapper": wrap(V + entry(b"hello", attributes=3)),
    "negative length inside a wrapper": wrap(V + b"\xff\xff\xff\xff"),
    "unknown magic inside a wrapper": wrap(entry(b"x", magic=7)),
}

# what is sent -> (valid bytes, messages, entries, largest payload)
ACCEPTED = {
    "V": (V, (15, 1, 1, 5)),
    "unused bit, no codec": (entry(b"hello", attributes=4), (15, 1, 1, 5)),
    "V and the first 9 bytes of V": (V + V[:9], (15, 1, 1, 5)),
    "V and 3 zero bytes": (V + bytes(3), (15, 1, 1, 5)),
    "only 3 zero bytes": (bytes(3), (0, 0, 0, 0)),
    "an empty set": (b"", (0, 0, 0, 0)),
    "V and a cut entry of length 4": (V + b"\0\0\0\4\0", (15, 1, 1, 5)),
    "both magics in one set": (V + vector("V1") + V, (44, 3, 3, 5)),
    "an empty payload": (entry(b""), (10, 1, 1, 0)),
    "an empty payload, magic 0": (entry(b"", magic=0), (9, 1, 1, 0)),
    # Nothing protects the header, so this is a message by the format's own rules.
    "length 5 and five zero bytes": (b"\0\0\0\5" + bytes(5), (9, 1, 1, 0)),
    "unused bits and gzip bits": (
        entry(compress(Codec.GZIP, V), attributes=0xFD),
        (10 + len(compress(Codec.GZIP, V)), 1, 1, len(compress(Codec.GZIP, V))),
    ),
    "a wrapper of nothing": (wrap(b""), (30, 0, 1, 20)),
    "a wrapper with a cut tail": (CUT_INSIDE, (len(CUT_INSIDE), 1, 1, len(CUT_INSIDE) - 10)),
    "a wrapper of both magics": (vector("S4"), (57, 2, 1, 47)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_sets_raise_invalid_message(twin: ModuleType, name: str) -> None:
    data = REFUSED[name]
    with pytest.raises(InvalidMessage) as caught:
        scan(twin, data)
    assert caught.value.position == (15 if data.startswith(V) and data != V[:9] else 0)


@pytest.mark.parametrize("name", REFUSED)
def test_a_reader_raises_for_what_a_broker_refuses(twin: ModuleType, name: str) -> None:
    data = REFUSED[name]
    position = 15 if data.startswith(V) and data != V[:9] else 0
    reads = (twin.payloads, lambda part: twin.messages(part, 0),
             lambda part: twin.consumed(part, 0, "t", 0, 0))  # fmt: skip
    for read in reads:
        with pytest.raises((InvalidMessage, MessageLargerThanFetchSize)) as caught:
            read(data)
        if isinstance(caught.value, InvalidMessage):
            assert caught.value.position == position
        # What stands before the damage can be delivered.
        assert len(twin.payloads(data[:position])) == (1 if position else 0)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_sets(twin: ModuleType, name: str) -> None:
    data, expected = ACCEPTED[name]
    assert scan(twin, data) == expected


def test_payload_limit_counts_the_payload_and_equal_is_allowed(twin: ModuleType) -> None:
    assert scan(twin, entry(bytes(LIMIT))) == (LIMIT + 10, 1, 1, LIMIT)
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, entry(bytes(LIMIT + 1)))
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, V + entry(bytes(LIMIT + 1)) + V)
    assert scan(twin, entry(b"", magic=0), 0)[0] == 9
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, entry(b"x"), 0)


def test_payload_limit_is_for_top_level_payloads_only(twin: ModuleType) -> None:
    data = wrap(entry(bytes(LIMIT + 1)))
    assert scan(twin, data).message_count == 1  # type: ignore[attr-defined]
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, data, len(data) - 11)


def test_the_top_level_is_judged_in_order_and_before_any_wrapper(twin: ModuleType) -> None:
    large = entry(bytes(11))
    with pytest.raises(InvalidMessage):
        scan(twin, BAD_CRC + large, 10)
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, large + BAD_CRC, 10)
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, entry(b"junk", attributes=1) + large, 10)
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, entry(b"junk", attributes=3) + large, 10)
    # An entry that is both too large and damaged is damaged.
    with pytest.raises(InvalidMessage):
        scan(twin, entry(bytes(11), crc=1), 10)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_nesting_is_read_to_depth_4_and_no_further(twin: ModuleType, codec: Codec) -> None:
    for depth in range(5):
        data = nested(depth, codec)
        assert scan(twin, data)[:2] == (len(data), 1)
        assert twin.messages(data, 0) == [(b"hello", len(data))]
    with pytest.raises(InvalidMessage, match="nested"):
        scan(twin, nested(5, codec))
    with pytest.raises(InvalidMessage, match="nested"):
        twin.payloads(nested(5, codec))


def test_one_budget_covers_all_sets_of_a_request(twin: ModuleType) -> None:
    data = wrap(V * 100)
    budget = DecompressionBudget(bytes_max=3 * 1500)
    for _ in range(3):
        twin.scan(data, LIMIT, budget)
    assert budget.bytes_left == 0
    with pytest.raises(DecompressedSizeTooLarge):
        twin.scan(data, LIMIT, budget)
    assert twin.scan(V, LIMIT, budget).message_count == 1, "plain sets cost nothing"


def test_nested_levels_are_charged_to_the_same_budget(twin: ModuleType) -> None:
    inner = wrap(V * 100)
    data = wrap(inner)
    twin.scan(data, LIMIT, DecompressionBudget(1500 + len(inner)))
    with pytest.raises(DecompressedSizeTooLarge):
        twin.scan(data, LIMIT, DecompressionBudget(1500 + len(inner) - 1))


def test_readers_bound_each_top_level_wrapper(twin: ModuleType) -> None:
    data = wrap(V * 100) * 3
    assert len(twin.payloads(data, 1500)) == 300
    assert len(twin.messages(data, 0, 1500)) == 300
    assert len(twin.consumed(data, 0, "t", 0, 0, wrapper_bytes_max=1500)) == 300
    for read in (
        lambda: twin.payloads(data, 1499),
        lambda: twin.messages(data, 0, 1499),
        lambda: twin.consumed(data, 0, "t", 0, 0, wrapper_bytes_max=1499),
    ):
        with pytest.raises(DecompressedSizeTooLarge):
            read()


def test_next_offsets_around_wrappers(twin: ModuleType) -> None:
    empty = wrap(b"")
    pair = wrap(V + V, Codec.SNAPPY)
    data = empty + V + empty + pair + V
    offset = 10**12
    after_first = offset + len(empty) + 15
    pair_start = after_first + len(empty)
    assert twin.messages(data, offset) == [
        (b"hello", after_first),
        (b"hello", pair_start),
        (b"hello", pair_start + len(pair)),
        (b"hello", pair_start + len(pair) + 15),
    ]


def test_split_stops_before_an_impossible_length_and_raises_at_it(twin: ModuleType) -> None:
    for bad in (bytes(4), b"\0\0\0\4\0\0\0\0", b"\xff\xff\xff\xff"):
        assert twin.split(V + bad + V) == 15
        with pytest.raises(InvalidMessage):
            twin.split(bad + V)


def test_check_entries_says_where_and_why_the_good_part_ends(twin: ModuleType) -> None:
    assert twin.check_entries(V * 3) == (45, 3, "")
    assert twin.check_entries(V + V[:9]) == (15, 1, "cut")
    assert twin.check_entries(V + bytes(3)) == (15, 1, "cut")
    ending = twin.check_entries(V + BAD_CRC + V)
    assert ending[:2] == (15, 1)
    assert "CRC" in ending.fault
    assert "magic 9" in twin.check_entries(entry(b"x", magic=9)).fault
    assert "length 0" in twin.check_entries(V + bytes(4)).fault
    assert "negative" in twin.check_entries(b"\xff\xff\xff\xff").fault
    # Wrappers are not opened.
    assert twin.check_entries(entry(b"junk", attributes=1)) == (14, 1, "")


def test_encode_takes_any_bytes_and_nothing_else(twin: ModuleType) -> None:
    expected = vector("V3")
    assert twin.encode([b"hello", bytearray(b"world")]) == expected
    assert twin.encode((memoryview(b"hello"), b"world")) == expected
    assert twin.encode([b"hello", b"world"], 0) == entry(b"hello", magic=0) + entry(
        b"world", magic=0
    )
    for wrong in (["hello"], [5], [None], [[1, 2]]):
        with pytest.raises(TypeError):
            twin.encode(wrong)
    with pytest.raises(LocalProtocolError):
        twin.encode([b""], 2)


def test_large_payloads_and_many_entries_survive(twin: ModuleType) -> None:
    payloads = [bytes([size % 251]) * size for size in [0, 1, 65_535, 65_536, 1_000_003]]
    assert twin.payloads(twin.encode(payloads)) == payloads
    many = [b"%d" % number for number in range(20_000)]
    assert twin.payloads(twin.encode(many)) == many


def test_consumed_messages_compare_hash_show_and_pickle(twin: ModuleType) -> None:
    import pickle

    first, second = twin.consumed(vector("V3"), 0, "test", 1, 2)
    assert first == twin.ConsumedMessage(b"hello", "test", 1, 2, 15)
    assert first != second
    assert first != "something else"
    assert hash(first) == hash(twin.ConsumedMessage(b"hello", "test", 1, 2, 15))
    text = (
        "ConsumedMessage(payload=b'hello', topic='test', broker_id=1, partition=2, next_offset=15)"
    )
    assert repr(first) == text
    assert repr(pickle.loads(pickle.dumps(first))) == text
    with pytest.raises(AttributeError):
        first.something = 1


def test_the_callers_module_uses_the_chosen_twin() -> None:
    budget = DecompressionBudget()
    assert message_set.scan(V, LIMIT, budget=budget) == (15, 1, 1, 5)
    assert message_set.split(V) == 15
    assert message_set.messages(V, 5) == [(b"hello", 20)]
    assert message_set.payloads(V) == [b"hello"]
    assert message_set.consumed(V, 0, "t", 1, 2)[0].payload == b"hello"
    assert message_set.check_entries(V).fault == ""
    assert message_set.encode([b"hello"]) == V


def test_the_first_of_two_bad_entries_is_named(twin: ModuleType) -> None:
    # Whatever stands before `position` must be deliverable, a wrapper that does not unpack too.
    bad_wrapper = entry(b"junk", attributes=1)
    for data in (V + bad_wrapper + BAD_CRC, V + BAD_CRC + bad_wrapper):
        for read in (twin.payloads, lambda part: twin.messages(part, 0)):
            with pytest.raises(InvalidMessage) as caught:
                read(data)
            assert caught.value.position == 15
