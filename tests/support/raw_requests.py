"""Requests and responses of 0.7 put together byte by byte, without our own codec."""

import struct
import zlib

EMPTY = bytes.fromhex("00000002 0000")
OUT_OF_RANGE = bytes.fromhex("00000002 0001")
WRONG_PARTITION = bytes.fromhex("00000002 0003")
UNKNOWN = bytes.fromhex("00000002 ffff")


def entry(payload: bytes) -> bytes:
    return struct.pack(">iBBI", 6 + len(payload), 1, 0, zlib.crc32(payload)) + payload


def short(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce(topic: bytes, message_set: bytes, partition: int = 0) -> bytes:
    return frame(
        b"\0\0" + short(topic) + struct.pack(">ii", partition, len(message_set)) + message_set
    )


def multi_produce(*parts: tuple[bytes, int, bytes]) -> bytes:
    body = struct.pack(">hh", 3, len(parts))
    for topic, partition, message_set in parts:
        body += short(topic) + struct.pack(">ii", partition, len(message_set)) + message_set
    return frame(body)


def fetch(topic: bytes, offset: int = 0, partition: int = 0, size: int = 10_000) -> bytes:
    return frame(b"\0\1" + short(topic) + struct.pack(">iqi", partition, offset, size))


def multi_fetch(*parts: tuple[bytes, int, int, int]) -> bytes:
    body = struct.pack(">hh", 2, len(parts))
    for topic, partition, offset, size in parts:
        body += short(topic) + struct.pack(">iqi", partition, offset, size)
    return frame(body)


def offsets(topic: bytes, time: int = -1, count: int = 10, partition: int = 0) -> bytes:
    return frame(b"\0\4" + short(topic) + struct.pack(">iqi", partition, time, count))


def offsets_answer(*values: int) -> bytes:
    return frame(
        struct.pack(">hi", 0, len(values)) + b"".join(struct.pack(">q", v) for v in values)
    )


def answer(message_set: bytes, code: int = 0) -> bytes:
    return frame(struct.pack(">h", code) + message_set)
