"""The tails of what a group has read, kept in ZooKeeper beside its offsets.

They show whether the log at a broker is the one that the group's offset is of, also to a member
that starts after the log was lost (`consumer.log_tail`). A tail need not end at the committed
offset: one at or below it serves as well, so a write every ten seconds is enough. The order of the
writes is offset, then tail. A member that dies between the two after its log was found to be
another leaves the tail of the old one, which makes the next member read from the reset once more;
the other order would leave an offset of the old log that looks like one of the new.
"""

import json
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.log_tail import TAIL_BYTES, Tail, TailAt, tail_of
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, CoordinationError
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import ABSENT, Registry
from kafka2011.runtime.clock import Clock, has_passed, now_ms
from kafka2011.runtime.logs import get_logger

INTERVAL_MS = 10_000  # between two writes of a partition's tail
TAILS_MAX = 64  # kept of what is read and not committed; above that every second one goes

log = get_logger(__name__)


@dataclass
class _Partition:
    tails: list[TailAt] = field(default_factory=list)  # ascending
    version: int = ABSENT
    stored: TailAt | None = None
    stored_ms: int | None = None  # when; None: the next commit stores one
    is_anew: bool = False  # what is stored may be of another log than `tails`, or than the offset
    anew_at: int | None = None  # the offset from which on that is so; None: any


class LogTails:
    """The tails of the partitions that one member owns; thread-safe."""

    def __init__(self, registry: Registry, group: str, clock: Clock = now_ms) -> None:
        self._registry = registry
        self._group = group
        self._clock = clock
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _Partition] = {}

    def read(self, name: TopicPartition, offset: int | None) -> None:
        """Read the stored tail of a partition that was just assigned to this member; `offset`: the
        committed one. A tail beyond it is not used: an operator may have moved the offset into
        another log. Raises CoordinationError."""
        found = self._registry.get(self._path(name))
        made = _Partition()
        if found is not None:
            made.version = found.version
            try:
                known = decode_tail(found.value)
                made.stored = known
                if offset is not None and known.offset <= offset:
                    made.tails.append(known)
                else:
                    made.is_anew, made.anew_at = True, offset
            except BadZnode as error:
                made.is_anew = True
                log.warning("znode_ignored", path=self._path(name), reason=str(error))
        with self._lock:
            self._partitions[name] = made

    def took(self, chunk: Chunk) -> None:
        """Note that `chunk` was read."""
        known = TailAt(chunk.next_offset, tail_of(chunk.data))
        with self._lock:
            tails = self._partitions.setdefault(chunk.topic_partition, _Partition()).tails
            while tails and tails[-1].offset > chunk.offset:
                tails.pop()
            tails.append(known)
            if len(tails) > TAILS_MAX:
                del tails[1::2]

    def before(self, name: TopicPartition, offset: int) -> TailAt | None:
        """The newest tail at or below `offset`, None if none is known."""
        with self._lock:
            found = self._partitions.get(name)
            return _before(found.tails, offset) if found is not None else None

    def begin_anew(self, name: TopicPartition, offset: int) -> None:
        """Forget what was read: what is read from `offset` on may be of another log."""
        with self._lock:
            found = self._partitions.get(name)
            if found is not None:
                found.tails.clear()
                found.stored_ms = None
                found.is_anew, found.anew_at = True, offset

    def store(self, name: TopicPartition, offset: int) -> Generator[None]:
        """Store the tail at or below `offset`, the committed one, if it is time; remove one that
        may be of another log. What cannot be done now is done by a later commit."""
        with self._lock:
            found = self._partitions.get(name)
            if found is None:
                return
            known = self._due(found, offset)
            if known is None and not (found.is_anew and found.anew_at in (None, offset)):
                return
            if known is None and (found.tails or found.version == ABSENT):
                return
        yield
        path = self._path(name)
        try:
            if known is not None:
                found.version = self._registry.put(path, encode_tail(known), found.version)
            else:
                self._registry.delete(path, found.version)
                found.version = ABSENT
        except CoordinationError as error:
            log.info("tail_not_stored", partition=str(name), reason=str(error))
            yield
            try:
                there = self._registry.get(path)
                found.version = ABSENT if there is None else there.version
            except CoordinationError:
                pass  # the next commit meets the wrong version, and comes here again
            return
        with self._lock:
            found.stored, found.is_anew = known, False
            found.stored_ms = self._clock() if known is not None else None

    def _due(self, found: _Partition, offset: int) -> TailAt | None:
        """The tail to store with the committed `offset`; older ones are dropped. Under the lock."""
        known = _before(found.tails, offset)
        if known is None:
            return None
        del found.tails[: found.tails.index(known)]
        if known == found.stored and not found.is_anew:
            return None
        if found.stored_ms is None or has_passed(INTERVAL_MS, found.stored_ms, self._clock()):
            return known
        return None

    def _path(self, name: TopicPartition) -> str:
        return paths.tail_path(self._group, name.topic, BrokerPartition(*name[1:]))


def _before(tails: list[TailAt], offset: int) -> TailAt | None:
    return next((one for one in reversed(tails) if one.offset <= offset), None)


def encode_tail(known: TailAt) -> bytes:
    offset, (size, digest) = known
    return json.dumps({"offset": offset, "bytes": size, "digest": digest.hex()}).encode()


def decode_tail(value: bytes | None) -> TailAt:
    """The tail in a znode's value. Raises BadZnode."""
    try:
        read: Any = json.loads(value or b"")
        offset, size, digest = read["offset"], read["bytes"], bytes.fromhex(read["digest"])
        if not (type(offset) is type(size) is int and 0 < size <= min(TAIL_BYTES, offset)):
            raise ValueError("no such offset or size")
        return TailAt(offset, Tail(size, digest))
    except (ValueError, KeyError, TypeError) as error:
        raise BadZnode(f"not a tail: {error!r}") from None
