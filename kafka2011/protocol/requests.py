"""The requests: from objects to whole frames, and from frame bodies to objects.

    body          = request id i16, rest
    Produce       = route, set size i32, set
    MultiProduce  = count i16, count times (route, set size i32, set)
    Fetch         = route, offset i64, max size i32
    MultiFetch    = count i16, count times (route, offset i64, max size i32)
    Offsets       = route, time i64, max count i32
    WaitingFetch  = longest wait i32 (ms), a MultiFetch's count and parts
    Copies        = count i16
    Lineage       = route
    route         = topic length i16, that many bytes of UTF-8, partition i32

Unlike 0.7: it has the first five only, and hangs up on the ids of WaitingFetch, Copies and Lineage.

Parts carry no request id of their own. Bytes after what a request needs are ignored, as in the
original. Whether a topic, a partition or a fetch size is legal is the broker's question, not the
codec's: a produce closes the connection where a fetch answers one part with an error.

A broker uses a route as it stands in the frame, as the key of a table: `produce_parts` and
`fetch_parts` leave it undecoded. `decode_request` makes objects of the same parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import error as StructError
from typing import Final, TypeAlias

from kafka2011.protocol import hot
from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError
from kafka2011.protocol.layout import (
    COUNT,
    FRAME_HEADER,
    LIMITS,
    MULTI_FRAME_HEADER,
    PARTITION,
    PRODUCE_FRAME_HEADER,
    PRODUCE_TAIL,
    REQUEST_ID,
    SET_SIZE,
    TOPIC_LENGTH,
    WAIT,
)

PRODUCE: Final = 0
FETCH: Final = 1
MULTI_FETCH: Final = 2
MULTI_PRODUCE: Final = 3
OFFSETS: Final = 4
WAITING_FETCH: Final = 1000  # of our own: no Kafka has a request of that number
COPIES: Final = 1001  # of our own, too
LINEAGE: Final = 1002  # of our own, too

WAIT_MS_MAX: Final = 30_000  # a broker waits no longer for one fetch

LATEST: Final = -1
EARLIEST: Final = -2

ANY_PARTITION: Final = -1  # produce only: the broker picks one at random

# A Produce request's body without topic and set; a MultiProduce's part has no more.
PRODUCE_OVERHEAD_BYTES: Final = REQUEST_ID.size + TOPIC_LENGTH.size + PARTITION.size + SET_SIZE.size

_ROUTE_OVERHEAD_BYTES: Final = TOPIC_LENGTH.size + PARTITION.size
_TOPIC_BYTES_MAX: Final = 32767

Buffer: TypeAlias = bytes | bytearray | memoryview
FetchPart: TypeAlias = tuple[bytes, int, int]  # route, offset, most bytes
# Route, start and end of the sets in the buffer, number of messages, number of frames.
ProduceRun: TypeAlias = tuple[bytes, int, int, int, int]


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
class WaitingFetchRequest:
    """A MultiFetch whose answer waits while no part has anything to say: until one has bytes,
    `wait_ms` (at most WAIT_MS_MAX) have passed, or the client sends something else."""

    parts: Sequence[FetchRequest]
    wait_ms: int


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """At most `count_max` segment offsets before `time`: ms since the epoch, LATEST or EARLIEST."""

    topic: str
    partition: int
    time: int
    count_max: int


@dataclass(frozen=True, slots=True)
class CopiesRequest:
    """Asks to be answered once `count` replicas have flushed all that was sent earlier on the
    connection: by an Offsets response without offsets, with error -1 if there are fewer."""

    count: int


@dataclass(frozen=True, slots=True)
class LineageRequest:
    """Which epochs of a replica set wrote which bytes of a partition's log."""

    topic: str
    partition: int


Request: TypeAlias = (
    ProduceRequest
    | MultiProduceRequest
    | FetchRequest
    | MultiFetchRequest
    | WaitingFetchRequest
    | OffsetsRequest
    | CopiesRequest
    | LineageRequest
)


def encode_request(request: Request) -> bytes:
    """The whole frame of a request, size included.

    Raises:
      LocalProtocolError: a number or a name does not fit its field.
    """
    return b"".join(request_pieces(request))


def request_pieces(request: Request) -> list[Buffer]:
    """The frame's pieces, message sets uncopied, for joining several. Raises as above."""
    try:
        match request:
            case ProduceRequest():
                pieces = _produce_part(request)
                header = FRAME_HEADER.pack(REQUEST_ID.size + _length(pieces), PRODUCE)
            case MultiProduceRequest(parts):
                pieces = [piece for part in parts for piece in _produce_part(part)]
                header = _multi_header(MULTI_PRODUCE, len(parts), pieces)
            case FetchRequest(topic, partition, offset, size_max):
                pieces = _fetch_part(topic, partition, offset, size_max)
                header = FRAME_HEADER.pack(REQUEST_ID.size + _length(pieces), FETCH)
            case MultiFetchRequest(parts):
                pieces = _fetch_pieces(parts)
                header = _multi_header(MULTI_FETCH, len(parts), pieces)
            case WaitingFetchRequest(parts, wait_ms):
                pieces = [WAIT.pack(wait_ms), COUNT.pack(len(parts)), *_fetch_pieces(parts)]
                header = FRAME_HEADER.pack(REQUEST_ID.size + _length(pieces), WAITING_FETCH)
            case OffsetsRequest(topic, partition, time, count_max):
                pieces = _fetch_part(topic, partition, time, count_max)
                header = FRAME_HEADER.pack(REQUEST_ID.size + _length(pieces), OFFSETS)
            case CopiesRequest(count):
                pieces = [COUNT.pack(count)]
                header = FRAME_HEADER.pack(REQUEST_ID.size + _length(pieces), COPIES)
            case LineageRequest(topic, partition):
                pieces = [encode_route(topic, partition)]
                header = FRAME_HEADER.pack(REQUEST_ID.size + _length(pieces), LINEAGE)
    except StructError as error:
        raise LocalProtocolError(f"a field of the request does not fit: {error}") from error
    return [header, *pieces]


def produce_head(topic: bytes, partition: int, set_size: int) -> bytes:
    """A Produce request's frame up to its set of `set_size` bytes: a sync producer's hot path.

    Followed by the set it equals `encode_request`, without the set's copy.
    """
    size = PRODUCE_OVERHEAD_BYTES + len(topic) + set_size
    return b"".join(
        (
            PRODUCE_FRAME_HEADER.pack(size, 0, len(topic)),
            topic,
            PRODUCE_TAIL.pack(partition, set_size),
        )
    )


def produce_runs(
    buffer: bytearray | memoryview,
    start: int,
    end: int,
    frame_bytes_max: int,
    message_bytes_max: int,
) -> tuple[int, list[ProduceRun]]:
    """Take and validate the plain Produce frames that stand at `start`: the broker's fast path.

    Takes frames for as long as they are complete before `end`, are Produce requests, and hold only
    good, whole, uncompressed entries with payloads of at most `message_bytes_max`. Consecutive
    frames to one partition become one run: their sets are moved together inside `buffer` (which
    must be writable), so that a run is one append whatever the number of requests.

    Returns where it stopped, and the runs as (route, set start, set end, message count, frame
    count), positions in `buffer`. The route is topic and partition as they stand in the frame: a
    key for a table of logs, and `decode_route` reads it. The bytes from `start` to where it stopped
    are the runs' and garbage; what follows is untouched.

    Whatever stands where it stopped (another request, a compressed or damaged set, an impossible
    size, an incomplete frame) is for `produce_parts`, `fetch_parts` and the like and for
    `message_set.scan`, one frame at a time; then this may be called again. Nothing is raised for
    what a peer sent.
    """
    return hot.produce_runs(buffer, start, end, frame_bytes_max, message_bytes_max)


def encode_route(topic: str, partition: int) -> bytes:
    """The bytes that name topic and partition in a frame: the key of `produce_runs`' runs."""
    name = _encoded(topic)
    return TOPIC_LENGTH.pack(len(name)) + name + PARTITION.pack(partition)


def decode_route(route: bytes) -> tuple[str, int]:
    """Topic and partition of a whole route, not judged."""
    # As in the JVM, what is not UTF-8 becomes U+FFFD, which no topic may hold: whether that closes
    # the connection or is one part's error is the broker's answer to an illegal name.
    topic = str(route[TOPIC_LENGTH.size : -PARTITION.size], "utf-8", "replace")
    (partition,) = PARTITION.unpack_from(route, len(route) - PARTITION.size)
    return topic, partition


def _length(pieces: list[Buffer]) -> int:
    return sum(map(len, pieces))


def _multi_header(request_id: int, count: int, pieces: list[Buffer]) -> bytes:
    size = REQUEST_ID.size + COUNT.size + _length(pieces)
    return MULTI_FRAME_HEADER.pack(size, request_id, count)


def _encoded(topic: str) -> bytes:
    try:
        name = topic.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"topic {topic!a} cannot be encoded in UTF-8") from error
    if len(name) > _TOPIC_BYTES_MAX:
        raise LocalProtocolError(f"a topic of {len(name)} bytes does not fit a request")
    return name


def _produce_part(part: ProduceRequest) -> list[Buffer]:
    route = encode_route(part.topic, part.partition)
    return [route, SET_SIZE.pack(len(part.message_set)), part.message_set]


def _fetch_pieces(parts: Sequence[FetchRequest]) -> list[Buffer]:
    return [
        piece
        for part in parts
        for piece in _fetch_part(part.topic, part.partition, part.offset, part.size_max)
    ]


def _fetch_part(topic: str, partition: int, offset: int, limit: int) -> list[Buffer]:
    return [encode_route(topic, partition), LIMITS.pack(offset, limit)]


def request_id_of(body: Buffer) -> int:
    """The request id of a frame's body, which has at least two bytes."""
    return body[0] << 8 | body[1]


def decode_request(body: Buffer) -> Request:
    """Read a frame's body (without the size). Message sets are views of `body`, not copies.

    Raises:
      RemoteProtocolError: unknown id, a field that is missing, a negative count of parts or set
        size, or a null topic. Close the connection.
    """
    if len(body) < REQUEST_ID.size:
        raise _cut(body)
    view = memoryview(body)
    request_id = request_id_of(view)
    if request_id in (PRODUCE, MULTI_PRODUCE):
        sets = [
            ProduceRequest(*decode_route(route), message_set)
            for route, message_set in produce_parts(view, request_id)
        ]
        return sets[0] if request_id == PRODUCE else MultiProduceRequest(sets)
    if request_id in (FETCH, MULTI_FETCH):
        fetches = [
            FetchRequest(*decode_route(route), offset, size_max)
            for route, offset, size_max in fetch_parts(view, request_id)
        ]
        return fetches[0] if request_id == FETCH else MultiFetchRequest(fetches)
    if request_id == WAITING_FETCH:
        wait_ms, parts = waiting_fetch_parts(view)
        waiting = [FetchRequest(*decode_route(route), *limits) for route, *limits in parts]
        return WaitingFetchRequest(waiting, wait_ms)
    if request_id == OFFSETS:
        route, time, count_max = offsets_part(view)
        return OffsetsRequest(*decode_route(route), time, count_max)
    if request_id == COPIES:
        return CopiesRequest(copies_count(view))
    if request_id == LINEAGE:
        return LineageRequest(*decode_route(lineage_route(view)))
    raise RemoteProtocolError(f"unknown request id {request_id}")


def produce_parts(view: memoryview, request_id: int) -> list[tuple[bytes, memoryview]]:
    """Route and set of each part of a Produce or MultiProduce request. Raises as above."""
    position, count = REQUEST_ID.size, 1
    try:
        if request_id == MULTI_PRODUCE:
            count, position = _read_count(view, position)
        parts = []
        for _ in range(count):
            end = _route_end(view, position)
            route = bytes(view[position:end])
            (set_size,) = SET_SIZE.unpack_from(view, end)
            start = end + SET_SIZE.size
            if not 0 <= set_size <= len(view) - start:
                raise RemoteProtocolError(f"a set of {set_size} bytes in {len(view) - start}")
            position = start + set_size
            parts.append((route, view[start:position]))
    except StructError:
        raise _cut(view) from None
    return parts


def fetch_parts(view: memoryview, request_id: int) -> list[FetchPart]:
    """Route, offset and size of each part of a Fetch or MultiFetch request. Raises as above."""
    return _fetch_parts_at(view, REQUEST_ID.size, request_id != FETCH)


def waiting_fetch_parts(view: memoryview) -> tuple[int, list[FetchPart]]:
    """The longest wait in ms and the parts of a WaitingFetch request. Raises as above."""
    try:
        wait_ms: int = WAIT.unpack_from(view, REQUEST_ID.size)[0]
    except StructError:
        raise _cut(view) from None
    if wait_ms < 0:
        raise RemoteProtocolError(f"a wait of {wait_ms} ms")
    return wait_ms, _fetch_parts_at(view, REQUEST_ID.size + WAIT.size, True)


def copies_count(view: memoryview) -> int:
    """How many replicas a Copies request asks for, 1 or more. Raises as above."""
    try:
        count: int = COUNT.unpack_from(view, REQUEST_ID.size)[0]
    except StructError:
        raise _cut(view) from None
    if count < 1:
        raise RemoteProtocolError(f"a request for {count} copies")
    return count


def lineage_route(view: memoryview) -> bytes:
    """The route of a Lineage request. Raises as above."""
    try:
        end = _route_end(view, REQUEST_ID.size)
    except StructError:
        raise _cut(view) from None
    if end > len(view):
        raise _cut(view)
    return bytes(view[REQUEST_ID.size : end])


def _fetch_parts_at(view: memoryview, position: int, has_count: bool) -> list[FetchPart]:
    count = 1
    try:
        if has_count:
            count, position = _read_count(view, position)
        parts = []
        for _ in range(count):
            end = _route_end(view, position)
            offset, size_max = LIMITS.unpack_from(view, end)
            parts.append((bytes(view[position:end]), offset, size_max))
            position = end + LIMITS.size
    except StructError:
        raise _cut(view) from None
    return parts


def offsets_part(view: memoryview) -> tuple[bytes, int, int]:
    """Route, time and count of an Offsets request, laid out as a Fetch. Raises as above."""
    return fetch_parts(view, FETCH)[0]


def _cut(body: Buffer) -> RemoteProtocolError:
    return RemoteProtocolError(f"a request of {len(body)} bytes is cut")


def _route_end(view: memoryview, position: int) -> int:
    """Where the route at `position` ends; what follows it is read next, or found to be missing."""
    length: int = TOPIC_LENGTH.unpack_from(view, position)[0]
    if length < 0:
        raise RemoteProtocolError("a null topic" if length == -1 else f"topic length {length}")
    return position + _ROUTE_OVERHEAD_BYTES + length


def _read_count(view: memoryview, position: int) -> tuple[int, int]:
    (count,) = COUNT.unpack_from(view, position)
    if count < 0:
        raise RemoteProtocolError(f"a count of {count} parts")
    return count, position + COUNT.size
