"""The wire format of the frames between replicas, on the replica port (docs/replication.md).

    frame  = size i32 | kind i16 | epoch i32 | body         size counts what follows it
    str    = length i16, UTF-8
    counts are i32; everything is signed and big-endian

The frames are those of `replication.frames`, with four exceptions: a link begins with a `Greeting`;
a candidate's question is answered by a `Canvassing`, an operator's by `Sums`; and a Data is sent as
`Chunk`s, each with its bytes and the segment that they belong to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final, TypeVar

from kafka2011.broker.log.segment_sums import SegmentSums
from kafka2011.broker.replication.copies import Row
from kafka2011.broker.replication.frames import (
    Ack,
    Mark,
    Plan,
    Ready,
    Start,
    Table,
    Verdict,
    Welcome,
)
from kafka2011.broker.replication.machine import Canvassing
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError
from kafka2011.protocol.framing import FRAME_SIZE_BYTES, check_frame_size
from kafka2011.protocol.lineage import Lineage

Choice = TypeVar("Choice")

MAGIC: Final = 0x4B523131
FORMAT: Final = 2

CHUNK_BYTES_MAX: Final = 1024 * 1024  # of a log's bytes in one frame
TABLE_BYTES_MAX: Final = 64 * 1024 * 1024
SMALL_BYTES_MAX: Final = 4096


class Purpose(IntEnum):
    FOLLOW = 0
    CANVASS = 1  # answered by Canvassing, or by the end of the link when the copy must not count
    TELL = 2  # look at the state; not answered
    VERIFY = 3  # answered by Sums, or by the end of the link when there can be none
    BEGIN_ANEW = 4  # the named directory is damaged; not answered


@dataclass(frozen=True, slots=True)
class Greeting:
    """The calling side's first frame; the frame's epoch is the highest that it has accepted."""

    purpose: Purpose
    cluster_id: str
    broker_id: int
    name: str
    directory: str
    accepted: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a log from `offset` on, all of one segment, at most CHUNK_BYTES_MAX."""

    partition: str
    offset: int
    segment_start: int
    segment_time_ms: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Sums:
    """The checksums of what a replica has on its disk, by partition."""

    partitions: Mapping[str, tuple[SegmentSums, ...]]


Wire = Greeting | Welcome | Table | Plan | Ready | Chunk | Mark | Ack | Canvassing | Start | Sums


class Kind(IntEnum):
    GREETING = 0x5201
    WELCOME = 0x5202
    TABLE = 0x5203
    PLAN = 0x5204
    READY = 0x5205
    CHUNK = 0x5206
    MARK = 0x5207
    ACK = 0x5208
    CANVASSING = 0x5209
    START = 0x520A
    SUMS = 0x520B


_LIMITS: Final = {
    Kind.GREETING: SMALL_BYTES_MAX,
    Kind.WELCOME: SMALL_BYTES_MAX,
    Kind.READY: SMALL_BYTES_MAX,
    Kind.CHUNK: CHUNK_BYTES_MAX + SMALL_BYTES_MAX,
    Kind.TABLE: TABLE_BYTES_MAX,
    Kind.PLAN: TABLE_BYTES_MAX,
    Kind.MARK: TABLE_BYTES_MAX,
    Kind.ACK: TABLE_BYTES_MAX,
    Kind.CANVASSING: TABLE_BYTES_MAX,
    Kind.START: TABLE_BYTES_MAX,
    Kind.SUMS: TABLE_BYTES_MAX,
}

_HEADER: Final = Struct(">ihi")
_KIND_AND_EPOCH: Final = Struct(">hi")
_U32: Final = Struct(">I")
_I8: Final = Struct(">b")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_LINEAGE_ENTRY: Final = Struct(">iq")
_CHUNK: Final = Struct(">qqqi")
_SUMS: Final = Struct(">qqqi")

_VERDICTS: Final = (
    Verdict.OK,
    Verdict.NOT_LEADER,
    Verdict.NO_MEMBER,
    Verdict.OLD_EPOCH,
    Verdict.NOT_READY,
)
_ACTIONS: Final = (Action.KEEP, Action.CUT, Action.ANEW, Action.ASIDE)


# --- to bytes -------------------------------------------------------------------------------------


def encode(frame: Wire, epoch: int) -> bytes:
    """The whole frame. Raises LocalProtocolError when it does not fit its limit."""
    out = bytearray(_HEADER.size)
    try:
        kind = _put(out, frame)
        size = len(out) - FRAME_SIZE_BYTES
        if size > _LIMITS[kind]:
            raise LocalProtocolError(f"{kind.name} of {size} bytes is above {_LIMITS[kind]}")
        _HEADER.pack_into(out, 0, size, kind, epoch)
    except StructError as error:
        raise LocalProtocolError(f"{type(frame).__name__} does not fit a frame: {error}") from None
    return bytes(out)


def encode_chunk_header(chunk: Chunk, size_bytes: int, epoch: int) -> bytes:
    """The bytes before those of a chunk, which are sent from a file: `chunk.data` is empty."""
    out = bytearray(_HEADER.size)
    _put_text(out, chunk.partition)
    out += _CHUNK.pack(chunk.offset, chunk.segment_start, chunk.segment_time_ms, size_bytes)
    size = len(out) - FRAME_SIZE_BYTES + size_bytes
    _HEADER.pack_into(out, 0, size, Kind.CHUNK, epoch)
    return bytes(out)


def _put(out: bytearray, frame: Wire) -> Kind:
    match frame:
        case Chunk(partition, offset, segment_start, segment_time_ms, data):
            _put_text(out, partition)
            out += _CHUNK.pack(offset, segment_start, segment_time_ms, len(data))
            out += data
            return Kind.CHUNK
        case Mark(number, watermarks, flush_age_ms):
            out += _I64.pack(number)
            out += _I32.pack(min(flush_age_ms, 2**31 - 1))
            _put_offsets(out, watermarks)
            return Kind.MARK
        case Ack(mark, flushed):
            out += _I64.pack(mark)
            _put_offsets(out, flushed)
            return Kind.ACK
        case Greeting():
            out += _U32.pack(MAGIC) + _I16.pack(FORMAT) + _I8.pack(frame.purpose)
            _put_text(out, frame.cluster_id)
            out += _I32.pack(frame.broker_id)
            _put_text(out, frame.name)
            _put_text(out, frame.directory)
            out += _I32.pack(frame.accepted)
            return Kind.GREETING
        case Welcome(verdict, epoch):
            out += _I8.pack(_VERDICTS.index(verdict)) + _I32.pack(epoch)
            return Kind.WELCOME
        case Table(rows):
            out += _I32.pack(len(rows))
            for name, row in rows.items():
                _put_text(out, name)
                out += _I64.pack(row.start) + _I64.pack(row.end)
                _put_lineage(out, row.lineage)
            return Kind.TABLE
        case Plan(steps):
            out += _I32.pack(len(steps))
            for name, step in steps.items():
                _put_text(out, name)
                out += _I8.pack(_ACTIONS.index(step.action)) + _I64.pack(step.offset)
                _put_lineage(out, step.lineage)
            return Kind.PLAN
        case Canvassing(accepted, ends, watermarks):
            out += _I32.pack(accepted)
            _put_offsets(out, ends)
            _put_offsets(out, watermarks)
            return Kind.CANVASSING
        case Start(starts):
            _put_offsets(out, starts)
            return Kind.START
        case Sums(partitions):
            out += _I32.pack(len(partitions))
            for name, segments in partitions.items():
                _put_text(out, name)
                out += _I32.pack(len(segments))
                for one in segments:
                    out += _SUMS.pack(one.start, one.size_bytes, one.damaged_at, len(one.blocks))
                    out += b"".join(map(_U32.pack, one.blocks))
            return Kind.SUMS
        case Ready():
            return Kind.READY


def _put_text(out: bytearray, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    out += _I16.pack(len(data))
    out += data


def _put_offsets(out: bytearray, offsets: Mapping[str, int]) -> None:
    out += _I32.pack(len(offsets))
    for name, offset in offsets.items():
        _put_text(out, name)
        out += _I64.pack(offset)


def _put_lineage(out: bytearray, lineage: Lineage) -> None:
    out += _I32.pack(len(lineage))
    for entry in lineage:
        out += _LINEAGE_ENTRY.pack(*entry)


# --- from bytes -----------------------------------------------------------------------------------


class FrameReader:
    """Makes whole frames of the bytes of a link, as they arrive.

    It keeps no more than one frame, within the limit of its kind. While `epoch` is None any is
    accepted; then frames of other epochs are refused: a link belongs to one leadership.
    """

    def __init__(self, first: frozenset[Kind], frame_bytes_max: int = TABLE_BYTES_MAX) -> None:
        """`first` are the kinds that the link may begin with."""
        self.epoch: int | None = None
        self._expected: frozenset[Kind] | None = first
        self._bytes_max = frame_bytes_max
        self._data = bytearray()
        self._start = 0

    def feed(self, data: bytes | memoryview) -> None:
        if self._start:
            del self._data[: self._start]
            self._start = 0
        self._data += data

    def next(self) -> Wire | None:
        """The next frame; None when it is not whole yet.

        Raises RemoteProtocolError, FrameTooLarge: the link is out of step, close it.
        """
        have = len(self._data) - self._start
        if have < _HEADER.size:
            return None
        size, number, epoch = _HEADER.unpack_from(self._data, self._start)
        kind = self._kind(number)
        check_frame_size(size, min(_LIMITS[kind], self._bytes_max))
        if size < _KIND_AND_EPOCH.size:
            raise RemoteProtocolError(f"a frame of {size} bytes has no kind")
        if self.epoch is not None and epoch != self.epoch:
            raise RemoteProtocolError(f"{kind.name} of epoch {epoch} on a link of {self.epoch}")
        if have < FRAME_SIZE_BYTES + size:
            return None
        end = self._start + FRAME_SIZE_BYTES + size
        with memoryview(self._data)[self._start + _HEADER.size : end] as body:
            frame = _read(kind, body)
        self._start = end
        self._expected = None
        return frame

    def _kind(self, number: int) -> Kind:
        try:
            kind = Kind(number)
        except ValueError:
            raise RemoteProtocolError(f"unknown kind {number:#x} of a replica's frame") from None
        if self._expected is not None and kind not in self._expected:
            raise RemoteProtocolError(f"a link does not begin with {kind.name}")
        return kind


class _Body:
    """A cursor over a frame's body; every read is checked against the end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def number(self, form: Struct) -> int:
        return int(self.numbers(form)[0])

    def numbers(self, form: Struct) -> tuple[int, ...]:
        try:
            found = form.unpack_from(self._data, self._at)
        except StructError:
            raise RemoteProtocolError("a replica's frame ends inside a field") from None
        self._at += form.size
        return found

    def data(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise RemoteProtocolError(f"a field of {count} bytes in a replica's frame")
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    def text(self) -> str:
        try:
            return self.data(self.number(_I16)).decode("utf-8", "surrogateescape")
        except UnicodeDecodeError:
            raise RemoteProtocolError("a replica's frame has text that is not UTF-8") from None

    def count(self, bytes_each: int) -> int:
        """Read how many entries follow, each of at least `bytes_each` bytes."""
        return self.checked(self.number(_I32), bytes_each)

    def checked(self, count: int, bytes_each: int) -> int:
        """Return `count` if so many entries can follow."""
        if not 0 <= count <= (len(self._data) - self._at) // bytes_each:
            raise RemoteProtocolError(f"a replica's frame announces {count} entries")
        return count

    def offsets(self) -> dict[str, int]:
        count = self.count(_I16.size + _I64.size)
        return {self.text(): self.number(_I64) for _ in range(count)}

    def lineage(self) -> Lineage:
        found = []
        for _ in range(self.count(_LINEAGE_ENTRY.size)):
            epoch, start = self.numbers(_LINEAGE_ENTRY)
            found.append((epoch, start))
        return tuple(found)

    def end(self) -> None:
        if self._at != len(self._data):
            raise RemoteProtocolError(f"{len(self._data) - self._at} bytes after a frame's end")


def _read(kind: Kind, data: memoryview) -> Wire:
    body = _Body(data)
    frame = _READERS[kind](body)
    body.end()
    return frame


def _greeting(body: _Body) -> Greeting:
    magic, form = body.number(_U32), body.number(_I16)
    if magic != MAGIC:
        raise RemoteProtocolError(f"not a replica: the magic is {magic:#x}")
    if form != FORMAT:
        raise RemoteProtocolError(f"a replica of format {form}, this one has {FORMAT}")
    purpose = _one_of(tuple(Purpose), body.number(_I8))
    return Greeting(
        purpose, body.text(), body.number(_I32), body.text(), body.text(), body.number(_I32)
    )


def _chunk(body: _Body) -> Chunk:
    partition = body.text()
    offset, segment_start, time_ms, size = body.numbers(_CHUNK)
    return Chunk(partition, offset, segment_start, time_ms, body.data(size))


def _table(body: _Body) -> Table:
    rows = {}
    for _ in range(body.count(_I16.size + 2 * _I64.size + _I32.size)):
        name = body.text()
        rows[name] = Row(body.number(_I64), body.number(_I64), body.lineage())
    return Table(rows)


def _plan(body: _Body) -> Plan:
    steps = {}
    for _ in range(body.count(_I16.size + _I8.size + _I64.size + _I32.size)):
        name = body.text()
        action = _one_of(_ACTIONS, body.number(_I8))
        steps[name] = Step(action, body.number(_I64), body.lineage())
    return Plan(steps)


def _mark(body: _Body) -> Mark:
    number, flush_age_ms = body.number(_I64), body.number(_I32)
    return Mark(number, body.offsets(), flush_age_ms)


def _sums(body: _Body) -> Sums:
    partitions = {}
    for _ in range(body.count(_I16.size + _I32.size)):
        name = body.text()
        segments = []
        for _ in range(body.count(_SUMS.size)):
            start, size, damaged_at, count = body.numbers(_SUMS)
            blocks = tuple(body.number(_U32) for _ in range(body.checked(count, _U32.size)))
            segments.append(SegmentSums(start, size, damaged_at, blocks))
        partitions[name] = tuple(segments)
    return Sums(partitions)


def _one_of(choices: tuple[Choice, ...], number: int) -> Choice:
    if not 0 <= number < len(choices):
        raise RemoteProtocolError(f"unknown code {number} in a replica's frame")
    return choices[number]


_READERS: Final[dict[Kind, Callable[[_Body], Wire]]] = {
    Kind.GREETING: _greeting,
    Kind.WELCOME: lambda body: Welcome(_one_of(_VERDICTS, body.number(_I8)), body.number(_I32)),
    Kind.TABLE: _table,
    Kind.PLAN: _plan,
    Kind.READY: lambda _body: Ready(),
    Kind.CHUNK: _chunk,
    Kind.MARK: _mark,
    Kind.ACK: lambda body: Ack(body.number(_I64), body.offsets()),
    Kind.CANVASSING: lambda body: Canvassing(body.number(_I32), body.offsets(), body.offsets()),
    Kind.START: lambda body: Start(body.offsets()),
    Kind.SUMS: _sums,
}
