"""Requests and responses put together byte by byte, without our own codec."""

import struct
import zlib

EMPTY = bytes.fromhex("00000002 0000")
OUT_OF_RANGE = bytes.fromhex("00000002 0001")
WRONG_PARTITION = bytes.fromhex("00000002 0003")
UNKNOWN = bytes.fromhex("00000002 ffff")


def entry(payload: bytes, magic: int = 1, attributes: int = 0, crc: int | None = None) -> bytes:
    """One message; its CRC is right unless another is given."""
    head = bytes((magic, attributes)) if magic else b"\0"
    right = zlib.crc32(payload)
    return frame(head + struct.pack(">I", right if crc is None else crc) + payload)


def short(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _produced(topic: bytes, partition: int, message_set: bytes) -> bytes:
    return short(topic) + struct.pack(">i", partition) + frame(message_set)


def _fetched(topic: bytes, partition: int, offset: int, size: int) -> bytes:
    return short(topic) + struct.pack(">iqi", partition, offset, size)


def produce(topic: bytes, message_set: bytes, partition: int = 0) -> bytes:
    return frame(b"\0\0" + _produced(topic, partition, message_set))


def multi_produce(*parts: tuple[bytes, int, bytes]) -> bytes:
    made = (_produced(*part) for part in parts)
    return frame(b"\0\3" + struct.pack(">h", len(parts)) + b"".join(made))


def fetch(topic: bytes, offset: int = 0, partition: int = 0, size: int = 10_000) -> bytes:
    return frame(b"\0\1" + _fetched(topic, partition, offset, size))


def multi_fetch(*parts: tuple[bytes, int, int, int]) -> bytes:
    made = (_fetched(*part) for part in parts)
    return frame(b"\0\2" + struct.pack(">h", len(parts)) + b"".join(made))


def waiting_fetch(wait_ms: int, *parts: tuple[bytes, int, int, int]) -> bytes:
    made = (_fetched(*part) for part in parts)
    return frame(struct.pack(">hih", 1000, wait_ms, len(parts)) + b"".join(made))


def offsets(topic: bytes, time: int = -1, count: int = 10, partition: int = 0) -> bytes:
    return frame(b"\0\4" + _fetched(topic, partition, time, count))


def offsets_answer(*values: int) -> bytes:
    return frame(struct.pack(f">hi{len(values)}q", 0, len(values), *values))


def answer(message_set: bytes, code: int = 0) -> bytes:
    return frame(struct.pack(">h", code) + message_set)
