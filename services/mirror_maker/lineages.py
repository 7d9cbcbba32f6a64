"""Which epochs of a replica set the committed bytes were read from: a znode beside each offset.

It must hold for whatever offset is committed, so it is stored before the first offset behind bytes
that it newly covers, and after an offset in front of bytes that it no longer covers
(`PartitionCopy.next_commit`).
"""

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, CoordinationError, VersionConflict
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import ABSENT, Registry
from kafka2011.protocol.lineage import Lineage
from kafka2011.runtime.logs import get_logger
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy

log = get_logger(__name__)


class StoredLineages:
    """One group's, in the source's ZooKeeper. `may_store`: our partitions are surely still ours."""

    def __init__(self, registry: Registry, group: str, may_store: Callable[[], bool]) -> None:
        self._registry = registry
        self._group = group
        self._may_store = may_store
        self._versions: dict[TopicPartition, int] = {}

    def read(self, name: TopicPartition) -> Lineage:
        """The stored lineage, () if none is known. Raises CoordinationError."""
        stored = self._registry.get(self._path(name))
        self._versions[name] = ABSENT if stored is None else stored.version
        try:
            return decode_lineage(stored.value) if stored is not None else ()
        except BadZnode as error:
            log.error("znode_ignored", path=self._path(name), reason=str(error))
            return ()

    def store(self, copies: Iterable[PartitionCopy], lock: threading.Condition) -> None:
        """Store the lineages that may be stored now; if one cannot be, it is stored later."""
        for copy in copies:
            with lock:
                if not copy.has_lineage_to_store:
                    continue
                lineage = copy.lineage
            try:
                self._put(copy.name, lineage)
            except CoordinationError as error:
                reason = str(error)
                log.warning("lineage_not_stored", partition=str(copy.name), reason=reason)
                return
            with lock:
                copy.stored_lineage = lineage

    def _put(self, name: TopicPartition, lineage: Lineage) -> None:
        """Store a lineage. Raises CoordinationError, also so that a member that lost its session
        does not overwrite what its successor stored."""
        path, value = self._path(name), json.dumps(lineage).encode()
        try:
            self._versions[name] = self._registry.put(path, value, self._versions[name])
        except VersionConflict:
            if self.read(name) != lineage:
                if not self._may_store():
                    raise
                self._versions[name] = self._registry.put(path, value, self._versions[name])

    def _path(self, name: TopicPartition) -> str:
        source = BrokerPartition(name.broker_id, name.partition)
        return paths.mirror_lineage_path(self._group, name.topic, source)


def decode_lineage(value: bytes | None) -> Lineage:
    """The lineage in a znode's value. Raises BadZnode."""
    try:
        found: Any = json.loads(value or b"")
        return tuple((int(epoch), int(start)) for epoch, start in found)
    except (ValueError, TypeError) as error:
        raise BadZnode(f"not a lineage: {error!r}") from None
