"""Mutations that know the format: numbers in their fields, entries, wrappers, CRCs put right again.

Blind mutations nearly always end at the first CRC or length; so after most of them the lengths and
CRCs along the top level are mended, and what was changed reaches the code behind those checks.
"""

import gzip
import random
import struct
import zlib
from collections.abc import Callable

import cramjam

from tests.support.raw_requests import entry, fetch, multi_fetch, multi_produce, offsets, produce
from tests.vectors import vector

SET_NAMES = ("S1", "S2", "S4", "S5", "S6", "S7", "S10", "S11", "V1", "V3", "V4", "V6", "V15")
INTERESTING = (0, 1, 2, 3, 4, 5, 6, 15, 16, 255, 256, 32767, 65535, 2**31 - 1, -1, -2, -(2**31))
BYTES_MAX = 200_000


def sets() -> list[bytes]:
    """Message sets to begin with."""
    return [vector(name) for name in SET_NAMES] + [b"", entry(b""), entry(bytes(1000)) * 3]


def requests() -> list[bytes]:
    """Whole frames to begin with."""
    found = [vector(f"P{number}") for number in (1, 2, 3, 4, 5, 6, 9, 12, 17, 23)]
    found += [vector(f"F{number}") for number in (1, 3, 5, 7, 8, 9)]
    found += [produce(b"t", message_set) for message_set in sets()[:8]]
    found += [
        multi_produce((b"t", 0, vector("S1")), (b"u", -1, vector("S4"))),
        multi_fetch((b"t", 0, 0, 100), (b"nowhere", 0, 5, 100), (b"t", 9, 0, 100)),
        fetch(b"t", 3, 0, 1000),
        offsets(b"t", -2, 1),
    ]
    return found


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """`data` after one to six mutations."""
    for _ in range(rng.randint(1, 6)):
        data = rng.choice(_MUTATIONS)(rng, data, others)[:BYTES_MAX]
    return data


def mutated_set(rng: random.Random, seeds: list[bytes]) -> bytes:
    """A message set, mutated, mostly with lengths and CRCs that fit, sometimes wrapped."""
    data = mutated(rng, rng.choice(seeds), seeds)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 5))):
        if rng.random() < 0.8:
            data = mended(rng, data)
        data = wrapped(rng, data)
        if rng.random() < 0.2:
            data = mutated(rng, data, seeds)
    if rng.random() < 0.8:
        data = mended(rng, data)
    if rng.random() < 0.2:
        data += rng.choice(seeds)[: rng.randint(0, 20)]
    return data


def mended(rng: random.Random, data: bytes) -> bytes:
    """Walk the entries; put each one's CRC right, and an impossible length to what is there."""
    made = bytearray(data)
    position = 0
    while len(made) - position >= 10:
        (length,) = struct.unpack_from(">i", made, position)
        rest = len(made) - position - 4
        if not 5 <= length <= rest:
            length = rng.randint(6, rest) if rest >= 6 else rest
            struct.pack_into(">i", made, position, length)
        magic = made[position + 4]
        if magic > 1:
            magic = made[position + 4] = magic & 1
        crc_at = position + 5 + magic
        end = position + 4 + length
        if crc_at + 4 <= end:
            struct.pack_into(">I", made, crc_at, zlib.crc32(made[crc_at + 4 : end]))
        position = end
    return bytes(made)


def wrapped(rng: random.Random, data: bytes) -> bytes:
    """One compressed entry around `data`."""
    codec = rng.choice((1, 1, 2, 2, 3))
    if codec == 1:
        packed = gzip.compress(data, rng.choice((0, 1, 9)), mtime=0)
        if rng.random() < 0.1:
            packed += gzip.compress(data, mtime=0)
    else:
        packed = bytes(cramjam.snappy.compress_raw(data[:32768]))
        if rng.random() < 0.5:
            packed = vector("S5")[10:26] + struct.pack(">i", len(packed)) + packed
    if rng.random() < 0.2:
        packed = _flip(rng, packed, [])
    return entry(packed, attributes=codec)


def _flip(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    if not data:
        return data
    made = bytearray(data)
    made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def _number(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    """An interesting number over 1, 2, 4 or 8 bytes."""
    size, form = rng.choice(((1, ">B"), (2, ">H"), (4, ">I"), (4, ">I"), (8, ">Q")))
    if len(data) < size:
        return data
    made = bytearray(data)
    number = rng.choice(INTERESTING) + rng.choice((0, 0, 0, 1, -1))
    struct.pack_into(
        form, made, rng.randrange(len(made) - size + 1), number & (2 ** (8 * size) - 1)
    )
    return bytes(made)


def _cut(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def _remove(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    start = rng.randint(0, len(data))
    return data[:start] + data[start + rng.randint(0, 20) :]


def _insert(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    start = rng.randint(0, len(data))
    piece = rng.choice((bytes(rng.randint(1, 20)), rng.randbytes(rng.randint(1, 20))))
    return data[:start] + piece + data[start:]


def _repeat(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    start = rng.randint(0, len(data))
    end = rng.randint(start, len(data))
    return data[:end] + data[start:end] * rng.randint(1, 3) + data[end:]


def _splice(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    other = rng.choice(others) if others else b""
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def _join(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return data + rng.choice(others) if others else data


Mutation = Callable[[random.Random, bytes, list[bytes]], bytes]
_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _flip,
    _number,
    _number,
    _cut,
    _remove,
    _insert,
    _repeat,
    _splice,
    _join,
)
