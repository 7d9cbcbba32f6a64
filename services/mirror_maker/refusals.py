"""What happens to an entry that the target refuses: logged, counted, and left out if configured.

`mirror.refused.entry=stop`: its partition stays there, and the entry is tried again now and then.
`skip`: the copy goes on behind it, as soon as the place is recorded in the source's ZooKeeper. An
entry is left out only for a fault in the entry itself, never because a full or broken target
accepts nothing.
"""

import threading

from kafka2011.consumer.chunk import Chunk
from kafka2011.coordination.errors import CoordinationError
from kafka2011.runtime.logs import get_logger
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy
from kafka2011.services.mirror_maker.mirror_registry import LeftOutEntries
from kafka2011.services.mirror_maker.set_cutting import RefusedEntry, fault_of

log = get_logger(__name__)


class Refusals:
    """The handling of refused entries. Called by readers' and writers' threads, without `wake`, the
    mirror's lock, held."""

    def __init__(
        self, config: MirrorConfig, wake: threading.Condition, records: LeftOutEntries
    ) -> None:
        self._config = config
        self._wake = wake
        self._records = records

    def refused_alone(self, copy: PartitionCopy, chunk: Chunk) -> None:
        """Handle an entry at which, sent alone, the target hung up."""
        reason = fault_of(
            chunk.data,
            message_bytes_max=self._config.message_bytes_max,
            decompressed_bytes_max=self._config.decompressed_bytes_max,
        )
        if reason:
            self.met(copy, RefusedEntry(chunk.offset, len(chunk.data), reason))
            return
        with self._wake:
            copy.trouble = (
                f"the target closes the connection at the entry at {chunk.offset} alone, of "
                f"{len(chunk.data)} bytes, in which no fault shows here: the target's log says why "
                "(a full disk, or a smaller decompressed.bytes.max than the mirror is set to)"
            )

    def met(self, copy: PartitionCopy, entry: RefusedEntry) -> bool:
        """Handle an entry with a fault; everything before it is durable at the target. Returns
        whether it was left out."""
        rule = self._config.refused_entry
        if copy.refused is None or copy.refused.offset != entry.offset:
            log.error(
                "entry_refused",
                partition=str(copy.name),
                offset=entry.offset,
                bytes=entry.size,
                reason=entry.reason,
                rule=rule,
            )
        leaves_out = rule == "skip"
        if leaves_out:
            try:
                self._records.add(copy.name, entry)
            except CoordinationError as error:
                log.warning("entry_not_recorded", partition=str(copy.name), reason=str(error))
                leaves_out = False
        with self._wake:
            copy.met_refused(entry)
            leaves_out = leaves_out and copy.leave_out(entry)
            self._wake.notify_all()
        if leaves_out:
            log.warning("entry_left_out", partition=str(copy.name), offset=entry.offset)
        return leaves_out
