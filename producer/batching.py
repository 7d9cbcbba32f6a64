"""How message sets become requests, and when a batch is full. Pure; for both kinds of producer."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol import message_set
from protocol.compression import Codec
from protocol.errors import LocalProtocolError, MessageSizeTooLarge
from protocol.message import LENGTH_BYTES, MAGIC1_OVERHEAD_BYTES
from protocol.requests import Buffer, MultiProduceRequest, ProduceRequest, request_pieces

_FRAME_HEADER: Final = Struct(">ihh")  # size, request id 0, topic length
_TAIL: Final = Struct(">ii")  # partition, set size
_SIZE_BEYOND_TOPIC_AND_SET: Final = 2 + 2 + 4 + 4
_WRAPPER_OVERHEAD_BYTES: Final = LENGTH_BYTES + MAGIC1_OVERHEAD_BYTES
PARTS_MAX: Final = 32767  # the count of a MultiProduce is an i16


class SetPart(NamedTuple):
    """A message set and where it goes."""

    topic: str
    partition: int
    message_set: bytes


def encode_set(payloads: Sequence[bytes], codec: Codec, message_bytes_max: int) -> bytes:
    """The message set of some payloads.

    Raises MessageSizeTooLarge when the broker would drop it without a word: a plain payload, or
    the compressed set as one, above `message_bytes_max` (equal is allowed).
    """
    if codec:
        encoded = message_set.encode_compressed(payloads, codec)
        if len(encoded) - _WRAPPER_OVERHEAD_BYTES > message_bytes_max:
            raise MessageSizeTooLarge(
                f"{len(payloads)} messages compress to {len(encoded) - _WRAPPER_OVERHEAD_BYTES} "
                f"bytes, above max.message.size={message_bytes_max}"
            )
        return encoded
    encoded = message_set.encode(payloads)
    # Only a set that is larger as a whole can have a payload that is too large.
    if len(encoded) > message_bytes_max:
        largest = max(map(len, payloads))
        if largest > message_bytes_max:
            raise MessageSizeTooLarge(
                f"a payload of {largest} bytes is above max.message.size={message_bytes_max}"
            )
    return encoded


def produce_frame(topic: bytes, partition: int, encoded_set: bytes) -> bytes:
    """The frame of one produce request (id 0); the same as `encode_request`, for the hot path."""
    set_size = len(encoded_set)
    return b"".join(
        (
            _FRAME_HEADER.pack(_SIZE_BEYOND_TOPIC_AND_SET + len(topic) + set_size, 0, len(topic)),
            topic,
            _TAIL.pack(partition, set_size),
            encoded_set,
        )
    )


def request_frame(parts: Sequence[SetPart], *, always_multi: bool = False) -> bytes:
    """One part makes a Produce, several a MultiProduce (async: always, as 0.7 does)."""
    return b"".join(frame_pieces(parts, always_multi=always_multi))


def frame_pieces(parts: Sequence[SetPart], *, always_multi: bool = False) -> list[Buffer]:
    """`request_frame` before it is joined: the message sets are not copied."""
    requests = [ProduceRequest(*part) for part in parts]
    if len(requests) == 1 and not always_multi:
        return request_pieces(requests[0])
    if len(requests) > PARTS_MAX:
        raise LocalProtocolError(f"{len(requests)} parts do not fit one request")
    return request_pieces(MultiProduceRequest(requests))


class BatchTrigger:
    """When the messages taken from a queue are sent: enough of them, or long enough.

    Time is whatever the caller counts in; `queue_time` in the same unit, from the last dispatch.
    """

    def __init__(self, batch_size: int, queue_time: float, now: float) -> None:
        self._batch_size = batch_size
        self._queue_time = queue_time
        self._last_dispatch = now

    def wait(self, now: float) -> float:
        """How long the queue may be waited on; 0 when the time is over."""
        return max(0.0, self._last_dispatch + self._queue_time - now)

    def is_due(self, message_count: int, now: float) -> bool:
        return message_count >= self._batch_size or (
            message_count > 0 and now >= self._last_dispatch + self._queue_time
        )

    def dispatched(self, now: float) -> None:
        self._last_dispatch = now
