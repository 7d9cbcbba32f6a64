"""Committed offsets of a group in the offset registry, written only by the partition's owner.

`Unlike 0.7:` a commit first checks that the owner node is still this member's, and then replaces
only the version that it read, so that a member that slept through its session (a zombie) cannot
move its successor's offset. The node's form is 0.7's: plain decimal text.

The steps are generators that yield between two requests to the registry: `run` exhausts them, and
the simulation of the group protocol interleaves them.
"""

from collections.abc import Generator
from typing import TypeVar

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.counting.group_counts import GroupCounts
from kafka2011.consumer.groups.log_tails import LogTails
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, VersionConflict
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import ABSENT, Registry
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)

Result = TypeVar("Result")
Steps = Generator[None, None, Result]


def run(steps: Steps[Result]) -> Result:
    """Take all the steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result


def check_offset(offset: int) -> int:
    """Return `offset`. Raises ValueError if no log can have it, so that no reader could use it."""
    if not 0 <= offset <= paths.OFFSET_MAX:
        raise ValueError(f"{offset} is not an offset: 0 to {paths.OFFSET_MAX}")
    return offset


class CommittedOffsets:
    """The offset registry of one group, as one member uses it. One thread at a time.

    `by_hand`: the partitions were chosen by hand; a commit is made only while they have no owner.
    `counts`: the counts of what was read, stored before each offset; `tails`: what shows which log
    the offset is of, stored after some of them.
    """

    def __init__(
        self,
        registry: Registry,
        group: str,
        *,
        by_hand: bool = False,
        counts: GroupCounts | None = None,
        tails: LogTails | None = None,
    ) -> None:
        self._registry = registry
        self._group = group
        self._by_hand = by_hand
        self._counts = counts
        self._tails = tails
        self._versions: dict[TopicPartition, int] = {}

    def read(self, name: TopicPartition) -> int | None:
        """The committed offset, or None if there is none or it cannot be read."""
        if self._counts is not None:
            self._counts.read(name)
        stored = self._registry.get(self._path(name))
        self._versions[name] = ABSENT if stored is None else stored.version
        offset = None
        try:
            offset = paths.decode_offset(stored.value) if stored is not None else None
        except BadZnode as error:
            log.error("offset_unreadable", partition=str(name), reason=str(error))
        if self._tails is not None:
            self._tails.read(name, offset)
        return offset

    def commit(self, name: TopicPartition, thread: str, offset: int) -> Steps[bool]:
        """Store `offset`, larger or smaller than before; False when `thread` is not the owner.

        Raises CoordinationUnavailable when it is not known whether it was stored: commit again.
        """
        path, value = self._path(name), paths.encode_number(offset)
        for _ in range(2):
            if not self._is_owner(name, thread):
                break
            yield
            if self._counts is not None:
                yield from self._counts.store(name, offset)
            try:
                version = self._versions.get(name, ABSENT)
                self._versions[name] = self._registry.put(path, value, version)
                if self._tails is not None:
                    yield from self._tails.store(name, offset)
                return True
            except VersionConflict:
                # Our own write whose reply was lost, or an operator's tool. If the partition is
                # still ours, we overwrite it, as the original does.
                stored = self._registry.get(path)
                self._versions[name] = ABSENT if stored is None else stored.version
                if stored is not None and stored.value == value and self._is_owner(name, thread):
                    return True
            yield
        log.warning("commit_refused", partition=str(name), offset=offset, thread=thread)
        return False

    def begin_counts(self, name: TopicPartition, offset: int) -> Steps[None]:
        """Store that counting begins at `offset`, the group's present one, if it has not begun: a
        partition without new messages has no commit. The caller owns the partition."""
        if self._counts is not None:
            yield from self._counts.store(name, offset)

    def _is_owner(self, name: TopicPartition, thread: str) -> bool:
        owner = self._registry.get(
            paths.owner_path(self._group, name.topic, BrokerPartition(*name[1:]))
        )
        if self._by_hand:
            return owner is None
        return owner is not None and owner.owned and owner.value == thread.encode()

    def _path(self, name: TopicPartition) -> str:
        return paths.offset_path(self._group, name.topic, BrokerPartition(*name[1:]))
