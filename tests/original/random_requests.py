"""Random sequences of 0.7 requests, most of them legal and many of them nearly.

Everything comes from one seeded generator, so that a seed and a number name one sequence. What no
two brokers could answer alike is left out: partition -1, where the broker draws the partition.
"""

import gzip
import random
import struct

import cramjam

from tests.support.raw_requests import (
    entry,
    fetch,
    frame,
    multi_fetch,
    multi_produce,
    offsets,
    produce,
)

TOPICS = (b"a", b"b", b"three", b"new-1", b"new-2")
ILLEGAL_TOPICS = (b"", b"a/b", b"..", b".", b"\xff\xfe", b"x" * 300, b"a b", b"\0")
PARTITIONS = (0, 0, 0, 0, 1, 2, -1, -2, 7, 2**31 - 1)
OFFSETS = (0, 0, 0, 1, 5, 10, 11, 50, 100, 2000, 2**40, -1, -2, 2**63 - 1, -(2**63))
SIZES = (0, 1, 9, 10, 12, 50, 300, 10_000, 100_000, -1, -(2**31))
TIMES = (-1, -2, 0, 1, 2**63 - 1, -3, 10**12)
COUNTS = (0, 1, 2, 10, -1, -(2**31), 100)


def snappy_framed(message_set: bytes) -> bytes:
    """As the JVM client's SnappyOutputStream writes it."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for start in range(0, len(message_set), 32768):
        block = bytes(cramjam.snappy.compress_raw(message_set[start : start + 32768]))
        out += struct.pack(">i", len(block)) + block
    return out


class RandomRequests:
    """`sequence()` is the bytes of one connection."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def sequence(self) -> bytes:
        rng = self._rng
        data = b"".join(self.request() for _ in range(rng.choice((1, 1, 1, 2, 3))))
        if data and rng.random() < 0.1:
            flipped = bytearray(data)
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            data = bytes(flipped)
        if rng.random() < 0.1:
            data += rng.randbytes(rng.randrange(1, 8))
        return data

    def request(self) -> bytes:
        rng = self._rng
        kind = rng.random()
        if kind < 0.35:
            return produce(self._topic(), self.message_set(), self._drawn_partition())
        if kind < 0.45:
            return multi_produce(*(self._part() for _ in range(rng.randrange(4))))
        if kind < 0.70:
            topic, offset, partition, size = self._fetch()
            return fetch(topic, offset, partition, size)
        if kind < 0.80:
            wanted = [self._fetch() for _ in range(rng.randrange(4))]
            return multi_fetch(*((topic, at, offset, size) for topic, offset, at, size in wanted))
        if kind < 0.95:
            return offsets(self._topic(), *map(rng.choice, (TIMES, COUNTS, PARTITIONS)))
        if kind < 0.97:
            return frame(struct.pack(">h", rng.choice((5, 6, -1, 99))) + b"abc")
        return struct.pack(">i", rng.choice((0, 1, 2, 3, -1, -(2**31), 5))) + rng.randbytes(5)

    def message_set(self) -> bytes:
        rng = self._rng
        whole = b"".join(self.entry() for _ in range(rng.randrange(5)))
        return whole[: rng.randrange(len(whole) + 1)] if rng.random() < 0.1 else whole

    def entry(self, depth: int = 0) -> bytes:
        rng = self._rng
        kind, payload = rng.random(), self._payload()
        if kind < 0.25:
            return entry(payload, 0)
        if kind < 0.60:
            return entry(payload)
        if kind < 0.76 and depth < 3:
            # Not none: with log.flush.interval=1 the original leaves a set of no messages unseen
            # until its scheduler's next turn.
            inner = b"".join(self.entry(depth + 1) for _ in range(rng.randrange(1, 4)))
            if kind < 0.68:
                return entry(gzip.compress(inner, mtime=0), attributes=1)
            return entry(snappy_framed(inner), attributes=2)
        if kind < 0.80:
            return entry(payload, crc=rng.getrandbits(32))
        if kind < 0.83:
            return entry(payload, attributes=rng.choice((3, 4, 7, 8, 0x80, 0xFF, 0x10)))
        if kind < 0.86:
            magic = rng.choice((2, 127, 255))
            return struct.pack(">IB", 5 + len(payload), magic) + b"\0\0\0\0" + payload
        if kind < 0.88:
            length = rng.choice((0, 1, 4, 5, -1, -(2**31), 2**31 - 1, 100))
            return struct.pack(">i", length) + payload
        if kind < 0.92:  # said to be compressed, but is not
            return entry(payload, attributes=1 if kind < 0.90 else 2)
        return entry(payload)

    def _payload(self) -> bytes:
        rng = self._rng
        return rng.choice(
            (b"", b"x", rng.randbytes(rng.randrange(1, 60)), b"a" * rng.randrange(200, 400))
        )

    def _part(self) -> tuple[bytes, int, bytes]:
        return self._topic(), self._drawn_partition(), self.message_set()

    def _topic(self) -> bytes:
        rng = self._rng
        return rng.choice(ILLEGAL_TOPICS if rng.random() < 0.05 else TOPICS)

    def _drawn_partition(self) -> int:
        partition = self._rng.choice(PARTITIONS)
        return 0 if partition == -1 else partition

    def _fetch(self) -> tuple[bytes, int, int, int]:
        rng = self._rng
        return self._topic(), rng.choice(OFFSETS), rng.choice(PARTITIONS), rng.choice(SIZES)
