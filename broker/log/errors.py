"""The errors of a partition's log. An expected fault of a write is never an OSError."""


class PartitionError(Exception):
    """Something that a partition cannot do; `reason` is the label of the metric that counts it."""

    reason = "log"


class OffsetNotInLog(PartitionError):
    """The offset is before the log's start or above its watermark."""

    reason = "offset-out-of-range"


class StorageFull(PartitionError):
    """No room for these bytes (ENOSPC, a quota, a file size limit). None of them were kept.

    Close the connection that sent them; reads go on, and writes work again when there is room.
    """

    reason = "storage-full"


class StorageFailed(PartitionError):
    """A write or flush of this log failed: it is read-only up to its watermark until a restart."""

    reason = "storage-failed"


class PartitionOffline(PartitionError):
    """Recovery found damage that it must not touch, or the log is being cut: no reads, no writes.

    For damage an operator looks with `kafka2011 dump-log` and decides.
    """

    reason = "partition-offline"


class CopyMisplaced(PartitionError):
    """A follower was sent bytes that do not fit its log: nothing was taken, join again."""

    reason = "copy-misplaced"


class CopyDamaged(PartitionError):
    """A follower was sent bytes that are not valid entries. Close the link: the leader's disk, or
    something in between, has changed them."""

    reason = "copy-damaged"


class LeadsNoMore(PartitionError):
    """A replica has stepped back: what its clients had appended and was not written is dropped."""

    reason = "leads-no-more"


class LimitReached(PartitionError):
    """The broker holds as many topics or partitions as its settings allow."""

    reason = "too-many-partitions"


class DataDirectoryError(Exception):
    """`log.dir` cannot be used. The text is one line for the operator; the broker exits with 1."""
