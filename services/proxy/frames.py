"""Follows the 0.7 frames that a client sends, and removes messages from produce requests.

`FrameFilter` takes the bytes from one client and returns those to forward. While no messages are to
be dropped it only tracks where frames begin, so that dropping can start with the next frame of an
open connection. While dropping, whole frames are collected; each message of
the topic is taken out of its set (out of its compressed wrapper, which is packed again) until
exactly `count` are removed over all connections of the route. Sizes are corrected; a request with
nothing left is not forwarded, since produce requests have no response.

No sockets, no clock.
"""

from kafka2011.protocol.checksum import crc32
from kafka2011.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES
from kafka2011.protocol.message import MAGIC1_HEADER, MAGIC1_OVERHEAD_BYTES, Entry
from kafka2011.protocol.message_set import entries
from kafka2011.protocol.requests import (
    MultiProduceRequest,
    ProduceRequest,
    decode_request,
    encode_request,
)

# 0.7's `max.socket.request.bytes`: a broker closes on more, so what is larger is not a frame.
FRAME_BYTES_MAX = 104_857_600
DEPTH_MAX = 4  # nested wrappers, as the broker allows


class DropPlan:
    """How many messages of which topic are still to be removed; shared by a route's connections."""

    def __init__(self) -> None:
        self.topic = ""
        self.remaining_count = 0
        self.dropped: dict[str, int] = {}  # topic -> messages removed since the start

    def start(self, topic: str, count: int) -> None:
        """Remove `count` messages of `topic`, in place of any earlier plan."""
        self.topic = topic
        self.remaining_count = count

    @property
    def is_active(self) -> bool:
        return self.remaining_count > 0

    def rewrite(self, frame: bytes) -> bytes:
        """The frame (size included) without the messages to be dropped; b"" when nothing is left.

        A frame that is no produce request of the topic, or that cannot be read, comes back as it
        is: the broker judges it.
        """
        try:
            request = decode_request(memoryview(frame)[FRAME_SIZE_BYTES:])
            if isinstance(request, ProduceRequest):
                part = self._part(request)
                if part is request:
                    return frame
                return encode_request(part) if part is not None else b""
            if isinstance(request, MultiProduceRequest):
                parts = [self._part(part) for part in request.parts]
                if all(new is old for new, old in zip(parts, request.parts, strict=True)):
                    return frame
                left = [part for part in parts if part is not None]
                return encode_request(MultiProduceRequest(left)) if left else b""
        except KafkaError:
            return frame
        return frame

    def _part(self, part: ProduceRequest) -> ProduceRequest | None:
        """The part itself when nothing is removed from it; None when nothing is left of it."""
        if part.topic != self.topic or not self.is_active:
            return part
        try:
            shorter, removed = without_messages(part.message_set, self.remaining_count)
        except KafkaError:
            return part
        if removed == 0:
            return part
        self.remaining_count -= removed
        self.dropped[self.topic] = self.dropped.get(self.topic, 0) + removed
        return ProduceRequest(part.topic, part.partition, shorter) if shorter else None


def without_messages(
    message_set: bytes | bytearray | memoryview, count: int, depth: int = 0
) -> tuple[bytes, int]:
    """The set without its first `count` messages (inner ones counted), and how many that were.

    Entries that stay keep their bytes; a wrapper that loses some is packed again with its codec.
    Raises KafkaError when a wrapper cannot be opened.
    """
    view = memoryview(message_set)
    kept: list[bytes | memoryview] = []
    removed = 0
    end = 0
    for entry in entries(view):
        end = entry.next_offset
        if removed == count:
            kept.append(view[entry.offset :])
            return b"".join(kept), removed
        if entry.codec == Codec.NONE or depth == DEPTH_MAX:
            removed += 1
            continue
        inner = decompress(entry.codec, entry.payload, DECOMPRESSED_BYTES_MAX)
        shorter, inner_removed = without_messages(inner, count - removed, depth + 1)
        removed += inner_removed
        if inner_removed == 0:
            kept.append(view[entry.offset : entry.next_offset])
        elif shorter:
            kept.append(_wrapper(entry, shorter))
    kept.append(view[end:])
    return b"".join(kept), removed


def _wrapper(entry: Entry, inner: bytes) -> bytes:
    packed = compress(entry.codec, inner)
    length = len(packed) + MAGIC1_OVERHEAD_BYTES
    return MAGIC1_HEADER.pack(length, entry.magic, entry.attributes, crc32(packed)) + packed


class FrameFilter:
    """One connection's view of its frames, from client to target."""

    def __init__(self, plan: DropPlan, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._plan = plan
        self._frame_bytes_max = frame_bytes_max
        self._passing = 0  # bytes left of a frame whose beginning was passed on
        self._header = b""  # 1 to 3 bytes of a frame's size that were passed on
        self._held = bytearray()  # the beginning of a frame that is being collected
        self._is_lost = False  # not frames: everything is forwarded

    def feed(self, data: bytes) -> bytes:
        """The bytes to forward after `data` arrived; may be empty."""
        if self._is_lost:
            return data
        if not self._held and self._plan.remaining_count == 0:
            self._follow(data)
            return data
        return self._filter(data)

    def finish(self) -> bytes:
        """The held bytes of a cut frame, when the client sends no more."""
        held = bytes(self._held)
        self._held.clear()
        return held

    def _follow(self, data: bytes) -> None:
        """Move over `data`, all of it passed on. `_held` is empty."""
        size = len(data)
        if self._passing >= size and not self._header:
            self._passing -= size
            return
        if self._header:
            data = self._header + data
            self._header = b""
            size = len(data)
            position = 0
        else:
            position = self._passing
        self._passing = 0
        while size - position >= 4:
            frame_size = FRAME_SIZE.unpack_from(data, position)[0]
            if not 0 < frame_size <= self._frame_bytes_max:
                self._is_lost = True
                return
            position += 4 + frame_size
        if position > size:
            self._passing = position - size
        else:
            self._header = data[position:]

    def _filter(self, data: bytes) -> bytes:
        passed: list[bytes] = []
        position = 0
        while position < len(data):
            if not self._plan.is_active or self._is_lost:
                # Dropping has ended, perhaps while a frame was being collected.
                rest = self.finish() + data[position:]
                if not self._is_lost:
                    self._follow(rest)
                passed.append(rest)
                break
            if self._passing or self._header:
                taken = self._passing or 4 - len(self._header)
                piece = data[position : position + taken]
                self._follow(piece)
                passed.append(piece)
            else:
                piece = data[position : position + self._wanted()]
                self._held += piece
                if self._is_lost or self._wanted() == 0:
                    passed.append(self._plan.rewrite(self.finish()))
            position += len(piece)
        return b"".join(passed)

    def _wanted(self) -> int:
        """How many more bytes the held frame needs: for its size first, then for all of it."""
        held = len(self._held)
        if held < FRAME_SIZE_BYTES:
            return FRAME_SIZE_BYTES - held
        frame_size = FRAME_SIZE.unpack_from(self._held)[0]
        if not 0 < frame_size <= self._frame_bytes_max:
            self._is_lost = True
            return 0
        return FRAME_SIZE_BYTES + int(frame_size) - held
