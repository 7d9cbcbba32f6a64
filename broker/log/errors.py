"""What storage can tell its caller. OSError never leaves `broker.log` for an expected fault."""


class LogError(Exception):
    """Base of what a log raises; `reason` names the metric that counts it."""

    reason = "log"


class StorageFull(LogError):
    """No room for these bytes (ENOSPC, a quota, a file size limit). Nothing was kept of them.

    Close the connection that sent them; reads go on, and writes work again when there is room.
    """

    reason = "storage-full"


class StorageFailed(LogError):
    """A write or flush of this log failed: it is read-only up to its watermark until a restart."""

    reason = "storage-failed"


class PartitionOffline(LogError):
    """Recovery found damage that it must not touch: the partition neither reads nor writes.

    An operator looks with `kafka2011 dump-log` and decides.
    """

    reason = "partition-offline"


class LimitReached(LogError):
    """The broker holds as many topics or partitions as its settings allow."""

    reason = "too-many-partitions"


class DataDirectoryError(Exception):
    """`log.dir` cannot be used. The text is one line for the operator; the broker exits with 1."""
