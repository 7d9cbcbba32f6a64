"""What a broker accepts, drops and refuses, row by row as the original 0.7.2 was seen to do it."""

import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

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
from tests.support.raw_requests import entry
from tests.vectors import vector

V = vector("V2")
LIMIT = 1_000_000


def wrap(content: bytes, codec: int = Codec.GZIP) -> bytes:
    return entry(compress(codec, content), attributes=codec)


def nested(depth: int, codec: int = Codec.GZIP) -> bytes:
    data = V
    for _ in range(depth):
        data = wrap(data, codec)
    return data


def scan(twin: ModuleType, data: bytes, limit: int = LIMIT) -> tuple[int, int]:
    found: tuple[int, int] = twin.scan(data, limit, DecompressionBudget())
    return found


@pytest.mark.parametrize("payload", ["text", 5, None])
def test_a_payload_that_is_not_bytes_is_named_by_its_type(payload: Any) -> None:
    with pytest.raises(TypeError, match=f"must be bytes, not {type(payload).__name__}: encode it"):
        message_set.encode([b"fine", payload])


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
    "V": (V, (15, 1)),
    "unused bit, no codec": (entry(b"hello", attributes=4), (15, 1)),
    "V and the first 9 bytes of V": (V + V[:9], (15, 1)),
    "V and 3 zero bytes": (V + bytes(3), (15, 1)),
    "only 3 zero bytes": (bytes(3), (0, 0)),
    "an empty set": (b"", (0, 0)),
    "V and a cut entry of length 4": (V + b"\0\0\0\4\0", (15, 1)),
    "both magics in one set": (V + vector("V1") + V, (44, 3)),
    "an empty payload": (entry(b""), (10, 1)),
    "an empty payload, magic 0": (entry(b"", magic=0), (9, 1)),
    # Nothing protects the header, so this is a message by the format's own rules.
    "length 5 and five zero bytes": (b"\0\0\0\5" + bytes(5), (9, 1)),
    "unused bits and gzip bits": (
        entry(compress(Codec.GZIP, V), attributes=0xFD),
        (10 + len(compress(Codec.GZIP, V)), 1),
    ),
    "a wrapper of nothing": (wrap(b""), (30, 0)),
    "a wrapper with a cut tail": (CUT_INSIDE, (len(CUT_INSIDE), 1)),
    "a wrapper of both magics": (vector("S4"), (57, 2)),
}  # fmt: skip


def readers(twin: ModuleType, **limit: int) -> list[Callable[[bytes], Any]]:
    """The three ways to read a set; `wrapper_bytes_max` bounds what a wrapper may unpack to."""
    return [
        lambda data: twin.payloads(data, **limit),
        lambda data: twin.messages(data, 0, **limit),
        lambda data: twin.consumed(data, 0, "t", 0, 0, **limit),
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_broker_refuses_a_reader_refuses_too(twin: ModuleType, name: str) -> None:
    data = REFUSED[name]
    position = 15 if data.startswith(V) and data != V[:9] else 0
    with pytest.raises(InvalidMessage) as refused:
        scan(twin, data)
    assert refused.value.position == position
    for read in readers(twin):
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


LARGE = entry(bytes(11))
ABOVE_THE_LIMIT = {
    "one byte more": (entry(bytes(LIMIT + 1)), LIMIT, MessageSizeTooLarge),
    "between others": (V + entry(bytes(LIMIT + 1)) + V, LIMIT, MessageSizeTooLarge),
    "a limit of 0": (entry(b"x"), 0, MessageSizeTooLarge),
    # The top level is judged in order, and before any wrapper.
    "behind a bad CRC": (BAD_CRC + LARGE, 10, InvalidMessage),
    "before a bad CRC": (LARGE + BAD_CRC, 10, MessageSizeTooLarge),
    "behind a bad wrapper": (entry(b"junk", attributes=1) + LARGE, 10, MessageSizeTooLarge),
    "behind an unknown codec": (entry(b"junk", attributes=3) + LARGE, 10, MessageSizeTooLarge),
    "damaged as well": (entry(bytes(11), crc=1), 10, InvalidMessage),
}


@pytest.mark.parametrize(("data", "limit", "error"), ABOVE_THE_LIMIT.values(), ids=ABOVE_THE_LIMIT)
def test_payloads_above_the_limit_are_refused(
    twin: ModuleType, data: bytes, limit: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        scan(twin, data, limit)


def test_the_limit_is_for_top_level_payloads_only_and_may_be_reached(twin: ModuleType) -> None:
    assert scan(twin, entry(bytes(LIMIT))) == (LIMIT + 10, 1)
    assert scan(twin, entry(b"", magic=0), 0)[0] == 9
    inside = wrap(entry(bytes(LIMIT + 1)))
    assert scan(twin, inside)[1] == 1
    with pytest.raises(MessageSizeTooLarge):
        scan(twin, inside, len(inside) - 11)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_nesting_is_read_to_depth_4_and_no_further(twin: ModuleType, codec: Codec) -> None:
    for depth in range(5):
        data = nested(depth, codec)
        assert scan(twin, data) == (len(data), 1)
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
    for read in readers(twin, wrapper_bytes_max=1500):
        assert len(read(data)) == 300
    for read in readers(twin, wrapper_bytes_max=1499):
        with pytest.raises(DecompressedSizeTooLarge):
            read(data)


@pytest.mark.parametrize(
    ("unpacked_bytes_max", "ends"),
    [(1500, [1, 2, 4]), (1501, [2, 4]), (3000, [2, 4]), (10**9, [4])],
)
def test_a_piece_ends_before_the_wrapper_that_comes_at_its_budget(
    twin: ModuleType, unpacked_bytes_max: int, ends: list[int]
) -> None:
    wrapper = wrap(V * 100)
    data = wrap(b"") + V + wrapper * 3 + V
    start = len(wrap(b"") + V)
    positions = [start + count * len(wrapper) for count in range(4)] + [len(data)]
    limits = 10**6, unpacked_bytes_max
    pairs: list[tuple[bytes, int]] = []
    payloads: list[bytes] = []
    consumed: list[tuple[bytes, int]] = []
    position = 0
    for end in ends:
        found, taken = twin.take_messages(data[position:], position, *limits)
        pairs += found
        found, same = twin.take_payloads(data[position:], *limits)
        payloads += found
        found, also = twin.take_consumed(data[position:], position, "t", 1, 2, *limits)
        consumed += [(message.payload, message.next_offset) for message in found]
        position += taken
        assert taken == same == also
        assert position == positions[end]
    assert pairs == consumed == iterated(twin, data, 0, *limits)[0] == twin.messages(data, 0)
    assert payloads == twin.payloads(data)


@pytest.mark.parametrize("bad", [b"", BAD_CRC, entry(b"junk", attributes=1), wrap(BAD_CRC)])
@pytest.mark.parametrize("good", [b"", V, V * 3, wrap(V + V), V + wrap(V) + V, wrap(V) + V + V])
def test_an_iterator_has_what_stands_before_the_damage(
    twin: ModuleType, good: bytes, bad: bytes
) -> None:
    data = good + bad + V
    found, damaged_at = iterated(twin, data, 10**12, LIMIT, LIMIT)
    end = len(good) if bad else len(data)
    assert found == twin.messages(data[:end], 10**12)
    assert damaged_at == (end if bad else None)


def test_an_iterator_keeps_its_bytes(twin: ModuleType) -> None:
    found, end = twin.take_iterator(V * 2, 7, "t", 1, 2, LIMIT, LIMIT)
    assert end == 30
    first = next(found)
    assert (first.payload, first.topic, first.broker_id, first.partition) == (b"hello", "t", 1, 2)
    assert [first.next_offset, *(message.next_offset for message in found)] == [22, 37]
    assert list(found) == []
    with pytest.raises(MessageLargerThanFetchSize):
        twin.take_iterator(V[:-1], 0, "t", 1, 2, LIMIT, LIMIT)


def iterated(
    twin: ModuleType, data: bytes, offset: int, *limits: int
) -> tuple[list[tuple[bytes, int]], int | None]:
    """What a reader gets of the data, piece by piece, and where the damage is that stops it."""
    found: list[tuple[bytes, int]] = []
    position = 0
    while position < len(data):
        rest = data[position:]
        try:
            messages, taken = twin.take_iterator(rest, offset + position, "t", 1, 2, *limits)
        except InvalidMessage as error:
            if error.position:  # a piece before it can be had
                before = iterated(twin, rest[: error.position], offset + position, *limits)
                assert before[1] is None
                found += before[0]
            return found, position + error.position
        found += [(message.payload, message.next_offset) for message in messages]
        position += taken
    return found, None


def test_next_offsets_around_wrappers(twin: ModuleType) -> None:
    empty, pair = wrap(b""), wrap(V + V, Codec.SNAPPY)
    data = empty + V + empty + pair + V
    ends = [
        10**12 + len(data[: -len(behind) or None])
        for behind in (empty + pair + V, pair + V, V, b"")
    ]
    assert twin.messages(data, 10**12) == [(b"hello", end) for end in ends]


def test_split_stops_before_an_impossible_length_and_raises_at_it(twin: ModuleType) -> None:
    for bad in (bytes(4), b"\0\0\0\4\0\0\0\0", b"\xff\xff\xff\xff"):
        assert twin.split(V + bad + V) == 15
        with pytest.raises(InvalidMessage):
            twin.split(bad + V)


def test_check_entries_says_where_and_why_the_good_part_ends(twin: ModuleType) -> None:
    rows = [
        (V * 3, 45, 3, ""),
        (V + V[:9], 15, 1, "cut"),
        (V + bytes(3), 15, 1, "cut"),
        (V + BAD_CRC + V, 15, 1, "CRC"),
        (entry(b"x", magic=9), 0, 0, "magic 9"),
        (V + bytes(4), 15, 1, "length 0"),
        (b"\xff\xff\xff\xff", 0, 0, "negative"),
        (entry(b"junk", attributes=1), 14, 1, ""),  # wrappers are not opened
    ]
    for data, valid_bytes, count, fault in rows:
        ending = twin.check_entries(data)
        assert ending[:2] == (valid_bytes, count)
        assert fault in ending.fault if fault else ending.fault == ""


def test_encode_takes_any_bytes_and_nothing_else(twin: ModuleType) -> None:
    expected = vector("V3")
    assert twin.encode([b"hello", bytearray(b"world")]) == expected
    assert twin.encode((memoryview(b"hello"), b"world")) == expected
    assert twin.encode([b"hello"] * 2, 0) == entry(b"hello", magic=0) * 2
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
    first, second = twin.consumed(vector("V3"), 0, "test", 1, 2)
    assert first == twin.ConsumedMessage(b"hello", "test", 1, 2, 15)
    assert first != second
    assert first != "something else"
    assert hash(first) == hash(twin.ConsumedMessage(b"hello", "test", 1, 2, 15))
    text = repr(twin.ConsumedMessage(b"x", "t", 1, 2, 3))
    expected = "payload=b'x', topic='t', broker_id=1, partition=2, next_offset=3"
    assert text == f"ConsumedMessage({expected})"
    assert pickle.loads(pickle.dumps(first)) == first
    with pytest.raises(AttributeError):
        first.something = 1


def test_the_callers_module_uses_the_chosen_twin() -> None:
    budget = DecompressionBudget()
    assert message_set.scan(V, LIMIT, budget=budget) == (15, 1)
    assert message_set.split(V) == 15
    assert message_set.messages(V, 5) == [(b"hello", 20)]
    assert message_set.payloads(V) == [b"hello"]
    assert message_set.consumed(V, 0, "t", 1, 2)[0].payload == b"hello"
    assert message_set.take_messages(V, 5) == ([(b"hello", 20)], 15)
    assert message_set.take_payloads(V) == ([b"hello"], 15)
    assert message_set.take_consumed(V, 0, "t", 1, 2)[1] == 15
    assert message_set.take_iterator(V, 0, "t", 1, 2)[1] == 15
    assert message_set.check_entries(V).fault == ""
    assert message_set.encode([b"hello"]) == V


def test_the_first_of_two_bad_entries_is_named(twin: ModuleType) -> None:
    # Whatever stands before `position` must be deliverable, a wrapper that does not unpack too.
    bad_wrapper = entry(b"junk", attributes=1)
    for data in (V + bad_wrapper + BAD_CRC, V + BAD_CRC + bad_wrapper):
        for read in readers(twin):
            with pytest.raises(InvalidMessage) as caught:
                read(data)
            assert caught.value.position == 15
