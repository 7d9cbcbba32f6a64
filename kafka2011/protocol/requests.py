"""The five requests of 0.7: from objects to whole frames, and from frame bodies to objects.

    body          = request id i16, rest
    Produce       = topic, partition i32, set size i32, set
    MultiProduce  = count i16, count times (topic, partition i32, set size i32, set)
    Fetch         = topic, partition i32, offset i64, max size i32
    MultiFetch    = count i16, count times (topic, partition i32, offset i64, max size i32)
    Offsets       = topic, partition i32, time i64, max count i32
    topic         = length i16, that many bytes of UTF-8

Parts carry no request id of their own. Bytes after what a request needs are ignored, as in the
original. Whether a topic, a partition or a fetch size is legal is the broker's question, not the
codec's: a produce closes the connection where a fetch answers one part with an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias

from kafka2011.protocol import hot
from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError

PRODUCE: Final = 0
FETCH: Final = 1
MULTI_FETCH: Final = 2
MULTI_PRODUCE: Final = 3
OFFSETS: Final = 4

LATEST: Final = -1
EARLIEST: Final = -2

ANY_PARTITION: Final = -1  # produce only: the broker picks one at random

_FRAME_HEADER: Final = Struct(">ih")  # size, request id
_FRAME_HEADER_MULTI: Final = Struct(">ihh")  # size, request id, count
_REQUEST_ID: Final = Struct(">h")
_COUNT: Final = Struct(">h")
_TOPIC_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_PRODUCE_TAIL: Final = Struct(">ii")  # partition, set size
_FETCH_TAIL: Final = Struct(">iqi")  # partition, offset or time, max size or max count

_TOPIC_BYTES_MAX: Final = 32767

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """Append `message_set` to a partition; -1 lets the broker choose. There is no response."""

    topic: str
    partition: int
    message_set: Buffer


@dataclass(frozen=True, slots=True)
class MultiProduceRequest:
    """Several appends in one frame, done in order. There is no response."""

    parts: Sequence[ProduceRequest]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """At most `size_max` bytes of a log from byte `offset` on."""

    topic: str
    partition: int
    offset: int
    size_max: int


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several fetches in one frame; the response has their parts in the same order."""

    parts: Sequence[FetchRequest]


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """At most `count_max` segment offsets before `time`: ms since the epoch, LATEST or EARLIEST."""

    topic: str
    partition: int
    time: int
    count_max: int


Request: TypeAlias = (
    ProduceRequest | MultiProduceRequest | FetchRequest | MultiFetchRequest | OffsetsRequest
)


def encode_request(request: Request) -> bytes:
    """The whole frame of a request, size included.

    Raises:
      LocalProtocolError: a number or a name does not fit its field.
    """
    return b"".join(request_pieces(request))


def request_pieces(request: Request) -> list[Buffer]:
    """The frame's pieces, message sets uncopied, for one who joins several. Raises as above."""
    try:
        match request:
            case ProduceRequest():
                pieces = _produce_part(request)
                header = _FRAME_HEADER.pack(_REQUEST_ID.size + _length(pieces), PRODUCE)
            case MultiProduceRequest(parts):
                pieces = [piece for part in parts for piece in _produce_part(part)]
                header = _multi_header(MULTI_PRODUCE, len(parts), pieces)
            case FetchRequest(topic, partition, offset, size_max):
                pieces = _fetch_part(topic, partition, offset, size_max)
                header = _FRAME_HEADER.pack(_REQUEST_ID.size + _length(pieces), FETCH)
            case MultiFetchRequest(parts):
                pieces = [
                    piece
                    for part in parts
                    for piece in _fetch_part(part.topic, part.partition, part.offset, part.size_max)
                ]
                header = _multi_header(MULTI_FETCH, len(parts), pieces)
            case OffsetsRequest(topic, partition, time, count_max):
                pieces = _fetch_part(topic, partition, time, count_max)
                header = _FRAME_HEADER.pack(_REQUEST_ID.size + _length(pieces), OFFSETS)
    except StructError as error:
        raise LocalProtocolError(f"a field of the request does not fit: {error}") from error
    return [header, *pieces]


def produce_runs(
    buffer: bytearray | memoryview,
    start: int,
    end: int,
    frame_bytes_max: int,
    message_bytes_max: int,
) -> tuple[int, list[tuple[bytes, int, int, int, int]]]:
    """Take and validate the plain Produce frames that stand at `start`: the broker's fast path.

    Takes frames for as long as they are complete before `end`, are Produce requests, and hold only
    good, whole, uncompressed entries with payloads of at most `message_bytes_max`. Consecutive
    frames to one partition become one run: their sets are moved together inside `buffer` (which
    must be writable), so that a run is one append whatever the number of requests. A frame for
    partition -1 is a run of its own, because the broker draws for every request anew.

    Returns where it stopped, and the runs as (route, set start, set end, message count, frame
    count), positions in `buffer`. The route is topic and partition as they stand in the frame: a
    key for a table of logs, and `decode_route` reads it. The bytes from `start` to where it stopped
    are the runs' and garbage; what follows is untouched.

    Whatever stands where it stopped (another request, a compressed or damaged set, an impossible
    size, an incomplete frame) is for `decode_request` and `message_set.scan`, one frame at a time;
    then this may be called again. Nothing is raised for what a peer sent.
    """
    return hot.produce_runs(buffer, start, end, frame_bytes_max, message_bytes_max)


def encode_route(topic: str, partition: int) -> bytes:
    """The bytes that name topic and partition in a frame: the key of `produce_runs`' runs."""
    return _topic(topic) + _PARTITION.pack(partition)


def decode_route(route: bytes) -> tuple[str, int]:
    """Topic and partition of a run, not judged."""
    topic, position = _read_topic(memoryview(route), 0)
    (partition,) = _PARTITION.unpack_from(route, position)
    return topic, partition


def _length(pieces: list[Buffer]) -> int:
    return sum(map(len, pieces))


def _multi_header(request_id: int, count: int, pieces: list[Buffer]) -> bytes:
    size = _REQUEST_ID.size + _COUNT.size + _length(pieces)
    return _FRAME_HEADER_MULTI.pack(size, request_id, count)


def _encoded(topic: str) -> bytes:
    try:
        name = topic.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"topic {topic!a} is not text") from error
    if len(name) > _TOPIC_BYTES_MAX:
        raise LocalProtocolError(f"a topic of {len(name)} bytes does not fit a request")
    return name


def _topic(topic: str) -> bytes:
    name = _encoded(topic)
    return _TOPIC_LENGTH.pack(len(name)) + name


def _produce_part(part: ProduceRequest) -> list[Buffer]:
    tail = _PRODUCE_TAIL.pack(part.partition, len(part.message_set))
    return [_topic(part.topic), tail, part.message_set]


def _fetch_part(topic: str, partition: int, offset: int, limit: int) -> list[Buffer]:
    return [_topic(topic), _FETCH_TAIL.pack(partition, offset, limit)]


def decode_request(body: Buffer) -> Request:
    """Read a frame's body (without the size). Message sets are views of `body`, not copies.

    Raises:
      RemoteProtocolError: unknown id, a field that is missing, a negative count of parts or set
        size, or a null topic. Close the connection.
    """
    view = memoryview(body)
    try:
        (request_id,) = _REQUEST_ID.unpack_from(view)
        position = _REQUEST_ID.size
        if request_id == PRODUCE:
            return _read_produce(view, position)[0]
        if request_id == FETCH:
            return FetchRequest(*_read_fetch(view, position)[0])
        if request_id == OFFSETS:
            return OffsetsRequest(*_read_fetch(view, position)[0])
        if request_id == MULTI_PRODUCE:
            return _read_multi_produce(view, position)
        if request_id == MULTI_FETCH:
            return _read_multi_fetch(view, position)
    except StructError:
        raise RemoteProtocolError(f"a request of {len(view)} bytes is cut") from None
    raise RemoteProtocolError(f"unknown request id {request_id}")


def _read_topic(view: memoryview, position: int) -> tuple[str, int]:
    (length,) = _TOPIC_LENGTH.unpack_from(view, position)
    start = position + _TOPIC_LENGTH.size
    end = start + length
    if length < 0:
        raise RemoteProtocolError("a null topic" if length == -1 else f"topic length {length}")
    if end > len(view):
        raise RemoteProtocolError(f"a topic of {length} bytes in {len(view) - start}")
    # As in the JVM, what is not UTF-8 becomes U+FFFD, which no topic may hold: whether that closes
    # the connection or is one part's error is the broker's answer to an illegal name.
    return str(view[start:end], "utf-8", "replace"), end


def _read_produce(view: memoryview, position: int) -> tuple[ProduceRequest, int]:
    topic, position = _read_topic(view, position)
    partition, set_size = _PRODUCE_TAIL.unpack_from(view, position)
    start = position + _PRODUCE_TAIL.size
    if not 0 <= set_size <= len(view) - start:
        raise RemoteProtocolError(f"a set of {set_size} bytes in {len(view) - start}")
    end = start + set_size
    return ProduceRequest(topic, partition, view[start:end]), end


def _read_fetch(view: memoryview, position: int) -> tuple[tuple[str, int, int, int], int]:
    topic, position = _read_topic(view, position)
    partition, offset, limit = _FETCH_TAIL.unpack_from(view, position)
    return (topic, partition, offset, limit), position + _FETCH_TAIL.size


def _read_count(view: memoryview, position: int) -> tuple[int, int]:
    (count,) = _COUNT.unpack_from(view, position)
    if count < 0:
        raise RemoteProtocolError(f"a count of {count} parts")
    return count, position + _COUNT.size


def _read_multi_produce(view: memoryview, position: int) -> MultiProduceRequest:
    count, position = _read_count(view, position)
    parts: list[ProduceRequest] = []
    for _ in range(count):
        part, position = _read_produce(view, position)
        parts.append(part)
    return MultiProduceRequest(parts)


def _read_multi_fetch(view: memoryview, position: int) -> MultiFetchRequest:
    count, position = _read_count(view, position)
    parts: list[FetchRequest] = []
    for _ in range(count):
        fields, position = _read_fetch(view, position)
        parts.append(FetchRequest(*fields))
    return MultiFetchRequest(parts)
