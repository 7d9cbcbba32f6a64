"""Payloads to message sets, and message sets to requests within the limits. Pure.

A broker closes the connection on a request above its limits, and the whole request is lost. So
payloads above the limits are cut into several sets (`encode_sets`) and requests (`pack_requests`),
in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import LocalProtocolError, MessageSizeTooLarge
from kafka2011.protocol.message import LENGTH_BYTES, MAGIC1_OVERHEAD_BYTES
from kafka2011.protocol.names import check_topic
from kafka2011.protocol.requests import (
    PRODUCE_OVERHEAD_BYTES,
    Buffer,
    MultiProduceRequest,
    ProduceRequest,
    request_pieces,
)

ENTRY_OVERHEAD_BYTES: Final = LENGTH_BYTES + MAGIC1_OVERHEAD_BYTES
PARTS_MAX: Final = 32767  # the count of a MultiProduce is an i16
# A request with one set, without the set: ids, counts, and 0.7's longest topic in UTF-8.
REQUEST_HEAD_BYTES_MAX: Final = 1024


class SetPart(NamedTuple):
    """A message set and where it goes."""

    topic: str
    partition: int
    message_set: bytes


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a broker accepts in one request."""

    message_bytes_max: int  # of a payload, and of a compressed set
    request_bytes_max: int  # without the four bytes that say the size
    unpacked_bytes_max: int  # of all its compressed sets together
    parts_max: int
    set_bytes_max: int = field(init=False)  # of a set alone in its request

    def __post_init__(self) -> None:
        object.__setattr__(self, "set_bytes_max", self.request_bytes_max - REQUEST_HEAD_BYTES_MAX)


EncodedSet = tuple[bytes, int]  # a message set, and what it unpacks to: 0 for plain messages


class TopicNames(dict[str, bytes]):
    """Topics in UTF-8; the first look-up of a topic raises IllegalTopicName if it is not legal."""

    def __missing__(self, topic: str) -> bytes:
        name = self[topic] = check_topic(topic, "0.7").encode()
        return name


def encode_set(payloads: Sequence[bytes], codec: Codec, message_bytes_max: int) -> bytes:
    """The message set of some payloads.

    Raises MessageSizeTooLarge when the broker would silently drop it: a plain payload, or the
    compressed set as one message, above `message_bytes_max` (equal is allowed).
    """
    if codec:
        encoded = message_set.encode_compressed(payloads, codec)
        if len(encoded) - ENTRY_OVERHEAD_BYTES > message_bytes_max:
            raise MessageSizeTooLarge(
                f"{len(payloads)} messages compress to {len(encoded) - ENTRY_OVERHEAD_BYTES} "
                f"bytes, above the largest message, {message_bytes_max} "
                "(max.message.size, request.bytes.max)"
            )
        return encoded
    encoded = message_set.encode(payloads)
    # Only a set that is larger as a whole can have a payload that is too large.
    if len(encoded) > message_bytes_max:
        largest = max(map(len, payloads))
        if largest > message_bytes_max:
            raise MessageSizeTooLarge(
                f"a payload of {largest} bytes is above the largest, {message_bytes_max} "
                "(max.message.size, request.bytes.max)"
            )
    return encoded


def encode_sets(payloads: Sequence[bytes], codec: Codec, limits: RequestLimits) -> list[EncodedSet]:
    """The payloads in order, in as many sets as needed for each to fit a request.

    Unlike 0.7: a set that compresses to more than a message may have goes in halves, and a single
    message as it is. Raises MessageSizeTooLarge for one that is too large as it is.
    """
    if not codec:
        encoded = encode_set(payloads, codec, limits.message_bytes_max)
        if len(encoded) <= limits.set_bytes_max:
            return [(encoded, 0)]
        return [(piece, 0) for piece in cut_set(encoded, limits.set_bytes_max)]
    unpacked = sum(map(len, payloads)) + ENTRY_OVERHEAD_BYTES * len(payloads)
    if unpacked <= limits.unpacked_bytes_max or len(payloads) == 1:
        try:
            return [(encode_set(payloads, codec, limits.message_bytes_max), unpacked)]
        except MessageSizeTooLarge:
            if len(payloads) == 1:
                return encode_sets(payloads, Codec.NONE, limits)
    middle = len(payloads) // 2
    return [
        *encode_sets(payloads[:middle], codec, limits),
        *encode_sets(payloads[middle:], codec, limits),
    ]


def cut_set(encoded: bytes, bytes_max: int) -> list[bytes]:
    """The set itself, or its entries in several sets. No entry may be above `bytes_max` alone."""
    if len(encoded) <= bytes_max:
        return [encoded]
    pieces = []
    rest = memoryview(encoded)
    while rest:
        end = message_set.split(rest[:bytes_max])
        pieces.append(bytes(rest[:end]))
        rest = rest[end:]
    return pieces


def pack_requests(
    parts: Sequence[SetPart], unpacked_bytes: Sequence[int], limits: RequestLimits
) -> list[Sequence[SetPart]]:
    """The parts in order, packed into requests within the limits; `unpacked_bytes` is per part.

    A part above a limit by itself is a request of its own; the caller is responsible for it.
    """
    if len(parts) <= 1:
        return [parts] if parts else []
    requests: list[Sequence[SetPart]] = []
    some: list[SetPart] = []
    size = unpacked = 0
    for part, part_unpacked in zip(parts, unpacked_bytes, strict=True):
        # A character of a topic is at most four bytes.
        part_size = PRODUCE_OVERHEAD_BYTES + 4 * len(part.topic) + len(part.message_set)
        size += part_size
        unpacked += part_unpacked
        if some and (
            size > limits.request_bytes_max
            or unpacked > limits.unpacked_bytes_max
            or len(some) >= limits.parts_max
        ):
            requests.append(some)
            some, size, unpacked = [], part_size, part_unpacked
        some.append(part)
    requests.append(some)
    return requests


def request_frame(parts: Sequence[SetPart], *, always_multi: bool = False) -> bytes:
    """The frame: a Produce of one part, a MultiProduce of several (async: always, as in 0.7)."""
    return b"".join(frame_pieces(parts, always_multi=always_multi))


def frame_pieces(parts: Sequence[SetPart], *, always_multi: bool = False) -> list[Buffer]:
    """The pieces of `request_frame`, not joined: the message sets are not copied."""
    requests = [ProduceRequest(*part) for part in parts]
    if len(requests) == 1 and not always_multi:
        return request_pieces(requests[0])
    if len(requests) > PARTS_MAX:
        raise LocalProtocolError(f"{len(requests)} parts do not fit one request")
    return request_pieces(MultiProduceRequest(requests))
